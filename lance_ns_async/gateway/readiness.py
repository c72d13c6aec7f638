"""Readiness of a gateway: whether its catalog answers."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import lance_namespace.errors as err
from aiohttp import web
from lance_namespace import ListNamespacesRequest

from lance_ns_async.gateway import responses

_FRESH = 2.0  # Seconds for which an answer is repeated, because requests without a token must not load the catalog.

_PATIENCE = 5.0  # Maximum seconds that the catalog has to answer.


class Readiness:
    """Asks the catalog for its first namespace; concurrent and frequent requests share one call."""

    def __init__(self, namespace: object) -> None:
        self._namespace = namespace
        self._until = 0.0
        self._is_ready = False
        self._lock = asyncio.Lock()

    async def respond(self) -> web.Response:
        """Returns 200 `ok` if the catalog answers, else 503."""
        async with self._lock:
            if monotonic() >= self._until:
                self._is_ready = await self._ask()
                self._until = monotonic() + _FRESH
        if self._is_ready:
            return responses.json_response({"status": "ok"})
        return responses.json_response(
            {"status": "the catalog does not answer"}, status=503, headers={"Retry-After": "5"}
        )

    async def _ask(self) -> bool:
        list_namespaces: Any = getattr(self._namespace, "list_namespaces", None)
        if list_namespaces is None:
            return True
        try:
            async with asyncio.timeout(_PATIENCE):
                await list_namespaces(ListNamespacesRequest(id=[], limit=1))
        except (
            err.ServiceUnavailableError,
            err.ThrottlingError,
            err.InternalError,
            err.UnauthenticatedError,
            TimeoutError,
        ):
            return False
        except err.LanceNamespaceError:
            # The catalog has answered.
            return True
        return True

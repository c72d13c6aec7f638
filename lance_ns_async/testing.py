"""Test doubles: pytest fixtures with a catalog in a temporary folder, and faults of HTTP on demand.

`pytest_plugins = ["lance_ns_async.testing"]` in a `conftest.py` or a test file makes the fixtures known to pytest.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.gateway import parsing, responses
from lance_ns_async.spec import routes
from lance_ns_async.sync import Namespace

__all__ = [
    "Fault",
    "FaultTransport",
    "fault_transport",
    "lost_response",
    "namespace",
    "slow",
    "status",
    "sync_namespace",
]

log: logging.Logger = logging.getLogger(__name__)

Send = Callable[[httpx.Request], Awaitable[httpx.Response]]
Fault = Callable[[httpx.Request, Send], Awaitable[httpx.Response]]
"""Returns the response to a request, or raises an `httpx.TransportError`; its second argument asks the server."""


def status(code: int, *, retry_after: float | None = None, headers: Mapping[str, str] | None = None) -> Fault:
    """Returns a fault: the server answers with a status, and does nothing.

    Args:
        code: For example 429 for a throttled request, 403 for one that is denied, or 401 for an expired token.
        retry_after: The seconds of the header `Retry-After`; None for no such header.
        headers: More headers of the response.
    """
    wait = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}

    async def answer(request: httpx.Request, send: Send) -> httpx.Response:
        return httpx.Response(code, headers={**wait, **(headers or {})})

    return answer


def slow(seconds: float) -> Fault:
    """Returns a fault: the server answers late.

    Args:
        seconds: How much later it begins; infinity for no answer at all.
    """

    async def answer(request: httpx.Request, send: Send) -> httpx.Response:
        await anyio.sleep(seconds)
        return await send(request)

    return answer


def lost_response() -> Fault:
    """Returns a fault: the server does its work, and the connection breaks before the response arrives."""

    async def answer(request: httpx.Request, send: Send) -> httpx.Response:
        await send(request)
        raise httpx.ReadError("the connection was lost")

    return answer


class FaultTransport(httpx.AsyncBaseTransport):
    """Answers HTTP requests without a network, with faults on demand.

    Pass it as the `transport` of `connect`; any event loop and thread may use it.

    Attributes:
        requests: The requests so far, in order, with their bodies; may be cleared.
    """

    def __init__(self, server: Namespace | httpx.AsyncBaseTransport) -> None:
        """Creates a transport without faults.

        Args:
            server: Answers the requests. A namespace, which the caller closes, is served by the Lance REST protocol, so
                connect with `"rest"`; the protocols of other catalogs need another transport, such as an
                `httpx.MockTransport`.
        """
        self.requests: list[httpx.Request] = []
        self._server = _Catalog(server) if isinstance(server, Namespace) else server
        self._faults: list[tuple[Fault, str]] = []

    def fail(self, fault: Fault, *, times: int = 1, path: str = "") -> None:
        """Lets the next requests fail; later calls add further faults, for the requests after these.

        Args:
            fault: For example `status(429)`.
            times: The number of requests that fail.
            path: Only requests whose URL has this text in its path; the empty text means every request.
        """
        self._faults += [(fault, path)] * times

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answers a request with its fault, or as the server does.

        Args:
            request: As the client sends it.
        """
        await request.aread()
        self.requests.append(request)
        for place, (fault, path) in enumerate(self._faults):
            if path in request.url.path:
                del self._faults[place]
                return await fault(request, self._server.handle_async_request)
        return await self._server.handle_async_request(request)

    async def aclose(self) -> None:
        """Closes the transport of the server; a namespace stays open."""
        await self._server.aclose()


class _Catalog(httpx.AsyncBaseTransport):
    """Answers requests of the Lance REST protocol with a namespace of this process."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await responses.respond(self._perform(request), log)
        return httpx.Response(answer.status, headers=dict(answer.headers), content=cast("bytes", answer.body))

    async def _perform(self, request: httpx.Request) -> Any:
        path, _, query = request.url.raw_path.decode().partition("?")
        route, names = routes.match(path) or (None, {})
        if route is None or route.method != request.method or route.answer == "events":
            raise responses.RequestError(404, f"Not supported: {request.method} {path}")
        content = await request.aread()
        rows = (content,) if route.body == "rows" else ()
        model = parsing.parse(route, names, query, b"" if rows else content, "$")
        answer = await self._namespace.arun(lambda ns: getattr(ns, route.operation)(model, *rows))
        return responses.result(route, answer)


@pytest.fixture
def sync_namespace(tmp_path: Path) -> Iterator[Namespace]:
    """A `Namespace` of an empty directory catalog in a temporary folder."""
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as ns:
        yield ns


@pytest.fixture
def namespace(tmp_path: Path) -> AsyncNamespace:
    """An `AsyncNamespace` of the catalog of `sync_namespace`; it has nothing that must be closed."""
    return AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")})


@pytest.fixture
def fault_transport(sync_namespace: Namespace) -> FaultTransport:
    """A `FaultTransport` for the catalog of `sync_namespace`, by the Lance REST protocol."""
    return FaultTransport(sync_namespace)

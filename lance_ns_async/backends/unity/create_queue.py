"""Sequential creation of objects, because concurrent calls can create the same name twice on the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.waiting import turns_for
from lance_ns_async.errors import error_about
from lance_ns_async.model import Id

T = TypeVar("T")

_PORTS = {"http": 80, "https": 443}


class CreateQueue:
    """Creates tables and schemas of one server; calls with the same id run one after another in this process.

    The server may create a name twice for two concurrent calls. All namespaces with the same endpoint share the order,
    whatever their credentials. Calls of other processes can only be detected afterwards.
    """

    def __init__(self, endpoint: str, api_path: str) -> None:
        self._turns = turns_for(("unity", server_key(endpoint, api_path)))

    async def in_turn(self, id: Id, create: Callable[[], Awaitable[T]], conflict: type[LanceNamespaceError]) -> T:
        """Returns the result of `create`."""
        has_begun = False

        async def work(exists_already: bool) -> T:
            nonlocal has_begun
            has_begun = True
            if exists_already:
                raise error_about(conflict, id, "created by another call while this one waited")
            return await create()

        try:
            return await self._turns.run((id.kind, id), work, timeout=remaining())
        except TimeoutError:
            if has_begun:
                raise
            message = "the operation timed out while another call was creating it"
            raise error_about(ServiceUnavailableError, id, message) from None


def server_key(endpoint: str, api_path: str) -> str:
    """Returns the same key for URLs of one server that differ in letter case, default port or trailing slashes."""
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/").removesuffix(api_path)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}{path}{api_path}"

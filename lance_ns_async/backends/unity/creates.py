"""Creating what must not exist yet on a server that may create it twice: in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.calls.policy import remaining
from lance_ns_async.calls.turns import shared
from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Id

T = TypeVar("T")

_PORTS = {"http": 80, "https": 443}


class Creates:
    """Creates tables and schemas of one server, those of one id one after another in the whole process.

    Asked for one name twice at once, the server may create both. The turns are those of all namespaces with the same
    endpoint, whoever they sign in as. Calls of other processes can only be found out afterwards.
    """

    def __init__(self, endpoint: str, api_path: str) -> None:
        self._turns = shared(("unity", server_key(endpoint, api_path)))

    async def in_turn(self, id: Id, create: Callable[[], Awaitable[T]], taken: type[LanceNamespaceError]) -> T:
        """Returns what `create` gives.

        Raises:
            LanceNamespaceError: `taken`, without a call, where another call created it while this one waited.
            ServiceUnavailableError: The operation's time was over before this call's turn came.
        """
        began = False

        async def work(created_meanwhile: bool) -> T:
            nonlocal began
            began = True
            if created_meanwhile:
                raise taken(f"{PHRASES[taken]}: {id} (made by another call while this one waited)")
            return await create()

        try:
            return await self._turns.run((id.kind, id), work, timeout=remaining())
        except TimeoutError:
            if began:
                raise
            message = "its time was over while another call was making it"
            raise ServiceUnavailableError(f"Service unavailable: {id} ({message})") from None


def server_key(endpoint: str, api_path: str) -> str:
    """Returns one spelling for the addresses of one server that differ in letter case, usual port or slashes."""
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/").removesuffix(api_path)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}{path}{api_path}"

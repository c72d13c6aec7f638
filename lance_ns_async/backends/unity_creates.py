"""Making what must not exist yet on a server that does not make sure of it: in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Id
from lance_ns_async.policy import remaining

T = TypeVar("T")


@dataclass(slots=True)
class _Line:
    """Those who want to make the same thing."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    people: int = 0
    made: int = 0


class Creates:
    """Makes things of one catalog, those of one id one after another.

    Asked for the same one twice at once, the server may make both, and serve neither ever after. Other processes
    are beyond this.
    """

    def __init__(self) -> None:
        self._lines: dict[Id, _Line] = {}

    async def in_turn(self, id: Id, create: Callable[[], Awaitable[T]], taken: type[LanceNamespaceError]) -> T:
        """What `create` gives; raises `taken` without a call where somebody else made it while we waited."""
        line = self._lines.setdefault(id, _Line())
        seen = line.made
        line.people += 1
        try:
            await _acquired(line.turn, id)
            try:
                if line.made != seen:
                    raise taken(f"{PHRASES[taken]}: {id} (made by another call while this one waited)")
                made = await create()
                line.made += 1
                return made
            finally:
                line.turn.release()
        finally:
            line.people -= 1
            if not line.people:
                del self._lines[id]


async def _acquired(turn: asyncio.Lock, id: Id) -> None:
    try:
        async with asyncio.timeout(remaining()):
            await turn.acquire()
    except TimeoutError:
        message = "its time was over while another call was making it"
        raise ServiceUnavailableError(f"Service unavailable: {id} ({message})") from None

"""A catalog over a bare socket that does what a fault says instead of answering."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.fakes.clock import pass_time
from tests.fakes.sockets import Server, reset
from tests.faults.backends import Catalog

End = Literal["keep", "close", "reset", "hang", "drip"]
"""What becomes of the connection: it goes on, ends, is reset, nothing more is said, or a byte a second."""

Words = Callable[[bytes], bytes]
"""What is said, made of the answer that would be right."""

_NET = 30.0
"""Seconds in which a client that was closed must have let go of its connections."""

PATIENCE = 5
"""Seconds that an attempt may take."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What a server does instead of answering."""

    words: Words
    then: End = "keep"


class Misbehaving(Server):
    """Answers as a catalog does, but for the requests that a deed is done to; leaving it asserts that all let go."""

    def __init__(
        self,
        catalog: Catalog,
        deed: Deed | None = None,
        *,
        at: bytes = b"",
        only: Callable[[bytes], bool] = bool,
        acts: bool = False,
        times: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """The deed is done `times` times to requests with `at` in them that are of the kind `only`.

        With `acts` they are carried out before.
        """
        super().__init__(tls)
        self.catalog = catalog
        self.requests: list[bytes] = []
        self._deed = deed
        self._at = at
        self._only = only
        self._acts = acts
        self._left = times

    @property
    def table_requests(self) -> list[bytes]:
        """The requests that are about tables."""
        return [request for request in self.requests if not self.catalog.is_aside(request)]

    @property
    def writes(self) -> int:
        """How often a change was asked for."""
        return sum(map(self.catalog.is_write, self.requests))

    async def __aexit__(self, *caught: object) -> None:
        if self._tasks and caught[0] is None:
            _, open = await asyncio.wait(self._tasks, timeout=_NET)
            assert not open, f"{len(open)} connections were not closed"
        await super().__aexit__(*caught)

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        while not reader.at_eof():
            request = await self.catalog.read(reader)
            self.requests.append(request)
            deed = self._deed_to(request)
            if deed is None:
                writer.write(self.catalog.answer(request))
                await writer.drain()
                continue
            right = self.catalog.answer(request, acting=self._acts)
            if not await _perform(deed, deed.words(right), reader, writer):
                return

    def _deed_to(self, request: bytes) -> Deed | None:
        if self._deed is None or self._left == 0 or self._at not in request or self.catalog.is_aside(request):
            return None
        if not self._only(request):
            return None
        if self._left is not None:
            self._left -= 1
        return self._deed


class Mute(Server):
    """Accepts connections, and says the same to whatever comes first, or nothing."""

    def __init__(self, words: bytes = b"") -> None:
        super().__init__()
        self._words = words

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        await reader.read(1)
        writer.write(self._words)
        await writer.drain()
        if not self._words:
            await reader.read()


async def _perform(deed: Deed, words: bytes, reader: StreamReader, writer: StreamWriter) -> bool:
    """Does the deed; whether the connection goes on."""
    if deed.then == "drip":
        for at in range(len(words)):
            if reader.at_eof() or writer.is_closing():
                break
            writer.write(words[at : at + 1])
            await pass_time(1)
        return False
    writer.write(words)
    await writer.drain()
    match deed.then:
        case "keep":
            return True
        case "close":
            writer.close()
            await writer.wait_closed()
        case "reset":
            reset(writer)
        case "hang":
            await pass_time(PATIENCE)
            await reader.read()
    return False

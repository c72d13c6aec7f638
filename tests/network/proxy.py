"""A proxy on bare sockets that passes requests on to a catalog, and answers as a misbehaviour says."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.fakes.clock import pass_time
from tests.fakes.sockets import Server, read_request
from tests.fakes.thrift_wire import CALL, Message, Struct, decoded, read_message

PATIENCE = 5
"""Seconds that an attempt may take."""

_PAUSE = 0.002
"""Seconds in which a client that got its answer sends the next request."""

_QUIET, _LONG = 30, 5000
"""Turns of the event loop without anything under way after which a proxy is calm, and at most until it has to be."""

Act = Callable[["Exchange"], Awaitable[bool]]
"""Answers a request; whether the connection goes on."""


@dataclass
class Exchange:
    """One request on its way, and the connection it came on."""

    request: bytes
    right: bytes
    """The catalog's answer; empty where the request was not passed on."""
    previous: bytes
    """The answer to the request before, whatever connection that came on."""
    reader: StreamReader
    writer: StreamWriter

    async def say(self, data: bytes) -> None:
        """Sends bytes to the client."""
        self.writer.write(data)
        await self.writer.drain()


@dataclass(frozen=True)
class Kind:
    """A way to misbehave."""

    name: str
    act: Act
    forwards: bool = True
    """Whether the catalog gets to see the request."""
    greets: bytes = b""
    """What is said on each new connection before any request."""
    not_on: frozenset[str] = field(default=frozenset())
    """The catalogs whose answers do not tell enough to notice it."""


class Wire(ABC):
    """How requests and answers are cut out of a stream."""

    @abstractmethod
    async def request(self, reader: StreamReader) -> bytes:
        """The next request of a client."""

    @abstractmethod
    async def answer(self, reader: StreamReader, request: bytes) -> bytes:
        """The catalog's answer to it."""

    @abstractmethod
    def is_about_tables(self, request: bytes) -> bool:
        """Whether misbehaviour may befall the request: what is learned once for all is left alone."""


class HttpWire(Wire):
    async def request(self, reader: StreamReader) -> bytes:
        return await read_request(reader)

    async def answer(self, reader: StreamReader, request: bytes) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        status = int(head.split(b" ", 2)[1])
        if request.startswith(b"HEAD ") or status in (204, 304):
            return head
        for line in lowered.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head + await reader.readexactly(int(line.partition(b":")[2]))
        assert b"chunked" not in lowered, head
        return head + await reader.read()

    def is_about_tables(self, request: bytes) -> bool:
        return b"/v1/config" not in request and b"oauth/tokens" not in request


class ThriftWire(Wire):
    async def request(self, reader: StreamReader) -> bytes:
        return (await read_message(reader)).encoded()

    async def answer(self, reader: StreamReader, request: bytes) -> bytes:
        return await _raw_message(reader)

    def is_about_tables(self, request: bytes) -> bool:
        return decoded(request).name != "set_ugi"


class Proxy(Server):
    """Stands before a catalog at a port of this machine; honest until it is told to misbehave."""

    def __init__(self, wire: Wire, port: int) -> None:
        super().__init__()
        self.wire = wire
        self.misdeeds = 0
        self._upstream = port
        self._under_way = 0
        self._kind: Kind | None = None
        self._left = 0
        self._every = 1
        self._previous = b""

    def misbehave(self, kind: Kind | None, *, times: int = 1, every: int = 1) -> None:
        """Has a kind befall every so manieth request, so many times; None makes it honest."""
        self._kind, self._left, self._every, self._count = kind, times, every, 0

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._kind is not None and self._kind.greets and self._left:
            self._left -= 1
            self.misdeeds += 1
            writer.write(self._kind.greets)
        upstream: tuple[StreamReader, StreamWriter] | None = None
        try:
            while not reader.at_eof():
                request = await self._next(reader)
                kind = self._kind_for(request)
                right = b""
                if kind is None or kind.forwards:
                    if upstream is None or isinstance(self.wire, HttpWire):
                        if upstream is not None:
                            upstream[1].close()
                        upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
                    right = await self._asked(request, *upstream)
                exchange = Exchange(request, right, self._previous, reader, writer)
                self._previous = right or self._previous
                if kind is None:
                    await exchange.say(right)
                elif not await self._done(kind, exchange):
                    return
        finally:
            if upstream is not None:
                upstream[1].close()

    async def calm(self) -> None:
        """Returns when the catalog has answered all that was passed on, and nothing more is being said."""
        quiet = 0
        for _ in range(_LONG):
            quiet = 0 if self._under_way else quiet + 1
            if quiet > _QUIET:
                return
            await asyncio.sleep(0)

    async def _next(self, reader: StreamReader) -> bytes:
        """The next request; while a client waits instead for more of an answer, time passes."""
        waiting = asyncio.ensure_future(self.wire.request(reader))
        try:
            if self.misdeeds and self._kind is not None:
                await asyncio.wait([waiting], timeout=_PAUSE)
                if not waiting.done():
                    await pass_time(PATIENCE)
            return await waiting
        finally:
            waiting.cancel()

    async def _asked(self, request: bytes, reader: StreamReader, writer: StreamWriter) -> bytes:
        self._under_way += 1
        try:
            writer.write(request)
            return await self.wire.answer(reader, request)
        finally:
            self._under_way -= 1

    async def _done(self, kind: Kind, exchange: Exchange) -> bool:
        self._under_way += 1
        try:
            return await kind.act(exchange)
        finally:
            self._under_way -= 1

    def _kind_for(self, request: bytes) -> Kind | None:
        if self._kind is None or self._kind.greets or self._left == 0 or not self.wire.is_about_tables(request):
            return None
        self._count += 1
        if self._count % self._every:
            return None
        self._left -= 1
        self.misdeeds += 1
        return self._kind


async def _raw_message(reader: StreamReader) -> bytes:
    """The bytes of the next message as they come: an answer is passed on as the catalog spelled it."""
    return await _Recording(reader).message()


class _Recording:
    """Reads a message and keeps its bytes."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._kept = bytearray()

    async def message(self) -> bytes:
        await read_message(self)  # type: ignore[arg-type]  # of a reader it uses readexactly alone
        return bytes(self._kept)

    async def readexactly(self, size: int) -> bytes:
        data = await self._reader.readexactly(size)
        self._kept += data
        return data


def thrift_call(name: str, sequence: int) -> bytes:
    """A call without arguments."""
    return Message(CALL, name, sequence, Struct()).encoded()

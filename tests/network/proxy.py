"""A proxy on plain sockets that forwards requests to a catalog, and injects faults into its responses."""

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
"""Maximum seconds of an attempt."""

_PAUSE = 0.002
"""Seconds within which a client sends the next request after a response."""

_QUIET, _LONG = 30, 5000
"""Iterations of the event loop without work after which a proxy is idle, and the maximum number to wait for that."""

Act = Callable[["Exchange"], Awaitable[bool]]
"""Responds to a request; returns whether the connection stays open."""


@dataclass
class Exchange:
    """A request, its responses, and the connection of the client."""

    request: bytes
    response: bytes
    """The response of the catalog; empty if the request was not forwarded."""
    previous: bytes
    """The response to the previous request, on any connection."""
    reader: StreamReader
    writer: StreamWriter

    async def send(self, data: bytes) -> None:
        """Sends bytes to the client."""
        self.writer.write(data)
        await self.writer.drain()


@dataclass(frozen=True)
class Fault:
    """A fault of the network or the server."""

    name: str
    act: Act
    forwards: bool = True
    """Whether the request is forwarded to the catalog."""
    greets: bytes = b""
    """Bytes to send on each new connection before any request."""
    not_on: frozenset[str] = field(default=frozenset())
    """The catalogs whose responses do not contain enough to detect it."""


class Wire(ABC):
    """Separates the requests and responses of a protocol."""

    @abstractmethod
    async def request(self, reader: StreamReader) -> bytes:
        """Reads the next request of a client."""

    @abstractmethod
    async def answer(self, reader: StreamReader, request: bytes) -> bytes:
        """Reads the response of the catalog."""

    @abstractmethod
    def is_about_tables(self, request: bytes) -> bool:
        """Returns whether a request may get a fault; those for tokens and configurations never do."""


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
    """A proxy for a catalog at a port of this machine; it changes nothing until `inject`."""

    def __init__(self, wire: Wire, port: int) -> None:
        super().__init__()
        self.wire = wire
        self.injected = 0
        self._upstream = port
        self._under_way = 0
        self._fault: Fault | None = None
        self._left = 0
        self._every = 1
        self._previous = b""

    def inject(self, fault: Fault | None, *, times: int = 1, every: int = 1) -> None:
        """Injects a fault into every nth request, `times` times; None ends all faults."""
        self._fault, self._left, self._every, self._count = fault, times, every, 0

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._fault is not None and self._fault.greets and self._left:
            self._left -= 1
            self.injected += 1
            writer.write(self._fault.greets)
        upstream: tuple[StreamReader, StreamWriter] | None = None
        try:
            while not reader.at_eof():
                request = await self._next(reader)
                fault = self._fault_for(request)
                response = b""
                if fault is None or fault.forwards:
                    if upstream is None or isinstance(self.wire, HttpWire):
                        if upstream is not None:
                            upstream[1].close()
                        upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
                    response = await self._forward(request, *upstream)
                exchange = Exchange(request, response, self._previous, reader, writer)
                self._previous = response or self._previous
                if fault is None:
                    await exchange.send(response)
                elif not await self._perform(fault, exchange):
                    return
        finally:
            if upstream is not None:
                upstream[1].close()

    async def wait_idle(self) -> None:
        """Returns when the catalog has responded to all forwarded requests, and no response is being sent."""
        quiet = 0
        for _ in range(_LONG):
            quiet = 0 if self._under_way else quiet + 1
            if quiet > _QUIET:
                return
            await asyncio.sleep(0)

    async def _next(self, reader: StreamReader) -> bytes:
        """Returns the next request; lets time pass while a client waits for the rest of a response."""
        waiting = asyncio.ensure_future(self.wire.request(reader))
        try:
            if self.injected and self._fault is not None:
                await asyncio.wait([waiting], timeout=_PAUSE)
                if not waiting.done():
                    await pass_time(PATIENCE)
            return await waiting
        finally:
            waiting.cancel()

    async def _forward(self, request: bytes, reader: StreamReader, writer: StreamWriter) -> bytes:
        self._under_way += 1
        try:
            writer.write(request)
            return await self.wire.answer(reader, request)
        finally:
            self._under_way -= 1

    async def _perform(self, fault: Fault, exchange: Exchange) -> bool:
        self._under_way += 1
        try:
            return await fault.act(exchange)
        finally:
            self._under_way -= 1

    def _fault_for(self, request: bytes) -> Fault | None:
        if self._fault is None or self._fault.greets or self._left == 0 or not self.wire.is_about_tables(request):
            return None
        self._count += 1
        if self._count % self._every:
            return None
        self._left -= 1
        self.injected += 1
        return self._fault


async def _raw_message(reader: StreamReader) -> bytes:
    """Returns the unchanged bytes of the next message."""
    return await _Recording(reader).message()


class _Recording:
    """Reads a message and stores its bytes."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._bytes = bytearray()

    async def message(self) -> bytes:
        await read_message(self)  # type: ignore[arg-type]  # of a reader it uses readexactly alone
        return bytes(self._bytes)

    async def readexactly(self, size: int) -> bytes:
        data = await self._reader.readexactly(size)
        self._bytes += data
        return data


def thrift_call(name: str, sequence: int) -> bytes:
    """Returns a call without arguments."""
    return Message(CALL, name, sequence, Struct()).encoded()

"""A proxy on plain sockets that forwards requests to a catalog and sends faults instead of its responses."""

from __future__ import annotations

import asyncio
import re
import ssl
from abc import ABC, abstractmethod
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lance_ns_async.transports.unread_bytes import unread
from tests.fakes.clock import idle, pass_time
from tests.fakes.sockets import Server, read_request, reset
from tests.fakes.thrift_wire import decoded, read_message

if TYPE_CHECKING:
    from tests.faults.catalogs import Catalog
    from tests.faults.faults import Fault

PATIENCE = 5  # Maximum seconds of an attempt
_QUIET, _LONG = 30, 5000
"""Iterations of the event loop without work after which a proxy is idle, and the maximum number to wait for that."""

_TURNS = 20  # Iterations of the event loop after which the client has read all data
_CLOSE_TIMEOUT = 30.0  # Seconds until all connections of a closed client must be closed
End = Literal["keep", "close", "reset", "hang", "shut", "drip"]
"""The end of a response: the connection stays open, is closed or reset, is silent or half closed, or is slow."""


@dataclass
class Exchange:
    """A request, its responses, and the connection of the client."""

    request: bytes
    response: bytes  # The response of the catalog; empty if the request was not forwarded
    previous: bytes  # The response to the previous request, on any connection
    reader: StreamReader
    writer: StreamWriter
    pass_time: Callable[[float], Awaitable[None]]  # Moves the clock when no request is at the catalog

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Act = Callable[[Exchange], Awaitable[bool]]  # Responds to a request; returns whether the connection stays open
Respond = Callable[[Exchange], bytes]


def respond(response: Respond, end: End = "keep") -> Act:
    """Returns an action that sends these bytes and then ends the connection as `end` says."""

    async def act(exchange: Exchange) -> bool:
        data = response(exchange)
        if end == "drip":
            for at in range(len(data)):
                if exchange.reader.at_eof() or exchange.writer.is_closing():
                    break
                exchange.writer.write(data[at : at + 1])
                await exchange.pass_time(1)
            return False
        await exchange.send(data)
        match end:
            case "keep":
                return True
            case "close":
                exchange.writer.close()
            case "reset":
                reset(exchange.writer)
            case "shut":
                # The client may have closed the connection.
                with suppress(OSError):
                    exchange.writer.write_eof()
                await exchange.reader.read()
            case "hang":
                await exchange.pass_time(PATIENCE)
                await exchange.reader.read()
        return False

    return act


def change(part: Callable[[bytes], bytes], end: End = "keep") -> Act:
    """Returns an action that sends a changed response of the catalog."""
    return respond(lambda exchange: part(exchange.response), end)


def always(response: bytes, end: End = "keep") -> Act:
    """Returns an action that sends the same bytes after every request."""
    return respond(lambda exchange: response, end)


def respond_later(response: Respond) -> Act:
    """Sends the correct response, and more bytes after the client has read it. A client may already have sent its next
    request then. `respond_with_next` injects what follows that."""

    async def act(exchange: Exchange) -> bool:
        await exchange.send(exchange.response)
        await let_client_read()
        if exchange.reader._buffer or unread(exchange.writer.transport)():  # type: ignore[attr-defined]
            exchange.writer.close()
            return False
        await exchange.send(response(exchange))
        return True

    return act


def respond_with_next(response: Respond, first: Respond = lambda exchange: exchange.response) -> Act:
    """Sends a response, and more bytes as soon as the next request begins."""

    async def act(exchange: Exchange) -> bool:
        await exchange.send(first(exchange))
        await exchange.reader.read(1)
        await exchange.send(response(exchange))
        return False

    return act


async def let_client_read() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class Wire(ABC):
    """Separates the requests and responses of a protocol."""

    @abstractmethod
    async def request(self, reader: StreamReader) -> bytes:
        """Reads the next request of a client."""

    @abstractmethod
    async def answer(self, reader: StreamReader, request: bytes) -> bytes:
        """Reads the response of the catalog."""

    @abstractmethod
    def label(self, request: bytes) -> str:
        """Returns the part of a request that says what it does."""


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

    def label(self, request: bytes) -> str:
        return request.partition(b" HTTP/1.1\r\n")[0].decode("latin-1")


class AwsWire(HttpWire):
    def label(self, request: bytes) -> str:
        action = re.search(rb"(?i)x-amz-target: AWSGlue\.(\w+)", request)
        return action[1].decode() if action else super().label(request)


class ThriftWire(Wire):
    async def request(self, reader: StreamReader) -> bytes:
        return (await read_message(reader)).encoded()

    async def answer(self, reader: StreamReader, request: bytes) -> bytes:
        recorder = _Recorder(reader)
        await read_message(recorder)  # type: ignore[arg-type]  # of a reader it uses readexactly alone
        return bytes(recorder.data)

    def label(self, request: bytes) -> str:
        return decoded(request).name


class _Recorder:
    """Reads bytes and keeps them."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self.data = bytearray()

    async def readexactly(self, size: int) -> bytes:
        data = await self._reader.readexactly(size)
        self.data += data
        return data


class Proxy(Server):
    """A proxy for a catalog; it changes nothing until `inject`. Its exit asserts that all connections were closed."""

    def __init__(self, catalog: Catalog, fault: Fault | None = None, *, is_patient: bool = True) -> None:
        """Creates a proxy; unless `is_patient`, time passes when a client sends nothing more after a fault."""
        super().__init__()
        self.catalog = catalog
        self.requests: list[bytes] = []
        self.injected = 0
        self._is_patient = is_patient
        self._forwarding = 0
        self._performing = 0
        self._received = 0  # Requests that have arrived and are not forwarded yet
        self._arrived = asyncio.Event()
        self.last_response = b""
        self.inject(fault)

    def inject(
        self,
        fault: Fault | None,
        *,
        only: Callable[[bytes], bool] = bool,
        times: int | None = None,
        every: int = 1,
        undo: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Injects a fault into `times` requests (None for all), of each `every`th that `only` selects. Without a fault,
        all faults end. `undo` undoes the request at the catalog, before the response with the fault."""
        self._fault, self._only, self._left, self._every, self._undo = fault, only, times, every, undo
        self._count = 0

    @property
    def table_requests(self) -> list[bytes]:
        return [request for request in self.requests if not self.catalog.is_aside(request)]

    @property
    def writes(self) -> int:
        return sum(map(self.catalog.is_write, self.requests))

    async def __aexit__(self, *caught: object) -> None:
        if self._tasks and caught[:1] == (None,) and self._is_patient:
            _, open = await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT)
            assert not open, f"{len(open)} connections were not closed"
        await super().__aexit__(*caught)

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._fault is not None and self._fault.greets and self._left != 0:
            self._use()
            writer.write(self._fault.greets)
        upstream: tuple[StreamReader, StreamWriter] | None = None
        wire = self.catalog.wire
        try:
            while not reader.at_eof():
                request = await self._next(reader)
                self.requests.append(request)
                fault = self._fault_for(request)
                response = b""
                if fault is None or fault.forwards:
                    with self._at_catalog():
                        if upstream is None or isinstance(wire, HttpWire):
                            if upstream is not None:
                                upstream[1].close()
                            upstream = await asyncio.open_connection("127.0.0.1", self.catalog.port)
                        response = await self.forward(request, *upstream)
                exchange = Exchange(request, response, self.last_response, reader, writer, self._pass_time)
                self.last_response = response or self.last_response
                if fault is None:
                    await exchange.send(response)
                elif not await self._perform(fault, exchange):
                    return
        finally:
            if upstream is not None:
                upstream[1].close()

    async def wait_idle(self) -> None:
        """Returns when the catalog has responded to all requests that have arrived, and no response is being sent."""
        quiet = 0
        for _ in range(_LONG):
            quiet = 0 if self._received or self._forwarding or self._performing else quiet + 1
            if quiet > _QUIET:
                return
            await asyncio.sleep(0)

    async def _next(self, reader: StreamReader) -> bytes:
        async def receive() -> bytes:
            request = await self.catalog.wire.request(reader)
            self._received += 1
            return request

        waiting = asyncio.ensure_future(receive())
        try:
            if not self._is_patient and self.injected and self._fault is not None:
                await self._catalog_idle()
                if not waiting.done():
                    await pass_time(PATIENCE)
            return await waiting
        finally:
            if not waiting.cancel() and waiting.exception() is None:
                self._received -= 1

    async def _pass_time(self, seconds: float) -> None:
        """Moves the clock when all requests that clients have sent have their responses from the catalog."""
        await self._catalog_idle()
        await pass_time(seconds)

    async def _catalog_idle(self) -> None:
        await idle()
        while self._forwarding:
            self._arrived.clear()
            await self._arrived.wait()
            await idle()

    async def forward(self, request: bytes, reader: StreamReader, writer: StreamWriter) -> bytes:
        writer.write(request)
        return await self.catalog.wire.answer(reader, request)

    @contextmanager
    def _at_catalog(self) -> Iterator[None]:
        self._forwarding += 1
        try:
            yield
        finally:
            self._forwarding -= 1
            self._arrived.set()

    async def _perform(self, fault: Fault, exchange: Exchange) -> bool:
        self._performing += 1
        try:
            if self._undo is not None:
                await self._undo()
            return await fault.act(exchange)
        finally:
            self._performing -= 1

    def _fault_for(self, request: bytes) -> Fault | None:
        if self._fault is None or self._fault.greets or self._left == 0 or self.catalog.is_aside(request):
            return None
        if not self._only(request):
            return None
        self._count += 1
        if self._count % self._every:
            return None
        self._use()
        return self._fault

    def _use(self) -> None:
        self.injected += 1
        if self._left is not None:
            self._left -= 1


class FixedResponseServer(Server):
    """Sends the same bytes on every connection after its first byte; without bytes, it never responds."""

    def __init__(self, response: bytes = b"", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.received = 0  # Number of connections on which bytes were received
        self._response = response

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.received += bool(await reader.read(1))
        writer.write(self._response)
        await writer.drain()
        if not self._response:
            await reader.read()

"""Connections that carry one exchange at a time, and that close after any exchange that does not complete."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from lance_ns_async.errors import Failure
from lance_ns_async.transports.http.tls import UNTRUSTED
from lance_ns_async.transports.thrift.decoder import MalformedError
from lance_ns_async.transports.unread_bytes import unread


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Incoming(Protocol):
    """Reads a response chunk by chunk."""

    def feed(self, chunk: bytes) -> bool:
        """Reads the next chunk; returns whether the response ends with it."""
        ...


class DisconnectedError(ConnectionError):
    """The connection was lost before the response was complete."""


class Connection(asyncio.Protocol):
    """One connection, which can be reused only after a completed exchange."""

    def __init__(self, address: Address, max_bytes: int) -> None:
        self.address = address
        self.is_framed = False
        """Whether each message is preceded by its length."""
        self.used: float = 0.0
        """Time of the last use, by the event loop's clock."""
        self._max_bytes = max_bytes
        self._transport: asyncio.Transport
        self._end: asyncio.Future[None]
        self._incoming: Incoming
        self._response: asyncio.Future[None] | None = None
        self._size = 0

    @property
    def usable(self) -> bool:
        """Whether the connection is open, as far as the event loop knows."""
        return not self._transport.is_closing()

    @property
    def clean(self) -> bool:
        """Whether the connection is open and has no unread data and no unread end of stream."""
        return self.usable and not self._unread()

    async def exchange(self, request: bytes, incoming: Incoming) -> None:
        """Sends the request and returns when `incoming` is complete; any exception closes the connection."""
        if not self.usable:
            raise DisconnectedError("the connection was closed before the call was sent")
        response = self._response = asyncio.get_running_loop().create_future()
        self._incoming = _FrameReader(incoming, self._max_bytes) if self.is_framed else incoming
        self._size = 0
        self._transport.write(struct.pack(">I", len(request)) + request if self.is_framed else request)
        try:
            await response
        except BaseException:  # the reply to a cancelled call must never be read as the reply to the next call
            self.abort()
            raise
        finally:
            self._response = None

    def abort(self) -> None:
        """Closes the connection at once; may be called twice."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Waits until the connection is closed."""
        await asyncio.wait([self._end])

    def when_closed(self, callback: Callable[[Connection], None]) -> None:
        """Calls `callback` with this connection when it is closed."""
        self._end.add_done_callback(lambda _: callback(self))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unread = unread(transport)
        self._end = asyncio.get_running_loop().create_future()
        wire: socket.socket | None = transport.get_extra_info("socket")
        if wire is not None:
            # Firewalls and balancers drop connections that are silent for long.
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.done():
            # Unsolicited data could be read as the response to the next call.
            self.abort()
            return
        self._size += len(data)
        try:
            if self._size > self._max_bytes:
                raise MalformedError(f"the answer is longer than {self._max_bytes} bytes (max_response_bytes)")
            if self._incoming.feed(data):
                response.set_result(None)
        except MalformedError as e:
            response.set_exception(e)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.set_result(None)
        if self._response is not None and not self._response.done():
            self._response.set_exception(DisconnectedError(f"the connection was lost: {exc or 'the server closed it'}"))


class _FrameReader:
    """Removes the lengths that precede the frames of a response."""

    def __init__(self, incoming: Incoming, max_bytes: int) -> None:
        self._incoming = incoming
        self._max_bytes = max_bytes
        self._head = b""
        self._left = 0

    def feed(self, chunk: bytes) -> bool:
        whole = False
        while chunk:
            if not self._left:
                missing = 4 - len(self._head)
                self._head, chunk = self._head + chunk[:missing], chunk[missing:]
                if len(self._head) < 4:
                    break
                self._left = int.from_bytes(self._head, "big")
                self._head = b""
                if self._left > self._max_bytes:
                    raise MalformedError(f"a frame of {self._left} bytes; does the server send frames at all?")
            whole = self._incoming.feed(chunk[: self._left])
            self._left, chunk = max(self._left - len(chunk), 0), chunk[self._left :]
            if whole and (self._left or chunk):
                raise MalformedError(f"{self._left or len(chunk)} bytes after the end of the reply")
        return whole


@dataclass(frozen=True, slots=True)
class ThriftRoute:
    """The addresses of a server and the settings of its connections."""

    addresses: Sequence[Address]
    """Tried one after another."""
    connect_timeout: float
    """Maximum seconds to connect to one address, including the login and other first exchanges."""
    max_response_bytes: int
    is_framed: bool = False
    tls: ssl.SSLContext | None = None


Greet = Callable[[Connection], Awaitable[None]]
"""Makes the exchanges that a new connection needs before any call, such as a login."""


class Connector:
    """Opens connections; the address that last worked is tried first."""

    def __init__(self, route: ThriftRoute, greet: Greet) -> None:
        self._route = route
        self._greet = greet
        self._first = 0

    async def open(self) -> Connection:
        """Returns a connection that is ready for calls."""
        addresses = self._route.addresses
        problems = []
        untrusted_count = 0
        # The order is fixed here: each address is tried once, even if other tasks call `try_next_first` meanwhile.
        for address in (*addresses[self._first :], *addresses[: self._first]):
            try:
                async with asyncio.timeout(self._route.connect_timeout):
                    return await self._connect(address)
            except TimeoutError:
                problems.append(f"{address}: no connection within {self._route.connect_timeout:g} s")
            except (OSError, UnicodeError, MalformedError) as e:
                problems.append(f"{address}: {str(e) or type(e).__name__}")
                untrusted_count += isinstance(e, ssl.SSLCertVerificationError)
            self.try_next_first(address)
        message = f"cannot connect to {'; '.join(problems)}"
        if untrusted_count == len(addresses):
            raise Failure("untrusted", message=f"{message}; {UNTRUSTED}", delivered=False)
        raise Failure("refused", message=f"{message}; is the uri right and the server up?", delivered=False)

    def try_next_first(self, address: Address) -> bool:
        """Makes `open` try the next address first if `address` is first now; returns whether the order has changed."""
        before = self._first
        if self._route.addresses[before] == address:
            self._first = (before + 1) % len(self._route.addresses)
        return self._first != before

    async def _connect(self, address: Address) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(address, self._route.max_response_bytes), address.host, address.port, ssl=self._route.tls
        )
        connection.is_framed = self._route.is_framed
        try:
            await self._greet(connection)
        except BaseException:  # any exception, including a cancellation, may leave an exchange incomplete
            connection.abort()
            raise
        return connection

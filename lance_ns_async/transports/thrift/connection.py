"""Connections that carry one exchange at a time, and are given up by whatever disturbs one."""

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
from lance_ns_async.transports.unread import unread


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Incoming(Protocol):
    """Reads an answer from chunks as they come."""

    def feed(self, chunk: bytes) -> bool:
        """Reads on; whether the answer ends with this chunk. Raises MalformedError where it is none."""
        ...


class DisconnectedError(ConnectionError):
    """The connection ended before the answer was whole."""


class Connection(asyncio.Protocol):
    """One connection; only after an exchange that came to its end is it good for another."""

    def __init__(self, address: Address, max_bytes: int) -> None:
        self.address = address
        self.framed = False
        """Whether the length of a message goes before it."""
        self.used = 0.0
        """When it was last used, by the event loop's clock."""
        self._max_bytes = max_bytes
        self._transport: asyncio.Transport
        self._lost: asyncio.Future[None]
        self._incoming: Incoming
        self._answered: asyncio.Future[None] | None = None
        self._received = 0

    @property
    def usable(self) -> bool:
        """Whether it is open, as far as anybody knows."""
        return not self._transport.is_closing()

    @property
    def clean(self) -> bool:
        """Whether it is open, and nothing waits on it, its end included, that nobody asked for."""
        return self.usable and not self._unread()

    async def exchange(self, request: bytes, incoming: Incoming) -> None:
        """Sends the request and returns when `incoming` is whole; whatever else happens ends the connection.

        Raises DisconnectedError where that is the server's doing, and MalformedError for what is no answer.
        """
        if not self.usable:
            raise DisconnectedError("the connection was closed before the call was sent")
        answered = self._answered = asyncio.get_running_loop().create_future()
        self._incoming = _Unframed(incoming, self._max_bytes) if self.framed else incoming
        self._received = 0
        self._transport.write(struct.pack(">I", len(request)) + request if self.framed else request)
        try:
            await answered
        except BaseException:  # a cancelled call's reply, too, must never meet the next call
            self.abort()
            raise
        finally:
            self._answered = None

    def abort(self) -> None:
        """Ends the connection at once; may be called twice."""
        self._transport.abort()

    async def closed(self) -> None:
        """Returns when the connection has ended."""
        await asyncio.wait([self._lost])

    def when_closed(self, tell: Callable[[Connection], None]) -> None:
        """Has `tell` called with this connection when it has ended."""
        self._lost.add_done_callback(lambda _: tell(self))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unread = unread(transport)
        self._lost = asyncio.get_running_loop().create_future()
        wire: socket.socket | None = transport.get_extra_info("socket")
        if wire is not None:
            # What stands between forgets connections that say nothing for long.
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        answered = self._answered
        if answered is None or answered.done():
            # Nobody asked: what comes here could be taken for the answer to the next call.
            self.abort()
            return
        self._received += len(data)
        try:
            if self._received > self._max_bytes:
                raise MalformedError(f"the answer is longer than {self._max_bytes} bytes (max_response_bytes)")
            if self._incoming.feed(data):
                answered.set_result(None)
        except MalformedError as e:
            answered.set_exception(e)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set_result(None)
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(DisconnectedError(f"the connection was lost: {exc or 'the server closed it'}"))


class _Unframed:
    """Takes off the lengths that go before the parts of an answer."""

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
class Route:
    """How to reach a server."""

    addresses: Sequence[Address]
    """Tried in turn."""
    connect_timeout: float
    """Seconds that connecting to one of them may take, until calls can be made."""
    max_response_bytes: int
    framed: bool = False
    tls: ssl.SSLContext | None = None


Greet = Callable[[Connection], Awaitable[None]]
"""Says what is to be said on a new connection before any call."""


class Connector:
    """Opens connections, to the address first that answered last."""

    def __init__(self, route: Route, greet: Greet) -> None:
        self._route = route
        self._greet = greet
        self._first = 0

    async def open(self) -> Connection:
        """A connection that calls can be made on; raises a Failure that says why no address gives one."""
        addresses = self._route.addresses
        problems = []
        untrusted = 0
        # Others may pass over addresses meanwhile: each is tried once all the same.
        for address in (*addresses[self._first :], *addresses[: self._first]):
            try:
                async with asyncio.timeout(self._route.connect_timeout):
                    return await self._connect(address)
            except TimeoutError:
                problems.append(f"{address}: no connection within {self._route.connect_timeout:g} s")
            except (OSError, UnicodeError, MalformedError) as e:
                problems.append(f"{address}: {str(e) or type(e).__name__}")
                untrusted += isinstance(e, ssl.SSLCertVerificationError)
            self.pass_over(address)
        message = f"cannot connect to {'; '.join(problems)}"
        if untrusted == len(addresses):
            raise Failure("untrusted", message=f"{message}; {UNTRUSTED}", delivered=False)
        raise Failure("refused", message=f"{message}; is the uri right and the server up?", delivered=False)

    def pass_over(self, address: Address) -> bool:
        """Tries another address first, next time; whether there is another and it was not so already."""
        before = self._first
        if self._route.addresses[before] == address:
            self._first = (before + 1) % len(self._route.addresses)
        return self._first != before

    async def _connect(self, address: Address) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(address, self._route.max_response_bytes),
            address.host,
            address.port,
            ssl=self._route.tls,
        )
        connection.framed = self._route.framed
        try:
            await self._greet(connection)
        except BaseException:  # whatever ends the greeting, a cancellation too, leaves half of it on the wire
            connection.abort()
            raise
        return connection

"""Transport for Thrift's binary protocol over pooled connections. The backend defines the methods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.caller import STALE, Caller
from lance_ns_async.errors import Code, Failure
from lance_ns_async.model import Id
from lance_ns_async.transports.responses import decode_body
from lance_ns_async.transports.thrift.binary import MESSAGE, MismatchError, Reply, call, on_one_line
from lance_ns_async.transports.thrift.connection import Address, Connection, Connector, DisconnectedError, ThriftRoute
from lance_ns_async.transports.thrift.decoder import MalformedError, Shape
from lance_ns_async.transports.thrift.sasl import Mechanism, negotiate

T = TypeVar("T")

ReadError = Callable[[str, str], tuple[Code, ...]]
"""Receives the name and the message of an exception; returns codes that are more specific than the name."""

REFUSALS: Mapping[int, Code] = {
    0: "UNKNOWN",
    1: "UNKNOWN_METHOD",
    2: "INVALID_MESSAGE_TYPE",
    3: "WRONG_METHOD_NAME",
    4: "BAD_SEQUENCE_ID",
    5: "MISSING_RESULT",
    6: "INTERNAL_ERROR",
    7: "PROTOCOL_ERROR",
    8: "INVALID_TRANSFORM",
    9: "INVALID_PROTOCOL",
    10: "UNSUPPORTED_CLIENT_TYPE",
}
"""Codes for the types of TApplicationException, which a server sends if it cannot execute a call."""

_NOT_MADE = ("UNKNOWN_METHOD", "INVALID_MESSAGE_TYPE", "WRONG_METHOD_NAME", "UNSUPPORTED_CLIENT_TYPE")
_MAX_EXCEPTIONS = 15

KEEP_ALIVE = 60.0
"""Seconds for which an idle connection may be reused; balancers and firewalls drop connections that idle longer."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a Thrift service, with the parts that are used here."""

    name: str
    exceptions: tuple[str, ...] = ()
    """Names of the declared exceptions, in the order of their fields, starting with field 1."""
    gives: Shape | None = None
    """The fields to decode if the return value is a struct or a list of structs."""
    void: bool = False
    whole: bool = False
    """Whether the decoder gets the whole encoded result instead of the decoded return value."""
    result: Shape = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A newer server may throw undeclared exceptions, and an exception must never be read as success.
        result: dict[int, Shape | None] = dict.fromkeys(range(1, _MAX_EXCEPTIONS + 1), MESSAGE)
        result[0] = self.gives
        object.__setattr__(self, "result", result)

    def find_exception(self, result: Mapping[int, Any]) -> tuple[str, str] | None:
        """Returns name and message of the exception in a result; None if there is none."""
        for id, value in result.items():
            if id != 0:
                name = self.exceptions[id - 1] if id <= len(self.exceptions) else f"exception {id}"
                return name, value.get(1, "")
        return None


class ThriftTransport:
    """Makes calls on one Thrift service."""

    def __init__(self, pool: Pool, caller: Caller, read_error: ReadError) -> None:
        self._pool = pool
        self._caller = caller
        self._read_error = read_error
        self._sequence = count(1)

    async def call(
        self,
        method: Method,
        arguments: bytes,
        *,
        subject: Id,
        operation: str,
        decode: Callable[[Any], T],
        safe: bool = True,
    ) -> T:
        """Calls a method and returns its decoded return value.

        Args:
            arguments: The encoded fields, without the final stop byte.
            subject: The object of the call, for messages.
            operation: The name of the operation, for messages and the error table.
            decode: Converts the return value, which is None for a void method.
            safe: Whether the call changes nothing. An unsafe call is sent again only if it certainly had no effect.

        Cost: one remote call; one more to repeat a safe call on a reused connection that the server had closed.
        """
        fresh = False

        async def exchange(connection: Connection) -> Reply:
            return await call_on(connection, method, next(self._sequence), arguments)

        async def send() -> T:
            try:
                reply = await self._pool.run_on_connection(exchange, fresh=fresh)
            except StaleError as e:
                codes = (STALE, "disconnected") if safe else ("disconnected",)
                raise Failure(*codes, message=str(e)) from e
            except DisconnectedError as e:
                raise Failure("disconnected", message=str(e)) from e
            except MismatchError as e:
                raise Failure("mismatch", message=str(e)) from e
            except MalformedError as e:
                raise Failure("unreadable", message=str(e)) from e
            return result(method, reply, self._read_error, decode)

        async def reconnect(failure: Failure) -> bool:
            nonlocal fresh
            fresh = failure.codes[0] == STALE
            return fresh

        return await self._caller.call(send, subject=subject, operation=operation, safe=safe, recover=reconnect)

    async def aclose(self) -> None:
        """Closes all connections; may be called twice."""
        await self._pool.aclose()


def open_thrift(
    route: ThriftRoute,
    caller: Caller,
    *,
    size: int,
    keep_alive: float = KEEP_ALIVE,
    read_error: ReadError,
    login: Callable[[Address], Mechanism] | None = None,
    first: tuple[Method, bytes] | None = None,
) -> ThriftTransport:
    """Returns a transport; opens no connection yet.

    Args:
        size: Maximum number of connections.
        keep_alive: Seconds for which an idle connection may be reused.
        read_error: Returns the codes of an exception.
        login: Returns the SASL mechanism for an address; None for no login.
        first: A method and its encoded arguments, called first on each new connection; None for no such call.
    """

    async def greet(connection: Connection) -> None:
        if login is not None:
            await negotiate(connection, login(connection.address))
        if first is not None:
            method, arguments = first
            result(method, await call_on(connection, method, 0, arguments), read_error, _ignore)

    return ThriftTransport(Pool(Connector(route, greet), size, keep_alive=keep_alive), caller, read_error)


async def call_on(connection: Connection, method: Method, sequence: int, arguments: bytes) -> Reply:
    """Makes a call on this connection and returns its reply."""
    reply = Reply(method.name, sequence & 0x7FFFFFFF, method.result, keep=method.whole)
    await connection.exchange(call(method.name, sequence & 0x7FFFFFFF, arguments), reply)
    return reply


def result(method: Method, reply: Reply, read_error: ReadError, decode: Callable[[Any], T]) -> T:
    """Returns the decoded return value of a reply."""
    return decode_body(lambda reply: decode(_return_value(method, reply, read_error)), reply, method=method.name)


def _return_value(method: Method, reply: Reply, read_error: ReadError) -> Any:
    if reply.is_refusal:
        code = REFUSALS.get(reply.fields.get(2, 0), "UNKNOWN")
        message = f"TApplicationException {code} of {method.name}: {on_one_line(reply.fields.get(1, ''))}"
        raise Failure(code, "TApplicationException", message=message, delivered=False if code in _NOT_MADE else None)
    if (exception := method.find_exception(reply.fields)) is not None:
        name, message = exception
        # The method has thrown an exception, so the server did not make the change.
        raise Failure(*read_error(name, message), name, message=f"{name}: {on_one_line(message)}", delivered=False)
    if method.void:
        return None
    if 0 not in reply.fields:
        raise Failure("unreadable", message=f"{method.name}: an answer without a result")
    return reply.body if method.whole else reply.fields[0]


def _ignore(value: Any) -> None:
    """Ignores the return value."""


class StaleError(DisconnectedError):
    """A connection was lost that was reused; the usual cause is a server that had closed it meanwhile."""


class Pool:
    """Lends connections, the last used one first; bound to the event loop of the first loan."""

    def __init__(self, connector: Connector, size: int, *, keep_alive: float = KEEP_ALIVE) -> None:
        self._connector = connector
        self._keep_alive = keep_alive
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._is_closed = False

    async def run_on_connection(self, work: Callable[[Connection], Awaitable[T]], *, fresh: bool = False) -> T:
        """Returns the result of `work` on a connection; any exception closes the connection.

        Args:
            work: Makes one exchange.
            fresh: Whether the connection must be a new one.
        """
        async with self._slots:
            if fresh and self._idle:
                # The new connection takes the place of the one that is idle for the longest time.
                self._idle.pop(0).abort()
            elif (idle := self._take_idle()) is not None:
                try:
                    return await self._run_on(idle, work)
                except DisconnectedError as e:
                    raise StaleError(*e.args) from e
            return await self._run_on(await self._open_connection(), work)

    async def aclose(self) -> None:
        """Closes the pool and all its connections; may be called twice."""
        self._is_closed = True
        self._idle.clear()
        connections = list(self._open)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()

    async def _run_on(self, connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            result = await work(connection)
        except BaseException as e:  # after a cancellation, too: an incomplete exchange must not reach another call
            connection.abort()
            if self._connector.try_next_first(connection.address) or isinstance(e, DisconnectedError):
                # The usual cause is a server that has stopped or hangs, which affects all idle connections.
                self._purge()
            raise
        if self._is_closed:
            connection.abort()
        elif connection.usable:
            connection.used = asyncio.get_running_loop().time()
            self._idle.append(connection)
        return result

    async def _open_connection(self) -> Connection:
        self._check_open()
        connection = await self._connector.open()
        self._open.add(connection)
        connection.when_closed(self._open.discard)
        if self._is_closed:
            connection.abort()
        self._check_open()
        return connection

    def _take_idle(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.clean and now - connection.used < self._keep_alive:
                return connection
            connection.abort()
        return None

    def _purge(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidInputError("the namespace was closed during the call; connect anew")

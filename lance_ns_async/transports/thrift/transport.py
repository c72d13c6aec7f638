"""One wire: Thrift's binary protocol over pooled connections. What is said over it is the backend's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from lance_ns_async.calls.policy import Caller
from lance_ns_async.errors import AnotherAnswerError, Code, Failure
from lance_ns_async.model import Id
from lance_ns_async.transports.thrift.binary import MESSAGE, MismatchError, Reply, call, on_one_line
from lance_ns_async.transports.thrift.connection import Address, Connection, Connector, DisconnectedError, Route
from lance_ns_async.transports.thrift.decoder import MalformedError, Shape
from lance_ns_async.transports.thrift.pool import KEEP_ALIVE, Pool
from lance_ns_async.transports.thrift.sasl import Mechanism, negotiate

T = TypeVar("T")

Explain = Callable[[str, str], tuple[Code, ...]]
"""From an exception's name and message: codes more specific than the name."""

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
"""Why a server cannot make a call at all, by the type of its TApplicationException."""

_NOT_MADE = ("UNKNOWN_METHOD", "INVALID_MESSAGE_TYPE", "WRONG_METHOD_NAME", "UNSUPPORTED_CLIENT_TYPE")
_MOST_EXCEPTIONS = 15


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a Thrift service, as far as it is used."""

    name: str
    exceptions: tuple[str, ...] = ()
    """The names of what it declares to throw, that of field 1 first."""
    gives: Shape | None = None
    """What to read of its result where that is a struct or a list of structs."""
    void: bool = False
    whole: bool = False
    """Whether the answer is to be kept as it comes."""
    result: Shape = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A newer server may throw more than was declared: an exception must never be taken for success.
        result: dict[int, Shape | None] = dict.fromkeys(range(1, _MOST_EXCEPTIONS + 1), MESSAGE)
        result[0] = self.gives
        object.__setattr__(self, "result", result)

    def thrown(self, result: Mapping[int, Any]) -> tuple[str, str] | None:
        """The name and the message of the exception in a result, if there is one."""
        for id, found in result.items():
            if id != 0:
                name = self.exceptions[id - 1] if id <= len(self.exceptions) else f"exception {id}"
                return name, found.get(1, "")
        return None


class ThriftTransport:
    """Makes calls on one Thrift service."""

    def __init__(self, pool: Pool, caller: Caller, explain: Explain) -> None:
        self._pool = pool
        self._caller = caller
        self._explain = explain
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
        """What `decode` makes of what the method gives, which is None where it gives nothing.

        `arguments` are encoded fields, without their end. A call that is not `safe` is sent again only where
        it certainly was not sent at all. Costs one remote call.
        """

        async def exchange(connection: Connection) -> Reply:
            return await exchanged(connection, method, next(self._sequence), arguments)

        async def send() -> T:
            try:
                reply = await self._pool.lend(exchange, safe=safe)
            except DisconnectedError as e:
                raise Failure("disconnected", message=str(e)) from e
            except MismatchError as e:
                raise Failure("mismatch", message=str(e)) from e
            except MalformedError as e:
                raise Failure("unreadable", message=str(e)) from e
            return result(method, reply, self._explain, decode)

        return await self._caller.call(send, subject=subject, operation=operation, safe=safe)

    async def aclose(self) -> None:
        """Closes all connections; may be called twice."""
        await self._pool.aclose()


def open_thrift(
    route: Route,
    caller: Caller,
    *,
    size: int,
    keep_alive: float = KEEP_ALIVE,
    explain: Explain,
    login: Callable[[Address], Mechanism] | None = None,
    first: tuple[Method, bytes] | None = None,
) -> ThriftTransport:
    """A transport over at most `size` connections, idle ones used again for `keep_alive` seconds; opens none yet.

    Each new connection begins with the SASL `login` for its address, if any, and the `first` call, if any.
    """

    async def greet(connection: Connection) -> None:
        if login is not None:
            await negotiate(connection, login(connection.address))
        if first is not None:
            method, arguments = first
            result(method, await exchanged(connection, method, 0, arguments), explain, _unread)

    return ThriftTransport(Pool(Connector(route, greet), size, keep_alive=keep_alive), caller, explain)


async def exchanged(connection: Connection, method: Method, sequence: int, arguments: bytes) -> Reply:
    """The reply to a call on this connection, which is the reply to this very call."""
    reply = Reply(method.name, sequence & 0x7FFFFFFF, method.result, keep=method.whole)
    await connection.exchange(call(method.name, sequence & 0x7FFFFFFF, arguments), reply)
    return reply


def result(method: Method, reply: Reply, explain: Explain, decode: Callable[[Any], T]) -> T:
    """What `decode` makes of what the method gives; raises a Failure for what it throws and what is not understood."""
    try:
        return decode(_given(method, reply, explain))
    except AnotherAnswerError as e:
        raise Failure("mismatch", message=f"{method.name}: {e}") from e
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        message = f"{method.name}: an answer of unknown form ({type(e).__name__}: {e})"
        raise Failure("unreadable", message=message) from e


def _given(method: Method, reply: Reply, explain: Explain) -> Any:
    if reply.refused:
        code = REFUSALS.get(reply.found.get(2, 0), "UNKNOWN")
        message = f"TApplicationException {code} of {method.name}: {on_one_line(reply.found.get(1, ''))}"
        raise Failure(code, "TApplicationException", message=message, delivered=False if code in _NOT_MADE else None)
    if (thrown := method.thrown(reply.found)) is not None:
        name, message = thrown
        # It was answered, so the server knows that it did not do it.
        raise Failure(*explain(name, message), name, message=f"{name}: {on_one_line(message)}", delivered=False)
    if method.void:
        return None
    if 0 not in reply.found:
        raise Failure("unreadable", message=f"{method.name}: an answer without a result")
    return reply.body if method.whole else reply.found[0]


def _unread(found: Any) -> None:
    """Whatever it is, nobody wants it."""

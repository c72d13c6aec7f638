"""Base of the fake Thrift servers: recorded calls and faults on demand."""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from abc import abstractmethod
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.fakes.server import Rule, ThreadedServer
from tests.fakes.sockets import reset
from tests.fakes.thrift_wire import EXCEPTION, REPLY, Message, NotThriftError, Struct, frame, read_message

When = Literal["before", "after", "middle"]
"""Whether a fault occurs before the call is performed, after it, or after half of the reply was sent."""
Ending = Literal["keep", "close", "reset"]  # The end of the connection after a fault
Rewrite = Callable[[Message], Message | bytes | None]  # Returns the bytes to send instead of a reply; None for nothing


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was received."""

    method: str
    arguments: Struct  # By number
    sequence: int
    connection: int  # The number of the connection, from 1 in the order of opening

    def __str__(self) -> str:
        return f"{self.method} {dict(self.arguments)}"


class HangUp(Exception):
    """The server closes the connection without a reply, as servers do after unexpected errors."""


@dataclass(slots=True)
class WireFault(Rule):
    """Sends bytes other than the server's own reply."""

    when: When
    rewrite: Rewrite
    ending: Ending = "keep"


START, OK, BAD, ERROR, COMPLETE = 1, 2, 3, 4, 5  # The kinds of messages of the negotiation


def sasl_message(status: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BI", status, len(payload)) + payload


async def log_in(reader: StreamReader, writer: StreamWriter, account: tuple[str, str]) -> None:
    """Accepts a client with the account's user and password; otherwise sends the reason and raises EOFError. All later
    messages are in frames."""
    refusal = await _login_refusal(reader, account)
    writer.write(sasl_message(BAD, refusal) if refusal else sasl_message(COMPLETE))
    await writer.drain()
    if refusal:
        writer.close()
        await writer.wait_closed()
        raise EOFError(refusal)


async def _login_refusal(reader: StreamReader, account: tuple[str, str]) -> bytes:
    status, mechanism = await _read_sasl(reader)
    if status != START:
        return b"Expecting START status, received %d" % status
    if mechanism != b"PLAIN":
        return b"Unsupported mechanism type " + mechanism
    _, response = await _read_sasl(reader)
    expected = "\0".join(("", *account)).encode()
    return b"" if response == expected else b"Error validating the login"


async def _read_sasl(reader: StreamReader) -> tuple[int, bytes]:
    status, size = struct.unpack(">BI", await reader.readexactly(5))
    if not START <= status <= COMPLETE or size > 1 << 20:
        raise EOFError("no message of a SASL negotiation")
    return status, await reader.readexactly(size)


class ThriftServer(ThreadedServer[WireFault]):
    """A Thrift server with recorded calls. The calls of one connection are performed in their order. `match` is a
    regular expression for the method's name, a blank, and the arguments by number: `"^get_table_req .*'t1'"`."""

    def __init__(
        self, *, framed: bool = False, plain_sasl: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__()
        self.requests: list[Call] = []
        self._opened = 0
        self._framed = framed
        self._plain_sasl = plain_sasl
        self._tls = tls
        self._changed = threading.Condition(self._lock)
        self._open: dict[asyncio.Task[None], StreamWriter] = {}

    @abstractmethod
    def handle(self, call: Call) -> Message:
        """Performs a call; called with the lock held, in the server's thread. May raise HangUp."""

    @abstractmethod
    def thrown(self, reply: Message, exception: str, message: str) -> Message:
        """Returns the reply with an exception of this name."""

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def calls(self) -> list[str]:
        return [call.method for call in self.requests]

    @property
    def open_connections(self) -> int:
        """The number of open connections. The end of a connection is noticed when the server next reads from it."""
        return len(self._open)

    def wait_open(self, count: int, within: float = 10.0) -> None:
        """Blocks the calling thread until `count` connections are open; raises TimeoutError after `within` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._open) == count, within):
                raise TimeoutError(f"{len(self._open)} connections are open, not {count}")

    def clear(self) -> None:
        with self._lock:
            self.requests.clear()
            self.connections = 0
            self.most_in_flight = self._in_flight

    def fail(
        self,
        exception: str,
        message: str,
        *,
        match: str = "",
        times: int | None = 1,
        when: Literal["before", "after"] = "before",
    ) -> None:
        """Raises an exception: one that the method declares, or `TApplicationException`."""
        self._add(match, times, when, lambda reply: self.thrown(reply, exception, message))

    def cut(
        self,
        match: str = "",
        *,
        when: When = "before",
        times: int | None = 1,
        ending: Literal["close", "reset"] = "close",
    ) -> None:
        """Ends the connection before the reply, or in the middle of it."""
        self._add(match, times, when, lambda reply: reply if when == "middle" else None, ending)

    def reply_wrong_seqid(self, match: str = "", *, times: int | None = 1) -> None:
        """Replies with the sequence number of the call plus one."""
        self._add(match, times, "after", lambda reply: replace(reply, sequence=reply.sequence + 1))

    def reply_wrong_name(self, match: str = "", *, name: str = "other", times: int | None = 1) -> None:
        self._add(match, times, "after", lambda reply: replace(reply, name=name))

    def garbage(self, data: bytes, *, match: str = "", times: int | None = 1) -> None:
        """Sends these bytes instead of a reply, and keeps the connection open."""
        self._add(match, times, "before", lambda reply: data)

    def _add(self, match: str, times: int | None, when: When, rewrite: Rewrite, ending: Ending = "keep") -> None:
        with self._lock:
            self._faults.append(WireFault(match, times, when, rewrite, ending))

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._met, "127.0.0.1", self._port, ssl=self._tls)

    async def _end_connections(self) -> None:
        for writer in self._open.values():
            reset(writer)
        while self._open:
            tasks = list(self._open)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _met(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        with self._changed:
            self.connections += 1
            self._opened += 1
            number = self._opened
            self._open[task] = writer
            self._changed.notify_all()
        try:
            await self._talk(reader, writer, number)
        except (ConnectionError, EOFError, HangUp, NotThriftError, UnicodeDecodeError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with self._changed:
                del self._open[task]
                self._changed.notify_all()

    async def _talk(self, reader: StreamReader, writer: StreamWriter, connection: int) -> None:
        if self._plain_sasl is not None:
            await log_in(reader, writer, self._plain_sasl)
        framed = self._framed or self._plain_sasl is not None
        while True:
            message = await read_message(reader, framed=framed)
            call = Call(message.name, message.body, message.sequence, connection)
            with self._lock:
                self.requests.append(call)
                self._in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self._in_flight)
            try:
                await self._wait(call)
                fault, reply = self._reply(call)
                data = _encoded(reply, framed=framed)
                if data is not None:
                    half = fault is not None and fault.when == "middle"
                    writer.write(data[: len(data) // 2] if half else data)
                    await writer.drain()
            finally:
                with self._lock:
                    self._in_flight -= 1
            match fault.ending if fault else "keep":
                case "close":
                    await _hang_up(writer)
                case "reset":
                    reset(writer)
                    raise HangUp

    def _reply(self, call: Any) -> tuple[WireFault | None, Message | bytes | None]:
        with self._lock:
            fault = next((fault for fault in self._faults if fault.takes(call)), None)
            if fault is None:
                return None, self.handle(call)
            unsaid = Message(REPLY, call.method, call.sequence)
            return fault, fault.rewrite(unsaid if fault.when == "before" else self.handle(call))


def application_exception(reply: Message, type: int, message: str) -> Message:
    """Returns the reply to a call that the server cannot perform at all."""
    return replace(reply, kind=EXCEPTION, body=Struct({1: message, 2: type}))


async def _hang_up(writer: StreamWriter) -> None:
    """Ends the connection after all pending bytes were sent."""
    writer.close()
    await writer.wait_closed()
    raise HangUp


def _encoded(reply: Message | bytes | None, *, framed: bool) -> bytes | None:
    if not isinstance(reply, Message):
        return reply
    return frame(reply.encoded()) if framed else reply.encoded()

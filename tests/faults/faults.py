"""The form of a fault with its expected outcomes, the faults of any wire, and addresses without a usable server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal
from unittest.mock import patch

from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError

from tests.fakes.certificates import LONG_AGO, authority
from tests.faults import proxy
from tests.faults.catalogs import ALL, HTTP

LIMIT = 65536  # The value of `max_response_bytes` in the tests
Then = Literal["again", "reads", "never", "doubt", "void"]
"""Which calls are retried. `again`: all calls, because they had no effect. `reads`: only reads. `never`: none, and a
change had no effect. `doubt`: none, and it is unknown whether a change took effect. `void`: none, because the response
is correct for a change."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The error that users get."""

    error: type[LanceNamespaceError]
    message: str  # A part of the message
    then: Then
    declares: type[LanceNamespaceError] | None = None  # The error of a declaration; None if it is the same


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a server or a connection. The trial compares the outcomes of each fault with the state of the catalog.
    A fault with expectations is also tested for its error, its retries and its place in the documentation."""

    name: str
    act: proxy.Act
    on: Sequence[str] = ALL  # The catalogs that it is injected into
    expected: Mapping[str, Expected | None] | None = None
    """The expected error by catalog; None if the response is usable in spite of the fault."""
    forwards: bool = True  # Whether the request is forwarded to the catalog
    greets: bytes = b""  # Bytes to send on each new connection before any request
    lists: bool = True  # Whether a listing with the fault has the same outcome as a describe

    def error(self, impl: str) -> Expected:
        expected = (self.expected or {})[impl]
        assert expected is not None, self.name
        return expected


OVER_HTTP = tuple(impl for impl in ALL if impl != "hive3")  # The catalogs over HTTP, with Glue
NAMED = tuple(impl for impl in ALL if impl not in ("iceberg", "rest"))
"""The catalogs whose descriptions contain the name of the table."""


def fault(
    name: str, act: proxy.Act, http: Expected | None, *, hive: bool = False, lists: bool = True, **own: Expected | None
) -> Fault:
    """Returns a fault of all HTTP catalogs and Glue; `own` has the outcomes that differ from `http`, by catalog."""
    expected = {impl: own.get(impl, http) for impl in (*HTTP, "glue", *(["hive3"] if hive else []))}
    forwards = http is None or http.then not in ("again", "never")
    return Fault(name, act, ALL if hive else OVER_HTTP, expected, forwards, lists=lists)


LOST = Expected(ServiceUnavailableError, "the connection was lost", "reads")
SILENT = Expected(ServiceUnavailableError, "no answer within", "reads")
TOO_LONG = Expected(InternalError, f"the answer is longer than {LIMIT} bytes (max_response_bytes)", "doubt")


def _half(right: bytes) -> bytes:
    return right[: len(right) // 2]


_NOISE = b"\x8f\xfe noise"
_whole: proxy.Respond = attrgetter("response")
_previous: proxy.Respond = attrgetter("previous")

BROKEN_ON_ANY_WIRE: Sequence[Fault] = (
    fault("closed before the response", proxy.always(b"", "close"), LOST, hive=True),
    fault("reset before the response", proxy.always(b"", "reset"), LOST, hive=True),
    fault("reset within the headers", proxy.change(lambda right: right[:9], "reset"), LOST, hive=True),
    fault("reset within the body", proxy.change(lambda right: right[:-9], "reset"), LOST, hive=True),
    fault("reset after the response", proxy.respond(_whole, "reset"), None, hive=True),
    fault("closed within the response", proxy.change(_half, "close"), LOST, hive=True),
    fault("no response", proxy.always(b"", "hang"), SILENT, hive=True),
    fault("a response that stops", proxy.change(_half, "hang"), SILENT, hive=True),
    fault("a response that is sent slowly, byte by byte", proxy.respond(_whole, "drip"), SILENT, hive=True),
)
"""Incomplete responses of any wire, with expectations."""


async def _bytewise(exchange: proxy.Exchange) -> bool:
    for at in range(len(exchange.response)):
        exchange.writer.write(exchange.response[at : at + 1])
        await asyncio.sleep(0)
    return True


async def _in_halves(exchange: proxy.Exchange) -> bool:
    first = _half(exchange.response)
    await exchange.send(first)
    await proxy.let_client_read()
    await exchange.send(exchange.response[len(first) :])
    return True


async def _late(exchange: proxy.Exchange) -> bool:
    await exchange.pass_time(proxy.PATIENCE / 5)
    await exchange.send(exchange.response)
    return True


def _in_one(more: Callable[[proxy.Exchange], bytes]) -> proxy.Act:
    return proxy.respond(lambda exchange: exchange.response + more(exchange))


_PARTS: Mapping[str, Callable[[bytes], bytes]] = {
    "before the response": lambda right: b"",
    "after a byte": lambda right: right[:1],
    "after a fifth": lambda right: right[: len(right) // 5],
    "within the response": _half,
    "before the last byte": lambda right: right[:-1],
}
_ENDS: Mapping[proxy.End, str] = {"close": "closed", "reset": "reset", "shut": "half closed", "hang": "silent"}
_WITH_EXPECTATIONS = {
    *(("before the response", end) for end in ("close", "reset", "hang")),
    *(("within the response", end) for end in ("close", "hang")),
}

ON_ANY_WIRE: Sequence[Fault] = (
    *(
        Fault(f"{how} {name}", proxy.change(part, end))
        for name, part in _PARTS.items()
        for end, how in _ENDS.items()
        if (name, end) not in _WITH_EXPECTATIONS
    ),
    Fault("closed after the response", proxy.respond(_whole, "close")),
    Fault("half closed after the response", proxy.respond(_whole, "shut")),
    Fault("the request lost, the connection closed", proxy.always(b"", "close"), forwards=False),
    Fault("the request lost, the connection reset", proxy.always(b"", "reset"), forwards=False),
    Fault("the request lost, no response", proxy.always(b"", "hang"), forwards=False),
    Fault("a byte at a time", _bytewise),
    Fault("in two halves", _in_halves),
    Fault("late", _late),
    Fault("zeros before the response", proxy.change(lambda right: bytes(9) + right)),
    Fault("noise before the response", proxy.respond(lambda exchange: _NOISE + exchange.response)),
    Fault("noise after the response", _in_one(lambda exchange: _NOISE)),
    Fault("noise later", proxy.respond_later(lambda exchange: _NOISE)),
    Fault("the response twice at once", _in_one(_whole)),
    Fault("the response again, later", proxy.respond_later(_whole)),
    Fault("the response again and again, later", proxy.respond_later(lambda exchange: 50 * exchange.response)),
    Fault("half of the response again, later", proxy.respond_later(lambda exchange: _half(exchange.response))),
    Fault("the previous response after it", _in_one(_previous)),
    Fault("the previous response later", proxy.respond_later(_previous)),
    Fault("a byte of another response after it", _in_one(lambda exchange: exchange.response[:1])),
    Fault("the previous response before it", proxy.respond(lambda exchange: exchange.previous + exchange.response)),
    # What comes after the next request was written is told by the names in it, or not at all.
    Fault("the response again, with the next request", proxy.respond_with_next(_whole), NAMED),
    Fault("the previous response instead", proxy.respond(_previous), NAMED),
    Fault("the request itself", proxy.respond(lambda exchange: exchange.request)),
    Fault("an alert of TLS", proxy.always(b"\x15\x03\x03\x00\x02\x02\x28", "close")),
    Fault("a handshake of TLS", proxy.always(b"\x16\x03\x03\x40\x00" + bytes(99), "hang")),
    Fault("frames of HTTP/2", proxy.always(b"\0\0\x12\4\0\0\0\0\0" + bytes(18), "hang")),
    Fault("a greeting of SMTP", proxy.always(b"220 mail.example.com ESMTP ready\r\n", "hang")),
    Fault("a banner of SSH", proxy.always(b"SSH-2.0-OpenSSH_9.6\r\n", "close")),
)
"""Other faults of any wire, which the trial tests."""

Place = Callable[[], AbstractAsyncContextManager[str]]  # Provides a URL at which no call can be sent


@asynccontextmanager
async def _no_server() -> AsyncIterator[str]:
    with socket.socket() as occupied_port:
        occupied_port.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{occupied_port.getsockname()[1]}"


@asynccontextmanager
async def _unknown() -> AsyncIterator[str]:
    # A real name server may take long to respond.
    with patch("socket.getaddrinfo", side_effect=socket.gaierror(socket.EAI_NONAME, "Name or service not known")):
        yield "http://nobody.invalid:80"


@asynccontextmanager
async def _full() -> AsyncIterator[str]:
    """Provides the URL of a server whose queue of connections is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _tls(who: str, host: str, *, is_expired: bool = False) -> Place:
    @asynccontextmanager
    async def place() -> AsyncIterator[str]:
        context = authority(who).server(host, until=LONG_AGO if is_expired else None)
        async with proxy.FixedResponseServer(tls=context) as server:
            yield server.url
            assert not server.received

    return place


def _no_tls(response: bytes) -> Place:
    @asynccontextmanager
    async def place() -> AsyncIterator[str]:
        async with proxy.FixedResponseServer(response) as server:
            yield f"https://127.0.0.1:{server.port}"

    return place


@dataclass(frozen=True, slots=True)
class Unreachable:
    """An address without a usable server: no call can be sent."""

    place: Place
    messages: Mapping[str, str]  # A part of the error message, by catalog; the empty key is for all others
    connect_timeout: str = "4s"
    then: Then = "again"

    def expected(self, impl: str) -> Expected:
        """Returns the error of a call; it was not sent, so it is retried if that may help."""
        return Expected(ServiceUnavailableError, self.messages.get(impl, self.messages[""]), self.then)


_GLUE = "are endpoint and region right, and the server up?"
_CERTIFICATE = {"": "certificate verify failed"}

PLACES: Mapping[str, Unreachable] = {
    "no server at the port": Unreachable(_no_server, {"": "cannot connect", "glue": _GLUE}),
    "unknown host name": Unreachable(_unknown, {"": "cannot connect", "glue": _GLUE}),
    "a server that accepts no connections": Unreachable(_full, {"": "no connection within", "glue": _GLUE}, "50ms"),
    "an unknown certificate authority": Unreachable(_tls("others", "127.0.0.1"), _CERTIFICATE, then="never"),
    "a certificate for another host": Unreachable(_tls("ours", "example.com"), _CERTIFICATE, then="never"),
    "an expired certificate": Unreachable(_tls("ours", "127.0.0.1", is_expired=True), _CERTIFICATE, then="never"),
    "a server without TLS": Unreachable(
        _no_tls(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {"": "cannot connect", "glue": _GLUE}
    ),
    "a server that does not respond to the TLS handshake": Unreachable(
        _no_tls(b""), {"": "no connection within", "glue": _GLUE}, "50ms"
    ),
}

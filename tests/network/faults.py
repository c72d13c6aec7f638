"""Network faults of all protocols: cuts, delays, splits, and unrequested responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from lance_ns_async.transports.unread_bytes import unread
from tests.fakes.clock import pass_time
from tests.fakes.sockets import reset
from tests.network.proxy import PATIENCE, Act, Exchange, Fault

End = Literal["keep", "close", "reset", "hang", "shut"]

_ENDS: Sequence[tuple[str, End]] = (("ended", "close"), ("reset", "reset"), ("shut", "shut"), ("silent", "hang"))

_WITHOUT_NAMES = frozenset({"iceberg", "rest"})
"""Catalogs whose descriptions do not contain the name of the table."""

_TURNS = 20
"""Iterations of the event loop after which the client has read all data."""


def respond(response: Callable[[Exchange], bytes], end: End = "keep") -> Act:
    """Returns an action that sends these bytes and then ends the connection as `end` says."""

    async def act(exchange: Exchange) -> bool:
        await exchange.send(response(exchange))
        return await end_connection(exchange, end)

    return act


def always(response: bytes, end: End = "keep") -> Act:
    """Returns an action that sends the same bytes after every request."""
    return respond(lambda exchange: response, end)


async def end_connection(exchange: Exchange, end: End) -> bool:
    """Ends the connection as `end` says; returns whether it stays open."""
    match end:
        case "keep":
            return True
        case "close":
            exchange.writer.close()
        case "reset":
            reset(exchange.writer)
        case "shut":
            exchange.writer.write_eof()
            await exchange.reader.read()
        case "hang":
            await pass_time(PATIENCE)
            await exchange.reader.read()
    return False


async def let_client_read() -> None:
    """Lets the client read all data."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _bytewise(exchange: Exchange) -> bool:
    for at in range(len(exchange.response)):
        exchange.writer.write(exchange.response[at : at + 1])
        await asyncio.sleep(0)
    return True


async def _in_halves(exchange: Exchange) -> bool:
    middle = len(exchange.response) // 2
    await exchange.send(exchange.response[:middle])
    await let_client_read()
    await exchange.send(exchange.response[middle:])
    return True


async def _late(exchange: Exchange) -> bool:
    await pass_time(PATIENCE / 5)
    await exchange.send(exchange.response)
    return True


async def _drip(exchange: Exchange) -> bool:
    for at in range(len(exchange.response)):
        if exchange.reader.at_eof() or exchange.writer.is_closing():
            break
        exchange.writer.write(exchange.response[at : at + 1])
        await pass_time(1)
    return False


def _respond_later(response: Callable[[Exchange], bytes]) -> Act:
    """Sends the correct response, and more bytes after the client has read it.

    A client may already have sent its next request then. `_with_next` injects what follows that, so this closes.
    """

    async def act(exchange: Exchange) -> bool:
        await exchange.send(exchange.response)
        await let_client_read()
        if exchange.reader._buffer or unread(exchange.writer.transport)():  # type: ignore[attr-defined]
            exchange.writer.close()
            return False
        await exchange.send(response(exchange))
        return True

    return act


def _with_next(response: Callable[[Exchange], bytes]) -> Act:
    """Sends the correct response, and more bytes as soon as the next request begins."""

    async def act(exchange: Exchange) -> bool:
        await exchange.send(exchange.response)
        await exchange.reader.read(1)
        await exchange.send(response(exchange))
        return False

    return act


def _in_one(response: Callable[[Exchange], bytes]) -> Act:
    return respond(lambda exchange: exchange.response + response(exchange))


def unchanged(exchange: Exchange) -> bytes:
    """Returns the response of the catalog."""
    return exchange.response


def _first_half(exchange: Exchange) -> bytes:
    return exchange.response[: len(exchange.response) // 2]


def previous(exchange: Exchange) -> bytes:
    """Returns the response to the previous request."""
    return exchange.previous


def _cut(name: str, part: Callable[[bytes], bytes]) -> Sequence[Fault]:
    return [Fault(f"{how} {name}", respond(lambda exchange: part(exchange.response), end)) for how, end in _ENDS]


ANY_WIRE: Sequence[Fault] = (
    *_cut("before the response", lambda response: b""),
    *_cut("after a byte", lambda right: right[:1]),
    *_cut("after a fifth", lambda response: response[: len(response) // 5]),
    *_cut("within the response", lambda response: response[: len(response) // 2]),
    *_cut("before the last byte", lambda right: right[:-1]),
    Fault("ended after the response", respond(unchanged, "close")),
    Fault("reset after the response", respond(unchanged, "reset")),
    Fault("half closed after the response", respond(unchanged, "shut")),
    Fault("the request lost, the connection closed", always(b"", "close"), forwards=False),
    Fault("the request lost, the connection reset", always(b"", "reset"), forwards=False),
    Fault("the request lost, no response", always(b"", "hang"), forwards=False),
    Fault("a byte at a time", _bytewise),
    Fault("in two halves", _in_halves),
    Fault("late", _late),
    Fault("a byte a second", _drip),
    Fault("zeros before the response", respond(lambda exchange: bytes(9) + exchange.response)),
    Fault("noise before the response", respond(lambda exchange: b"\x8f\xfe noise" + exchange.response)),
    Fault("noise after the response", _in_one(lambda exchange: b"\x8f\xfe noise")),
    Fault("noise later", _respond_later(lambda exchange: b"\x8f\xfe noise")),
    Fault("the response twice at once", _in_one(unchanged)),
    Fault("the response again, later", _respond_later(unchanged)),
    Fault("the response again and again, later", _respond_later(lambda exchange: 50 * exchange.response)),
    Fault(
        "half of the response again, later",
        _respond_later(lambda exchange: exchange.response[: len(exchange.response) // 2]),
    ),
    Fault("the previous response after it", _in_one(previous)),
    Fault("the previous response later", _respond_later(previous)),
    Fault("a byte of another response after it", _in_one(lambda exchange: exchange.response[:1])),
    Fault("the previous response before it", respond(lambda exchange: exchange.previous + exchange.response)),
    # What comes after the next request was written is told by the names in it, or not at all.
    Fault("the response again, with the next request", _with_next(unchanged), not_on=_WITHOUT_NAMES),
    Fault("the previous response instead", respond(previous), not_on=_WITHOUT_NAMES),
    Fault("the request itself", respond(lambda exchange: exchange.request)),
    Fault("an alert of TLS", always(b"\x15\x03\x03\x00\x02\x02\x28", "close")),
    Fault("a handshake of TLS", always(b"\x16\x03\x03\x40\x00" + bytes(99), "hang")),
    Fault("frames of HTTP/2", always(b"\0\0\x12\4\0\0\0\0\0" + bytes(18), "hang")),
    Fault("a greeting of SMTP", always(b"220 mail.example.com ESMTP ready\r\n", "hang")),
    Fault("a banner of SSH", always(b"SSH-2.0-OpenSSH_9.6\r\n", "close")),
)
"""Misbehaviour on any wire."""

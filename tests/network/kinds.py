"""Network faults of all wires: cuts, delays, splits, and unrequested responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from tests.fakes.clock import pass_time
from tests.fakes.sockets import reset
from tests.network.proxy import PATIENCE, Act, Exchange, Kind

End = Literal["keep", "close", "reset", "hang", "shut"]

_ENDS: Sequence[tuple[str, End]] = (("ended", "close"), ("reset", "reset"), ("shut", "shut"), ("silent", "hang"))

_TURNS = 20
"""Of the event loop, in which the client has read what was said."""


def saying(words: Callable[[Exchange], bytes], end: End = "keep") -> Act:
    """Says what is made of the exchange, and then what the end is."""

    async def act(exchange: Exchange) -> bool:
        await exchange.say(words(exchange))
        return await ended(exchange, end)

    return act


def always(words: bytes, end: End = "keep") -> Act:
    """Says the same to every request."""
    return saying(lambda exchange: words, end)


async def ended(exchange: Exchange, end: End) -> bool:
    """Ends the connection as is said; whether it goes on."""
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


async def turns() -> None:
    """Lets the client read what was said."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _bytewise(exchange: Exchange) -> bool:
    for at in range(len(exchange.right)):
        exchange.writer.write(exchange.right[at : at + 1])
        await asyncio.sleep(0)
    return True


async def _in_halves(exchange: Exchange) -> bool:
    middle = len(exchange.right) // 2
    await exchange.say(exchange.right[:middle])
    await turns()
    await exchange.say(exchange.right[middle:])
    return True


async def _late(exchange: Exchange) -> bool:
    await pass_time(PATIENCE / 5)
    await exchange.say(exchange.right)
    return True


async def _drip(exchange: Exchange) -> bool:
    for at in range(len(exchange.right)):
        if exchange.reader.at_eof() or exchange.writer.is_closing():
            break
        exchange.writer.write(exchange.right[at : at + 1])
        await pass_time(1)
    return False


def _unasked(words: Callable[[Exchange], bytes]) -> Act:
    """The right answer, and something after it when the client has read that."""

    async def act(exchange: Exchange) -> bool:
        await exchange.say(exchange.right)
        await turns()
        await exchange.say(words(exchange))
        return True

    return act


def _with_next(words: Callable[[Exchange], bytes]) -> Act:
    """The right answer, and something after it as soon as the next request has begun to come."""

    async def act(exchange: Exchange) -> bool:
        await exchange.say(exchange.right)
        await exchange.reader.read(1)
        await exchange.say(words(exchange))
        return False

    return act


def _in_one(words: Callable[[Exchange], bytes]) -> Act:
    return saying(lambda exchange: exchange.right + words(exchange))


def right(exchange: Exchange) -> bytes:
    """The catalog's answer."""
    return exchange.right


def previous(exchange: Exchange) -> bytes:
    """The answer to the request before."""
    return exchange.previous


def _cut(name: str, part: Callable[[bytes], bytes]) -> Sequence[Kind]:
    return [Kind(f"{how} {name}", saying(lambda exchange: part(exchange.right), end)) for how, end in _ENDS]


ANY_WIRE: Sequence[Kind] = (
    *_cut("before the answer", lambda right: b""),
    *_cut("after a byte", lambda right: right[:1]),
    *_cut("after a fifth", lambda right: right[: len(right) // 5]),
    *_cut("within the answer", lambda right: right[: len(right) // 2]),
    *_cut("before the last byte", lambda right: right[:-1]),
    Kind("ended after the answer", saying(right, "close")),
    Kind("reset after the answer", saying(right, "reset")),
    Kind("half closed after the answer", saying(right, "shut")),
    Kind("the request lost, the connection closed", always(b"", "close"), forwards=False),
    Kind("the request lost, the connection reset", always(b"", "reset"), forwards=False),
    Kind("the request lost, nothing said", always(b"", "hang"), forwards=False),
    Kind("a byte at a time", _bytewise),
    Kind("in two halves", _in_halves),
    Kind("late", _late),
    Kind("a byte a second", _drip),
    Kind("zeros before the answer", saying(lambda exchange: bytes(9) + exchange.right)),
    Kind("noise before the answer", saying(lambda exchange: b"\x8f\xfe noise" + exchange.right)),
    Kind("noise after the answer", _in_one(lambda exchange: b"\x8f\xfe noise")),
    Kind("noise later", _unasked(lambda exchange: b"\x8f\xfe noise")),
    Kind("the answer twice at once", _in_one(right)),
    Kind("the answer again, later", _unasked(right)),
    Kind("the answer again and again, later", _unasked(lambda exchange: 50 * exchange.right)),
    Kind("half of the answer again, later", _unasked(lambda exchange: exchange.right[: len(exchange.right) // 2])),
    Kind("the previous answer after it", _in_one(previous)),
    Kind("the previous answer later", _unasked(previous)),
    Kind("a byte of another answer after it", _in_one(lambda exchange: exchange.right[:1])),
    Kind("the previous answer before it", saying(lambda exchange: exchange.previous + exchange.right)),
    # What comes after the next request was written is told by the names in it, or not at all.
    Kind("the answer again, with the next request", _with_next(right), not_on=frozenset({"iceberg"})),
    Kind("the previous answer instead", saying(previous), not_on=frozenset({"iceberg"})),
    Kind("the request itself", saying(lambda exchange: exchange.request)),
    Kind("an alert of TLS", always(b"\x15\x03\x03\x00\x02\x02\x28", "close")),
    Kind("a handshake of TLS", always(b"\x16\x03\x03\x40\x00" + bytes(99), "hang")),
    Kind("frames of HTTP/2", always(b"\0\0\x12\4\0\0\0\0\0" + bytes(18), "hang")),
    Kind("a greeting of SMTP", always(b"220 mail.example.com ESMTP ready\r\n", "hang")),
    Kind("a banner of SSH", always(b"SSH-2.0-OpenSSH_9.6\r\n", "close")),
)
"""Misbehaviour on any wire."""

"""Bodies of requests, which may be neither too long nor too slow."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator

from aiohttp import web
from lance_namespace.errors import ErrorCode, InvalidInputError

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.answers import Refused
from lance_ns_async.gateway.limits import Share

_PIECE = 1 << 18
"""Bytes that are decompressed at once."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""What zlib calls finding out by itself which of both it is."""


async def body(request: web.BaseRequest, limit: int, idle: float, what: str, share: Share) -> bytes:
    """Returns the body, decompressed, whose bytes are counted in `share`.

    Raises:
        Refused: It has over `limit` bytes, none come for `idle` seconds, or too many are held in all.
        InvalidInputError: It is not sent as its headers say.
    """
    if (request.content_length or 0) > limit:
        raise _too_long(limit, what)
    decoder = _decoder(request.headers.get("Content-Encoding", ""))
    await _invite(request)
    parts: list[bytes] = []
    size = 0
    try:
        while not request.content.at_eof():
            async with asyncio.timeout(idle):
                raw = await request.content.readany()
            for part in decoder.pieces(raw):
                size += len(part)
                if size > limit:
                    raise _too_long(limit, what)
                share.take(len(part))
                parts.append(part)
                # Each takes about a millisecond, and there may be many.
                await asyncio.sleep(0)
        decoder.end()
    except TimeoutError:
        message = f"Invalid input: the body did not come; nothing was sent for {idle:g} s"
        raise Refused(408, ErrorCode.INVALID_INPUT, message, {"Connection": "close"}) from None
    except web.RequestPayloadError as e:
        raise InvalidInputError("body: it is not sent as its headers say") from e
    share.take(size)
    return b"".join(parts)


class _Plain:
    """A body that is as it was sent."""

    def pieces(self, raw: bytes) -> Iterator[bytes]:
        """The bytes in pieces."""
        yield raw

    def end(self) -> None:
        """Nothing can be missing: the length was checked by the server."""


class _Deflated:
    """A body that is compressed, as gzip or as zlib has it."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)

    def pieces(self, raw: bytes) -> Iterator[bytes]:
        """The bytes in pieces; raises InvalidInputError where they are not compressed so."""
        try:
            while raw:
                if self._zlib.eof:
                    # Another member of a gzip file.
                    self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)
                yield self._zlib.decompress(raw, _PIECE)
                raw = self._zlib.unconsumed_tail or self._zlib.unused_data
        except zlib.error as e:
            raise InvalidInputError(f"body: it is not compressed as its Content-Encoding says ({e})") from e

    def end(self) -> None:
        """Raises InvalidInputError where it breaks off."""
        if not self._zlib.eof:
            raise InvalidInputError("body: it is compressed, and breaks off")


def _decoder(encoding: str) -> _Plain | _Deflated:
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip" | "deflate":
            return _Deflated()
    # Layers within layers are not undone either.
    message = f"Invalid input: Content-Encoding {shortened(encoding, 40)!r}: this server reads gzip and deflate"
    raise Refused(415, ErrorCode.INVALID_INPUT, message, {"Accept-Encoding": "gzip, deflate"})


async def _invite(request: web.BaseRequest) -> None:
    """Tells a client to go on that waits for it before it sends a long body."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # That was no part of the answer.
        request.writer.output_size = 0


def _too_long(limit: int, what: str) -> Refused:
    message = f"Invalid input: the body is longer than the {limit} bytes this server takes as {what}"
    return Refused(413, ErrorCode.INVALID_INPUT, message, {"Connection": "close"})

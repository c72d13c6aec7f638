"""Request bodies: reading and decompression, with limits of size and time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator

from aiohttp import web
from lance_namespace.errors import ErrorCode, InvalidInputError

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.limits import Share
from lance_ns_async.gateway.responses import RequestError

_PIECE = 1 << 18  # Maximum number of bytes per decompression step.

_LARGE = 1 << 20  # Number of bytes from which the parts of a body are joined in a thread.

_SLOWEST = 4096  # Minimum rate of a body, in bytes a second, in addition to the idle time.

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # The zlib `wbits` value that detects gzip or zlib automatically.


async def body(request: web.BaseRequest, limit: int, idle: float, what: str, share: Share) -> bytes:
    """Returns the decompressed body, whose bytes are counted in `share`.

    Args:
        request: The request whose body is read.
        limit: Maximum number of bytes.
        idle: Maximum seconds without any data, and for a body in addition to the time at the minimum rate.
        what: The kind of content, for messages.
        share: Counts the memory of the request.
    """
    if (request.content_length or 0) > limit:
        raise _too_long(limit, what)
    decoder = _Decoder(request.headers.get("Content-Encoding", ""))
    await _invite(request)
    parts: list[bytes] = []
    size = 0
    clock = asyncio.get_running_loop().time
    # A client that sends a few bytes now and then would hold its connection without end.
    end = clock() + idle
    try:
        while not request.content.at_eof():
            async with asyncio.timeout_at(min(end, clock() + idle)):
                raw = await request.content.readany()
            end += len(raw) / _SLOWEST
            for part in decoder.pieces(raw):
                size += len(part)
                if size > limit:
                    raise _too_long(limit, what)
                share.take(len(part))
                parts.append(part)
                # Each step takes about a millisecond, and there may be many.
                await asyncio.sleep(0)
        decoder.end()
    except TimeoutError:
        message = f"Invalid input: the body is incomplete; no data arrived for {idle:g} s, or too little"
        raise RequestError(408, ErrorCode.INVALID_INPUT, message, {"Connection": "close"}) from None
    except web.RequestPayloadError as e:
        raise InvalidInputError("body: does not match its headers") from e
    share.take(size)
    # Python copies in parallel if it is that much.
    return await asyncio.to_thread(b"".join, parts) if size >= _LARGE else b"".join(parts)


class _Decoder:
    """Decoder of a body with this Content-Encoding."""

    def __init__(self, encoding: str) -> None:
        self._zlib: zlib._Decompress | None = None
        match encoding.strip().lower():
            case "" | "identity":
                pass
            case "gzip" | "x-gzip" | "deflate":
                self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)
            case _:
                # Nested encodings are not supported either.
                message = (
                    f"Invalid input: Content-Encoding {shortened(encoding, 40)!r} is not supported; use gzip or deflate"
                )
                raise RequestError(415, ErrorCode.INVALID_INPUT, message, {"Accept-Encoding": "gzip, deflate"})

    def pieces(self, raw: bytes) -> Iterator[bytes]:
        """Yields the decoded bytes."""
        if self._zlib is None:
            yield raw
            return
        try:
            while raw:
                if self._zlib.eof:
                    # A gzip file may have several members.
                    self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)
                yield self._zlib.decompress(raw, _PIECE)
                raw = self._zlib.unconsumed_tail or self._zlib.unused_data
        except zlib.error as e:
            raise InvalidInputError(f"body: not in the format of its Content-Encoding ({e})") from e

    def end(self) -> None:
        """Raises InvalidInputError if the compressed data is incomplete."""
        if self._zlib is not None and not self._zlib.eof:
            raise InvalidInputError("body: the compressed data is incomplete")


async def _invite(request: web.BaseRequest) -> None:
    """Sends `100 Continue` to a client that waits for it before it sends the body."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # These bytes are not part of the response.
        request.writer.output_size = 0


def _too_long(limit: int, what: str) -> RequestError:
    message = f"Invalid input: the body exceeds the limit of {limit} bytes for {what}; send less at once"
    return RequestError(413, ErrorCode.INVALID_INPUT, message, {"Connection": "close"})

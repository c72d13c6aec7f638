"""Decompression of answers: one layer, up to a limit, and off the event loop where it takes long."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import anyio.to_thread

_AT_ONCE = 256 * 1024
"""Bytes that are unpacked on the event loop, which takes less than a millisecond."""

_PIECE = 1024 * 1024


class UnpackError(Exception):
    """A body that is not packed as its headers say, or in a way that nobody asked for."""


class TooLongError(Exception):
    """A body that unpacks to more than the limit."""


async def unpack(packed: bytes, encoding: str, limit: int) -> bytes:
    """Returns the body that was compressed as Content-Encoding says.

    Args:
        packed: The body as it was received.
        encoding: The value of Content-Encoding; `identity` and an empty one mean that nothing was done.
        limit: The most bytes that the body may have.

    Raises:
        UnpackError: For several layers, which multiply, for methods other than gzip and deflate, which need packages
            of their own, and for what is broken.
        TooLongError: Where there are more than `limit` bytes. No more than these are ever held.
    """
    method = encoding.strip().lower()
    if method in ("", "identity"):
        return packed
    if method not in _WINDOWS:
        raise UnpackError(f"its Content-Encoding is {encoding[:60]!r}, and only gzip or deflate are read, once")
    if not packed:
        # An answer to HEAD, or without a body, has nothing to unpack.
        return packed
    unpacking = zlib.decompressobj(_WINDOWS[method](packed))

    def some(data: bytes, most: int) -> bytes:
        try:
            return unpacking.decompress(data, most)
        except zlib.error as e:
            raise UnpackError(str(e)) from e

    def rest(begin: bytes) -> bytes:
        # In pieces: other threads, and so the event loop, wait while one piece is copied.
        pieces, size = [begin], len(begin)
        while size <= limit and not unpacking.eof:
            piece = some(unpacking.unconsumed_tail, min(limit + 1 - size, _PIECE))
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    # One byte over the limit tells that there is more.
    body = some(packed, min(limit + 1, _AT_ONCE))
    if not unpacking.eof and len(body) == _AT_ONCE <= limit:
        body = await anyio.to_thread.run_sync(rest, body, abandon_on_cancel=True)
    if len(body) > limit:
        raise TooLongError
    if not unpacking.eof:
        raise UnpackError("it breaks off")
    if unpacking.unused_data:
        raise UnpackError(f"{len(unpacking.unused_data)} bytes follow its end")
    return body


def _deflate_window(packed: bytes) -> int:
    # Some servers leave out the two bytes that zlib begins with.
    has_head = len(packed) > 1 and packed[0] & 0x0F == zlib.DEFLATED and int.from_bytes(packed[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if has_head else -zlib.MAX_WBITS


def _gzip_window(packed: bytes) -> int:
    return zlib.MAX_WBITS | 16


_WINDOWS: dict[str, Callable[[bytes], int]] = {
    "gzip": _gzip_window,
    "x-gzip": _gzip_window,
    "deflate": _deflate_window,
}

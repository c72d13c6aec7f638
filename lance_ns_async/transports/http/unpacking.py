"""Decompression of responses: one layer, up to a size limit, and in a worker thread if it takes long."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import anyio.to_thread

_AT_ONCE = 256 * 1024
"""Maximum number of bytes that are decompressed on the event loop, which takes less than a millisecond."""

_PIECE = 1024 * 1024


class UnpackError(Exception):
    """A body that does not match its Content-Encoding, or that has an unsupported one."""


class TooLongError(Exception):
    """A body that is longer than the limit when decompressed."""


async def unpack(content: bytes, encoding: str, limit: int) -> bytes:
    """Returns the decompressed body.

    Args:
        content: The body as it was received.
        encoding: The value of Content-Encoding; `identity` and an empty value mean that the body is not compressed.
        limit: Maximum size of the decompressed body in bytes.
    """
    method = encoding.strip().lower()
    if method in ("", "identity"):
        return content
    if method not in _WINDOWS:
        raise UnpackError(f"its Content-Encoding is {encoding[:60]!r}, and only gzip or deflate are read, once")
    if not content:
        # A response to HEAD, or one without a body, has nothing to decompress.
        return content
    unpacking = zlib.decompressobj(_WINDOWS[method](content))

    def some(data: bytes, most: int) -> bytes:
        try:
            return unpacking.decompress(data, most)
        except zlib.error as e:
            raise UnpackError(str(e)) from e

    def rest(begin: bytes) -> bytes:
        # The body is decompressed in pieces, because copying one blocks other threads, and so the event loop.
        pieces, size = [begin], len(begin)
        while size <= limit and not unpacking.eof:
            piece = some(unpacking.unconsumed_tail, min(limit + 1 - size, _PIECE))
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    # One byte more than the limit shows that the body is too long.
    body = some(content, min(limit + 1, _AT_ONCE))
    if not unpacking.eof and len(body) == _AT_ONCE <= limit:
        body = await anyio.to_thread.run_sync(rest, body, abandon_on_cancel=True)
    if len(body) > limit:
        raise TooLongError
    if not unpacking.eof:
        raise UnpackError("it breaks off")
    if unpacking.unused_data:
        raise UnpackError(f"{len(unpacking.unused_data)} bytes follow its end")
    return body


def _deflate_window(content: bytes) -> int:
    # Some servers omit the two bytes of the zlib header.
    has_head = len(content) > 1 and content[0] & 0x0F == zlib.DEFLATED and int.from_bytes(content[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if has_head else -zlib.MAX_WBITS


def _gzip_window(content: bytes) -> int:
    return zlib.MAX_WBITS | 16


_WINDOWS: dict[str, Callable[[bytes], int]] = {"gzip": _gzip_window, "x-gzip": _gzip_window, "deflate": _deflate_window}

"""Parsing of raw paths and queries as in a Polaris server."""

from __future__ import annotations

import base64
import re
import struct
from urllib.parse import parse_qsl, unquote

from ..iceberg.errors import Refusal
from .errors import no_route

SEPARATOR = "\x1f"
_DOTS = re.compile(r"/(\.|%2e){1,2}(?=/|$)", re.IGNORECASE)
_TOKEN = struct.Struct(">4sQQ")
_MAGIC = b"page"


def segments(path: str) -> list[str]:
    """Returns the raw segments, without dot segments and a trailing slash."""
    result = path[1:].split("/")
    kept = _without_dots(result) if _DOTS.search(path) else result
    if kept and not kept[-1]:
        kept.pop()
    return kept


def levels(text: str) -> tuple[str, ...]:
    """Returns the levels of a decoded namespace segment; an additional separator makes an empty level."""
    return tuple(text.split(SEPARATOR))


def decoded(segment: str) -> str:
    """Returns a path segment, decoded once: a plus stays a plus."""
    return unquote(segment)


def parameters(query: str) -> dict[str, str]:
    """Returns the form-decoded query: a plus is a blank."""
    return dict(parse_qsl(query, keep_blank_values=True))


def page_size(params: dict[str, str]) -> int | None:
    """Returns the requested page size; None if there is none."""
    text = params.get("pageSize")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise no_route("HTTP 404 Not Found") from None


def page_token(last: int, size: int) -> str:
    """Returns an opaque token for the page after the item of this number, with a page size."""
    return base64.urlsafe_b64encode(_scrambled(_TOKEN.pack(_MAGIC, last, size))).decode()


def page_start(token: str) -> tuple[int, int]:
    """Returns number and size in a page token."""
    try:
        magic, last, size = _TOKEN.unpack(_scrambled(base64.urlsafe_b64decode(token)))
    except (ValueError, struct.error):
        magic, last, size = b"", 0, 0
    if magic != _MAGIC:
        raise Refusal(500, "RuntimeException", f"Invalid page token: {token}")
    return last, size


def _without_dots(segments: list[str]) -> list[str]:
    kept: list[str] = []
    for segment in segments:
        match re.sub("%2e", ".", segment, flags=re.IGNORECASE):
            case ".":
                pass
            case "..":
                del kept[-1:]
            case _:
                kept.append(segment)
    return kept


def _scrambled(raw: bytes) -> bytes:
    # So that a token is opaque, and contains characters that must be quoted.
    return bytes(byte ^ (0x8B + 29 * i) % 256 for i, byte in enumerate(raw))

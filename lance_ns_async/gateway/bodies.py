"""Bodies of requests, which may be neither too long nor too slow."""

from __future__ import annotations

import asyncio

from aiohttp import web
from lance_namespace.errors import ErrorCode, InvalidInputError

from lance_ns_async.gateway.answers import Refused


async def body(request: web.BaseRequest, limit: int, idle: float, what: str) -> bytes:
    """The body, decompressed; raises Refused where it has over `limit` bytes, or none come for `idle` seconds."""
    if (request.content_length or 0) > limit:
        raise _too_long(limit, what)
    await _invite(request)
    parts: list[bytes] = []
    size = 0
    try:
        while not request.content.at_eof():
            async with asyncio.timeout(idle):
                part = await request.content.readany()
            size += len(part)
            if size > limit:
                raise _too_long(limit, what)
            parts.append(part)
    except TimeoutError:
        message = f"Invalid input: the body did not come; nothing was sent for {idle:g} s"
        raise Refused(408, ErrorCode.INVALID_INPUT, message, {"Connection": "close"}) from None
    except web.RequestPayloadError as e:
        raise InvalidInputError("body: it is not sent as its headers say") from e
    return b"".join(parts)


async def _invite(request: web.BaseRequest) -> None:
    """Tells a client to go on that waits for it before it sends a long body."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # That was no part of the answer.
        request.writer.output_size = 0


def _too_long(limit: int, what: str) -> Refused:
    message = f"Invalid input: the body is longer than the {limit} bytes this server takes as {what}"
    return Refused(413, ErrorCode.INVALID_INPUT, message, {"Connection": "close"})

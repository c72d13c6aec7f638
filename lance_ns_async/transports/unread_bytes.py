"""Detection and reading of bytes that the event loop has not read from a connection."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import suppress
from functools import partial


def unread(transport: asyncio.BaseTransport) -> Callable[[], object]:
    """Returns a check whether the kernel has unread bytes, or an unread end of stream, of this connection.

    The event loop may not have polled the socket yet. Call the check before a request is written to an idle connection.

    Cost: one system call per check, about 1 µs.
    """
    wire = transport.get_extra_info("socket")
    if wire is None:
        return lambda: False
    number = wire.fileno()
    if hasattr(select, "poll"):
        waiting = select.poll()
        waiting.register(number, select.POLLIN)
        return partial(waiting.poll, 0)
    return lambda: bool(select.select([number], [], [], 0)[0])


def read_rest(transport: asyncio.BaseTransport, limit: int) -> bytes:
    """Returns what the kernel still has of a connection that has failed, at most `limit` bytes.

    After a failed write the event loop reads no more, although the response may have arrived before.
    """
    wire = transport.get_extra_info("socket")
    parts: list[bytes] = []
    with suppress(OSError):
        while limit > 0 and (part := os.read(wire.fileno(), limit)):
            parts.append(part)
            limit -= len(part)
    return b"".join(parts)

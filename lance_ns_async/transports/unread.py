"""Detection of unread bytes on an idle connection."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable


def unread(transport: asyncio.BaseTransport) -> Callable[[], bool]:
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
        return lambda: bool(waiting.poll(0))
    return lambda: bool(select.select([number], [], [], 0)[0])

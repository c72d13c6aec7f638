"""Whether bytes wait on a connection that nobody asked for."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable


def unread(transport: asyncio.BaseTransport) -> Callable[[], bool]:
    """Returns a check whether the kernel holds bytes of this connection, or its end, that were not read yet.

    The event loop may not have looked yet, so whoever lends an idle connection asks this before a request is written.

    Cost: one system call a check, about 1 µs.
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

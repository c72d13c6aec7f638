"""The background loop: whatever interrupts who waits for it, nothing goes on there unseen."""

from __future__ import annotations

import asyncio
import linecache
import sys
from itertools import count
from types import FrameType
from typing import Any

import pytest

from lance_ns_async.namespace import background_loop
from lance_ns_async.namespace.background_loop import BackgroundLoop


class Interrupter:
    """A trace function that interrupts at the last of so many of the module's lines that are come by."""

    def __init__(self, lines: int) -> None:
        self.left = lines
        self.at = ""
        """The source of the line it interrupted at."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != background_loop.__file__:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.at = linecache.getline(background_loop.__file__, frame.f_lineno).strip()
                raise KeyboardInterrupt
        return self


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def others() -> int:
    """Tasks that are there besides this one and the loop's own, after all that ends has ended."""
    for _ in range(3):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks()) - 1


def test_an_interrupt_at_any_line_leaves_nothing_under_way() -> None:
    lease = BackgroundLoop.lease()
    tracing = sys.gettrace()
    for lines in count(1):
        interrupter = Interrupter(lines)
        work = forever()
        try:
            sys.settrace(interrupter)
            with pytest.raises(KeyboardInterrupt):
                lease.run(work)
        finally:
            sys.settrace(tracing)
            # A tracer interrupts where no signal does: at the end of a block under the lock, which then stays locked.
            while background_loop._lock._is_owned():  # type: ignore[attr-defined]  # of the standard library, and not typed
                background_loop._lock.release()
        # Where it was not begun, it is for Python to say that nobody awaited it.
        work.close()
        assert lease.run(others()) == 0, interrupter.at
        if "outcome.result(" in interrupter.at:
            break
    assert lines > 5
    lease.release()

"""Time that passes because a test says so, and not because the machine is busy."""

from __future__ import annotations

import asyncio

_ROUNDS = 200


async def pass_time(seconds: float) -> None:
    """Has so many seconds pass at once for all that waits on the running loop, after what is under way is done."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    now = loop.time
    setattr(loop, "time", lambda: now() + seconds)  # noqa: B010 - a method of another's class
    await asyncio.sleep(0)

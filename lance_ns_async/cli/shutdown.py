"""Time limit for the end of a server's process, independent of its threads."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.messages import say

_CLOSING = 1.0
"""Maximum seconds for the shutdown after the grace period of pending work."""


class Deadline:
    """Ends the process one second after the grace period, if it has not ended by itself.

    Threads that compute in Lance or wait for a storage cannot be stopped, and the interpreter would wait for them
    without a limit. Their work had its grace period by then, and was not reported as done to any client.
    """

    def __init__(self, seconds: float, describe: Callable[[], str]) -> None:
        """Starts the timer.

        Args:
            seconds: The grace period of pending work, in seconds.
            describe: Returns a description of the pending work for the message.
        """
        self._seconds = seconds
        self._describe = describe
        self._unsaid = threading.Lock()
        timer = threading.Timer(seconds + _CLOSING, self._end)
        timer.daemon = True
        timer.start()

    def report(self, under_way: str) -> None:
        """Reports the work that was pending at the end of the grace period; only the first report is written."""
        if self._unsaid.acquire(blocking=False):
            say(
                f"ended after the grace period of {self._seconds:g} s with {under_way} in progress; "
                "their effect is unknown"
            )

    def _end(self) -> None:
        try:
            self.report(self._describe())
            for stream in (sys.stdout, sys.stderr):
                # The process that read the stream may have ended.
                with suppress(OSError, ValueError):
                    stream.flush()
            logging.shutdown()
        finally:
            os._exit(Code.FAILURE)

"""The end of a server's process, whatever its threads do."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from lance_ns_async.cli.errors import Code, say

_CLOSING = 1.0
"""Seconds that closing takes at most, once what is under way had its grace."""


class Deadline:
    """Ends the process after so many seconds and one more, if it has not ended by itself.

    Threads that compute in Lance or wait for a storage cannot be stopped, and the interpreter waits for them for
    ever. What they do had its grace by then, and nobody was told that it is done.
    """

    def __init__(self, seconds: float, describe: Callable[[], str]) -> None:
        """Begins to count.

        Args:
            seconds: The time that what is under way has.
            describe: Returns what is under way, for the message.
        """
        self._seconds = seconds
        self._describe = describe
        self._unsaid = threading.Lock()
        timer = threading.Timer(seconds + _CLOSING, self._end)
        timer.daemon = True
        timer.start()

    def report(self, under_way: str) -> None:
        """Says what was under way when the time was over; only the first report is said."""
        if self._unsaid.acquire(blocking=False):
            say(f"ended after {self._seconds:g} s of grace with {under_way} under way; what it changed is unknown")

    def _end(self) -> None:
        try:
            self.report(self._describe())
            for stream in (sys.stdout, sys.stderr):
                # Whoever read it may have gone.
                with suppress(OSError, ValueError):
                    stream.flush()
            logging.shutdown()
        finally:
            os._exit(Code.FAILED)

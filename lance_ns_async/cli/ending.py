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


def end_within(seconds: float, describe: Callable[[], str]) -> None:
    """Ends the process after so many seconds and one more, if it has not ended by itself.

    Threads that compute in Lance or wait for a storage cannot be stopped, and the interpreter waits for them for
    ever. What they do had its grace by then, and nobody was told that it is done.

    Args:
        seconds: The time that what is under way has.
        describe: Returns what is under way, for the message.
    """
    timer = threading.Timer(seconds + _CLOSING, _end, (seconds, describe))
    timer.daemon = True
    timer.start()


def _end(seconds: float, describe: Callable[[], str]) -> None:
    try:
        say(f"ended after {seconds:g} s of grace with {describe()} under way; what it changed is unknown")
        for stream in (sys.stdout, sys.stderr):
            # Whoever read it may have gone.
            with suppress(OSError, ValueError):
                stream.flush()
        logging.shutdown()
    finally:
        os._exit(Code.FAILED)

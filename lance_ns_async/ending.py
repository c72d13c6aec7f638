"""The end of the process: calls into native code, in worker threads, end before the interpreter does.

CPython before 3.14 ends a thread that comes back from native code once the interpreter is finalized, by unwinding its
stack. Rust and C++ abort the process for that (SIGABRT), or it hangs. So no such call begins once `atexit` runs, and
those under way are waited for.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from lance_namespace.errors import InvalidInputError

log = logging.getLogger(__name__)

REFUSAL = "the interpreter is ending; use the namespace before that"

LONGEST_WAIT = 10.0
"""Seconds for which the end of the process waits for calls that are under way."""

_SILENCE = 1.0
"""Seconds after which it says that it waits."""

_SHOWN = 5
"""How many calls a message names."""


class _Calls:
    """Calls into native code that are under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._under_way: dict[object, str] = {}
        self._closed = False

    def begin(self, subject: str) -> object:
        """Registers a call; raises InvalidInputError where the process is ending."""
        call = object()
        with self._changed:
            if self._closed:
                raise InvalidInputError(f"{subject}: {REFUSAL}")
            self._under_way[call] = subject
        return call

    def end(self, call: object) -> None:
        """Forgets a call that is over."""
        with self._changed:
            del self._under_way[call]
            if self._closed and not self._under_way:
                self._changed.notify_all()

    def close(self) -> None:
        """Refuses calls from now on."""
        with self._changed:
            self._closed = True

    def wait(self, seconds: float) -> list[str]:
        """Waits until all are over, for so long at most; returns the subjects of those that are not."""
        until = monotonic() + seconds
        with self._changed:
            while self._under_way and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            return list(self._under_way.values())


_calls = _Calls()
_to_stop: list[Callable[[], None]] = []


@contextmanager
def native_call(subject: str) -> Iterator[None]:
    """Has the end of the process wait for the native code that runs in this context, in a worker thread.

    Args:
        subject: What it works on, for messages.

    Raises:
        InvalidInputError: The process is ending.
    """
    # The one it began with: a forked child has another.
    calls = _calls
    call = calls.begin(subject)
    try:
        yield
    finally:
        calls.end(call)


@contextmanager
def thread_start() -> Iterator[None]:
    """Maps the error of a thread that cannot start, because the interpreter is ending.

    From Python 3.12 on, no thread starts once `atexit` runs.

    Raises:
        InvalidInputError: The interpreter is ending.
    """
    try:
        yield
    except RuntimeError as e:
        if "interpreter shutdown" in str(e):
            raise InvalidInputError(REFUSAL) from e
        raise


def before_waiting(stop: Callable[[], None]) -> Callable[[], None]:
    """Has `stop` called before the end of the process waits: it asks calls that can be stopped to end."""
    _to_stop.append(stop)
    return stop


@atexit.register
def _end() -> None:
    """Has all calls end before the interpreter does; what does not end in time is named, and left behind."""
    _calls.close()
    for stop in _to_stop:
        stop()
    try:
        if left := _calls.wait(_SILENCE):
            told = "the process waits up to %g s for the storage, and ends at once if interrupted again (%s)"
            log.warning(told, LONGEST_WAIT, _list(left))
            left = _calls.wait(LONGEST_WAIT - _SILENCE)
    except KeyboardInterrupt:
        left = _calls.wait(0)
    if left:
        # What hangs in native code mostly does so until the process is gone. To end without finalizing the interpreter
        # would be safe, but would lose the exit status, which Python tells nobody before.
        log.warning("the process ends before the storage has answered (%s)", _list(left))


def _list(subjects: list[str]) -> str:
    more = f" and {len(subjects) - _SHOWN} more" if len(subjects) > _SHOWN else ""
    return ", ".join(subjects[:_SHOWN]) + more


def _forget() -> None:
    """In a forked child: the calls are the parent's, and the lock may be held by a thread that is not there."""
    global _calls
    _calls = _Calls()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""The end of the process: calls into native code in worker threads end before the interpreter does.

If a thread returns from native code after the interpreter was finalized, CPython before 3.14 unwinds the stack of the
thread. Rust and C++ then abort the process (SIGABRT), or the process hangs. Therefore, no such call begins once
`atexit` runs, and the process waits for the calls in progress and for the release of their native objects. Work that
only reads stops between two of its calls.

Before that, Python waits for the threads that are no daemons. anyio ends its own at the end of the task that needed
them, which never comes if the event loop was stopped or closed first. They are ended here.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, cast

from lance_namespace.errors import InvalidInputError

log: logging.Logger = logging.getLogger(__name__)

REFUSAL = "the interpreter is ending; use the namespace before that"

MAX_WAIT_SECONDS = 10.0
"""Maximum number of seconds for which the end of the process waits for calls in progress."""

_SILENCE = 1.0  # Seconds of waiting after which a warning is logged.

_MAX_SUBJECTS = 5  # Maximum number of calls that a message names.


class GivenUp(Exception):
    """Ends work whose result is no longer needed; it is not visible to callers."""


class NativeWork:
    """Work in a worker thread that calls native code, and that can stop between two of these calls.

    Args:
        subject: The object of the work, for messages.
        stoppable: Whether `check_given_up` may stop it.
    """

    def __init__(self, subject: str, *, stoppable: bool = False) -> None:
        self.subject = subject
        self.stoppable = stoppable
        self.given_up: threading.Event = threading.Event()

    def check(self) -> None:
        """Raises GivenUp if the result is no longer needed."""
        if self.given_up.is_set():
            raise GivenUp


class _Calls:
    """The work that calls native code and is in progress."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._under_way: set[NativeWork] = set()
        self._is_closed = False

    def begin(self, work: NativeWork) -> None:
        """Registers work that begins."""
        with self._condition:
            if self._is_closed:
                raise InvalidInputError(f"{work.subject}: {REFUSAL}")
            self._under_way.add(work)

    def end(self, work: NativeWork) -> None:
        """Removes work that has ended."""
        with self._condition:
            self._under_way.remove(work)
            if self._is_closed and not self._under_way:
                self._condition.notify_all()

    def close(self) -> None:
        """Refuses work from now on, and stops the work that can be stopped."""
        with self._condition:
            self._is_closed = True
            for work in self._under_way:
                if work.stoppable:
                    work.given_up.set()

    def wait(self, seconds: float) -> list[str]:
        """Waits at most `seconds` until all work has ended; returns the subjects of those that have not."""
        until = monotonic() + seconds
        with self._condition:
            while self._under_way and (left := until - monotonic()) > 0:
                self._condition.wait(left)
            return [work.subject for work in self._under_way]


_calls = _Calls()
_to_stop: list[Callable[[], None]] = []


_work: ContextVar[NativeWork | None] = ContextVar("lance_ns_async_work", default=None)


@contextmanager
def native_call(work: NativeWork | str) -> Iterator[None]:
    """Makes the end of the process wait for the native code that runs in this context, in a worker thread.

    Args:
        work: The work, or its subject if it cannot stop before its end.
    """
    if isinstance(work, str):
        work = NativeWork(work)
    # The work must end in the object in which it began: a forked child has another one.
    calls = _calls
    calls.begin(work)
    token = _work.set(work)
    try:
        yield
    except BaseException as e:  # it is raised again
        _release_locals(e)
        raise
    finally:
        _work.reset(token)
        calls.end(work)


def current_work() -> NativeWork | None:
    """Returns the work of this thread, if there is one."""
    return _work.get()


def _release_locals(error: BaseException) -> None:
    """Clears the frames of an error, so that native objects in them are released before the call has ended."""
    chain: list[BaseException | None] = [error]
    for e in chain:
        if e is not None:
            traceback.clear_frames(e.__traceback__)
            chain += [it for it in (e.__cause__, e.__context__) if it not in chain]


def check_given_up() -> None:
    """Raises GivenUp if the work of this thread can stop, and its result is no longer needed."""
    if (work := _work.get()) is not None and work.stoppable:
        work.check()


@contextmanager
def thread_start() -> Iterator[None]:
    """Maps the error of a thread that cannot start, because the interpreter is ending.

    In Python 3.12, no thread starts once `atexit` runs.
    """
    try:
        yield
    except RuntimeError as e:
        if "interpreter shutdown" in str(e):
            raise InvalidInputError(REFUSAL) from e
        raise


def before_waiting(stop: Callable[[], None]) -> Callable[[], None]:
    """Registers `stop`, which the end of the process calls before it waits; it ends the calls that can be stopped."""
    _to_stop.append(stop)
    return stop


def _end_idle_threads() -> None:
    """Ends anyio's threads whose event loops do not run any more, as soon as they have no work."""
    for thread in threading.enumerate():
        if thread.name == "AnyIO worker thread":
            worker: Any = thread
            if not worker.loop.is_running():
                worker.stop()


# Python has no public way to act before it waits for threads; `concurrent.futures` uses this one, too.
cast(Any, threading)._register_atexit(_end_idle_threads)  # noqa: SLF001


@atexit.register
def _end() -> None:
    """Waits for calls before the interpreter ends; logs the calls that do not end in time."""
    _calls.close()
    for stop in _to_stop:
        stop()
    try:
        if left := _calls.wait(_SILENCE):
            message = "the process waits up to %g s for the storage, and ends at once if interrupted again (%s)"
            log.warning(message, MAX_WAIT_SECONDS, _list(left))
            left = _calls.wait(MAX_WAIT_SECONDS - _SILENCE)
    except KeyboardInterrupt:
        left = _calls.wait(0)
    if left:
        # Ending without finalizing the interpreter would be safe, but would skip the exit handlers of other libraries,
        # and would lose the exit status, which Python does not provide earlier.
        log.warning("the process ends before the storage has answered (%s)", _list(left))
        _delay_aborts()


def _delay_aborts() -> None:
    """Makes a thread that aborts the process sleep first, so that the process ends earlier with its own exit status.

    The handler of SIGABRT is the C library's `sleep`. Its argument, the signal number, is 6: the thread sleeps for 6
    seconds, and then the abort continues. An abort for any other reason is only delayed.
    """
    if sys.version_info >= (3, 14) or sys.platform == "win32":
        # There, no stack is unwound.
        return
    try:
        import ctypes
    except ImportError:
        return
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))


def _list(subjects: list[str]) -> str:
    more = f" and {len(subjects) - _MAX_SUBJECTS} more" if len(subjects) > _MAX_SUBJECTS else ""
    return ", ".join(subjects[:_MAX_SUBJECTS]) + more


def _forget() -> None:
    """Resets a forked child: the calls belong to the parent, and a thread of the parent may hold the lock."""
    global _calls
    _calls = _Calls()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""One event loop in a background thread, shared by all sync namespaces of the process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeVar

from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async.storage.process_end import REFUSAL, thread_start

T = TypeVar("T")

_TIME_TO_END = 10.0
"""Seconds that work has to put right what it had begun, once its caller was interrupted."""

_INTERRUPT_INTERVAL = 0.5
"""Seconds after which a waiting thread lets Python handle signals."""

# Reentrant, because what is collected while it is held may have something to close on the loop.
_lock = threading.RLock()
_shared: BackgroundLoop | None = None


def guard() -> AbstractContextManager[object]:
    """The lock under which leases are taken and work is begun; reentrant, and free in a forked child."""
    return _lock


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that counts as closed in a forked child, which has its selector in common with the parent.

    Whatever is collected there would otherwise take the parent's connections out of the selector.
    """

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def is_closed(self) -> bool:
        return self._process != os.getpid() or super().is_closed()


class _Outcome(Future[T]):
    """What becomes of work; to cancel it cancels the work."""

    task: asyncio.Task[T] | None = None
    """None until the loop has begun it."""


class BackgroundLoop:
    """An event loop that runs in a daemon thread as long as somebody leases it."""

    def __init__(self) -> None:
        self._loop = _Loop() if hasattr(os, "register_at_fork") else asyncio.new_event_loop()
        self._end = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, name="lance-ns-async", daemon=True)
        self._leases = 0
        self._stopping = False
        try:
            with thread_start():
                self._thread.start()
        except BaseException:
            self._loop.close()
            raise

    @classmethod
    def lease(cls) -> BackgroundLoop:
        """The shared loop, started if nobody had it; to be given back by `release`."""
        global _shared
        if sys.is_finalizing():
            # A thread that is started now never runs.
            raise InvalidInputError(REFUSAL)
        with _lock:
            if _shared is None:
                _shared = cls()
            _shared._leases += 1
            return _shared

    def release(self) -> None:
        """Gives a lease back; the last one stops the loop."""
        global _shared
        with _lock:
            self._leases -= 1
            if self._leases:
                return
            if _shared is self:
                _shared = None
            self._stopping = True
            self._loop.call_soon_threadsafe(self._end.set_result, None)

    @property
    def is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, run on the loop while this thread waits; interrupting the wait cancels it."""
        if self.is_here:
            work.close()
            raise InternalError(
                "Internal error: a sync namespace was called from its own event loop, where waiting would hang "
                "for ever; use AsyncNamespace there"
            )
        # Made before anything begins: an interrupt may come at any moment from then on.
        outcome = _Outcome[T]()
        try:
            if not self._begin(work, outcome):
                raise InvalidInputError("the namespace was closed, or its process forked, since this was begun")
            return _wait(outcome)
        except CancelledError:
            raise InvalidInputError("the namespace was closed while it was asked") from None
        except BaseException as e:  # who is interrupted is none of the work's errors; all are raised on
            if not isinstance(e, Exception) and not self._see_off(outcome):
                e.add_note("what was begun is still being put right; if the process ends now, some may be left")
            raise
        finally:
            outcome.cancel()

    def _see_off(self, outcome: _Outcome[Any]) -> bool:
        """Cancels work, and lets it put right what it had begun; whether it has, before its time was over."""
        ended = _Outcome[None]()
        if not outcome.cancel() or not self._begin(_ended(outcome), ended):
            return True
        try:
            ended.result(_TIME_TO_END)
        except CancelledError:
            # The loop has ended, and it with that.
            return True
        except TimeoutError:
            return False
        finally:
            ended.cancel()
        return True

    def finish_soon(self, generator: AsyncGenerator[Any, None]) -> None:
        """Closes a generator that lives on the loop, without waiting for it; the end of the loop does so, too."""
        self._begin(_closed(generator), _Outcome())

    def close_soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` without waiting for it and gives the lease back after it; does nothing in a forked child."""
        outcome = _Outcome[None]()
        if self._begin(work, outcome):
            outcome.add_done_callback(lambda _: self.release())

    def _begin(self, work: Coroutine[Any, Any, T], outcome: _Outcome[T]) -> bool:
        """Has `work` done on the loop, as `outcome` will tell; False where the loop takes no more."""
        # At the end of the interpreter the loop's thread stands still, perhaps with the lock.
        if not sys.is_finalizing():
            with _lock:
                # What is scheduled before the end is finished or cancelled; what came after would wait for ever.
                if not self._stopping:
                    self._loop.call_soon_threadsafe(self._do, work, outcome)
                    return True
        work.close()
        return False

    def _do(self, work: Coroutine[Any, Any, T], outcome: _Outcome[T]) -> None:
        task = outcome.task = self._loop.create_task(work)
        task.add_done_callback(partial(_tell, outcome))

        def cancel(outcome: Future[T]) -> None:
            if outcome.cancelled():
                # A loop that is closed has cancelled its tasks itself.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(task.cancel)

        # Called at once where it is cancelled already.
        outcome.add_done_callback(cancel)

    def _main(self) -> None:
        # Whoever still waits for a task is told when the runner cancels it.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            while not self._end.done():
                # Whoever waits for the task that raised it, or stopped the loop, is told; others are to be served.
                with suppress(SystemExit, KeyboardInterrupt, RuntimeError):
                    runner.get_loop().run_until_complete(self._end)

    def _abandon(self) -> None:
        self._stopping = True
        # What is left on the loop would complain when it is collected.
        self._loop.set_exception_handler(lambda loop, context: None)


def _wait(outcome: Future[T]) -> T:
    """Returns the result of work on the loop; an interrupt of the main thread ends the wait."""
    while True:
        try:
            return outcome.result(_INTERRUPT_INTERVAL)
        except TimeoutError:
            # A signal that another thread received, or that came just before the wait, does not end it.
            if outcome.done():
                return outcome.result()


def _tell(outcome: Future[T], task: asyncio.Task[T]) -> None:
    """What became of a task."""
    if task.cancelled():
        outcome.cancel()
        return
    error = task.exception()
    # False where nobody wants it any more.
    if not outcome.set_running_or_notify_cancel():
        return
    if error is None:
        outcome.set_result(task.result())
    else:
        outcome.set_exception(error)


async def _ended(outcome: _Outcome[Any]) -> None:
    if outcome.task is not None:
        await asyncio.wait([outcome.task])


async def _closed(generator: AsyncGenerator[Any, None]) -> None:
    await generator.aclose()


def _forget() -> None:
    """In a forked child: threads do not survive a fork, and the lock may be held by one that did not."""
    global _lock, _shared
    if _shared is not None:
        _shared._abandon()
    _lock = threading.RLock()
    _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

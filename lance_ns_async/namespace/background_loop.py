"""One event loop in a background thread, shared by all sync namespaces of the process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async.storage.process_end import REFUSAL, thread_start

T = TypeVar("T")

_TIME_TO_END = 10.0
"""Seconds that work has for its rollback after its caller was interrupted."""

_INTERRUPT_INTERVAL = 0.5
"""Seconds between the moments at which a waiting thread lets Python handle signals."""

_LOOP_END = "the namespace was closed, or the process was forked, since the operation started"
_CLOSED_DURING_CALL = "the namespace was closed during the call"

# Reentrant, because garbage collection in a thread that holds the lock may close a namespace on the loop.
_lock = threading.RLock()
_shared_loop: BackgroundLoop | None = None


def guard() -> AbstractContextManager[object]:
    """Returns the lock for taking leases and starting work; it is reentrant, and free in a forked child."""
    return _lock


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that counts as closed in a forked child, which shares its selector with the parent.

    Otherwise, garbage collection in the child would remove the parent's connections from the selector.
    """

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def is_closed(self) -> bool:
        return self._process != os.getpid() or super().is_closed()


class _Outcome(Future[T]):
    """The future of work on the loop; its cancellation cancels the work."""

    task: asyncio.Task[T] | None = None
    """None until the loop has started the work."""


class BackgroundLoop:
    """An event loop that runs in a daemon thread while it is leased."""

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
        """Returns the shared loop, and starts it if necessary; each lease must be returned by `release`.

        Raises:
            InvalidInputError: The interpreter is ending.
        """
        global _shared_loop
        if sys.is_finalizing():
            # A thread that is started now would never run.
            raise InvalidInputError(REFUSAL)
        with _lock:
            if _shared_loop is None:
                _shared_loop = cls()
            _shared_loop._leases += 1
            return _shared_loop

    def release(self) -> None:
        """Returns a lease; the loop stops with its last lease."""
        global _shared_loop
        with _lock:
            self._leases -= 1
            if self._leases:
                return
            if _shared_loop is self:
                _shared_loop = None
            self._stopping = True
            self._loop.call_soon_threadsafe(self._end.set_result, None)

    @property
    def is_here(self) -> bool:
        """Whether the current thread is the thread of the loop."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the loop and returns its result; an interrupt of the waiting thread cancels the work.

        Raises:
            InvalidInputError: The loop has ended, or the process was forked.
            InternalError: The current thread is the thread of the loop.
        """
        if self.is_here:
            work.close()
            raise InternalError(
                "Internal error: a sync namespace was called from its own event loop, where waiting would hang "
                "for ever; use AsyncNamespace there"
            )
        # The outcome exists before the work starts, because an interrupt may come at any moment after that.
        outcome = _Outcome[T]()
        try:
            if not self._begin(work, outcome):
                raise InvalidInputError(_LOOP_END)
            return _wait(outcome)
        except CancelledError:
            raise InvalidInputError(_CLOSED_DURING_CALL) from None
        except BaseException as e:  # an interrupt is not an error of the work; everything is raised again
            if not isinstance(e, Exception) and not self._see_off(outcome):
                e.add_note("the operation is still being rolled back; if the process ends now, some changes may remain")
            raise
        finally:
            outcome.cancel()

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits `work`, which runs on the loop, in any event loop; a cancellation cancels the work.

        In another loop, a cancellation does not wait for the rollback of the work.

        Raises:
            InvalidInputError: The loop has ended, or the process was forked.
        """
        if self.is_here:
            return await work
        outcome = _Outcome[T]()
        if not self._begin(work, outcome):
            raise InvalidInputError(_LOOP_END)
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise InvalidInputError(_CLOSED_DURING_CALL) from None
        finally:
            outcome.cancel()

    @contextmanager
    def keep_open(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Keeps an async context open on the loop, in a task of its own, while the returned context is open.

        Raises:
            InvalidInputError: The loop has ended, or the process was forked.
            InternalError: The current thread is the thread of the loop.
        """
        keeper = _Keeper(context)
        try:
            yield self.run(keeper.enter())
        finally:
            self.run(keeper.leave())

    def _see_off(self, outcome: _Outcome[Any]) -> bool:
        """Cancels work and waits for its rollback; returns whether that ended in time."""
        end = _Outcome[None]()
        if not outcome.cancel() or not self._begin(_wait_for(outcome), end):
            return True
        try:
            end.result(_TIME_TO_END)
        except CancelledError:
            # The loop has ended, and the work with it.
            return True
        except TimeoutError:
            return False
        finally:
            end.cancel()
        return True

    def finish_soon(self, generator: AsyncGenerator[Any, None]) -> None:
        """Closes a generator of the loop without waiting for it; the end of the loop closes it, too."""
        self._begin(_close(generator), _Outcome())

    def close_soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` without waiting for it, and then returns the lease; does nothing in a forked child."""
        outcome = _Outcome[None]()
        if self._begin(work, outcome):
            outcome.add_done_callback(lambda _: self.release())

    def _begin(self, work: Coroutine[Any, Any, T], outcome: _Outcome[T]) -> bool:
        """Starts `work` on the loop, with its result in `outcome`; returns False if the loop accepts no more work."""
        # At the end of the interpreter, the thread of the loop does not run any more, and may hold the lock.
        if not sys.is_finalizing():
            with _lock:
                # Work that is scheduled before the end is finished or cancelled; later work would wait for ever.
                if not self._stopping:
                    self._loop.call_soon_threadsafe(self._do, work, outcome)
                    return True
        work.close()
        return False

    def _do(self, work: Coroutine[Any, Any, T], outcome: _Outcome[T]) -> None:
        task = outcome.task = self._loop.create_task(work)
        task.add_done_callback(partial(_set_outcome, outcome))

        def cancel(outcome: Future[T]) -> None:
            if outcome.cancelled():
                # A closed loop has already cancelled its tasks.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(task.cancel)

        # The callback runs at once if the outcome is already cancelled.
        outcome.add_done_callback(cancel)

    def _main(self) -> None:
        # When the runner cancels the remaining tasks, their outcomes are cancelled, too.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            while not self._end.done():
                # The outcome of the task that raised it has the error; the loop must go on for the other tasks.
                with suppress(SystemExit, KeyboardInterrupt, RuntimeError):
                    runner.get_loop().run_until_complete(self._end)

    def abandon(self) -> None:
        """Prepares the loop for a forked child, where its thread does not run."""
        self._stopping = True
        # Remaining tasks would log errors when they are garbage-collected.
        self._loop.set_exception_handler(lambda loop, context: None)


class _Keeper(Generic[T]):
    """An async context that one task enters and leaves, because task groups belong to one task."""

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        """None until the context is entered."""

    async def enter(self) -> T:
        """Enters the context and returns its value; raises its error."""
        loop = asyncio.get_running_loop()
        self._value: asyncio.Future[T] = loop.create_future()
        self._end = asyncio.Event()
        self._task = loop.create_task(self._stay())
        either: list[asyncio.Future[Any]] = [self._value, self._task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._value.done():
            await self._task
        return self._value.result()

    async def leave(self) -> None:
        """Leaves the context; does nothing if it was never entered."""
        task, self._task = self._task, None
        if task is None or (task.done() and not self._value.done()):
            # The error of an entry that failed was raised there.
            return
        self._end.set()
        if not self._value.done():
            task.cancel()
            await asyncio.wait([task])
            return
        await task

    async def _stay(self) -> None:
        async with self._context as value:
            self._value.set_result(value)
            await self._end.wait()


def _wait(outcome: Future[T]) -> T:
    """Returns the result of work on the loop; an interrupt of the main thread ends the wait."""
    while True:
        try:
            return outcome.result(_INTERRUPT_INTERVAL)
        except TimeoutError:
            # A signal that another thread received, or that came just before the wait, does not end the wait.
            if outcome.done():
                return outcome.result()


def _set_outcome(outcome: Future[T], task: asyncio.Task[T]) -> None:
    """Copies the result of a task to its outcome."""
    if task.cancelled():
        outcome.cancel()
        return
    error = task.exception()
    # It returns False if the outcome was cancelled.
    if not outcome.set_running_or_notify_cancel():
        return
    if error is None:
        outcome.set_result(task.result())
    else:
        outcome.set_exception(error)


async def _wait_for(outcome: _Outcome[Any]) -> None:
    if outcome.task is not None:
        await asyncio.wait([outcome.task])


async def _close(generator: AsyncGenerator[Any, None]) -> None:
    await generator.aclose()


def _forget() -> None:
    """Resets a forked child, which has no other threads: the lock may be held by a thread of the parent."""
    global _lock, _shared_loop
    if _shared_loop is not None:
        _shared_loop.abandon()
    _lock = threading.RLock()
    _shared_loop = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

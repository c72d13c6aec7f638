"""One event loop in a background thread, shared by all sync namespaces of the process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from _thread import allocate_lock
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from typing import Any, Generic, TypeVar

from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async.storage.process_end import REFUSAL, thread_start

T = TypeVar("T")

_TIME_TO_END = 10.0  # Seconds that work has for its rollback after its caller was interrupted.

_INTERRUPT_INTERVAL = 0.5  # Seconds between the moments at which a waiting thread lets Python handle signals.

_LOOP_END = "the namespace was closed, or the process was forked, since the operation started"
_CLOSED_DURING_CALL = "the namespace was closed during the call"

# Reentrant, because garbage collection in a thread that holds the lock may close a namespace on the loop.
_lock = threading.RLock()
_shared_loop: BackgroundLoop | None = None


def loop_lock() -> AbstractContextManager[object]:
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


class _Work(Generic[T]):
    """Work on the loop, which another thread starts, awaits and cancels.

    A `concurrent.futures.Future` would do the same, and make each call of a sync namespace a tenth slower.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], notify: Callable[[], object]) -> None:
        """Describes work.

        Args:
            coroutine: The work.
            notify: Called on the loop at the end of the work, including its rollback.
        """
        self._coroutine = coroutine
        self._notify = notify
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False

    def start(self) -> None:
        """Starts the work; for the thread of the loop."""
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._end)
        # The other thread reads the task after it has set this.
        if self._is_cancelled:
            self._task.cancel()

    def cancel(self) -> None:
        """Cancels the work if it has not ended; for other threads."""
        self._is_cancelled = True
        if self._task is not None and not self.has_ended:
            # A closed loop has already cancelled its tasks.
            with suppress(RuntimeError):
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def result(self) -> T:
        """Returns the result of work that has ended."""
        assert self._task is not None
        if self._task.cancelled():
            raise InvalidInputError(_CLOSED_DURING_CALL)
        return self._task.result()

    @property
    def has_ended(self) -> bool:
        """Whether the work has ended."""
        return self._task is not None and self._task.done()

    async def wait(self) -> None:
        """Waits on the loop until the work has ended; returns at once if it was not started."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def discard(self) -> None:
        """Drops work that was not started."""
        self._coroutine.close()

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            # An error that was not read would be logged.
            task.exception()
        self._notify()


def _check_process() -> None:
    if sys.is_finalizing():
        # A thread that is started now would never run.
        raise InvalidInputError(REFUSAL)


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
        """Returns the shared loop, and starts it if necessary; each lease must be returned by `release`."""
        global _shared_loop
        _check_process()
        with _lock:
            if _shared_loop is None:
                _shared_loop = cls()
            _shared_loop._leases += 1
            return _shared_loop

    @classmethod
    def separate(cls) -> BackgroundLoop:
        """Starts a loop beside the shared one, for a load that must not delay its work; `release` stops it."""
        _check_process()
        loop = cls()
        loop._leases = 1
        return loop

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
        return threading.get_ident() == self._thread.ident

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs `coroutine` on the loop and returns its result; an interrupt of the waiting thread cancels it."""
        if self.is_here:
            coroutine.close()
            raise InternalError(
                "Internal error: a sync namespace was called from its own event loop, where waiting would hang "
                "for ever; use AsyncNamespace there"
            )
        ended = allocate_lock()
        ended.acquire()
        # It exists before the work starts, because an interrupt may come at any moment after that.
        work = _Work(coroutine, ended.release)
        try:
            if not self._begin(work):
                raise InvalidInputError(_LOOP_END)
            # A signal that another thread received, or that came just before the wait, does not end the wait.
            while not (ended.acquire(timeout=_INTERRUPT_INTERVAL) or work.has_ended):
                pass
            return work.result()
        except BaseException as e:  # an interrupt is not an error of the work; everything is raised again
            if not isinstance(e, Exception) and not self._see_off(work):
                e.add_note("the operation is still being rolled back; if the process ends now, some changes may remain")
            work.cancel()
            raise
        finally:
            # Otherwise, the error of the work would refer to itself.
            del work

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Awaits `coroutine`, which runs on the loop, in any event loop; a cancellation cancels it.

        In another loop, a cancellation does not wait for the rollback of the work.
        """
        if self.is_here:
            return await coroutine
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            # A loop that is closed does not wait any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        work = _Work(coroutine, notify)
        if not self._begin(work):
            raise InvalidInputError(_LOOP_END)
        try:
            await ended.wait()
            return work.result()
        finally:
            work.cancel()
            del work

    @contextmanager
    def keep_open(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Keeps an async context open on the loop, in a task of its own, while the returned context is open."""
        keeper = _Keeper(context)
        try:
            yield self.run(keeper.enter())
        finally:
            self.run(keeper.leave())

    def _see_off(self, work: _Work[Any]) -> bool:
        """Cancels work and waits for its rollback; returns whether that ended in time."""
        work.cancel()
        ended = allocate_lock()
        ended.acquire()
        wait = _Work(work.wait(), ended.release)
        try:
            return not self._begin(wait) or ended.acquire(timeout=_TIME_TO_END)
        finally:
            wait.cancel()

    def finish_soon(self, generator: AsyncGenerator[Any, None]) -> None:
        """Closes a generator of the loop without waiting for it; the end of the loop closes it, too."""
        self._begin(_Work(_close(generator), _ignore))

    def close_soon(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs `coroutine` without waiting for it, and then returns the lease; does nothing in a forked child."""
        self._begin(_Work(coroutine, self.release))

    def _begin(self, work: _Work[Any]) -> bool:
        """Starts `work` on the loop; returns False if the loop accepts no more work."""
        # At the end of the interpreter, the thread of the loop does not run any more, and may hold the lock.
        if not sys.is_finalizing():
            with _lock:
                # Work that is scheduled before the end is finished or cancelled; later work would wait for ever.
                if not self._stopping:
                    self._loop.call_soon_threadsafe(work.start)
                    return True
        work.discard()
        return False

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


def _ignore() -> None:
    """Ignores the end of work that nobody awaits."""


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

"""Rollback: cleanup that has its own bounded time and that no cancellation interrupts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import anyio
from lance_namespace.errors import ServiceUnavailableError

from lance_ns_async.calls.deadline import deadline
from lance_ns_async.errors import shortened

P = ParamSpec("P")
T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)

_MAX_NOTE_LENGTH = 400

_UNDO_SECONDS = 30.0  # Seconds that all calls of a rollback together may take, beyond the operation's own time.

_UNDO_GRACE = 10.0
"""Seconds after that until a rollback is cancelled, and the same time again until it is no longer awaited."""


@asynccontextmanager
async def rollback(undo: Callable[[BaseException], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Runs `undo` if the block ends with any exception, including cancellation, and raises that exception.

    The rollback has its own bounded time, beyond the operation's. A cancellation during the rollback waits for its
    end. An error of `undo` becomes a note of the exception.

    Args:
        undo: Receives the exception, and adds notes to it about what it could not undo.
    """
    try:
        yield
    except GeneratorExit:
        # The coroutine is being closed: it cannot await anything any more.
        raise
    except BaseException as error:  # panics of Lance, interrupts and memory errors need a rollback, too
        try:
            await run_cleanup(undo, error)
        except asyncio.CancelledError as e:
            if not isinstance(error, asyncio.CancelledError):
                raise
            for note in getattr(e, "__notes__", ()):
                error.add_note(note)
        except Exception as e:  # it must not replace the original error
            error.add_note(_not_undone(e))
        raise


async def run_cleanup(work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the result of a cleanup, which has its own bounded time; a cancellation waits for the cleanup's end.

    If the cleanup then fails, a note of the cancellation says so, and a warning is logged.
    """
    with deadline(_UNDO_SECONDS, extend=True):
        # The task inherits the deadline. A task group would be cancelled together with this coroutine.
        task = asyncio.ensure_future(work(*args, **kwargs))
    cancellation: asyncio.CancelledError | None = None
    until, ends = monotonic() + _UNDO_SECONDS + _UNDO_GRACE, False
    # The scope shields from anyio's cancellations, which repeat; the separate task from those of asyncio.
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task], timeout=max(0.0, until - monotonic()))
            except asyncio.CancelledError as e:
                cancellation = e
            if not task.done() and monotonic() >= until:
                if ends:
                    break
                task.cancel()
                until, ends = until + _UNDO_GRACE, True
    error: BaseException | None
    if not task.done():
        error = ServiceUnavailableError("Service unavailable: the rollback does not end")
    elif task.cancelled():
        error = ServiceUnavailableError("Service unavailable: the rollback took too long")
    else:
        error = task.exception()
    if cancellation is not None:
        if error is not None:
            note = _not_undone(error)
            cancellation.add_note(note)
            # The code that awaits a cancelled task may not get this exception object.
            log.warning("cancelled, %s", note)
        raise cancellation
    if error is not None:
        raise error
    return task.result()


def _not_undone(error: BaseException) -> str:
    return f"and the rollback failed ({type(error).__name__}: {shortened(str(error), _MAX_NOTE_LENGTH)})"

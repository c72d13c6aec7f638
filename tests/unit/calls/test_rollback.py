"""Rollback of failed operations: the raised error, and its note if the rollback fails, too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from lance_namespace.errors import PermissionDeniedError

from lance_ns_async.calls.rollback import rollback, run_cleanup
from tests.fakes.calls import settle

NOTE = "and the rollback failed (PermissionDeniedError: not yours)"


class Undo:
    """A rollback that fails when it is released."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, error: BaseException | None = None) -> None:
        self.begun.set()
        await self.go_on.wait()
        raise PermissionDeniedError("not yours")


async def cancelled_meanwhile(undo: Undo, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.CancelledError:
    """Cancels work during its rollback, and returns the resulting error."""
    task = asyncio.ensure_future(work())
    await undo.begun.wait()
    task.cancel()
    await settle()
    assert not task.done()
    undo.go_on.set()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    return raised.value


async def test_a_cancellation_during_a_failed_rollback_has_a_note(caplog: pytest.LogCaptureFixture) -> None:
    undo = Undo()
    assert (await cancelled_meanwhile(undo, partial(run_cleanup, undo))).__notes__ == [NOTE]
    # Code that awaits a cancelled task may never see the note.
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, f"cancelled, {NOTE}")
    ]


async def test_a_cancellation_during_a_rollback_keeps_its_error() -> None:
    undo = Undo()

    async def work() -> None:
        async with rollback(undo):
            raise ValueError("first")

    error = await cancelled_meanwhile(undo, work)
    assert error.__notes__ == [NOTE] and isinstance(error.__context__, ValueError)


async def test_a_second_cancellation_during_a_failed_rollback_has_a_note() -> None:
    undo, first = Undo(), asyncio.CancelledError("first")

    async def work() -> None:
        async with rollback(undo):
            raise first

    error = await cancelled_meanwhile(undo, work)
    assert error.args == ("first",) and error.__notes__ == [NOTE]


async def test_an_undo_that_fails_is_a_note_of_the_error() -> None:
    undo = Undo()
    undo.go_on.set()
    with pytest.raises(ValueError, match="first") as raised:
        async with rollback(undo):
            raise ValueError("first")
    assert raised.value.__notes__ == [NOTE]

"""Repetition of calls, rollback of steps, and the cache of results with tags."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import lance_namespace.errors as err
import pytest

from lance_ns_async.calls.caller import STALE, Caller
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy, TryAgainError
from lance_ns_async.calls.rollback import rollback, run_cleanup
from lance_ns_async.calls.tagged_results import CacheUse, TaggedResults
from lance_ns_async.errors import Failure
from tests.fakes.calls import ERRORS, TABLE, Script, caller, settle
from tests.fakes.clock import skipping_timers
from tests.support.errors import catch


class Race:
    """Work that loses its first races."""

    def __init__(self, losses: int, *, retry_after: float = 0.0) -> None:
        self.left = losses
        self.attempts = 0
        self.retry_after = retry_after

    def attempt(self) -> int:
        self.attempts += 1
        if self.left:
            self.left -= 1
            error = err.ConcurrentModificationError(f"lost {self.attempts}")
            raise TryAgainError(error, retry_after=self.retry_after)
        return self.attempts

    async def __call__(self) -> int:
        return self.attempt()


async def test_lost_races_are_repeated_within_retries() -> None:
    assert [await caller().repeat(Race(losses)) for losses in (0, 1, 3)] == [1, 2, 4]
    race = Race(9)
    await catch(err.ConcurrentModificationError, caller().repeat(race), r"^lost 4$")
    assert race.attempts == 4


@skipping_timers
async def test_pause_between_races_includes_wait_that_server_requested() -> None:
    await caller(Policy(backoff_initial=0.5)).repeat(Race(1, retry_after=7.0))
    assert 7.0 <= asyncio.get_running_loop().time() <= 7.5


async def test_no_race_is_repeated_without_time_for_it() -> None:
    race = Race(9, retry_after=60.0)
    with deadline(30.0), pytest.raises(err.ConcurrentModificationError):
        await caller().repeat(race)
    assert race.attempts == 1


def test_races_in_a_thread() -> None:
    race = Race(19)
    assert Caller(Policy(max_retries=0, backoff_initial=0.0), ERRORS).repeat_in_thread(race.attempt, attempts=20) == 20
    race = Race(20)
    with pytest.raises(err.ConcurrentModificationError, match=r"^lost 20$"):
        Caller(Policy(backoff_initial=0.0), ERRORS).repeat_in_thread(race.attempt, attempts=20)
    race = Race(20)
    with deadline(0.0), pytest.raises(err.ConcurrentModificationError, match=r"^lost 1$"):
        Caller(Policy(backoff_initial=0.0), ERRORS).repeat_in_thread(race.attempt, attempts=20)


async def ask(by: Caller, script: Script, *, safe: bool = True, recovers: bool = True) -> tuple[list[Call], list[str]]:
    """Returns the attempts that observers received, and the codes of the failures whose cause was to be removed."""
    calls: list[Call] = []
    codes: list[str] = []

    async def recover(failure: Failure) -> bool:
        codes.append(str(failure.codes[0]))
        return recovers

    with by.observe(calls.append):
        await by.call(script, subject=TABLE, operation="describe_table", safe=safe, recover=recover)
    return calls, codes


@pytest.mark.parametrize("code", [401, STALE])
async def test_call_is_sent_again_at_once_after_its_cause_of_failure_is_removed(code: int | str) -> None:
    failure = Failure(code, "disconnected", message="no", delivered=False)
    calls, codes = await ask(caller(Policy(max_retries=0)), Script(failure), safe=False)
    assert [(call.attempt, call.outcome) for call in calls] == [(1, str(code)), (2, "ok")] and codes == [str(code)]


async def test_call_whose_cause_of_failure_remains_is_not_sent_again() -> None:
    script = Script(Failure(401, message="no", delivered=False))
    await catch(err.UnauthenticatedError, ask(caller(), script, recovers=False), r"\(describe_table: no\)")
    assert script.sent == 1


async def test_write_that_may_have_acted_is_not_sent_again() -> None:
    script = Script(Failure(STALE, "disconnected", message="lost"))
    await catch(err.ServiceUnavailableError, ask(caller(), script, safe=False), "whether it took effect is unknown")
    assert script.sent == 1


async def test_stale_connections_do_not_lower_the_limit() -> None:
    """They contain no information about the load of the catalog, unlike other lost connections."""
    by = caller(Policy(max_retries=0))
    limit = by.slots.limit
    for _ in range(50):
        await ask(by, Script(Failure(STALE, "disconnected", message="lost")))
    assert by.slots.limit == limit


def test_pauses_double_up_to_their_maximum() -> None:
    policy = Policy(backoff_initial=0.1, backoff_max=1.0)
    assert [policy.pause(attempt, least=1.0) for attempt in (1, 2, 3, 4, 5, 99)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [policy.pause(attempt, 0.01, least=1.0) for attempt in (1, 2)] == [0.01, 0.02]
    assert 0.0 <= policy.pause(99) <= 1.0


NOTE = "and the rollback failed (PermissionDeniedError: not yours)"


class Undo:
    """A rollback that fails when it is released."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, error: BaseException | None = None) -> None:
        self.begun.set()
        await self.go_on.wait()
        raise err.PermissionDeniedError("not yours")


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


def test_the_least_recently_used_result_is_removed() -> None:
    cache = TaggedResults[int](2)
    cache.store("a", "1", 1)
    cache.store("b", "2", 2)
    entry = cache.find("a")
    assert entry == ("1", 1) and cache.confirm("a", entry) == 1
    cache.store("c", "3", 3)
    assert (cache.find("a"), cache.find("b"), cache.find("c")) == (("1", 1), None, ("3", 3))
    assert cache.use() == CacheUse(entries=2, max_entries=2, hits=1, misses=3)


def test_a_result_without_a_tag_is_not_kept() -> None:
    cache = TaggedResults[int](2)
    cache.store("a", "1", 1)
    for tag in (None, ""):
        cache.store("a", tag, 2)
        assert cache.find("a") is None


def test_a_confirmed_result_is_used_although_it_was_removed_during_the_call() -> None:
    cache = TaggedResults[int](1)
    cache.store("a", "1", 1)
    entry = cache.find("a")
    assert entry is not None
    cache.forget("a")
    cache.forget("a")
    assert cache.confirm("a", entry) == 1 and cache.find("a") is None

"""Repetition by the caller: several calls, work in a thread, and calls whose cause of failure was removed."""

from __future__ import annotations

import asyncio

import pytest
from lance_namespace.errors import ConcurrentModificationError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async.calls.caller import STALE, Caller
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy, TryAgainError
from lance_ns_async.errors import Failure
from tests.fakes.calls import ERRORS, TABLE, Script, busy, caller
from tests.fakes.clock import run


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
            error = ConcurrentModificationError(f"lost {self.attempts}")
            raise TryAgainError(error, retry_after=self.retry_after)
        return self.attempts

    async def __call__(self) -> int:
        return self.attempt()


@pytest.mark.parametrize("losses", [0, 1, 3])
async def test_lost_races_are_repeated_within_retries(losses: int) -> None:
    assert await caller().repeat(Race(losses)) == losses + 1


async def test_last_error_of_lost_races_is_raised() -> None:
    race = Race(9)
    with pytest.raises(ConcurrentModificationError, match=r"^lost 4$"):
        await caller().repeat(race)
    assert race.attempts == 4


async def test_errors_other_than_lost_races_are_not_repeated() -> None:
    calls: list[None] = []

    async def fail() -> None:
        calls.append(None)
        raise ConcurrentModificationError("taken")

    with pytest.raises(ConcurrentModificationError, match="taken"):
        await caller().repeat(fail)
    assert len(calls) == 1


def test_pause_between_races_includes_wait_that_server_requested() -> None:
    async def main() -> float:
        await caller(Policy(backoff_initial=0.5)).repeat(Race(1, retry_after=7.0))
        return asyncio.get_running_loop().time()

    assert 7.0 <= run(main()) <= 7.5


async def test_no_race_is_repeated_without_time_for_it() -> None:
    race = Race(9, retry_after=60.0)
    with deadline(30.0), pytest.raises(ConcurrentModificationError):
        await caller().repeat(race)
    assert race.attempts == 1


def test_races_in_thread_have_attempts_of_their_own() -> None:
    race = Race(19)
    assert Caller(Policy(max_retries=0, backoff_initial=0.0), ERRORS).repeat_in_thread(race.attempt, attempts=20) == 20
    race = Race(20)
    with pytest.raises(ConcurrentModificationError, match=r"^lost 20$"):
        Caller(Policy(backoff_initial=0.0), ERRORS).repeat_in_thread(race.attempt, attempts=20)


def test_races_in_thread_obey_deadline_of_operation() -> None:
    race = Race(20)
    with deadline(0.0), pytest.raises(ConcurrentModificationError, match=r"^lost 1$"):
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


async def test_cause_of_failure_is_removed_once_for_each_call() -> None:
    script = Script(*(Failure(401, message="no", delivered=False) for _ in range(2)))
    with pytest.raises(UnauthenticatedError, match="2 attempts"):
        await ask(caller(), script)
    assert script.sent == 2


async def test_call_whose_cause_of_failure_remains_is_not_sent_again() -> None:
    script = Script(Failure(401, message="no", delivered=False))
    with pytest.raises(UnauthenticatedError, match=r"\(describe_table: no\)"):
        await ask(caller(), script, recovers=False)
    assert script.sent == 1


async def test_write_that_may_have_acted_is_not_sent_again() -> None:
    script = Script(Failure(STALE, "disconnected", message="lost"))
    with pytest.raises(ServiceUnavailableError, match="whether it took effect is unknown"):
        await ask(caller(), script, safe=False)
    assert script.sent == 1


async def test_recovery_takes_no_retry() -> None:
    script = Script(busy(), Failure(401, message="no", delivered=False), busy(), busy())
    calls, _ = await ask(caller(), script)
    assert [call.outcome for call in calls] == ["503", "401", "503", "503", "ok"]
    assert [call.attempt for call in calls] == [1, 2, 3, 4, 5]


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

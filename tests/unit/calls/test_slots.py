"""Slots are shared by all callers of a catalog, in any loop and thread, and survive a fork."""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import ServiceUnavailableError, TableNotFoundError

from lance_ns_async import DirNamespace
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.limiter import Sent
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.calls.slots import PROBE_INTERVAL, Budget, CallOutcome, Circuit, Slots, slots_by_key
from lance_ns_async.errors import Failure
from lance_ns_async.model import TableId
from tests.fakes.calls import TABLE, Script, Turnstile, busy, call, caller, settle
from tests.fakes.clock import skipping_timers
from tests.support.errors import catch

SOON = 60.0


def slots(most: int, *, adaptive: bool = False) -> Slots:
    return Slots(most, adaptive=adaptive, patience=30.0)


async def enter(slots: Slots) -> Sent:
    return await slots.enter("describe_table", TABLE, until=monotonic() + SOON)


async def leave(slots: Slots, sent: Sent) -> None:
    await slots.leave(sent, "describe_table", TABLE, CallOutcome.ANSWERED, why="ok", until=monotonic() + SOON)


def test_equal_properties_share_and_others_do_not() -> None:
    one = Policy().slots("a")
    assert Policy().slots("a") is one and Policy(max_retries=9).slots("a") is one
    assert Policy().slots("b") is not one and Policy(max_in_flight=5).slots("a") is not one
    assert Policy().slots() is not Policy().slots()


def test_slots_are_kept_to_across_event_loops() -> None:
    shared, most, threads = slots(3), 0, 8
    inside, begin = set[int](), Barrier(threads)

    async def work(thread: int) -> int:
        nonlocal most
        done = 0

        async def one(number: int) -> None:
            nonlocal most, done
            sent = await enter(shared)
            inside.add(number)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.remove(number)
            await leave(shared, sent)
            done += 1

        begin.wait(SOON)
        await asyncio.gather(*(one(100 * thread + n) for n in range(100)))
        return done

    with ThreadPoolExecutor(threads) as pool:
        done = list(pool.map(lambda thread: asyncio.run(work(thread)), range(threads)))
    assert done == [100] * threads and most <= 3 and shared.has_room


@pytest.mark.parametrize("calls", [1, 3, 9])
def test_a_loop_that_was_closed_with_its_calls_keeps_no_slot(calls: int) -> None:
    to, loop = caller(Policy(max_in_flight=3)), asyncio.new_event_loop()
    # They are not cancelled, as they should be, but discarded.
    loop.set_exception_handler(lambda loop, context: None)
    begun = [loop.create_task(call(to, Turnstile())) for _ in range(calls)]
    loop.run_until_complete(settle())
    loop.close()
    del begun
    gc.collect()
    assert asyncio.run(call(to, Script())) == 1 and to.slots.has_room


def test_who_waits_in_a_closed_loop_holds_on_to_no_slot() -> None:
    to, loop = caller(Policy(max_in_flight=1)), asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)

    async def wait(other: asyncio.Task[None]) -> None:
        await call(to, Script())
        await other

    loop.create_task(wait(loop.create_task(call(to, Turnstile()))))
    loop.run_until_complete(settle())
    loop.close()
    gc.collect()
    assert not to.slots.has_room

    async def main() -> None:
        waiting = asyncio.create_task(call(to, Script()))
        await settle()
        gc.collect()
        assert await waiting == 1

    asyncio.run(main())
    assert to.slots.has_room


async def test_a_cancelled_waiter_that_was_served_passes_the_slot_on() -> None:
    shared = slots(1)
    sent = await enter(shared)
    first = asyncio.create_task(enter(shared))
    second = asyncio.create_task(enter(shared))
    await settle()
    await leave(shared, sent)
    first.cancel()
    await settle()
    assert first.cancelled() and second.done()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:lance is not fork-safe")
def test_a_forked_child_begins_with_all_slots_free() -> None:
    shared = slots(1)
    taken, over = Event(), Event()

    async def hold() -> None:
        await enter(shared)
        taken.set()
        await asyncio.to_thread(over.wait, SOON)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(asyncio.run, hold())
        assert taken.wait(SOON)
        child = os.fork()
        if not child:
            os._exit(0 if shared.has_room else 1)
        assert os.waitpid(child, 0)[1] == 0 and not shared.has_room
        over.set()
        holding.result()


@pytest.mark.parametrize("adaptive", [True, False])
async def test_a_catalog_that_refuses_is_asked_by_fewer_at_once(adaptive: bool) -> None:
    to = caller(Policy(max_in_flight=64, max_retries=0, adaptive=adaptive))
    for _ in range(20):
        await catch(ServiceUnavailableError, call(to, Script(busy())))
    assert to.slots.limit < 16 if adaptive else to.slots.limit == 64


async def test_a_no_is_an_answer() -> None:
    to = caller(Policy(max_retries=0, circuit_after=0))
    for _ in range(50):
        await catch(TableNotFoundError, call(to, Script(Failure(404, message="gone"))))
    assert await call(to, Script()) == 1 and to.slots.limit == 32


async def test_when_nothing_is_answered_calls_fail_unsent_and_say_why() -> None:
    to = caller(Policy(max_retries=0, circuit_after=0))
    scripts = [Script(*[busy()] * 9) for _ in range(20)]
    for script in scripts:
        raised = await catch(ServiceUnavailableError, call(to, script, safe=False))
    assert sum(script.sent for script in scripts) < 20 and not scripts[-1].sent
    assert "not sent, because there was no response for 0 s: 503; the catalog is tried again in" in str(raised.value)
    assert "unknown" not in str(raised.value)


@skipping_timers
async def test_who_has_little_time_learns_nothing_of_the_catalog() -> None:
    to = caller(Policy(max_retries=0, circuit_after=0))
    for _ in range(50):
        with deadline(0.02), pytest.raises(ServiceUnavailableError):
            await call(to, Turnstile())
    assert await call(to, Script()) == 1 and to.slots.limit == 32


async def test_a_catalog_that_fails_is_not_asked_more_for_it() -> None:
    to = caller(Policy(max_retries=3, max_in_flight=32, backoff_initial=0.0, adaptive=False))
    scripts = [Script(*[busy()] * 9) for _ in range(200)]
    for script in scripts:
        raised = await catch(ServiceUnavailableError, call(to, script))
    assert sum(script.sent for script in scripts) == 300
    assert "not sent again, because most calls to this catalog fail" in str(raised.value)


async def test_a_slow_read_is_sent_a_second_time_and_the_first_answer_counts() -> None:
    calls = list[Call]()
    to = caller(Policy(hedge_after=0.001))
    hold, sent = Turnstile(), 0

    async def send() -> str:
        nonlocal sent
        sent += 1
        if sent == 1:
            await hold()
        return "second"

    with to.observe(calls.append):
        assert await call(to, send) == "second"
    assert [c.outcome for c in calls] == ["ok", "cancelled"] and not hold.inside and to.slots.has_room


@pytest.mark.parametrize(
    ("policy", "safe"), [(Policy(hedge_after=1.0), False), (Policy(hedge_after=1.0, max_in_flight=1), True)]
)
@skipping_timers
async def test_a_hedge_is_for_reads_and_for_free_slots_alone(policy: Policy, safe: bool) -> None:
    calls, to, hold = list[Call](), caller(policy), Turnstile()
    asyncio.get_running_loop().call_later(5.0, hold.open.set)
    with to.observe(calls.append):
        await call(to, hold, safe=safe)
    assert hold.most == 1
    assert [c.outcome for c in calls] == ["ok"]


async def test_where_both_sendings_fail_the_call_goes_on_as_ever() -> None:
    to = caller(Policy(hedge_after=0.001, max_retries=0))
    await catch(TableNotFoundError, call(to, Script(Failure(404, message="gone"))))
    await catch(ServiceUnavailableError, call(to, Script(busy(), busy())), "busy")
    assert await call(caller(Policy(hedge_after=0.001, backoff_initial=0.0)), Script(busy())) == 2


def test_traffic_is_forgotten_with_its_last_user() -> None:
    ns = DirNamespace(root="somewhere-of-its-own")
    key = ns.namespace_id()
    assert any(key in str(known) for known in slots_by_key.keys())
    ns.close()
    del ns
    assert not any(key in str(known) for known in slots_by_key.keys())


TABLES = [TableId([f"t{n}"]) for n in range(20)]
NEW = TableId(["new"])


def failing(circuit: Circuit, *, first: float, last: float, times: int = 20, tables: int = 20) -> None:
    for n in range(times):
        at = first + (last - first) * n / (times - 1)
        circuit.record_failure(at, "describe_table", TABLES[n % tables], "refused")


def obstacle(circuit: Circuit, now: float, table: TableId = NEW) -> str | None:
    return circuit.obstacle(now, "describe_table", table)


def test_it_opens_when_nothing_was_answered_for_its_patience() -> None:
    circuit = Circuit(30)
    failing(circuit, first=100, last=129.9)
    assert obstacle(circuit, 130) is None
    circuit.record_failure(130.1, "describe_table", NEW, "cannot connect")
    assert obstacle(circuit, 131.1) == (
        "not sent, because there was no response for 31 s: cannot connect; the catalog is tried again in 4 s"
    )


def test_one_call_at_a_time_is_let_through_to_an_open_one() -> None:
    circuit = Circuit(30)
    failing(circuit, first=0, last=31)
    at = 31 + PROBE_INTERVAL
    assert obstacle(circuit, at) is None and obstacle(circuit, at + 0.1) is not None
    circuit.record_failure(at + 1, "describe_table", NEW, "refused")
    assert obstacle(circuit, at + 1.1) is not None
    # The probe was cancelled, for example, and has no result.
    assert obstacle(circuit, at + PROBE_INTERVAL) is None
    assert obstacle(circuit, at + 2 * PROBE_INTERVAL) is None


def test_tables_that_fail_stand_for_no_others_unless_they_are_many() -> None:
    circuit = Circuit(30)
    failing(circuit, first=0, last=31, tables=9)
    assert all(obstacle(circuit, 32, table) is not None for table in TABLES[:9])
    assert obstacle(circuit, 32) is None
    circuit.record_failure(33, "describe_table", NEW, "refused")
    assert obstacle(circuit, 34, TABLES[9]) is not None


def test_an_operation_that_fails_stands_for_no_other() -> None:
    circuit = Circuit(30)
    failing(circuit, first=0, last=31)
    assert obstacle(circuit, 32) is not None
    assert circuit.obstacle(32, "list_tables", NEW) is None
    circuit.record_failure(33, "list_tables", NEW, "refused")
    assert circuit.obstacle(34, "list_tables", NEW) is not None


def test_an_answer_closes_it_and_the_patience_begins_anew() -> None:
    circuit = Circuit(30)
    failing(circuit, first=0, last=31)
    circuit.record_response()
    assert obstacle(circuit, 32) is None
    failing(circuit, first=33, last=60)
    assert obstacle(circuit, 61) is None


def test_a_few_failures_far_apart_open_nothing() -> None:
    circuit = Circuit(30)
    failing(circuit, first=0, last=3600, times=9)
    assert obstacle(circuit, 3601) is None


@given(st.lists(st.booleans(), max_size=2000), st.integers(1, 300))
def test_the_retry_budget_is_the_slots_and_half_of_the_responses(answers: list[bool], most: int) -> None:
    budget, repeated, successes = Budget(most), 0, 0
    for answer in answers:
        if answer:
            successes += 1
            budget.record_response()
        else:
            repeated += budget.take()
    assert repeated <= max(100, 2 * most) + successes / 2


@pytest.mark.parametrize(("most", "times"), [(1, 100), (32, 100), (256, 512)])
def test_a_catalog_that_never_answers_is_called_again_so_often_in_all(most: int, times: int) -> None:
    budget = Budget(most)
    assert sum(budget.take() for _ in range(1000)) == times
    budget.record_response()
    assert not budget.take()
    budget.record_response()
    assert budget.take()

"""A catalog that is down gets only occasional probes, and one with failures gets no additional calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async.calls.slots import PROBE_INTERVAL, Budget, Circuit
from lance_ns_async.model import TableId

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
    assert obstacle(circuit, at) is None
    assert obstacle(circuit, at + 0.1) is not None
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

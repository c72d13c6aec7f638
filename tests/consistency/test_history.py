"""The checker of histories: which histories it accepts and rejects."""

from __future__ import annotations

import pytest

from tests.consistency.history import NOT_FOUND, Event, Rules, check, stray
from tests.consistency.model import Answer, Operation

RULES = Rules()
TAKEN, MISSING = Answer("TableAlreadyExistsError"), Answer(NOT_FOUND)
UNKNOWN = Answer("ServiceUnavailableError", "whether it took effect is unknown")
Told = tuple[float, float, str, tuple[int, ...], Answer]


def read(*rows: int) -> Answer:
    return Answer(rows=rows)


def history(*records: Told) -> list[Event]:
    return [
        Event(f"task {task}", Operation(kind, (("n", "t")), rows), answer, begun, ended)
        for task, (begun, ended, kind, rows, answer) in enumerate(records)
    ]


OK = Answer()
POSSIBLE: dict[str, list[Told]] = {
    "one after another": [(0, 1, "write", (1,), OK), (2, 3, "append", (2,), OK), (4, 5, "read", (), read(1, 2))],
    "a read beside a write may come first": [(0, 9, "write", (1,), OK), (1, 2, "read", (), MISSING)],
    "a table shows before its rows": [
        (0, 9, "write", (1,), OK),
        (1, 2, "describe", (), OK),
        (3, 4, "read", (), MISSING),
    ],
    "of two creates one wins": [
        (0, 9, "write", (1,), OK),
        (1, 8, "create", (2,), TAKEN),
        (10, 11, "read", (), read(1)),
    ],
    "a create beside a drop": [
        (0, 1, "write", (1,), OK),
        (2, 9, "drop", (), OK),
        (3, 8, "create", (2,), OK),
        (10, 11, "read", (), read(2)),
    ],
    "a drop is seen before it ends": [(0, 1, "write", (1,), OK), (2, 9, "drop", (), OK), (3, 4, "read", (), MISSING)],
    "unknown, and it did": [(0, 1, "write", (1,), UNKNOWN), (2, 3, "read", (), read(1))],
    "unknown, and it did not": [(0, 1, "write", (1,), UNKNOWN), (2, 3, "read", (), MISSING)],
    "unknown, and half of it": [
        (0, 1, "write", (1,), UNKNOWN),
        (2, 3, "describe", (), OK),
        (4, 5, "read", (), MISSING),
    ],
    "two overwrites of a new table": [
        (0, 9, "overwrite", (1,), OK),
        (1, 8, "overwrite", (2,), OK),
        (10, 11, "read", (), read(1)),
    ],
}
LATE = Answer("ConcurrentModificationError", "it was dropped meanwhile")
IMPOSSIBLE: dict[str, list[Told]] = {
    "acknowledged rows are lost": [(0, 1, "write", (1,), OK), (2, 3, "read", (), MISSING)],
    "an appended row is lost": [(0, 1, "write", (1,), OK), (2, 3, "append", (2,), OK), (4, 5, "read", (), read(1))],
    "declared twice": [(0, 9, "declare", (), OK), (1, 8, "declare", (), OK)],
    "dropped twice": [(0, 1, "write", (1,), OK), (2, 9, "drop", (), OK), (3, 8, "drop", (), OK)],
    "deregistered twice": [(0, 1, "write", (1,), OK), (2, 9, "deregister", (), OK), (3, 8, "deregister", (), OK)],
    "created where there is one": [(0, 1, "write", (1,), OK), (2, 3, "create", (2,), OK)],
    "missing in between": [(0, 1, "write", (1,), OK), (2, 9, "replace", (2,), OK), (3, 4, "describe", (), MISSING)],
    "the loser's overwrite takes the table away": [
        (0, 8, "overwrite", (1,), OK),
        (1, 9, "overwrite", (2,), TAKEN),
        (10, 11, "read", (), MISSING),
    ],
    "refused rows stay": [(0, 1, "declare", (), OK), (2, 3, "insert", (1,), LATE), (4, 5, "read", (), read(1))],
    "rows come back": [(0, 1, "write", (1,), OK), (2, 3, "drop", (), OK), (4, 5, "read", (), read(1))],
    "a name that cannot be used": [(0, 1, "write", (1,), OK), (2, 3, "drop", (), OK), (4, 5, "write", (2,), TAKEN)],
    "unknown, and then this and that": [
        (0, 1, "write", (1,), UNKNOWN),
        (2, 3, "read", (), read(1)),
        (4, 5, "read", (), MISSING),
    ],
}


@pytest.mark.parametrize("records", POSSIBLE.values(), ids=POSSIBLE)
def test_a_possible_history_is_explained(records: list[Told]) -> None:
    assert check(history(*records), RULES) is None


@pytest.mark.parametrize("records", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_history_is_not_explained(records: list[Told]) -> None:
    assert check(history(*records), RULES) is not None


def test_a_deregistered_table_leaves_the_name_free() -> None:
    before: list[Told] = [(0, 1, "write", (1,), OK), (2, 3, "deregister", (), OK)]
    assert check(history(*before, (4, 5, "write", (2,), TAKEN)), RULES) is not None
    assert check(history(*before, (4, 5, "write", (2,), OK), (6, 7, "read", (), read(2))), RULES) is None
    assert check(history(*before, (4, 5, "write", (2,), OK), (6, 7, "read", (), read(1, 2))), RULES) is not None


def test_a_late_replacement_registers_the_location_of_an_earlier_table_again() -> None:
    records: list[Told] = [
        (0, 1, "write", (1,), OK),
        (2, 9, "replace", (2,), LATE),
        (3, 4, "deregister", (), OK),
        (5, 6, "declare", (), OK),
        (10, 11, "read", (), read(1)),
    ]
    assert check(history(*records), Rules(compares=False)) is None
    assert check(history(*records), RULES) is not None
    assert check(history(*records[:-1], (10, 11, "read", (), read(2))), Rules(compares=False)) is not None
    assert check(history(records[0], ((1.2, 1.8, *records[1][2:])), *records[2:]), Rules(compares=False)) is not None


def test_sixteen_tasks_at_once_are_checked() -> None:
    records: list[Told] = [(0, 100, "overwrite", (task,), OK) for task in range(5)]
    records += [(0, 100, "read", (), MISSING) for _ in range(11)]
    assert check(history(*records, (101, 102, "read", (), read(3))), RULES) is None
    assert check(history(*records, (101, 102, "read", (), read(9))), RULES) is not None


def test_single_answers_that_are_wrong_are_reported() -> None:
    elsewhere = Answer(location="/data/u")
    events = history((0, 1, "describe", (), elsewhere), (2, 3, "drop", (), Answer("InternalError", "a bug")))
    assert [it.split(":")[0] for it in stray(events, RULES)] == ["the place of another name", "unexpected"]
    assert not stray(history((0, 1, "drop", (), UNKNOWN), (2, 3, "describe", (), Answer(location="/data/t"))), RULES)

"""The read plan of Spark's processes, and its distribution among tasks."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async.spark.read.reading import OPENING, Condition, Entry, Plan, group_entries


def entry(n: int, rows: int = 10, fragments: int = 1) -> Entry:
    return Entry(f"db$t{n}", f"s3://lake/t{n}.lance", n + 1, rows, fragments)


def test_a_plan_survives_encoding() -> None:
    options = {"aws_secret_access_key": "hush", "region": "eu"}
    entries = [entry(0), Entry("db$é", "/lake/é", 7, 5, 2, options, share=1, shares=2)]
    for condition in (None, Condition("id > 1"), Condition("s = 'é'", "types")):
        plan = Plan(entries, 3, "_table", condition)
        assert Plan.decode(plan.encode()) == plan
        assert {part.condition for part in plan.split()} == {condition}


def test_storage_options_are_not_printed() -> None:
    assert "hush" not in repr(Plan([Entry("t", "/t", 1, 1, 1, {"key": "hush"})], 1, None))


def test_an_encoded_plan_of_many_tables_is_small() -> None:
    token = {"aws_session_token": "x" * 800, "aws_access_key_id": "AKIA"}
    entries = [Entry(f"db$t{n}", f"s3://lake/db/t{n}.lance", 3, 10, 1, token) for n in range(5000)]
    assert len(Plan(entries, 8, "_table").encode()) < 5000 * 40


def test_many_small_tables_share_few_tasks() -> None:
    groups = group_entries(map(entry, range(1000)), 8)
    assert [len(group) for group in groups] == [125] * 8


def test_fewer_tables_than_tasks_make_fewer_groups() -> None:
    assert group_entries([entry(0), entry(1)], 8) == [[entry(0)], [entry(1)]]


def test_nothing_to_read_is_one_group_without_tables() -> None:
    assert group_entries([], 8) == [[]]


def test_a_heavy_table_has_a_task_of_its_own() -> None:
    heavy = entry(99, rows=10_000_000)
    groups = group_entries([*map(entry, range(30)), heavy], 4)
    assert [heavy] in groups
    assert sorted(len(group) for group in groups) == [1, 10, 10, 10]


def test_a_table_of_many_fragments_is_split() -> None:
    groups = group_entries([entry(0, rows=8_000_000, fragments=100), *map(entry, range(1, 5))], 8)
    shares = [e for group in groups for e in group if e.table == "db$t0"]
    assert len(groups) == 8
    assert sorted(e.share for e in shares) == list(range(8))
    assert {e.shares for e in shares} == {8}


def test_a_small_table_of_many_fragments_is_not_split() -> None:
    assert [len(group) for group in group_entries([entry(n, fragments=50) for n in range(100)], 4)] == [25] * 4


@given(st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(1, 40)), max_size=30), st.integers(1, 12))
def test_each_table_is_read_once_and_the_load_is_even(tables: list[tuple[int, int]], tasks: int) -> None:
    entries = [entry(n, rows, fragments) for n, (rows, fragments) in enumerate(tables)]
    groups = group_entries(entries, tasks)

    assert 1 <= len(groups) <= tasks
    assert all(groups) or not entries
    shares: dict[str, list[Entry]] = defaultdict(list)
    for group in groups:
        for e in group:
            shares[e.table].append(e)
    assert sorted(shares) == sorted(e.table for e in entries)
    for result in shares.values():
        assert sorted(e.share for e in result) == list(range(result[0].shares))
        assert result[0].shares <= result[0].fragments
    loads = [sum(e.weight for e in group) for group in groups]
    heaviest = max((e.weight for group in groups for e in group), default=0)
    if len(groups) == tasks:
        assert max(loads) - min(loads) <= heaviest


def test_opening_counts_even_where_there_are_no_rows() -> None:
    assert entry(0, rows=0).weight == OPENING
    with_empty = group_entries([entry(n, rows=0) for n in range(10)], 5)
    assert [len(group) for group in with_empty] == [2] * 5


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_a_group_keeps_the_order_of_its_tables(tasks: int) -> None:
    for group in group_entries(map(entry, range(50)), tasks):
        numbers = [e.version for e in group]
        assert numbers == sorted(numbers)

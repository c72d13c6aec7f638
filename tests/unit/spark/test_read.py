"""Tasks that Spark executes: reads and maintenance, here without a JVM."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async import TableId
from lance_ns_async.fleet.maintenance.engine import Job
from lance_ns_async.model import EXPIRY, Table
from lance_ns_async.operations import maintaining
from lance_ns_async.operations.maintaining import CleanupLimits, Examination
from lance_ns_async.spark import Location, Locations, PrefetchReport, maintain, union, views
from lance_ns_async.spark.read import reading
from lance_ns_async.spark.read.sql import MANY, branches, quote, warn_of_chains
from lance_ns_async.storage import scanning


def entry(n: int, rows: int = 10, fragments: int = 1) -> reading.Entry:
    return reading.Entry(f"db$t{n}", f"s3://lake/t{n}.lance", n + 1, rows, fragments)


def test_a_plan_survives_encoding() -> None:
    options = {"aws_secret_access_key": "hush", "region": "eu"}
    entries = [entry(0), reading.Entry("db$é", "/lake/é", 7, 5, 2, options, share=1, shares=2)]
    types = pa.schema([("s", pa.string())])
    for condition in (None, scanning.Condition("id > 1"), scanning.Condition("s = 'é'", types)):
        plan = reading.Plan(entries, 3, "_table", condition)
        assert reading.Plan.decode(plan.encode()) == plan
        assert {part.condition for part in plan.split()} == {condition}


def test_plans_are_small_and_hide_storage_options() -> None:
    assert "hush" not in repr(reading.Plan([reading.Entry("t", "/t", 1, 1, 1, {"key": "hush"})], 1, None))
    token = {"aws_session_token": "x" * 800, "aws_access_key_id": "AKIA"}
    entries = [reading.Entry(f"db$t{n}", f"s3://lake/db/t{n}.lance", 3, 10, 1, token) for n in range(5000)]
    assert len(reading.Plan(entries, 8, "_table").encode()) < 5000 * 40


def test_tables_are_grouped_by_weight() -> None:
    groups = reading.group_entries(map(entry, range(1000)), 8)
    assert [len(group) for group in groups] == [125] * 8
    assert reading.group_entries([entry(0), entry(1)], 8) == [[entry(0)], [entry(1)]]
    assert reading.group_entries([], 8) == [[]]
    heavy = entry(99, rows=10_000_000)
    groups = reading.group_entries([*map(entry, range(30)), heavy], 4)
    assert [heavy] in groups and sorted(len(group) for group in groups) == [1, 10, 10, 10]
    groups = reading.group_entries([entry(0, rows=8_000_000, fragments=100), *map(entry, range(1, 5))], 8)
    shares = [e for group in groups for e in group if e.table == "db$t0"]
    assert len(groups) == 8 and sorted(e.share for e in shares) == list(range(8))
    assert {e.shares for e in shares} == {8}
    assert [len(group) for group in reading.group_entries([entry(n, fragments=50) for n in range(100)], 4)] == [25] * 4
    assert entry(0, rows=0).weight == reading.OPENING
    with_empty = reading.group_entries([entry(n, rows=0) for n in range(10)], 5)
    assert [len(group) for group in with_empty] == [2] * 5


@given(st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(1, 40)), max_size=30), st.integers(1, 12))
def test_each_table_is_read_once_and_the_load_is_even(tables: list[tuple[int, int]], tasks: int) -> None:
    entries = [entry(n, rows, fragments) for n, (rows, fragments) in enumerate(tables)]
    groups = reading.group_entries(entries, tasks)
    assert 1 <= len(groups) <= tasks
    assert all(groups) or not entries
    assert all(group == sorted(group, key=lambda e: e.version) for group in groups), "the order of the tables is kept"
    shares: dict[str, list[reading.Entry]] = defaultdict(list)
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


WANT = pa.schema([("_table", pa.string()), ("s", pa.string()), ("id", pa.int64())])


def write(path: Path, name: str, rows: pa.Table, **how: Any) -> reading.Entry:
    dataset = lance.write_dataset(rows, str(path / name), **how)
    return reading.Entry(name, str(path / name), dataset.version, dataset.count_rows(), len(dataset.get_fragments()))


def read(
    entries: list[reading.Entry], condition: str | None = None, types: pa.Schema | None = None
) -> list[tuple[Any, ...]]:
    filter = condition and scanning.Condition(condition, types)
    result: Iterator[pa.RecordBatch] = reading.batches(reading.Plan(entries, 1, "_table", filter or None), WANT)
    return [tuple(row.values()) for batch in result for row in batch.to_pylist()]


def test_columns_are_ordered_and_cast_and_rows_of_a_version_that_fit_are_read(tmp_path: Path) -> None:
    a = write(tmp_path, "a", pa.table({"id": pa.array([1], pa.int32()), "s": pa.array(["x"]).dictionary_encode()}))
    b = write(tmp_path, "b", pa.table({"s": pa.array([None], pa.large_string()), "other": [0], "id": [2]}))
    assert read([b, a]) == [("b", None, 2), ("a", "x", 1)]
    rows = pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]})
    first = write(tmp_path, "t", rows)
    lance.write_dataset(rows, first.location, mode="append")
    assert [id for _, _, id in read([first])] == [1, 2, 3]
    assert read([first], "id > 1 AND s <> 'z'") == [("t", "y", 2)] and read([first], "id > 9") == []
    # Only the table may be wanted.
    plan = reading.Plan([first], 1, "from", scanning.Condition("id > 1"))
    result = list(reading.batches(plan, pa.schema([("from", pa.string())])))
    assert pa.Table.from_batches(result).to_pydict() == {"from": ["t", "t"]}


def test_shares_of_a_table_are_the_whole_of_it(tmp_path: Path) -> None:
    whole = write(tmp_path, "t", pa.table({"id": range(70), "s": ["x"] * 70}), max_rows_per_file=10)
    shares = [reading.Entry("t", whole.location, 1, 70, 7, share=share, shares=3) for share in range(3)]
    result = [[id for _, _, id in read([share])] for share in shares]
    assert [id for ids in result for id in ids] == list(range(70))
    assert [len(ids) for ids in result] == [20, 20, 30]


def test_what_fails_is_named(tmp_path: Path) -> None:
    gone = reading.Entry("db$gone", str(tmp_path / "gone"), 3, 1, 1)
    with pytest.raises(RuntimeError, match=r"table db\$gone, version 3 at .*gone"):
        read([gone])
    text = write(tmp_path, "t", pa.table({"id": ["one"], "s": ["x"]}))
    with pytest.raises(RuntimeError, match=r"table t, version 1 at .*column 'id' cannot be cast to int64"):
        read([text])


def test_batches_are_small_however_wide_the_rows(tmp_path: Path) -> None:
    entry = write(tmp_path, "t", pa.table({"b": pa.array([(b"x" * 1_000_000)] * 64, pa.large_binary())}))
    rows = reading.batches(reading.Plan([entry], 1, None), pa.schema([("b", pa.binary())]))
    sizes = [batch.nbytes for batch in rows]
    assert sum(sizes) > 64_000_000 and max(sizes) < 1.5 * scanning.BATCH_BYTES


def test_map_in_arrow_reads_the_plans_it_is_given(tmp_path: Path) -> None:
    entries = [write(tmp_path, name, pa.table({"id": [n], "s": ["x"]})) for n, name in enumerate(("a", "b", "c"))]
    encoded = [reading.Plan(some, 1, "_table").encode() for some in (entries[:2], entries[2:])]
    properties = [pa.record_batch({"plan": [text]}) for text in encoded]
    result = list(reading.plans_reader(WANT)(iter(properties)))
    assert [batch.schema for batch in result] == [WANT] * 3
    assert [batch["id"].to_pylist() for batch in result] == [[0], [1], [2]]


def test_the_parts_of_a_plan_read_each_row_once(tmp_path: Path) -> None:
    large = write(tmp_path, "large", pa.table({"id": range(40_000), "s": ["x"] * 40_000}), max_rows_per_file=10_000)
    small = [write(tmp_path, f"t{n}", pa.table({"id": [40_000 + n], "s": [None]})) for n in range(6)]
    plan = reading.Plan([large, *small], 4, "_table", scanning.Condition("id % 2 = 0"))
    parts = [part.encode() for part in plan.split()]
    read = reading.plans_reader(WANT)
    tasks = [pa.Table.from_batches(read(iter([pa.record_batch({"plan": [part]})])), WANT) for part in parts]
    assert len(tasks) == 4 and all(task.num_rows < 20_000 for task in tasks)
    assert sorted(pa.concat_tables(tasks)["id"].to_pylist()) == list(range(0, 40_006, 2))


def test_missing_columns_are_null_and_a_filter_sees_the_common_type(tmp_path: Path) -> None:
    less = write(tmp_path, "less", pa.table({"id": [1, 2, 3]}))
    more = write(tmp_path, "more", pa.table({"id": [4, 5], "s": ["x", "y"]}))
    all_rows = [*(("less", None, n) for n in (1, 2, 3)), ("more", "x", 4), ("more", "y", 5)]
    assert read([less, more]) == all_rows
    types = pa.schema([("id", pa.int64()), ("s", pa.string())])
    assert read([less, more], "s = 'x'", types) == [("more", "x", 4)]
    assert read([less, more], "s IS NULL AND id <> 2", types) == [("less", None, 1), ("less", None, 3)]
    narrow = write(tmp_path, "narrow", pa.table({"id": pa.array([1, 2], pa.int32()), "s": ["x", "y"]}))
    wide = write(tmp_path, "wide", pa.table({"id": [1, 2**40], "s": ["x", "y"]}))
    assert read([narrow, wide], f"id < {2**40} AND id > 1", pa.schema([("id", pa.int64())])) == [("narrow", "y", 2)]
    floats = pa.array([0.1, 0.5], pa.float32())
    single = write(tmp_path, "single", pa.table({"x": floats, "id": [1, 2], "s": ["x", "y"]}))
    double = pa.schema([("x", pa.float64())])
    # The column of the filter is not among those to read; 0.1 as a float differs from 0.1 as a double.
    assert read([single], "x <= 0.1 OR x = 0.5", double) == [("single", "y", 2)]
    assert read([single], "x <= 0.1 OR x = 0.5") == [("single", "x", 1), ("single", "y", 2)]


def located(*ids: str, version: int | None = 1) -> Locations:
    return Locations([Location(TableId(id), f"/{id}", version) for id in ids], PrefetchReport(len(ids)))


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        (located("a$b_c", "a_b$c"), r"a\$b_c and a_b\$c would both be `a_b_c`; .*name="),
        (located("a$t", "A$T"), r"a\$t and A\$T would both be `A_T`"),
        (located("a$t", version=None), r"a\$t is not pinned to a version; prefetch it with pin_versions=True"),
    ],
)
def test_views_that_cannot_be_are_refused(locations: Locations, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^views: {message}"):
        views(None, locations)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"the name for a\$t must not be empty"):
        views(None, located("a$t"), name=lambda id: "")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="no DataFrames"):
        union([])


@pytest.mark.parametrize(("name", "sql"), [("t", "`t`"), ("a`b", "`a``b`"), ("``", "``````"), ("a.b c", "`a.b c`")])
def test_names_are_quoted(name: str, sql: str) -> None:
    assert quote(name) == sql


def chain(count: int) -> str:
    return " UNION ALL ".join(f"SELECT * FROM t{n}" for n in range(count))


def tree(low: int, high: int) -> str:
    if high - low == 1:
        return f"SELECT * FROM t{low}"
    middle = (low + high) // 2
    return f"({tree(low, middle)}) union all ({tree(middle, high)})"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        *(("SELECT 1", 1), ("", 1), (chain(300), 300), (f"SELECT count(*) FROM ({chain(300)})", 300)),
        (f"WITH a AS ({chain(5)}) SELECT * FROM a Union DISTINCT SELECT * FROM a", 5),
        (tree(0, 1000), 2),
        ("SELECT 'a UNION b', \"union\", `union`, 'it\\'s union' -- union\n/* union\nunion */ FROM reunion UNION b", 2),
        ("SELECT 1) UNION (SELECT 2", 2),
    ],
)
def test_the_branches_of_a_chain_are_counted(query: str, count: int) -> None:
    assert branches(query) == count


def test_a_long_chain_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=rf"^a union of {MANY + 1} branches in a chain") as caught:
        warn_of_chains(chain(MANY + 1), stacklevel=1)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_chains(chain(MANY), stacklevel=1)
        warn_of_chains(tree(0, 1000), stacklevel=1)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[list[Job]]:
    """A job for a table with data, and one for a table without."""
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": range(30)}), path, max_rows_per_file=10)
    _, (task,) = maintaining.examine(dataset, Examination(compaction={}, max_small_fragments=1))
    table = Table(TableId(["a.b", "t"]), path, storage_options={"key": "hush", EXPIRY: "1"})
    gone = Table(TableId(["gone"]), str(tmp_path / "gone"))
    yield [Job(it, "rewrite", task.content, version=1, size=task.size) for it in (table, gone)]


def test_a_failure_is_a_result_and_others_are_executed(real: list[Job]) -> None:
    good, bad = map(json.loads, maintain.execute(maintain.encode(real)))
    assert good[:2] == ["a.b$t", 0] and good[3] is None and len(maintaining.new_files([good[2]])) == 1
    assert bad[0] == "gone" and bad[3] is not None and bad[3][0] == "TableVersionNotFoundError"
    dataset = lance.dataset(real[0].table.location)
    assert maintaining.commit(dataset, [good[2]], {}) == 3
    assert dataset.count_rows() == 30 and len(dataset.get_fragments()) == 1


def test_examinations_and_clean_ups_are_those_of_this_process(real: list[Job]) -> None:
    table = real[0].table
    dataset = lance.dataset(table.location)
    dataset.create_scalar_index("id", "BTREE")
    lance.write_dataset(pa.table({"id": range(5)}), table.location, mode="append")
    limits = CleanupLimits(older_than=None, retain_versions=2, delete_unverified=True)
    what = Examination(
        target_rows=20, cleanup=limits, compaction={"target_rows_per_fragment": 20}, max_small_fragments=3
    )
    jobs = [Job(table, "examine", what.encoded()), Job(table, "clean up", limits.encoded(), number=1)]
    result, cleaned = map(json.loads, maintain.execute(maintain.encode(jobs)))
    dataset = lance.dataset(table.location)
    expected = maintaining.examine(dataset, Examination(20, True, None, what.compaction, 3))[1]
    state, planned = maintaining.parse_examination(result[2])
    assert (state.version, state.rows, state.fragments, state.small_fragments) == (3, 35, 4, 4)
    assert (state.stale_indexes, state.unindexed_rows) == ({"id_idx": 1}, 5)
    assert planned == expected and len(planned) > 0
    assert maintaining.parse_removed(cleaned[2]) == (1, state.removable_bytes) and state.old_versions == 1
    assert [it["version"] for it in dataset.versions()] == [2, 3]

"""A Spark task: it reads its tables in order, as batches of Spark's schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_ns_async.spark.read.reading import BATCH_BYTES, Condition, Entry, Plan, batches, encode_schema, plans_reader

WANT = pa.schema([("_table", pa.string()), ("s", pa.string()), ("id", pa.int64())])


def write(path: Path, name: str, rows: pa.Table, **how: Any) -> Entry:
    dataset = lance.write_dataset(rows, str(path / name), **how)
    return Entry(name, str(path / name), dataset.version, dataset.count_rows(), len(dataset.get_fragments()))


def read(entries: list[Entry], condition: str | None = None, types: pa.Schema | None = None) -> list[tuple[Any, ...]]:
    filter = condition and Condition(condition, types and encode_schema(types))
    result: Iterator[pa.RecordBatch] = batches(entries, WANT, "_table", filter or None)
    return [tuple(row.values()) for batch in result for row in batch.to_pylist()]


def test_columns_are_ordered_and_cast_and_the_table_is_named(tmp_path: Path) -> None:
    a = write(tmp_path, "a", pa.table({"id": pa.array([1], pa.int32()), "s": pa.array(["x"]).dictionary_encode()}))
    b = write(tmp_path, "b", pa.table({"s": pa.array([None], pa.large_string()), "other": [0], "id": [2]}))
    assert read([b, a]) == [("b", None, 2), ("a", "x", 1)]


def test_a_version_is_read_and_rows_that_fit(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]})
    first = write(tmp_path, "t", rows)
    lance.write_dataset(rows, first.location, mode="append")
    assert [id for _, _, id in read([first])] == [1, 2, 3]
    assert read([first], "id > 1 AND s <> 'z'") == [("t", "y", 2)]
    assert read([first], "id > 9") == []


def test_shares_of_a_table_are_the_whole_of_it(tmp_path: Path) -> None:
    whole = write(tmp_path, "t", pa.table({"id": range(70), "s": ["x"] * 70}), max_rows_per_file=10)
    shares = [Entry("t", whole.location, 1, 70, 7, share=share, shares=3) for share in range(3)]
    result = [[id for _, _, id in read([share])] for share in shares]
    assert [id for ids in result for id in ids] == list(range(70))
    assert [len(ids) for ids in result] == [20, 20, 30]


def test_only_the_table_may_be_wanted(tmp_path: Path) -> None:
    entry = write(tmp_path, "t", pa.table({"id": [1, 2, 3]}))
    result = list(batches([entry], pa.schema([("from", pa.string())]), "from", Condition("id > 1")))
    assert pa.Table.from_batches(result).to_pydict() == {"from": ["t", "t"]}


def test_what_fails_is_named(tmp_path: Path) -> None:
    gone = Entry("db$gone", str(tmp_path / "gone"), 3, 1, 1)
    with pytest.raises(RuntimeError, match=r"table db\$gone, version 3 at .*gone"):
        read([gone])
    text = write(tmp_path, "t", pa.table({"id": ["one"], "s": ["x"]}))
    with pytest.raises(RuntimeError, match=r"table t, version 1 at .*column 'id' cannot be cast to int64"):
        read([text])


def test_batches_are_small_however_wide_the_rows(tmp_path: Path) -> None:
    megabyte = b"x" * 1_000_000
    entry = write(tmp_path, "t", pa.table({"b": pa.array([megabyte] * 64, pa.large_binary())}))
    sizes = [batch.nbytes for batch in batches([entry], pa.schema([("b", pa.binary())]), None, None)]
    assert sum(sizes) > 64_000_000
    assert max(sizes) < 1.5 * BATCH_BYTES


def test_map_in_arrow_reads_the_plans_it_is_given(tmp_path: Path) -> None:
    entries = [write(tmp_path, name, pa.table({"id": [n], "s": ["x"]})) for n, name in enumerate(("a", "b", "c"))]
    encoded = [Plan(some, 1, "_table").encode() for some in (entries[:2], entries[2:])]
    properties = [pa.record_batch({"plan": [text]}) for text in encoded]
    result = list(plans_reader(WANT)(iter(properties)))
    assert [batch.schema for batch in result] == [WANT] * 3
    assert [batch["id"].to_pylist() for batch in result] == [[0], [1], [2]]


def test_the_parts_of_a_plan_read_each_row_once(tmp_path: Path) -> None:
    large = write(tmp_path, "large", pa.table({"id": range(40_000), "s": ["x"] * 40_000}), max_rows_per_file=10_000)
    small = [write(tmp_path, f"t{n}", pa.table({"id": [40_000 + n], "s": [None]})) for n in range(6)]
    parts = [part.encode() for part in Plan([large, *small], 4, "_table", Condition("id % 2 = 0")).split()]
    read = plans_reader(WANT)
    tasks = [pa.Table.from_batches(read(iter([pa.record_batch({"plan": [part]})])), WANT) for part in parts]
    assert len(tasks) == 4
    assert all(task.num_rows < 20_000 for task in tasks)
    assert sorted(pa.concat_tables(tasks)["id"].to_pylist()) == list(range(0, 40_006, 2))


def test_missing_columns_are_null_and_filtered_as_null(tmp_path: Path) -> None:
    less = write(tmp_path, "less", pa.table({"id": [1, 2, 3]}))
    more = write(tmp_path, "more", pa.table({"id": [4, 5], "s": ["x", "y"]}))
    assert read([less, more]) == [
        *(("less", None, n) for n in (1, 2, 3)),
        *(("more", s, n) for n, s in ((4, "x"), (5, "y"))),
    ]
    types = pa.schema([("id", pa.int64()), ("s", pa.string())])
    assert read([less, more], "s = 'x'", types) == [("more", "x", 4)]
    assert read([less, more], "s IS NULL AND id <> 2", types) == [("less", None, 1), ("less", None, 3)]


def test_a_filter_sees_the_common_type(tmp_path: Path) -> None:
    narrow = write(tmp_path, "narrow", pa.table({"id": pa.array([1, 2], pa.int32()), "s": ["x", "y"]}))
    wide = write(tmp_path, "wide", pa.table({"id": [1, 2**40], "s": ["x", "y"]}))
    types = pa.schema([("id", pa.int64())])
    assert read([narrow, wide], f"id < {2**40} AND id > 1", types) == [("narrow", "y", 2)]
    single = write(
        tmp_path, "single", pa.table({"x": pa.array([0.1, 0.5], pa.float32()), "id": [1, 2], "s": ["x", "y"]})
    )
    double = pa.schema([("x", pa.float64())])
    # The column of the filter is not among those to read; 0.1 as a float differs from 0.1 as a double.
    assert read([single], "x <= 0.1 OR x = 0.5", double) == [("single", "y", 2)]
    assert read([single], "x <= 0.1 OR x = 0.5") == [("single", "x", 1), ("single", "y", 2)]

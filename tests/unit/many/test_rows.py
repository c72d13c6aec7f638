"""Searches and counts of many tables, compared with a search of all rows one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.calls.observers import Call
from lance_ns_async.many import row_results
from lance_ns_async.many import rows as many_rows
from lance_ns_async.many.ranking import Ranking, fuse
from tests.support.budget import examples
from tests.support.gateway import served

Vector = tuple[int, int]


def table(vectors: Sequence[Vector | None], **columns: Sequence[Any]) -> pa.Table:
    """Returns rows with an id, a word, and a vector that may be null."""
    return pa.table(
        {
            "id": pa.array(range(len(vectors)), pa.int64()),
            "word": pa.array([f"word{n % 3}" for n in range(len(vectors))], pa.string()),
            "vector": pa.array([it and [float(x) for x in it] for it in vectors], pa.list_(pa.float32(), 2)),
            **columns,
        }
    )


def distance(one: Vector, other: Vector) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))


small = st.integers(-3, 3)
lakes = st.lists(st.lists(st.none() | st.tuples(small, small), max_size=8), min_size=1, max_size=4)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lake=lakes, query=st.tuples(small, small), k=st.integers(1, 12), deleted=st.integers(0, 3), least=st.integers(0, 3)
)
def test_the_nearest_rows_are_those_of_a_search_of_all_rows(
    tmp_path_factory: pytest.TempPathFactory,
    lake: list[list[Vector | None]],
    query: Vector,
    k: int,
    deleted: int,
    least: int,
) -> None:
    """With filters, nulls, deleted rows, ties, empty tables, and a table without vectors."""
    root = tmp_path_factory.mktemp("lake")
    for number, vectors in enumerate(lake):
        lance.write_dataset(table(vectors), root / f"t{number}.lance").delete(f"id = {deleted}")
    lance.write_dataset(pa.table({"id": [1]}), root / "other.lance")
    expected = sorted(
        distance(query, vector)
        for vectors in lake
        for id, vector in enumerate(vectors)
        if vector is not None and id != deleted and id >= least
    )

    async def main() -> row_results.RankedRows:
        async with AsyncNamespace.connect("dir", {"root": str(root)}) as ns:
            found = await ns.search_many("*", vector=query, k=k, filter=f"id >= {least}")
            assert found.rows == (await ns.search_many("*", vector=query, k=k, filter=f"id >= {least}")).rows
            return found

    found = asyncio.run(main())
    assert found.rows["_distance"].to_pylist() == expected[:k]
    for row in found.rows.to_pylist():
        vector = lake[int(row["_table"][1:])][row["id"]]
        assert vector is not None and distance(query, vector) == row["_distance"]
    keys = [(row["_table"], row["id"]) for row in found.rows.to_pylist()]
    assert len(set(keys)) == len(keys)
    assert set(found.errors) == {TableId(["other"])} and len(found.searched) == len(lake)


async def test_the_result_is_the_same_here_and_by_a_server(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    for number in range(3):
        await ns.write(["s", f"t{number}"], table([(number, n) for n in range(5)]))
    calls: list[Call] = []
    with reader.observe(calls.append):
        found = await reader.search_many("s.*", vector=(1, 1), k=3, columns=["id"])
    assert not (reader is not ns) or [it.operation for it in calls] == ["search_many"]
    assert found.rows.to_pylist() == [
        {"id": 1, "_distance": 0.0, "_table": "s$t1"},
        {"id": 1, "_distance": 1.0, "_table": "s$t0"},
        {"id": 0, "_distance": 1.0, "_table": "s$t1"},
    ]
    many = [["s", f"t{number}"] for number in range(1001)]
    assert (await reader.search_many(many, vector=(1, 1), k=3, columns=["id"])).rows == found.rows
    assert (await reader.search_many([], vector=(1, 1), columns=["id"])).rows.num_rows == 0
    counts = await reader.count_many("s.**", filter="id > 2")
    assert counts.counts == {TableId(["s", f"t{number}"]): 2 for number in range(3)} and counts.total == 6


async def test_failures_affect_no_other_table(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    await ns.write(["s", "good"], table([(0, 0)]))
    await ns.write(["s", "narrow"], table([(0, 0)]).drop_columns(["word"]))
    await ns.declare_table({"id": ["s", "empty"]})
    found = await reader.search_many(["s.*", "s.none"], vector=(0, 0), columns=["word"])
    assert found.rows["_table"].to_pylist() == ["s$good"] and found.searched == [TableId(["s", "good"])]
    assert {str(id): type(error) for id, error in found.errors.items()} == {
        "s$narrow": err.TableColumnNotFoundError,
        "s$none": err.TableNotFoundError,
    }
    with pytest.raises(err.LanceNamespaceError, match="1 more"):
        found.raise_for_errors()
    assert "RankedRows(1 row, 1 table searched, 2 errors)" in repr(found) and "s$narrow" in found._repr_html_()
    assert "<th>_distance</th>" in found._repr_html_() and "<td>s$good</td>" in found._repr_html_()
    counts = await reader.count_many(["s.*", "s.none"])
    assert counts.total == 2 and [*counts.errors] == [TableId(["s", "none"])]
    assert repr(counts).startswith("RowCounts(2 rows, 2 tables, 1 error)")


async def test_columns_that_a_table_lacks_are_null_and_types_are_widened(ns: AsyncNamespace) -> None:
    await ns.write(["s", "a"], table([(0, 0)], size=pa.array([1], pa.int32())))
    await ns.write(["s", "b"], table([(1, 0)], size=pa.array([2], pa.int64()), more=["x"]))
    rows = (await ns.search_many("s.*", vector=(0, 0))).raise_for_errors().rows
    assert rows.select(["size", "more"]).to_pylist() == [{"size": 1, "more": None}, {"size": 2, "more": "x"}]
    assert rows.schema.field("size").type == pa.int64()
    await ns.write(["s", "c"], table([(2, 0)], size=["big"]))
    with pytest.raises(err.InvalidInputError, match=r"columns: .* no common type"):
        await ns.search_many("s.*", vector=(0, 0))
    assert (await ns.search_many("s.*", vector=(0, 0), columns=["id"])).rows.num_rows == 3


async def test_a_search_that_finds_nothing_has_the_columns(reader: AsyncNamespace, ns: AsyncNamespace) -> None:
    await ns.write(["s", "one"], table([(0, 0)]))
    await ns.write(["s", "other"], table([(0, 0)], extra=pa.array([1], pa.int32())))
    everything = await reader.search_many("s.*", vector=(0, 0))
    nothing = await reader.search_many("s.*", vector=(0, 0), filter="id < 0")
    assert nothing.rows.schema.remove_metadata() == everything.rows.schema.remove_metadata()
    await ns.create_table_scalar_index({"id": ["s", "one"], "column": "word", "index_type": "FTS"})
    found = await reader.search_many([["s", "one"]], vector=(0, 0), full_text="x", filter="id < 0", columns=["id"])
    assert found.rows.column_names == ["id", "_distance", "_score", "_relevance_score", "_table"]
    assert found.rows.schema.field("id").type == pa.int64() and not found.rows.num_rows


async def test_names_that_a_search_uses_itself_are_told_apart(ns: AsyncNamespace) -> None:
    await ns.write(["s", "taken"], table([(0, 0)], _table=["x"]))
    await ns.write(["a.b"], table([(1, 0)], _own=["y"]))
    found = await ns.search_many([["s", "taken"], ["a.b"]], vector=(0, 0))
    assert found.rows.column_names == ["id", "word", "vector", "_own", "_distance", "_table"]
    assert [row.id for row in found.table_rows()] == [TableId(["s", "taken"]), TableId(["a.b"])]
    assert "has a column '_table' itself" in str(found.errors[TableId(["s", "taken"])])


async def test_a_text_and_a_vector_find_rows_together(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    for number in range(3):
        id = ["s", f"t{number}"]
        await ns.write(id, table([(number, n) for n in range(9)]))
        await ns.create_table_scalar_index({"id": id, "column": "word", "index_type": "FTS"})
    by_text = await reader.search_many(NamespaceId("s"), full_text="word2", k=9, columns=["id", "word"])
    assert set(by_text.rows["word"].to_pylist()) == {"word2"} and by_text.rows.num_rows == 9
    scores = by_text.rows["_score"].to_pylist()
    assert scores == sorted(scores, reverse=True)
    both = (await reader.search_many("s.*", vector=(0, 2), full_text="word2", k=4, columns=["id"])).rows
    # It is the nearest, and has the word.
    assert both.slice(0, 1).select(["id", "_distance", "_table"]).to_pylist() == [
        {"id": 2, "_distance": 0.0, "_table": "s$t0"}
    ]
    assert both.column_names == ["id", "_distance", "_score", "_relevance_score", "_table"]
    relevance = both["_relevance_score"].to_pylist()
    assert relevance == sorted(relevance, reverse=True) and both.num_rows == 4


@pytest.mark.parametrize("k", [5, 5000])
async def test_no_row_of_a_table_that_fails_is_in_the_result(ns: AsyncNamespace, k: int) -> None:
    for name in ("indexed", "plain"):
        await ns.write(["s", name], table([(0, 0)]).drop_columns(["word"]))
    await ns.write(["s", "indexed"], table([(1, 1)] * 3), mode="overwrite")
    await ns.create_table_scalar_index({"id": ["s", "indexed"], "column": "word", "index_type": "FTS"})
    found = await ns.search_many("s.*", vector=(0, 0), full_text="word1", k=k)
    assert set(found.errors) == {TableId(["s", "plain"])} and set(found.rows["_table"].to_pylist()) == {"s$indexed"}


async def test_what_was_found_before_the_time_ended_is_returned(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    ids = [["s", f"t{number}"] for number in range(70)]
    for id in ids:
        await ns.write(id, table([(0, 0)]))
    found = await reader.search_many(ids, vector=(0, 0), k=100, timeout=1e-9)
    assert found.rows.num_rows == len(found.searched) and len(found.searched) + len(found.errors) == 70
    assert {type(error) for error in found.errors.values()} == {err.ServiceUnavailableError}


@pytest.mark.parametrize("reader", ["remote"], indirect=True)
async def test_a_search_that_takes_a_server_too_long_goes_on_table_by_table(
    ns: AsyncNamespace, reader: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [["s", f"t{number}"] for number in range(70)]
    for id in ids:
        await ns.write(id, table([(0, 0)]))
    calls: list[Call] = []
    monkeypatch.setattr(many_rows, "_SHARE", 1e-9)
    with reader.observe(calls.append):
        found = await reader.search_many(ids, vector=(0, 0), k=70)
    assert found.rows.num_rows == 70 and not found.errors
    assert [it.operation for it in calls].count("query_table") == 70


async def test_after_a_401_no_further_table_is_called(tmp_path: Path) -> None:
    calls: list[object] = []
    with served("dir", {"root": str(tmp_path)}) as gateway:
        properties = {"uri": gateway.url, "data_operations": "remote", "header.x-lance-token": "wrong"}
        async with AsyncNamespace.connect("rest", properties) as ns:
            with ns.observe(calls.append):
                found = await ns.search_many([[f"t{number}"] for number in range(100)], vector=(0, 0))
    assert len(found.errors) == 100 and {type(it) for it in found.errors.values()} == {err.UnauthenticatedError}
    assert len(calls) < 40


async def test_a_storage_that_vanishes_in_the_middle_leaves_what_was_found(ns: AsyncNamespace, tmp_path: Path) -> None:
    ids = [["s", f"t{number}"] for number in range(40)]
    for id in ids:
        await ns.write(id, table([(0, 0)]))

    def vanish(done: int, total: int) -> None:
        if done == 5:
            (tmp_path / "lake").rename(tmp_path / "gone")

    found = await ns.search_many(ids, vector=(0, 0), k=50, max_in_flight=2, progress=vanish)
    assert 5 <= len(found.searched) < 40 and found.rows.num_rows == len(found.searched)
    assert set(found.errors) == {TableId(id) for id in ids} - set(found.searched)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "vector: pass a vector, a full_text, or both"),
        ({"text": "a"}, "text: unknown; use full_text"),
        ({"vector": [1.0], "limit": 3}, "limit: unknown; use k"),
        ({"vector": (0, 0), "offset": 3}, "offset: not supported in a search of many tables"),
        ({"vector": (0, 0), "nprobe": 3}, "nprobe: unknown, did you mean nprobes"),
        ({"vector": (0, 0), "k": 0}, "k 0: must be at least 1"),
        ({"vector": (0, 0), "distance_type": "far"}, "distance_type 'far'"),
        ({"vector": (0, 0), "max_in_flight": 0}, "max_in_flight 0"),
    ],
)
async def test_invalid_arguments_make_no_call(ns: AsyncNamespace, arguments: dict[str, Any], message: str) -> None:
    calls: list[object] = []
    with ns.observe(calls.append), pytest.raises(err.InvalidInputError, match=message):
        await ns.search_many("s.*", **arguments)
    assert calls == []


def results(count: int) -> Iterator[tuple[str, pa.Table]]:
    for number in range(count):
        distances = pa.array([number % 5, number % 7 + 0.5, None, float("nan")], pa.float32())
        yield f"t{number:02}", pa.table({"_rowid": range(4), "_distance": distances})


@pytest.mark.parametrize("k", [1, 3, 60])
def test_the_order_of_results_changes_nothing(k: int) -> None:
    forwards, backwards = Ranking("_distance", k), Ranking("_distance", k)
    for id, rows in results(40):
        forwards.add(id, rows)
    for id, rows in reversed([*results(40)]):
        backwards.add(id, rows)
    assert forwards.rows() == backwards.rows() and forwards.rows().num_rows == k
    everything = sorted((number % 5 if n == 0 else number % 7 + 0.5) for number in range(40) for n in range(2))
    assert forwards.rows()["_distance"].to_pylist() == everything[:k]


@pytest.mark.parametrize("k", [1, 3, 60])
def test_rankings_of_parts_are_merged_into_that_of_all(k: int) -> None:
    whole, parts = Ranking("_distance", k), [Ranking("_distance", k) for _ in range(3)]
    for number, (id, rows) in enumerate(results(40)):
        whole.add(id, rows)
        parts[number * 7 % 3].add(id, rows)
    merged = Ranking("_distance", k)
    for part in parts:
        for name, best in part.parts():
            merged.add(name, best)
    assert merged.rows() == whole.rows()


def test_empty_results_of_parts_keep_their_columns() -> None:
    """If their types have no common one, they are those of the first table."""
    part, merged = Ranking("_distance", 3), Ranking("_distance", 3)
    distances = pa.array([], pa.float32())
    part.add("b", pa.table({"x": pa.array([], pa.string()), "_distance": distances}))
    part.add("a", pa.table({"x": pa.array([], pa.int8()), "_distance": distances}))
    for id, rows in part.parts():
        merged.add(id, rows)
    assert merged.rows() == part.rows() and merged.rows().column_names == ["x", "_distance", "_table"]
    assert merged.rows().schema.field("x").type == pa.int8()
    part.add("c", pa.table({"y": [1], "_distance": pa.array([0.5], pa.float32())}))
    assert part.rows().column_names == ["y", "_distance", "_table"]
    assert Ranking("_distance", 3).rows().column_names == ["_distance", "_table"]


@pytest.mark.parametrize(("vectors", "texts"), [(0, 0), (2, 0), (0, 2), (2, 2)])
def test_either_search_may_find_nothing_that_the_other_lacks(vectors: int, texts: int) -> None:
    by_vector, by_text = Ranking("_distance", 3), Ranking("_score", 3, descending=True)
    for ranking, by, count in ((by_vector, "_distance", vectors), (by_text, "_score", texts)):
        rows = {"_rowid": pa.array(range(count), pa.uint64()), by: pa.array(range(count), pa.float32())}
        ranking.add("t", pa.table(rows))
    fused = fuse(by_vector.rows(), by_text.rows(), 3)
    assert fused.num_rows == max(vectors, texts)
    assert {"_distance", "_score", "_relevance_score", "_table"} <= {*fused.column_names}


def test_a_row_that_both_searches_find_is_before_those_of_one() -> None:
    by_vector, by_text = Ranking("_distance", 3), Ranking("_score", 3, descending=True)
    by_vector.add("t", pa.table({"_rowid": [1, 2, 3], "_distance": [0.1, 0.2, 0.3]}))
    by_text.add("t", pa.table({"_rowid": [3, 4], "_score": [5.0, 4.0]}))
    fused = fuse(by_vector.rows(), by_text.rows(), 3)
    assert fused["_rowid"].to_pylist() == [3, 1, 2]
    assert fused["_relevance_score"].to_pylist() == pytest.approx([1 / 63 + 1 / 61, 1 / 61, 1 / 62])
    assert fused["_score"].to_pylist() == [5.0, None, None]


async def test_patterns_open_the_tables_with_data(ns: AsyncNamespace) -> None:
    for name in ("a1", "a2", "b"):
        await ns.write(["s", name], table([(0, 0)]))
    await ns.declare_table(["s", "a3"])
    opened = await ns.open_many(["s.a*", "s.b", "s.a1"])
    assert {str(id): dataset.count_rows() for id, dataset in opened.tables.items()} == dict.fromkeys(
        ("s$a1", "s$a2", "s$b"), 1
    )
    assert not opened.errors
    opened = await ns.open_many(["s.a*", "s.a3", "gone.*"])
    assert list(opened.errors) == [TableId("s.a3")] and list(opened.unlisted) == [NamespaceId("gone")]
    with pytest.raises(err.TableNotFoundError, match="and 1 more"):
        opened.raise_for_errors()

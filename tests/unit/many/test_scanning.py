"""Scans of many tables, compared with reads of one table after another."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, DirNamespace, NamespaceId, TableId
from lance_ns_async.many.schemas import widest
from tests.support.budget import examples
from tests.support.errors import catch

NAMES = ["a", "ß", "x y", "col"]
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-100, 100)),
    (pa.int32(), st.integers(-1000, 1000)),
    (pa.int64(), st.integers(-1000, 1000)),
]
columns = st.dictionaries(st.sampled_from(NAMES), st.integers(0, len(TYPES) - 1), min_size=1)


@st.composite
def lakes(draw: st.DrawFn) -> list[pa.Table]:
    """Returns tables with differing columns, nulls and no rows."""
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.integers(0, 6))
        arrays = {}
        for name, kind in draw(columns).items():
            type, values = TYPES[kind]
            arrays[name] = pa.array(draw(st.lists(values | st.none(), min_size=rows, max_size=rows)), type)
        tables.append(pa.table(arrays))
    return tables


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lake=lakes(), least=st.none() | st.integers(-20, 20), deleted=st.integers(0, 2))
def test_a_scan_has_the_rows_of_all_tables(
    tmp_path_factory: pytest.TempPathFactory, lake: list[pa.Table], least: int | None, deleted: int
) -> None:
    """With columns and types that differ, filters on missing columns, nulls, deleted rows and empty tables."""
    names = list(dict.fromkeys(name for table in lake for name in table.column_names))
    filtered = "a" in names and least is not None
    expected = [
        {**{name: row.get(name) for name in names}, "_table": f"t{number}"}
        for number, table in enumerate(lake)
        for row in table.slice(min(deleted, table.num_rows)).to_pylist()
        if not filtered or (row.get("a") is not None and row["a"] >= least)
    ]

    async def main() -> pa.Table:
        async with AsyncNamespace.connect("dir", {"root": str(tmp_path_factory.mktemp("lake"))}) as ns:
            for number, table in enumerate(lake):
                numbered = table.append_column("n", pa.array(range(table.num_rows), pa.int64()))
                await ns.write([f"t{number}"], numbered)
                await ns.delete_from_table([f"t{number}"], predicate=f"n < {deleted}")
            filter = f"a >= {least}" if filtered else None
            ids = [[f"t{number}"] for number in range(len(lake))]
            return await (await ns.scan_many(ids, columns=names, unify="by_name", filter=filter)).to_arrow()

    result = asyncio.run(main())
    assert result.to_pylist() == expected
    for name in names:
        types = [table.schema.field(name).type for table in lake if name in table.column_names]
        assert result.schema.field(name).type == widest(types)


async def test_the_rows_are_the_same_here_and_by_a_server(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    await ns.write(
        ["s", "wide"], pa.table({"id": [1, 2, 3], "more": ["x", None, "z"], "n": pa.array([1, 2, 3], pa.int8())})
    )
    await ns.write(["s", "narrow"], pa.table({"id": [4, 5], "n": pa.array([4, 5], pa.int32())}))
    stream = await reader.scan_many(["s.wide", "s.narrow"], unify="by_name", filter="n > 1 and (more is null or n = 3)")
    assert stream.schema == pa.schema(
        [("id", pa.int64()), ("more", pa.string()), ("n", pa.int32()), ("_table", pa.string())]
    )
    assert (await stream.to_arrow()).to_pylist() == [
        {"id": 2, "more": None, "n": 2, "_table": "s$wide"},
        {"id": 3, "more": "z", "n": 3, "_table": "s$wide"},
        {"id": 4, "more": None, "n": 4, "_table": "s$narrow"},
        {"id": 5, "more": None, "n": 5, "_table": "s$narrow"},
    ]
    only = await (
        await reader.scan_many("s.*", columns=["id"], filter="n = 5", table_column="", unify="by_name")
    ).to_arrow()
    assert only.to_pylist() == [{"id": 5}]
    assert (await (await reader.scan_many("s.*", columns=[])).to_arrow())["_table"].to_pylist().count("s$wide") == 3


async def test_versions_are_those_of_the_beginning(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    for name in ("t0", "t1"):
        await ns.write(["s", name], pa.table({"id": [1]}))
    await ns.write(["s", "t1"], pa.table({"id": [2]}), mode="append")
    stream = await reader.scan_many(["s.t0", "s.t1"])
    await ns.write(["s", "t1"], pa.table({"id": [3]}), mode="overwrite")
    assert (await stream.to_arrow())["id"].to_pylist() == [1, 1, 2]
    assert dict(stream.versions) == {TableId("s.t0"): 1, TableId("s.t1"): 2}
    await catch(err.InvalidInputError, stream.to_arrow(), "read once")


async def test_tables_that_cannot_be_opened_are_errors(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    await ns.write(["s", "t"], pa.table({"id": [1]}))
    await ns.declare_table(["s", "empty"])
    assert (await (await reader.scan_many("s.*")).to_arrow()).num_rows == 1
    await catch(err.TableNotFoundError, reader.scan_many(["s.t", "s.none", "s.empty"]), "1 more")
    stream = await reader.scan_many(["s.t", "s.none", "s.empty"], partial=True)
    assert (await stream.to_arrow()).to_pylist() == [{"id": 1, "_table": "s$t"}]
    assert set(stream.errors) == {TableId("s.none"), TableId("s.empty")}
    assert repr(stream) == "RowStream(1 table, 2 columns, 2 errors)"
    with pytest.raises(err.TableNotFoundError):
        stream.raise_for_errors()


async def test_a_storage_that_vanishes_is_an_error_and_no_end(ns: AsyncNamespace, tmp_path: Path) -> None:
    for number in range(40):
        await ns.write(["s", f"t{number:02}"], pa.table({"id": [number]}))
    rows = []
    with pytest.raises(err.LanceNamespaceError, match=r"s\$t"):
        async for batch in await ns.scan_many("s.*", max_in_flight=2):
            rows += batch["id"].to_pylist()
            if len(rows) == 5:
                (tmp_path / "lake").rename(tmp_path / "gone")
    assert rows == list(range(len(rows))) and 5 <= len(rows) < 40


async def test_a_loop_may_end_early(ns: AsyncNamespace, reader: AsyncNamespace) -> None:
    for number in range(30):
        await ns.write(["s", f"t{number:02}"], pa.table({"id": [number]}))
    before = asyncio.all_tasks()
    stream = await reader.scan_many("s.*")
    async for batch in stream:
        assert batch["id"].to_pylist() == [0]
        break
    await stream.aclose()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "s.none*"}, r"no table to read in 's\.none\*', and therefore no columns"),
        ({"columns": "id"}, r"columns 'id': must be a list, not a string; use columns=\['id'\]"),
        ({"columns": [], "table_column": None}, "columns \\[\\]: must not be empty without a table_column"),
        ({"table_column": "x"}, "table_column 'x': the tables have a column 'x'"),
        ({"filter": "_table = 's$one'"}, "'_table' is not a column of the tables; pass fewer tables"),
        ({"max_in_flight": 0}, "max_in_flight 0: must be at least 1"),
        ({"what": ["s.one", "s.text"]}, "s.text: column 'x' is string, not int64.* by a call of their own"),
        ({"what": ["s.one", "s.text"], "unify": "by_name"}, "no type holds all values of column 'x' without loss"),
    ],
)
async def test_invalid_arguments(ns: AsyncNamespace, arguments: dict[str, Any], message: str) -> None:
    for name in ("one", "other"):
        await ns.write(["s", name], pa.table({"id": [1], "x": [1]}))
    await ns.write(["s", "text"], pa.table({"id": [1], "x": ["1"]}))
    await catch(err.InvalidInputError, ns.scan_many(**{"what": ["s.one", "s.other"], **arguments}), message)


async def test_a_value_that_does_not_fit_is_an_error(ns: AsyncNamespace) -> None:
    late = datetime(3000, 1, 1, tzinfo=UTC)
    await ns.write(["s", "a"], pa.table({"at": pa.array([late], pa.timestamp("us", "UTC"))}))
    await ns.write(["s", "b"], pa.table({"at": pa.array([late.replace(year=2000)], pa.timestamp("ns", "UTC"))}))
    with pytest.raises(
        err.InvalidInputError, match=r"s\$a .*'at' cannot be cast to timestamp\[ns, tz=UTC\], the common"
    ):
        await (await ns.scan_many(NamespaceId("s"))).to_arrow()


def test_a_sync_scan_is_an_arrow_stream(tmp_path: Path) -> None:
    ns = DirNamespace(root=str(tmp_path))
    for number in range(3):
        ns.write([f"t{number}"], pa.table({"id": [number, number + 10]}))
    rows = [{"id": n + m, "_table": f"t{n}"} for n in range(3) for m in (0, 10)]
    ids = sorted(ns.list_tables().tables)
    assert pa.RecordBatchReader.from_stream(ns.scan_many(ids)).read_all().to_pylist() == rows
    assert ns.scan_many(iter(ids)).to_arrow().to_pylist() == rows
    assert ns.scan_many(ids).to_polars().to_dicts() == rows
    with ns.scan_many(ids) as scanned:
        assert next(iter(scanned)).to_pylist() == rows[:2]
    assert repr(scanned) == "RowReader(3 tables, 2 columns, 0 errors)"
    with pytest.raises(err.InvalidInputError, match="read once"):
        scanned.to_reader()
    # The namespace may be dropped before its rows are read.
    assert DirNamespace(root=str(tmp_path)).scan_many(ids).to_reader().read_all().to_pylist() == rows

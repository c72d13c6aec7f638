"""Rows at memory addresses that Lance does not accept unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, DirNamespace
from lance_ns_async.gateway import serving
from lance_ns_async.storage.arrow import align, align_reader
from tests.support.lake import stream

pytestmark = pytest.mark.environment


WIDE = pa.decimal128(20, 3)
VALUES = [Decimal("1.250"), None, Decimal("-3.500")]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "alone": (WIDE, VALUES),
    "256": (pa.decimal256(40, 3), VALUES),
    "list": (pa.list_(WIDE), [VALUES, None, []]),
    "struct": (pa.struct([("a", WIDE)]), [{"a": value} for value in VALUES]),
    "map": (pa.map_(pa.string(), WIDE), [[("k", VALUES[0])], None, []]),
}
SHIFTS = [0, 3, 8]
TEXTS = ["longer than twelve characters", None, "short"]
VIEWS: dict[str, pa.Array] = {
    "string": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array([b"longer than twelve bytes", None, b"short"], pa.binary_view()),
    "list": pa.array([TEXTS, None, []], pa.list_(pa.string_view())),
    "large": pa.array([TEXTS, None, []], pa.large_list(pa.string_view())),
    "struct": pa.array([{"a": text} for text in TEXTS], pa.struct([("a", pa.string_view())])),
    "map": pa.array([[("k", TEXTS[0])], None, []], pa.map_(pa.string(), pa.string_view())),
    "integer": pa.array([1, None, 3]),
    "dictionary": (codes := pa.array(TEXTS).dictionary_encode()),
    "dictionary in struct": pa.StructArray.from_arrays([codes], ["a"], mask=pa.array([False, True, False])),
    "dictionary in list": pa.ListArray.from_arrays([0, 2, None, 3], codes),
}


def shifted(table: pa.Table, shifts: Sequence[int] = range(16)) -> Iterator[pa.Table]:
    """Yields the table from streams that begin at each of these offsets."""
    data = stream(table)
    for shift in shifts:
        with pa.ipc.open_stream(pa.py_buffer(memoryview(bytes(shift) + data)[shift:])) as reader:
            yield reader.read_all()


def addresses(table: pa.Table) -> list[int]:
    arrays = [chunk for column in table.columns for chunk in column.chunks]
    return [buffer.address for array in arrays for buffer in array.buffers() if buffer is not None]


@pytest.mark.parametrize("name", TYPES)
def test_wide_values_are_moved_and_stay_the_same(name: str) -> None:
    kind, values = TYPES[name]
    table = pa.table({"wide": pa.array(values, kind), "n": [1, 2, 3]}).replace_schema_metadata({"k": "v"})
    were = set[int]()
    for odd in shifted(table):
        were.update(address % 16 for address in addresses(odd.select(["wide"])))
        aligned = align(odd)
        assert aligned.equals(table, check_metadata=True)
        assert {address % 16 for address in addresses(aligned.select(["wide"]))} == {0}
        assert {address % 8 for address in addresses(aligned)} == {0}
    assert len(were) > 1


def test_what_lies_well_is_not_copied() -> None:
    table = pa.table({"d": pa.array(VALUES, WIDE), "s": ["a", "b", None]})
    assert align(table) is table
    (batch,) = table.to_batches()
    assert align(batch) is batch
    (read_batch,) = align_reader(table.to_reader())
    assert addresses(pa.table(read_batch)) == addresses(table)


@pytest.mark.parametrize("form", ["stream", "table", "reader"])
def test_decimals_of_a_stream_are_written(tmp_path: Path, form: str) -> None:
    table = pa.table({"b": [True, None, False], "d": pa.array(VALUES, WIDE)})
    with DirNamespace(root=str(tmp_path)) as ns:
        for n, odd in enumerate(shifted(table)):
            id = [f"t{n}"]
            if form == "stream":
                data = memoryview(bytes(n) + stream(table))[n:]
                ns.create_table({"id": id}, data)  # any buffer is accepted
            else:
                ns.write(id, odd if form == "table" else odd.to_reader())
            assert ns.open(id).to_table().equals(table)


@pytest.mark.parametrize("form", ["stream", "table", "batch", "reader", "merge"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_and_dictionaries_of_a_stream_are_written(tmp_path: Path, name: str, form: str) -> None:
    table = pa.table({"n": [1, 2, 3], "v": VIEWS[name]})
    with DirNamespace(root=str(tmp_path)) as ns:
        for n, odd in zip(SHIFTS, shifted(table, SHIFTS), strict=True):
            id = [f"t{n}"]
            if form == "stream":
                ns.create_table({"id": id}, memoryview(bytes(n) + stream(table))[n:])
            elif form == "merge":
                ns.declare_table({"id": id})
                request = {"id": id, "on": ["n"], "when_not_matched_insert_all": True}
                ns.merge_insert_into_table(request, memoryview(bytes(n) + stream(table))[n:])
            else:
                ns.write(id, {"table": odd, "batch": odd.to_batches()[0], "reader": odd.to_reader()}[form])
            assert ns.open(id).to_table()["v"].to_pylist() == table["v"].to_pylist()


async def test_views_are_written_through_a_gateway(tmp_path: Path) -> None:
    table = pa.table({"v": VIEWS["string"]})
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        headers = {f"header.{name}": value for name, value in gateway.headers.items()}
        async with AsyncNamespace.connect("rest", {"uri": gateway.url, **headers}) as client:
            # The position of the rows in the body depends on the name of the columns.
            for n in (1, 2):
                await client.create_table({"id": [f"t{n}"]}, stream(table.rename_columns(["v" * n * 4])))
                assert (await ns.open([f"t{n}"])).to_table().column(0).to_pylist() == TEXTS

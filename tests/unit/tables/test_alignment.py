"""Rows at memory addresses that Lance does not accept unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lance_ns_async import DirNamespace
from lance_ns_async.tables.alignment import align, align_reader
from tests.support.lake import stream

WIDE = pa.decimal128(20, 3)
VALUES = [Decimal("1.250"), None, Decimal("-3.500")]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "alone": (WIDE, VALUES),
    "256": (pa.decimal256(40, 3), VALUES),
    "list": (pa.list_(WIDE), [VALUES, None, []]),
    "struct": (pa.struct([("a", WIDE)]), [{"a": value} for value in VALUES]),
    "map": (pa.map_(pa.string(), WIDE), [[("k", VALUES[0])], None, []]),
}


def shifted(table: pa.Table) -> Iterator[pa.Table]:
    """Yields the table from streams that begin at each possible offset."""
    data = stream(table)
    for shift in range(16):
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
    plain = pa.table({"s": ["a"]}).to_reader()
    assert align_reader(plain) is plain


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

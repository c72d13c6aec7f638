"""The columns of a DataFrame that fit a table, and the rows that a task writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import TableSchemaValidationError
from pyspark.sql.types import ArrayType, FloatType, LongType, StringType, StructField, StructType

from lance_ns_async import TableId
from lance_ns_async.spark.write import write
from lance_ns_async.spark.write.task_writer import Sink, conform, fragments_writer

# It needs pyspark, but no JVM.
pytestmark = pytest.mark.integration

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
ROWS = pa.record_batch([[1, 2, 3], ["a", "b", None]], schema=SCHEMA)


def test_sink_shows_no_secrets() -> None:
    assert "hush" not in repr(Sink("t", "/t", SCHEMA, None, replaces=False, options={"key": "hush"}))


def test_errors_of_the_rows_are_raised_unchanged(tmp_path: Path) -> None:
    def rows() -> Any:
        yield ROWS
        raise ZeroDivisionError("of the user's own")

    sink = Sink("t", str(tmp_path / "t"), SCHEMA, None, replaces=False)
    with pytest.raises(ZeroDivisionError, match="of the user's own"):
        list(fragments_writer(sink, None)(rows()))
    assert list(tmp_path.rglob("*.lance")) == []


NOT_NULL = pa.field("it", pa.int64(), nullable=False)

LIST, STRUCT = pa.list_(pa.int64()), pa.struct([("it", pa.int64())])

NULLS: Sequence[tuple[pa.DataType, pa.DataType, Any, bool]] = [
    (LIST, pa.list_(NOT_NULL), [[1], None], False),
    (LIST, pa.list_(NOT_NULL), [[1, None]], True),
    (LIST, pa.list_(NOT_NULL, 2), [[1, 2], None], False),
    (LIST, pa.list_(NOT_NULL, 2), [[1, None]], True),
    (LIST, pa.list_(pa.int64(), 2), [[1, None]], False),
    (STRUCT, pa.struct([NOT_NULL]), [None, {"it": 1}], False),
    (STRUCT, pa.struct([NOT_NULL]), [{"it": None}], True),
    (pa.struct([("l", LIST)]), pa.struct([pa.field("l", pa.list_(NOT_NULL))]), [{"l": [None]}], True),
    (pa.list_(STRUCT), pa.list_(pa.struct([NOT_NULL])), [[None, {"it": 1}], None], False),
    (pa.list_(STRUCT), pa.list_(pa.struct([NOT_NULL])), [[{"it": 1}], [{"it": None}]], True),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), NOT_NULL), [[("k", 1)], None], False),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), NOT_NULL), [[("k", 1), ("l", None)]], True),
]


@pytest.mark.parametrize(("source", "type", "values", "refused"), NULLS)
def test_nulls_in_columns_that_are_not_nullable(
    source: pa.DataType, type: pa.DataType, values: Any, refused: bool
) -> None:
    want = pa.schema([pa.field("x", type)])
    batch = pa.RecordBatch.from_arrays([pa.array(values, source)], ["x"])
    if not refused:
        assert conform(batch, want, "t").column(0).to_pylist() == values
        return
    with pytest.raises(TableSchemaValidationError, match=r"^Table schema invalid: t \(column 'x': "):
        conform(batch, want, "t")


def test_missing_offsets_of_lists_are_added() -> None:
    none, offsets = pa.py_buffer(b""), pa.array([0, 0], pa.int32()).buffers()[1]
    inner = pa.Array.from_buffers(LIST, 0, [None, none], children=[pa.array([], pa.int64())])
    column = pa.Array.from_buffers(pa.list_(LIST), 1, [pa.py_buffer(b"\0"), offsets], children=[inner])
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    lists = conform(batch, batch.schema, "t").column(0)
    assert lists.to_pylist() == [None] and lists.values.buffers()[1].size > 0


FITS: Sequence[tuple[pa.DataType, pa.DataType, bool]] = [
    (pa.int64(), pa.int8(), True),
    (pa.int64(), pa.float32(), True),
    (pa.float64(), pa.int64(), False),
    (pa.float64(), pa.float16(), True),
    (pa.string(), pa.int64(), False),
    (pa.string(), pa.large_string(), True),
    (pa.string(), pa.dictionary(pa.int8(), pa.string()), True),
    (pa.string(), pa.binary(), False),
    (pa.binary(), pa.binary(4), True),
    (pa.bool_(), pa.int8(), False),
    (pa.null(), pa.list_(pa.float32(), 4), True),
    (pa.list_(pa.float64()), pa.list_(pa.float32(), 4), True),
    (pa.list_(pa.string()), pa.list_(pa.float32(), 4), False),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Oslo"), True),
    (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
    (pa.date32(), pa.timestamp("us"), False),
    (pa.decimal128(10, 2), pa.decimal128(20, 4), True),
    (pa.struct({"a": pa.int64(), "b": pa.string()}), pa.struct({"b": pa.string(), "a": pa.int32()}), True),
    (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.string()}), False),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32()), True),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), False),
    (pa.list_(pa.int64()), pa.int64(), False),
]


@pytest.mark.parametrize(("source", "target", "fit"), FITS)
def test_types_that_can_be_cast(source: pa.DataType, target: pa.DataType, fit: bool) -> None:
    assert write.fits(source, target) is fit
    if fit:
        # Arrow's own behaviour.
        assert pa.nulls(1, source).cast(target).to_pylist() == [None]


def test_new_columns_are_nullable_at_every_depth() -> None:
    inside = StructType([StructField("a", LongType(), nullable=False)])
    frame = StructType([StructField("l", ArrayType(inside, containsNull=False), nullable=False)])
    (column,) = write.frame_schema(frame)
    assert column.nullable and column.type.value_field.nullable and column.type.value_type.field(0).nullable


def test_types_of_new_versions() -> None:
    vector = pa.field("v", pa.list_(pa.float32(), 2), nullable=False, metadata={"of": "meaning"})
    frame = write.frame_schema(
        StructType([StructField(name, ArrayType(FloatType())) for name in "vw"] + [StructField("s", StringType())])
    )
    fit = partial(write.schema_for_new, TableId(["t"]), frame)
    assert fit(None, None) == frame
    assert fit(None, pa.schema([vector, ("s", pa.int64())])) == frame.set(0, vector)
    wide = pa.schema([pa.field("v", pa.list_(pa.float16(), 2))])
    assert fit(wide, pa.schema([vector, ("s", pa.large_string())])) == pa.schema(
        [wide.field(0), frame.field("w"), pa.field("s", pa.large_string())]
    )

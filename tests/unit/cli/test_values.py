"""Rows in the formats of the shell: every Arrow type is written, and read again with its values."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_ns_async.cli.output import Format, write_table
from tests.support.budget import examples

WHOLE = st.integers(-(2**31), 2**31 - 1)
FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
    pa.large_string(): st.sampled_from(["", "a,b", 'say "x"', "line\nend", "null"]),
    pa.date32(): st.integers(-700_000, 2_900_000),
    pa.date64(): st.integers(-700_000, 2_900_000).map(lambda day: day * 86_400_000),
    pa.time32("s"): st.integers(0, 86_399),
    # Without pandas, Python has no nanoseconds.
    pa.time64("ns"): st.integers(0, 86_399_999_999).map(lambda it: it * 1000),
    pa.timestamp("s"): WHOLE,
    pa.timestamp("ns"): st.integers(-(2**52), 2**52).map(lambda it: it * 1000),
    pa.timestamp("us", "UTC"): st.integers(-(2**55), 2**55),
    pa.timestamp("ms", "Europe/Oslo"): WHOLE,
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
    pa.decimal256(60, 0): st.integers(-(10**59), 10**59),
}
DEEP: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.binary(): st.binary(max_size=4),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.duration("ms"): WHOLE,
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", ""]),
    pa.list_(pa.float32(), 2): st.lists(st.floats(width=32), min_size=2, max_size=2),
    pa.large_list(pa.timestamp("ns")): st.lists(WHOLE.map(lambda it: it * 1000) | st.none(), max_size=3),
    pa.struct([("a", pa.date32()), ("b", pa.list_(pa.binary()))]): st.fixed_dictionaries(
        {"a": WHOLE.map(lambda it: it % 99), "b": st.lists(st.binary(max_size=2), max_size=2) | st.none()}
    ),
    pa.map_(pa.string(), pa.decimal128(5, 2)): st.lists(
        st.tuples(st.sampled_from("xyz"), st.decimals(-9, 9, places=2)), max_size=3, unique_by=lambda it: it[0]
    ),
}


def parsed(value: Any, kind: pa.DataType) -> Any:
    """Returns the value of a type that JSON or CSV has as this value."""
    if value is None:
        return None
    match kind:
        case pa.DictionaryType():
            return parsed(value, kind.value_type)
        case pa.StructType():
            return {field.name: parsed(value[field.name], field.type) for field in kind}
        case pa.MapType():
            return [(key, parsed(it, kind.item_type)) for key, it in value.items()]
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            return [parsed(it, kind.value_type) for it in value]
        case pa.DurationType():
            return round(float(value.replace("PT", "").rstrip("S")) * 1000)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return b64decode(value)
    if pa.types.is_floating(kind):
        return float(value.replace("Infinity", "inf") if isinstance(value, str) else value)
    return typed(f"a\n{value}\n".encode(), kind)[0] if isinstance(value, str) and not is_text(kind) else value


def typed(csv: bytes, kind: pa.DataType) -> list[Any]:
    """Returns the values of a column `a` of CSV."""
    options = pa.csv.ConvertOptions(
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        # It does not read all decimals.
        column_types={"a": pa.string() if pa.types.is_decimal(kind) else kind},
        include_columns=["a"],
        null_values=[""],
    )
    parsing = pa.csv.ParseOptions(newlines_in_values=True)
    read = pa.csv.read_csv(pa.BufferReader(csv), convert_options=options, parse_options=parsing)["a"]
    result: list[Any] = read.cast(kind).to_pylist()
    return result


def is_text(kind: pa.DataType) -> bool:
    """Returns whether the values are texts in CSV, too."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary, pa.types.is_duration)
    return any(check(kind) for check in (*checks, pa.types.is_binary, pa.types.is_fixed_size_binary))


def no_constant(text: str) -> Any:
    raise AssertionError(f"{text} is no JSON")


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from([*FLAT, *DEEP]))
def test_rows_are_read_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: pa.DataType) -> None:
    folder = tmp_path_factory.mktemp("rows")
    column = pa.array(data.draw(st.lists({**FLAT, **DEEP}[kind] | st.none(), max_size=4)), kind)
    rows = pa.table({"a": column, "b": pa.array(range(len(column)))})
    for format in (Format.PARQUET, Format.JSON, Format.NDJSON, Format.CSV):
        write_table(rows, format, folder / format.value)
    if not pa.types.is_dictionary(kind):
        assert same(pq.read_table(folder / "parquet")["a"].to_pylist(), kind, rows["a"].to_pylist())
    lines = (folder / "ndjson").read_text(encoding="utf-8").split("\n")[:-1]
    from_lines = [json.loads(line, parse_constant=no_constant) for line in lines]
    assert from_lines == json.loads((folder / "json").read_text(encoding="utf-8"), parse_constant=no_constant)
    expected = rows["a"].to_pylist()
    assert same([parsed(row["a"], kind) for row in from_lines], kind, expected)
    csv = (folder / "csv").read_bytes()
    if kind in FLAT:
        assert same(typed(csv, kind), kind, expected)
    else:
        texts = typed(csv, pa.string())
        found = [it if it is None or is_text(kind) else json.loads(it) for it in texts]
        assert same([parsed(it, kind) for it in found], kind, expected)


def same(found: list[Any], kind: pa.DataType, expected: list[Any]) -> bool:
    """Returns whether values are those of a column; NaN equals itself."""
    return repr(pa.array(found, kind).to_pylist()) == repr(expected)

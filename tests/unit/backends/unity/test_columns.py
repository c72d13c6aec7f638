"""Conversion of Arrow schemas to Unity columns and back: each type that Lance stores is preserved."""

from __future__ import annotations

import json
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lance_ns_async import TableId
from lance_ns_async.backends.unity.columns import EXACT, columns, schema
from tests.fakes.unity.checks import check_storable, check_types

ID = TableId(["main", "a", "t"])
UNITS = ("s", "ms", "us", "ns")

STRINGS = {"type": "array", "elementType": "string", "containsNull": True}


def part(name: str, type: Any, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": type, "nullable": nullable, "metadata": {}}


# The Arrow type of each Unity type, which is written without Arrow metadata.
PLAIN: list[tuple[pa.DataType, str, str, Any]] = [
    (pa.bool_(), "BOOLEAN", "boolean", "boolean"),
    (pa.int8(), "BYTE", "tinyint", "byte"),
    (pa.int16(), "SHORT", "smallint", "short"),
    (pa.int32(), "INT", "int", "integer"),
    (pa.int64(), "LONG", "bigint", "long"),
    (pa.float32(), "FLOAT", "float", "float"),
    (pa.float64(), "DOUBLE", "double", "double"),
    (pa.string(), "STRING", "string", "string"),
    (pa.binary(), "BINARY", "binary", "binary"),
    (pa.date32(), "DATE", "date", "date"),
    (pa.null(), "NULL", "void", "void"),
    (pa.timestamp("us", "UTC"), "TIMESTAMP", "timestamp", "timestamp"),
    (pa.timestamp("us"), "TIMESTAMP_NTZ", "timestamp_ntz", "timestamp_ntz"),
    (pa.decimal128(10, 2), "DECIMAL", "decimal(10,2)", "decimal(10,2)"),
    (pa.list_(pa.int64()), "ARRAY", "array<bigint>", {"type": "array", "elementType": "long", "containsNull": True}),
    (
        pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        "MAP",
        "map<string,int>",
        {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": False},
    ),
    (
        pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.list_(pa.string()))]),
        "STRUCT",
        "struct<a:tinyint,b:array<string>>",
        {"type": "struct", "fields": [part("a", "byte", False), part("b", STRINGS, True)]},
    ),
]

# Arrow types for which Unity has no exact type.
LESS: list[tuple[pa.DataType, str, str]] = [
    (pa.uint8(), "SHORT", "smallint"),
    (pa.uint16(), "INT", "int"),
    (pa.uint32(), "LONG", "bigint"),
    (pa.uint64(), "DECIMAL", "decimal(20,0)"),
    (pa.float16(), "FLOAT", "float"),
    *((it, "STRING", "string") for it in (pa.large_string(), pa.string_view())),
    *((it, "BINARY", "binary") for it in (pa.large_binary(), pa.binary_view(), pa.binary(16))),
    (pa.date64(), "DATE", "date"),
    (pa.timestamp("ns", "Europe/Berlin"), "TIMESTAMP", "timestamp"),
    (pa.timestamp("s"), "TIMESTAMP_NTZ", "timestamp_ntz"),
    (pa.time32("ms"), "INT", "int"),
    *((it, "LONG", "bigint") for it in (pa.time64("ns"), pa.duration("s"))),
    (pa.month_day_nano_interval(), "BINARY", "binary"),
    (pa.decimal256(38, 3), "DECIMAL", "decimal(38,3)"),
    *((it, "STRING", "string") for it in (pa.decimal256(76, 3), pa.decimal128(5, -2))),
    (pa.large_list(pa.int64()), "ARRAY", "array<bigint>"),
    (pa.list_(pa.float32(), 768), "ARRAY", "array<float>"),
    *((it, "ARRAY", "array<tinyint>") for it in (pa.list_view(pa.int8()), pa.large_list_view(pa.int8()))),
    (pa.list_(pa.field("element", pa.int64())), "ARRAY", "array<bigint>"),
    (pa.list_(pa.field("item", pa.int64(), metadata={"k": "v"})), "ARRAY", "array<bigint>"),
    (pa.map_(pa.string(), pa.int32(), keys_sorted=True), "MAP", "map<string,int>"),
    (pa.struct([pa.field("a", pa.uint8(), metadata={"k": "v"})]), "STRUCT", "struct<a:smallint>"),
    (pa.dictionary(pa.int16(), pa.string(), ordered=True), "STRING", "string"),
    (pa.run_end_encoded(pa.int32(), pa.int64()), "LONG", "bigint"),
    (pa.json_(), "STRING", "string"),
    (pa.uuid(), "BINARY", "binary"),
    (lance.blob_field("b").type, "STRUCT", "struct<data:binary,uri:string,position:decimal(20,0),size:decimal(20,0)>"),
    (pa.fixed_shape_tensor(pa.float32(), [2, 3]), "ARRAY", "array<float>"),
    (pa.list_(pa.fixed_shape_tensor(pa.float16(), [2])), "ARRAY", "array<array<float>>"),
]


def of(*fields: pa.Field, metadata: dict[str, str] | None = None) -> pa.Schema:
    return pa.schema(fields, metadata=metadata)


def written(type: pa.DataType) -> dict[str, Any]:
    [column] = columns(ID, of(pa.field("x", type)))
    return column


def same(left: pa.Schema | None, right: pa.Schema) -> bool:
    """Returns whether the schemas are equal, including names and metadata within their types."""
    return left is not None and bool(left.serialize() == right.serialize())


@pytest.mark.parametrize(("type", "name", "text", "expected"), PLAIN, ids=lambda value: str(value)[:24])
def test_types_of_unity_are_stored_only_as_such(type: pa.DataType, name: str, text: str, expected: Any) -> None:
    column = written(type)
    assert (column["type_name"], column["type_text"]) == (name, text)
    assert json.loads(column["type_json"]) == {"name": "x", "type": expected, "nullable": True, "metadata": {}}
    assert same(schema([column]), of(pa.field("x", type)))


@pytest.mark.parametrize(("type", "name", "text"), LESS, ids=lambda value: str(value)[:24])
def test_other_types_are_stored_next_to_the_nearest_unity_type(type: pa.DataType, name: str, text: str) -> None:
    column = written(type)
    assert (column["type_name"], column["type_text"]) == (name, text)
    assert json.loads(column["type_json"])["metadata"].keys() == {EXACT}
    assert same(schema([column]), of(pa.field("x", type)))


@pytest.mark.parametrize("type", [pa.decimal128(10, 2), pa.decimal256(10, 2), pa.uint64()])
def test_a_decimal_has_its_digits_in_separate_fields(type: pa.DataType) -> None:
    column = written(type)
    assert f"decimal({column['type_precision']},{column['type_scale']})" == column["type_text"]


def test_columns_are_numbered_and_tell_what_is_nullable() -> None:
    original = of(pa.field("id", pa.int64(), nullable=False), pa.field("id", pa.string()), pa.field("", pa.null()))
    made = columns(ID, original)
    assert [(c["position"], c["name"], c["nullable"]) for c in made] == [
        (0, "id", False),
        (1, "id", True),
        (2, "", True),
    ]
    assert same(schema(list(reversed(made))), original)
    assert columns(ID, of(metadata={"k": "v"})) == [] and schema([]) is None and schema(None) is None
    # The names within a map are those of Arrow.
    column = written(pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", pa.uint8())))
    assert same(schema([column]), of(pa.field("x", pa.map_(pa.string(), pa.uint8()))))
    assert same(schema([foreign('"long"', nullable=False)]), of(pa.field("x", pa.int64(), nullable=False)))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("u", pa.list_(pa.dense_union([pa.field("a", pa.int8())]))), "column 'u': Unity Catalog has no type"),
        (pa.field("n", pa.dictionary(pa.int8(), pa.null()), False), "column 'n': .*; declare it without a schema"),
        (pa.field("x" * 256, pa.int8()), ".*has 256 characters"),
    ],
)
def test_a_field_that_unity_cannot_say_is_refused_by_its_column(field: pa.Field, message: str) -> None:
    assert columns(ID, of(pa.field("x" * 255, pa.int8())))
    with pytest.raises(err.InvalidInputError, match=rf"^table main\$a\$t: {message}"):
        columns(ID, of(field))


def foreign(type: Any, *, name: str = "x", **parts: Any) -> dict[str, Any]:
    """Returns a column as another writer leaves it; `type` is None for one without a field."""
    return {"name": name, "type_json": type if type is None or isinstance(type, str) else json.dumps(type), **parts}


def spark(type: Any, **metadata: str) -> dict[str, Any]:
    return {"name": "x", "type": type, "nullable": True, "metadata": metadata}


@pytest.mark.parametrize(
    ("column", "type"),
    [
        (foreign(spark("long"), mask={"function_name": "m"}), pa.int64()),
        *((it, pa.int64()) for it in (foreign(spark("long", comment="how many")), foreign('"long"'))),
        (foreign({"type": "long"}), pa.int64()),
        (foreign({"type": "array", "elementType": "long", "containsNull": True}), pa.list_(pa.int64())),
        (foreign({"name": "x", "type": "long"}), pa.int64()),
        (foreign({"name": "x", "type": "long", "nullable": None, "metadata": None}), pa.int64()),
        *((it, pa.string()) for it in (foreign(spark("char(10)"), type_name="CHAR"), foreign(spark("varchar(10)")))),
        (foreign(spark("decimal(10, 2)")), pa.decimal128(10, 2)),
        (foreign(None, type_name="LONG"), pa.int64()),
        (foreign(None, type_name="DECIMAL", type_precision=10, type_scale=2), pa.decimal128(10, 2)),
    ],
)
def test_columns_of_other_writers_are_read(column: dict[str, Any], type: pa.DataType) -> None:
    assert same(schema([column]), of(pa.field("x", type)))


@pytest.mark.parametrize(
    "column",
    [
        foreign(spark("variant"), type_name="VARIANT"),
        foreign(spark("interval day to second"), type_name="INTERVAL"),
        foreign(spark({"type": "udt", "class": "x", "sqlType": "long"}), type_name="USER_DEFINED_TYPE"),
        foreign(spark({"type": "array", "elementType": "variant"})),
        foreign(spark({"type": "struct", "fields": None})),
        foreign(spark("decimal(99,2)")),
        foreign(spark("geometry(4326)")),
        foreign(spark(7)),
        foreign({"name": None, "type": "long"}),
        foreign({"name": "x", "type": "long", "metadata": 7}),
        foreign(spark("long", **{EXACT: "not base64!"})),
        foreign(spark("long", **{EXACT: "bm8gc2NoZW1h"})),
        foreign("no json"),
        foreign("[]"),
        foreign(None),
        foreign(None, type_name="ARRAY"),
        foreign(spark(json.loads('{"type":"array","elementType":' * 400 + '"variant"' + "}" * 400))),
        {},
        None,
        "x",
    ],
)
def test_a_column_that_arrow_cannot_say_leaves_the_schema_unknown(column: Any) -> None:
    assert schema([foreign(spark("long")), column]) is None


@pytest.mark.parametrize("placeholder", [{"type": "long"}, {"name": "__placeholder_id", "type": "long"}])
def test_the_placeholder_of_other_clients_is_no_column(placeholder: Any) -> None:
    column = foreign(placeholder, name="__placeholder_id")
    assert schema([column]) is None
    assert schema([column, foreign(spark("long"))]) is not None


@pytest.mark.parametrize("change", [{"type": "string"}, {"name": "y"}, {"nullable": False}])
def test_an_exact_type_that_the_column_has_outgrown_is_ignored(change: dict[str, Any]) -> None:
    column = written(pa.uint32())
    definition = json.loads(column["type_json"]) | change
    plain = pa.string() if "type" in change else pa.int64()
    expected = pa.field(definition["name"], plain, nullable=definition["nullable"])
    assert same(schema([{**column, "type_json": json.dumps(definition)}]), of(expected))


def texts(least: int = 0) -> SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=least, max_size=6)


def metadata() -> SearchStrategy[dict[str, str] | None]:
    return st.none() | st.dictionaries(texts(1), texts(), min_size=1, max_size=3)


def field(name: str, type: pa.DataType, nullable: bool, metadata: dict[str, str] | None) -> pa.Field:
    return pa.field(name, type, nullable=nullable or pa.types.is_null(type), metadata=metadata)


def fields(types: SearchStrategy[pa.DataType], names: SearchStrategy[str]) -> SearchStrategy[pa.Field]:
    return st.builds(field, names, types, st.booleans(), metadata())


def decimals(make: Any, most: int) -> SearchStrategy[pa.DataType]:
    return st.integers(1, most).flatmap(lambda p: st.builds(make, st.just(p), st.integers(-3, p)))


LEAVES: SearchStrategy[pa.DataType] = st.one_of(
    st.sampled_from([type for type, *_ in PLAIN[:13]] + [type for type, *_ in LESS if not pa.types.is_nested(type)]),
    st.builds(pa.timestamp, st.sampled_from(UNITS), st.sampled_from([None, "UTC", "+02:00", "America/New_York"])),
    st.sampled_from([*map(pa.duration, UNITS), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]),
    st.builds(pa.binary, st.integers(0, 64)),
    decimals(pa.decimal128, 38),
    decimals(pa.decimal256, 76),
    st.builds(
        pa.dictionary,
        st.sampled_from([pa.int8(), pa.uint32(), pa.int64()]),
        st.sampled_from([pa.string(), pa.large_string(), pa.int64()]),
        ordered=st.booleans(),
    ),
    st.builds(pa.fixed_shape_tensor, st.just(pa.float16()), st.lists(st.integers(1, 4), min_size=1, max_size=3)),
)


def is_no_null(type: pa.DataType) -> bool:
    return not pa.types.is_null(type)


def nested(inner: SearchStrategy[pa.DataType]) -> SearchStrategy[pa.DataType]:
    inside = fields(inner, texts())
    return st.one_of(
        st.builds(pa.list_, inside),
        st.builds(pa.list_, inside, st.integers(0, 4)),
        st.builds(pa.large_list, inside),
        st.builds(pa.list_view, inside),
        st.builds(pa.struct, st.lists(inside, max_size=3)),
        st.builds(pa.map_, inner.filter(is_no_null), fields(inner, st.just("value")), keys_sorted=st.booleans()),
    )


SCHEMAS = st.builds(
    pa.schema,
    st.lists(fields(st.recursive(LEAVES, nested, max_leaves=6), texts()), min_size=1, max_size=4),
    metadata=metadata(),
)


@given(SCHEMAS)
def test_any_schema_comes_back_as_it_was(original: pa.Schema) -> None:
    result = columns(ID, original)
    assert same(schema(result), original)
    check_types(result)
    check_storable(result)


@given(SCHEMAS, st.text(max_size=20))
def test_what_the_server_writes_anew_is_read_all_the_same(original: pa.Schema, comment: str) -> None:
    result = [
        {
            **column,
            "type_text": column["type_text"].lower(),
            "type_json": json.dumps(json.loads(column["type_json"]), sort_keys=True, indent=1),
            "comment": comment,
            "partition_index": None,
        }
        for column in columns(ID, original)
    ]
    assert same(schema(result), original)

"""The Iceberg form of Arrow schemas: all types, compared with pyiceberg's converter where it supports the type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lance_ns_async.backends.iceberg.schema import iceberg_schema

CONVERTER = pytest.importorskip("pyiceberg.io.pyarrow", reason="no wheels for Python 3.15")
THEIRS = pytest.importorskip("pyiceberg.schema")
UNITS = ("s", "ms", "us", "ns")
ZONES = ("UTC", "Europe/Berlin", "-07:30")
STORED_AS_LIST = pa.fixed_shape_tensor(pa.float32(), [2, 3])

# pyiceberg returns the same.
BOTH: list[pa.DataType] = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.int64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(1, 0), pa.decimal128(38, 38)),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.binary(16), pa.date32(), pa.time64("us"), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us")),
    *(pa.timestamp("s", "UTC"), pa.timestamp("ms", "+00:00"), pa.timestamp("us", "UTC"), pa.uuid()),
]
INNER = pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.list_(pa.date32()))])
NESTED = [pa.map_(pa.string(), pa.field("value", INNER, nullable=False)), pa.list_(pa.field("x", INNER, False))]

# pyiceberg refuses these types, or converts them differently.
OURS: Mapping[str, Sequence[pa.DataType]] = {
    "int": [pa.bool8()],
    "long": [pa.uint32(), pa.dictionary(pa.int8(), pa.uint32())],
    "date": [pa.date64(), pa.run_end_encoded(pa.int32(), pa.date32())],
    "time": [pa.time32("s"), pa.time32("ms"), pa.time64("ns")],
    "timestamp": [pa.timestamp("ns")],
    "timestamptz": [pa.timestamp(unit, zone) for unit, zone in zip("ns us s".split(), ZONES, strict=True)],
    "string": [pa.dictionary(pa.int16(), pa.large_string(), ordered=True), pa.json_()],
    "decimal(20, 0)": [pa.uint64()],
    "decimal(5, 2)": [pa.decimal32(5, 2)],
    "decimal(18, 2)": [pa.decimal64(18, 2)],
    "decimal(38, 3)": [pa.decimal256(38, 3)],
    "decimal(7, 0)": [pa.decimal128(5, -2)],
    "decimal(5, 5)": [pa.decimal128(2, 5)],
    "binary": [
        *(pa.decimal256(39, 3), pa.decimal128(38, -1), pa.binary(0), *map(pa.duration, UNITS), pa.null()),
        *(pa.dictionary(pa.int8(), pa.null()), pa.month_day_nano_interval()),
        *(union([pa.field("a", pa.int8())]) for union in (pa.dense_union, pa.sparse_union)),
    ],
}

LISTS = [
    *(pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 768), pa.list_view(pa.float32())),
    *(pa.large_list_view(pa.float32()), STORED_AS_LIST),
]


def fields(*columns: pa.Field) -> list[Any]:
    result: list[Any] = iceberg_schema(pa.schema(columns), 1)[0]["fields"]
    return result


def by_pyiceberg(schema: pa.Schema) -> Any:
    converted = THEIRS.assign_fresh_schema_ids(CONVERTER._pyarrow_to_schema_without_ids(schema))
    converted = converted.model_copy(update={"schema_id": 1})
    return converted.model_dump(by_alias=True, mode="json", exclude={"identifier_field_ids"}, exclude_none=True)


@pytest.mark.parametrize("type", BOTH + NESTED, ids=lambda value: str(value)[:24])
def test_a_type_of_both_is_converted_as_by_pyiceberg(type: pa.DataType) -> None:
    schema = pa.schema([pa.field("x", type, nullable=False)])
    assert iceberg_schema(schema, 1)[0] == by_pyiceberg(schema)


@pytest.mark.parametrize(("type", "name"), [(type, name) for name, types in OURS.items() for type in types], ids=str)
def test_each_simple_type_has_its_name(type: pa.DataType, name: str) -> None:
    assert fields(pa.field("x", type)) == [{"id": 1, "name": "x", "required": False, "type": name}]


@pytest.mark.parametrize("type", LISTS, ids=lambda value: str(value)[:24])
def test_every_kind_of_list_is_a_list(type: pa.DataType) -> None:
    [field] = fields(pa.field("x", type))
    assert field["type"] == {"type": "list", "element-id": 2, "element": "float", "element-required": False}


def test_the_last_id_and_the_number_of_the_schema_are_reported() -> None:
    nested = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int8()))])
    schema, last = iceberg_schema(pa.schema([("x", nested), ("y", pa.int8())]), 7)
    assert (schema["type"], schema["schema-id"], last) == ("struct", 7, 5)
    assert [(field["id"], field["name"]) for field in schema["fields"]] == [(1, "x"), (2, "y")]
    assert iceberg_schema(pa.schema([]), 0) == ({"type": "struct", "schema-id": 0, "fields": []}, 0)
    assert fields(pa.field("x", pa.struct([])))[0]["type"] == {"type": "struct", "fields": []}
    # An extension without a hash is what it is stored as.
    blob = lance.blob_field("b").type
    assert fields(pa.field("x", blob)) == fields(pa.field("x", blob.storage_type))


@pytest.mark.parametrize(
    ("metadata", "doc"),
    [
        *((it, None) for it in (None, {"doc": ""}, {"other": "é"})),
        ({"doc": "what it is"}, "what it is"),
        ({"comment": "über"}, "über"),
        ({"comment": "Spark's", "doc": "Iceberg's"}, "Iceberg's"),
        ({b"doc": b"\xff!"}, "�!"),
    ],
)
def test_a_field_is_described_in_the_words_of_its_metadata(metadata: Any, doc: str | None) -> None:
    [field] = fields(pa.field("x", pa.int8(), metadata=metadata))
    assert field.get("doc") == doc and ("doc" in field) == (doc is not None)


@pytest.mark.parametrize(
    "twice",
    [
        [pa.field("x", pa.int8()), pa.field("x", pa.string())],
        [pa.field("x", pa.struct([("a", pa.int8())])), pa.field("x.a", pa.int8())],
        [pa.field("x.element", pa.int8()), pa.field("x", pa.list_(pa.int8()))],
        [pa.field("x.value", pa.int8()), pa.field("x", pa.map_(pa.int8(), pa.int8()))],
        [pa.field("x", pa.struct([("a", pa.int8()), ("a", pa.int8())]))],
    ],
)
def test_no_two_fields_go_by_one_dotted_name(twice: list[pa.Field]) -> None:
    schema, _ = iceberg_schema(pa.schema(twice), 1)
    names = list(_dotted(schema, ""))
    assert len(names) == len(set(names))
    assert THEIRS.Schema.model_validate(schema).field_ids
    assert fields(pa.field("x.a", pa.int8()), pa.field("X", pa.int8()), pa.field("x", pa.int8()))[2]["id"] == 3


def names(least: int = 0) -> SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=least, max_size=6)


def field(name: str, type: pa.DataType, required: bool, doc: str | None) -> pa.Field:
    metadata = {"doc": doc} if doc else None
    return pa.field(name, type, nullable=not required or pa.types.is_null(type), metadata=metadata)


def some_fields(types: SearchStrategy[pa.DataType], **size: Any) -> SearchStrategy[list[pa.Field]]:
    one = st.builds(field, names(1), types, st.booleans(), st.none() | names())
    return st.lists(one, unique_by=lambda field: field.name, max_size=4, **size)


def nested(inner: SearchStrategy[pa.DataType]) -> SearchStrategy[pa.DataType]:
    inside = st.builds(field, names(), inner, st.booleans(), st.none())
    return st.one_of(
        st.builds(pa.list_, inside),
        st.builds(pa.list_, inside, st.integers(1, 4)),
        st.builds(pa.large_list, inside),
        st.builds(pa.struct, some_fields(inner, min_size=1)),
        st.builds(pa.map_, inner.filter(lambda key: not pa.types.is_null(key)), inside),
    )


def schemas(leaves: list[pa.DataType]) -> SearchStrategy[pa.Schema]:
    return st.builds(pa.schema, some_fields(st.recursive(st.sampled_from(leaves), nested, max_leaves=8)))


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    match node:
        case {"type": "struct"}:
            parts = [(field["name"], field["type"]) for field in node["fields"]]
        case {"type": "list"}:
            parts = [("element", node["element"])]
        case {"type": "map"}:
            parts = [("key", node["key"]), ("value", node["value"])]
        case _:
            return
    for name, type in parts:
        yield prefix + name
        yield from _dotted(type, f"{prefix}{name}.")


def _ids(type: Any) -> Iterator[int]:
    match type:
        case {"type": "struct"}:
            yield from (field["id"] for field in type["fields"])
            yield from chain.from_iterable(_ids(field["type"]) for field in type["fields"])
        case {"type": "list"}:
            yield from (type["element-id"], *_ids(type["element"]))
        case {"type": "map"}:
            yield from (type["key-id"], type["value-id"], *_ids(type["key"]), *_ids(type["value"]))


@given(schemas(BOTH))
def test_it_is_what_pyiceberg_makes_of_what_both_can_say(schema: pa.Schema) -> None:
    theirs = by_pyiceberg(schema)
    names = list(_dotted(theirs, ""))
    # It accepts types that no catalog accepts.
    assume(len(names) == len(set(names)))
    assert iceberg_schema(schema, 1)[0] == theirs


@given(schemas([*BOTH, *chain.from_iterable(OURS.values()), *LISTS]))
def test_any_schema_becomes_one_that_iceberg_reads(schema: pa.Schema) -> None:
    result, last = iceberg_schema(schema, 3)
    read = THEIRS.Schema.model_validate(result)
    assert read.schema_id == 3 and read.highest_field_id == last
    assert sorted(_ids(result)) == list(range(1, last + 1))
    assert {field.name for field in read.fields} <= set(schema.names) and bool(read.fields) == bool(schema.names)
    names = list(_dotted(result, ""))
    assert len(names) == len(set(names)) and set(names) <= set(read._name_to_id)

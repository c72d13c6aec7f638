"""JSON Arrow form: the form in which pylance's own namespaces return each type, and types in both dialects of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio.to_thread
import lance
import lance_namespace
import lance_namespace as spec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from lance.blob import blob_field
from lance.schema import schema_to_json
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.gateway import serving
from lance_ns_async.model import Table
from lance_ns_async.operations import requests
from lance_ns_async.spec.arrow_json import arrow_type, json_schema
from lance_ns_async.storage.datasets import Details
from tests.support.lake import ID, ROWS, stream

pytestmark = pytest.mark.environment
Json = dict[str, Any]


def item(word: str, nullable: bool = True, **more: Any) -> Json:
    return {"name": "item", "nullable": nullable, "type": {"type": word}, **more}


EXACT: list[tuple[pa.DataType, Json]] = [
    *(
        (getattr(pa, name)(), {"type": name})
        for name in "null int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
    ),
    *((getattr(pa, name)(), {"type": name}) for name in "float16 float32 float64 date32 date64".split()),
    *((getattr(pa, name)(), {"type": name}) for name in "binary large_binary".split()),
    *((pa.bool_(), {"type": "bool"}), (pa.string(), {"type": "utf8"}), (pa.large_string(), {"type": "large_utf8"})),
    (pa.decimal128(10, 2), {"type": "decimal128", "length": 10002}),
    (pa.decimal128(10, -2), {"type": "decimal128", "length": 9998}),
    (pa.decimal128(1, -128), {"type": "decimal128", "length": 872}),
    (pa.decimal256(76, 3), {"type": "decimal256", "length": 76003}),
    (pa.time32("ms"), {"type": "time32"}),
    (pa.time64("ns"), {"type": "time64"}),
    (pa.timestamp("us"), {"type": "timestamp"}),
    (pa.duration("us"), {"type": "duration"}),
    (pa.binary(16), {"type": "fixed_size_binary", "length": 16}),
    (pa.list_(pa.int32()), {"type": "list", "fields": [item("int32")]}),
    (pa.large_list(pa.string()), {"type": "large_list", "fields": [item("utf8")]}),
    (pa.list_(pa.float32(), 4), {"type": "fixed_size_list", "fields": [item("float32")], "length": 4}),
    (
        pa.list_(pa.field("item", pa.int32(), nullable=False, metadata={"a": "b"})),
        {"type": "list", "fields": [item("int32", nullable=False, metadata={"a": "b"})]},
    ),
    (
        pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string(), metadata={"x": "y"})]),
        {
            "type": "struct",
            "fields": [
                {"name": "a", "nullable": False, "type": {"type": "int32"}},
                {"name": "b", "nullable": True, "type": {"type": "utf8"}, "metadata": {"x": "y"}},
            ],
        },
    ),
    (pa.struct([]), {"type": "struct", "fields": []}),
    (
        pa.map_(pa.string(), pa.field("value", pa.float16(), nullable=False)),
        {
            "type": "map",
            "fields": [
                {
                    "name": "entries",
                    "nullable": False,
                    "type": {
                        "type": "struct",
                        "fields": [
                            {"name": "key", "nullable": False, "type": {"type": "utf8"}},
                            {"name": "value", "nullable": False, "type": {"type": "float16"}},
                        ],
                    },
                }
            ],
        },
    ),
]
LOST: list[tuple[pa.DataType, str]] = [
    *((pa.time32("s"), "time32"), (pa.time64("us"), "time64")),
    *[(pa.timestamp(unit, zone), "timestamp") for unit in (("s", "ms", "us", "ns")) for zone in ("UTC", "+01:00")],
    *[(pa.timestamp(unit), "timestamp") for unit in ("s", "ms", "ns")],
    *[(pa.duration(unit), "duration") for unit in ("s", "ms", "ns")],
    (pa.dictionary(pa.int32(), pa.string()), "utf8"),
    (pa.dictionary(pa.int8(), pa.large_string(), ordered=True), "large_utf8"),
    *((pa.dictionary(pa.int16(), pa.int64()), "int64"), (pa.string_view(), "utf8"), (pa.binary_view(), "binary")),
]
EXTENSIONS: list[pa.DataType] = [
    *(pa.uuid(), pa.bool8(), pa.json_(), pa.json_(pa.large_string()), pa.fixed_shape_tensor(pa.float32(), [2, 2])),
    pa.opaque(pa.map_(pa.string(), pa.string_view()), "t", "v"),
    *(pa.list_(pa.uuid()), pa.list_(pa.json_()), pa.map_(pa.string(), pa.uuid())),
    pa.struct([pa.field("id", pa.uuid(), nullable=False)]),
    pa.dictionary(pa.int8(), pa.string()),
]
WORDLESS: list[pa.DataType] = [
    *(pa.dense_union([pa.field("a", pa.int8())]), pa.run_end_encoded(pa.int32(), pa.string())),
    *(pa.list_view(pa.int32()), pa.large_list_view(pa.int32()), pa.month_day_nano_interval(), pa.decimal32(5, 2)),
    *(pa.decimal64(10, 2), pa.map_(pa.string(), pa.int32(), keys_sorted=True)),
]


def every_type() -> pa.Schema:
    """Returns a column of each type that a dataset can store."""
    types = [*(arrow for arrow, _ in [*EXACT, *LOST]), *EXTENSIONS]
    fields = [pa.field(f"c{i}", arrow, nullable=i % 2 == 0) for i, arrow in enumerate(types)]
    fields[1] = fields[1].with_metadata({"k": "v"})
    return pa.schema([*fields, blob_field("blob")], metadata={"of": "all"})


def column(arrow: pa.DataType) -> Json:
    (field,) = json_schema(pa.schema([pa.field("c", arrow)])).fields
    result: Json = field.type.to_dict()
    return result


def read(document: Mapping[str, Any]) -> pa.DataType:
    return arrow_type(JsonArrowDataType.model_validate(document))


@pytest.mark.parametrize(("arrow", "document"), EXACT, ids=lambda it: str(it)[:40])
def test_a_type_is_written_and_read(arrow: pa.DataType, document: Json) -> None:
    assert column(arrow) == document and read(document).equals(arrow, check_metadata=True)


@pytest.mark.parametrize(("arrow", "word"), LOST, ids=lambda it: str(it)[:40])
def test_what_a_word_has_no_place_for_is_lost(arrow: pa.DataType, word: str) -> None:
    assert column(arrow) == {"type": word}


def test_maps_and_extensions_keep_their_metadata() -> None:
    key, value = pa.field("k", pa.string(), nullable=False, metadata={"a": "b"}), pa.field("v", pa.int8())
    back: Any = read(column(pa.map_(key, value)))
    assert back.key_field.equals(key, check_metadata=True) and back.item_field.equals(value, check_metadata=True)
    (field,) = json_schema(pa.schema([pa.field("id", pa.uuid(), metadata={"a": "b"})])).fields
    assert field.type.to_dict() == {"type": "fixed_size_binary", "length": 16}
    assert field.metadata == {"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": "", "a": "b"}


@pytest.mark.parametrize("arrow", WORDLESS, ids=str)
def test_a_type_without_a_word_is_named(arrow: pa.DataType) -> None:
    for held in (arrow, pa.list_(arrow), pa.struct([pa.field("a", arrow)]), pa.opaque(arrow, "t", "v")):
        with pytest.raises(UnsupportedOperationError) as raised:
            json_schema(pa.schema([pa.field("id", pa.int64()), pa.field("odd one", held)]))
        assert "'odd one'" in str(raised.value) and f"no name for the type {arrow})" in str(raised.value)


def test_what_is_no_text_is_reported() -> None:
    with pytest.raises(UnsupportedOperationError, match="the metadata of the schema in JSON Arrow form"):
        json_schema(pa.schema([], metadata={"k": b"\xff"}))
    with pytest.raises(UnsupportedOperationError, match="the column 'c' in JSON Arrow form"):
        json_schema(pa.schema([pa.field("c", pa.list_(pa.field("item", pa.int8(), metadata={b"\xff": "v"})))]))


def test_what_is_nested_too_deep_is_reported() -> None:
    deep = pa.int8()
    for _ in range(1100):
        deep = pa.list_(deep)
    with pytest.raises(UnsupportedOperationError, match="'c'"):
        json_schema(pa.schema([pa.field("c", deep)]))


def test_the_words_of_lance_schema_are_read() -> None:
    for arrow in [
        *(arrow for arrow, _ in EXACT if not pa.types.is_map(arrow)),
        *(arrow for arrow, _ in LOST if arrow not in (pa.string_view(), pa.binary_view())),
        pa.struct([pa.field("a", pa.list_(pa.timestamp("ns", "Europe/Berlin"), 3), nullable=False)]),
    ]:
        document = schema_to_json(pa.schema([pa.field("c", arrow)]))["fields"][0]["type"]
        # Lance does not store whether a dictionary is ordered.
        expected = pa.dictionary(arrow.index_type, arrow.value_type) if pa.types.is_dictionary(arrow) else arrow
        assert read(document).equals(expected, check_metadata=True), document


def test_both_dialects_may_be_mixed_and_the_specs_words_have_any_case() -> None:
    fields = [item("string"), {**item("double"), "name": "b"}, {**item("Utf8"), "name": "c"}]
    result = read({"type": "STRUCT", "fields": fields})
    assert result == pa.struct([("item", pa.string()), ("b", pa.float64()), ("c", pa.string())])
    assert read({"type": "boolean"}) == pa.bool_()


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"type": "number"}, "unknown type 'number'"),
        ({"type": "timestamp:us"}, "unknown type 'timestamp:us'"),
        ({"type": "decimal128"}, "decimal128 requires a length"),
        ({"type": "decimal128", "length": 10500}, "the length of decimal128 must be 1000 times the precision"),
        ({"type": "decimal128", "length": 39000}, "precision"),
        ({"type": "fixed_size_binary"}, "fixed_size_binary requires a length"),
        ({"type": "fixed_size_binary", "length": 2**31}, "of at most 2147483647"),
        ({"type": "fixed_size_binary", "length": -1}, "length"),
        ({"type": "list"}, "list requires fields"),
        ({"type": "large_list", "fields": []}, "large_list requires fields"),
        ({"type": "fixed_size_list", "fields": [item("int8")]}, "fixed_size_list requires a length"),
        ({"type": "struct"}, "struct requires fields"),
        ({"type": "list", "fields": [item("number")]}, "unknown type 'number'"),
        ({"type": "map", "fields": [item("int8")]}, "the field of map must be a struct of a key"),
        ({"type": "map", "fields": [{**item("x"), "type": {"type": "struct", "fields": [item("int8")] * 2}}]}, "map"),
    ],
    ids=str,
)
def test_what_is_no_type_is_reported(document: Json, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(document)


async def test_pylance_answers_the_same_and_reads_ours(tmp_path: Path) -> None:
    request = spec.DescribeTableRequest(id=ID, load_detailed_metadata=True)
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        await ns.create_namespace(spec.CreateNamespaceRequest(id=ID[:1]))
        location = (await ns.declare_table(spec.DeclareTableRequest(id=ID))).location
        lance.write_dataset(pa.RecordBatchReader.from_batches(every_type(), []), location, data_storage_version="2.2")
        ours = (await ns.describe_table(request)).var_schema
        rest = lance_namespace.connect("rest", dict(gateway.properties))
        through = (await anyio.to_thread.run_sync(rest.describe_table, request)).var_schema
    pylances = lance_namespace.connect("dir", {"root": str(tmp_path)}).describe_table(request).var_schema
    assert ours is not None and ours.metadata == {"of": "all"} and len(ours.fields) == len(every_type())
    assert ours == through == pylances


def test_lance_reads_the_words(tmp_path: Path) -> None:
    ns: Any = lance_namespace.connect("dir", {"root": str(tmp_path)})
    ns.create_table(spec.CreateTableRequest(id=["t"]), stream(ROWS))
    unread = set()
    for word in {column(arrow)["type"] for arrow, _ in EXACT}:
        # It is a plain string, which the spec's model cannot represent.
        body = {"id": ["t"], "alterations": [{"path": "id", "data_type": word}]}
        try:
            ns.alter_table_alter_columns(SimpleNamespace(model_dump=lambda body=body: body))
        except (LanceNamespaceError, ValueError) as e:
            if "Unsupported Arrow type" in str(e):
                unread.add(word)
    assert unread == {"time32", "time64"}


def test_a_schema_is_missed_only_where_it_is_wanted() -> None:
    odd = pa.schema([pa.field("odd", pa.list_view(pa.int8()))])
    table = Table(TableId(["a", "t"]), "s3://b/t", {}, schema=odd)
    details = Details(version=1, schema=odd, rows=0, fragments=0, deleted_rows=0)
    assert requests.description(table, with_uri=False).var_schema is None
    assert requests.description(table, with_uri=False, details=details).version == 1
    with pytest.raises(UnsupportedOperationError, match=r"'odd'.*list_view<item: int8>"):
        requests.description(table, with_uri=False, details=details, wants_schema=True)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)
METADATA = st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=2)
LEAVES = st.sampled_from(
    # A column of nulls, and a null key of a map, are impossible where nulls are not allowed.
    [arrow for arrow, _ in [*EXACT, *LOST] if not pa.types.is_nested(arrow) and not pa.types.is_null(arrow)]
)
DECIMALS = st.builds(pa.decimal128, st.integers(1, 38), st.integers(-128, 127)) | st.builds(
    pa.decimal256, st.integers(1, 76), st.integers(-128, 127)
)


def fields(types: SearchStrategy[pa.DataType]) -> SearchStrategy[pa.Field]:
    return st.builds(pa.field, TEXT, types, st.booleans(), METADATA)


def nested(types: SearchStrategy[pa.DataType]) -> SearchStrategy[pa.DataType]:
    inner = fields(types)
    return st.one_of(
        st.builds(pa.list_, inner),
        st.builds(pa.large_list, inner),
        st.builds(pa.list_, inner, st.integers(0, 2**31 - 1)),
        st.builds(pa.struct, st.lists(inner, max_size=3)),
        st.builds(lambda key, value: pa.map_(key.with_nullable(False), value), inner, inner),
        st.builds(pa.dictionary, st.just(pa.int8()), types),
    )


TYPES = st.recursive(LEAVES | DECIMALS | st.builds(pa.binary, st.integers(0, 2**31 - 1)), nested, max_leaves=8)
SCHEMAS = st.builds(pa.schema, st.lists(fields(TYPES), max_size=4), METADATA)


def kept(arrow: Any) -> pa.DataType:
    """Returns the part of a type that is preserved."""

    def inner(field: Any) -> Any:
        return field.with_type(kept(field.type))

    match arrow:
        case pa.TimestampType():
            return pa.timestamp("us")
        case pa.DurationType():
            return pa.duration("us")
        case pa.Time32Type():
            return pa.time32("ms")
        case pa.Time64Type():
            return pa.time64("ns")
        case pa.DictionaryType():
            return kept(arrow.value_type)
        case pa.ListType():
            return pa.list_(inner(arrow.value_field))
        case pa.LargeListType():
            return pa.large_list(inner(arrow.value_field))
        case pa.FixedSizeListType():
            return pa.list_(inner(arrow.value_field), arrow.list_size)
        case pa.StructType():
            return pa.struct([inner(field) for field in arrow])
        case pa.MapType():
            return pa.map_(inner(arrow.key_field), inner(arrow.item_field))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(arrow, arrow)


@given(SCHEMAS)
def test_a_schema_is_read_back_but_for_what_is_lost(schema: pa.Schema) -> None:
    document = JsonArrowSchema.from_json(json_schema(schema).to_json())
    assert document is not None
    back = pa.schema(
        [pa.field(f.name, arrow_type(f.type), f.nullable, f.metadata) for f in document.fields], document.metadata
    )
    expected = pa.schema([field.with_type(kept(field.type)) for field in schema], schema.metadata)
    # Compared as text, because Arrow's own comparison ignores names within types.
    assert back.serialize() == expected.serialize()

"""Partition specs: the example of the published text, texts of fields, new versions, and invalid metadata."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from lance_ns_async.spec.partitions import Partitioning, PartitionSpec, new_spec, read_partitioning, with_field_ids

pytestmark = pytest.mark.environment


def make_field(id: str, source: int, transform: str, result: str) -> dict[str, Any]:
    types = {"transform": {"type": transform}, "result_type": {"type": result}}
    return {"field_id": id, "source_ids": [source], **types}


EXAMPLE: dict[str, Any] = {
    "partition_spec_v1": {"id": 1, "fields": [make_field("event_date", 1, "identity", "date32")]},
    "partition_spec_v2": {
        "id": 2,
        "fields": [make_field("event_year", 1, "year", "int32"), make_field("country", 2, "identity", "utf8")],
    },
    "schema": {
        "fields": [
            {"name": "id", "nullable": False, "type": {"type": "int64"}, "metadata": {"lance:field_id": "0"}},
            {"name": "event_date", "nullable": True, "type": {"type": "date32"}, "metadata": {"lance:field_id": "1"}},
            {"name": "country", "nullable": True, "type": {"type": "utf8"}, "metadata": {"lance:field_id": "2"}},
        ]
    },
}
"""Appendix A of the published text."""

FIELD = {"field_id": "e", "source_ids": [1], "result_type": {"type": "int32"}}
SCHEMA = with_field_ids(
    pa.schema(
        [
            *(pa.field("at", pa.timestamp("us")), pa.field("user", pa.int32()), pa.field("region", pa.string())),
            *(pa.field("weight", pa.float64()), pa.field("day", pa.date32())),
        ]
    )
)
NEW = Partitioning(SCHEMA, ())


def read(content: dict[str, Any]) -> Partitioning:
    partitioning = read_partitioning({key: json.dumps(value) for key, value in content.items()})
    assert partitioning is not None
    return partitioning


def names(spec: PartitionSpec) -> list[str]:
    return [field.field_id for field in spec.fields]


def test_the_example_of_the_spec_is_read_and_written() -> None:
    partitioning = read(EXAMPLE)
    assert partitioning.schema.field("id") == pa.field("id", pa.int64(), nullable=False)
    assert [(it.id, names(it)) for it in partitioning.specs] == [(1, ["event_date"]), (2, ["event_year", "country"])]
    assert {field.column: field.result_type for field in partitioning.fields.values()} == {
        "partition_field_event_date": pa.date32(),
        "partition_field_event_year": pa.int32(),
        "partition_field_country": pa.string(),
    }
    assert {key: json.loads(value) for key, value in partitioning.metadata().items()} == EXAMPLE


def test_other_metadata_says_nothing_of_partitions() -> None:
    assert read_partitioning({}) is None
    assert read_partitioning({"schema": "{}", "partition_spec_vx": "{}"}) is None


@pytest.mark.parametrize(
    ("text", "name", "transform", "number", "sources", "type"),
    [
        ("region", "region", "identity", None, (2,), pa.string()),
        (" year( at ) ", "at_year", "year", None, (0,), pa.int32()),
        ("hour(at)", "at_hour", "hour", None, (0,), pa.int32()),
        ("bucket(16, user)", "user_bucket", "bucket", 16, (1,), pa.int32()),
        ("bucket(16, user, region)", "user_region_bucket", "multi_bucket", 16, (1, 2), pa.int32()),
        ("truncate(2, region)", "region_truncate", "truncate", 2, (2,), pa.string()),
        ("truncate(100, user)", "user_truncate", "truncate", 100, (1,), pa.int32()),
    ],
)
def test_a_field_is_a_column_or_a_transform(
    text: str, name: str, transform: str, number: int | None, sources: tuple[int, ...], type: pa.DataType
) -> None:
    (field,) = new_spec(NEW, [text]).fields
    assert (field.field_id, field.transform, field.number) == (name, transform, number)
    assert (field.source_ids, field.result_type) == (sources, type)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ([], "must have at least one field"),
        (["none"], "no column 'none'; the columns are at, user"),
        (["week(at)"], "'week' is no transform; use year"),
        (["day(at"], "must be a column, a transform such as .* or an object of the spec"),
        (["day(at, user)"], "day takes one column"),
        (["bucket(user)"], r"the first argument must be a number from 1, as in 'bucket\(16, user\)'"),
        (["bucket(0, user)"], "the first argument must be a number from 1"),
        (["day(region)"], "day is for dates and timestamps, and its column has string"),
        (["hour(day)"], "hour is for timestamps, and its column has date32"),
        (["truncate(2, day)"], "truncate is for text and whole numbers"),
        (["weight"], "identity is for text, .*, and its column has double"),
        (["region", "region"], "is there twice"),
        (["region"] * 13, "13 fields, but the ids of partitions have room for 12"),
        ([{"field_id": "e"}], "is not one of the spec"),
        ([{**FIELD, "source_ids": [9], "expression": "1"}], "source_ids must be those of columns"),
        ([FIELD], "needs either a transform or an expression"),
    ],
)
def test_an_invalid_field_is_refused(by: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        new_spec(NEW, by)


def test_columns_keep_their_ids() -> None:
    first = new_spec(NEW, ["bucket(16, user)", "region"])
    second = new_spec(Partitioning(SCHEMA, [first]), ["region", "bucket(32, user)"])
    assert (second.id, second.namespace, names(second)) == (2, "v2", ["region", "user_bucket_2"])
    third = new_spec(Partitioning(SCHEMA, [first, second]), ["bucket(16, user)", "bucket(8, user)"])
    assert names(third) == ["user_bucket", "user_bucket_3"]
    spec = new_spec(NEW, ["bucket(16, user, region)"])
    renamed = pa.schema([it.with_name("person") if it.name == "user" else it for it in SCHEMA if it.name != "region"])
    assert Partitioning(renamed, [spec]).columns(spec.fields[0]) == ["person", None]
    assert with_field_ids(SCHEMA) is SCHEMA
    without = pa.field("more", pa.int32())
    for wrong in (SCHEMA.append(without), SCHEMA.append(without.with_metadata({"lance:field_id": "0"}))):
        with pytest.raises(InvalidInputError, match="lance:field_id"):
            with_field_ids(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": {}},
        {"schema": {"fields": [{"name": "id", "nullable": False, "type": {"type": "int64"}}]}},
        {"partition_spec_v1": {"id": 2, "fields": EXAMPLE["partition_spec_v1"]["fields"]}},
        {"partition_spec_v1": {"id": 1, "fields": []}},
        {"partition_spec_v1": {"id": 1, "fields": EXAMPLE["partition_spec_v1"]["fields"] * 2}},
        {"partition_spec_v1": []},
        {"partition_spec_v3": {"id": 3, "fields": [{"field_id": "x"}]}},
    ],
    ids=range(7),
)
def test_invalid_metadata_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidTableStateError, match="the manifest's metadata of partitions is invalid"):
        read({**EXAMPLE, **change})

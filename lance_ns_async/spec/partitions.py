"""Partition specs: how the rows of a partitioned namespace are divided among its tables.

Spec: https://lance.org/format/namespace/partitioning-spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, InvalidTableStateError
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema
from pydantic import ValidationError

from lance_ns_async.spec.arrow_json import arrow_schema, arrow_type, json_schema, to_json_type

FIELD_ID: Final = "lance:field_id"
"""Key of a column's id in the metadata of its field."""

COLUMN: Final = "partition_field_"
"""Prefix of the manifest's columns for partition values."""

PROPERTY: Final = "partition."
"""Prefix of the properties of a partition's namespace."""

SPEC, SCHEMA = "partition_spec_v", "schema"
"""Keys in the manifest's metadata: those of the specs begin with the first, and the second is that of the schema."""

_TEXT = re.compile(r"(?P<word>\w+)\((?P<arguments>[^()]*)\)|(?P<column>[^()]+)")
_PARTS_OF_TIME = ("year", "month", "day", "hour")
_NUMBERS = {"bucket": "num_buckets", "multi_bucket": "num_buckets", "truncate": "width"}
MAX_FIELDS: Final = 12
"""Maximum number of fields; each one adds a name of 16 characters to the ids of partitions."""
_MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field: how a value is derived from some columns."""

    field_id: str
    """The name of the field, which is never used for another one."""
    source_ids: Sequence[int]
    """The ids of the columns."""
    result_type: pa.DataType
    """The Arrow type of the value."""
    transform: str | None = None
    """`identity`, `year`, `month`, `day`, `hour`, `bucket`, `multi_bucket` or `truncate`; None for an expression."""
    number: int | None = None
    """The number of buckets, or the width of a truncation; None for other transforms."""
    expression: str | None = None
    """A DataFusion SQL expression over `col0`, `col1`, ...; None for a transform."""

    @property
    def column(self) -> str:
        """The name of the field's column in the manifest."""
        return f"{COLUMN}{self.field_id}"

    def to_json(self) -> dict[str, Any]:
        """Returns the field as the spec stores it."""
        how: dict[str, Any] = {"expression": self.expression}
        if self.transform is not None:
            numbers = {} if self.number is None else {_NUMBERS[self.transform]: self.number}
            how = {"transform": {"type": self.transform, **numbers}}
        result_type = to_json_type(self.result_type).model_dump(exclude_none=True)
        return {"field_id": self.field_id, "source_ids": list(self.source_ids), **how, "result_type": result_type}


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """One version of the partition fields of a namespace."""

    id: int
    """The version, from 1."""
    fields: Sequence[PartitionField]

    @property
    def namespace(self) -> str:
        """The name of the namespace with the partitions of this version."""
        return f"v{self.id}"

    def to_json(self) -> str:
        """Returns the spec as it is stored."""
        return json.dumps({"id": self.id, "fields": [field.to_json() for field in self.fields]}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The schema of a partitioned namespace, and all versions of its partition spec."""

    schema: pa.Schema
    """The columns of all partitions; the metadata of each field has its id."""
    specs: Sequence[PartitionSpec]
    """By their versions; the last one is that of new rows."""

    @property
    def fields(self) -> Mapping[str, PartitionField]:
        """The fields of all versions, by their ids."""
        return {field.field_id: field for spec in self.specs for field in spec.fields}

    def columns(self, field: PartitionField) -> Sequence[str | None]:
        """Returns the names of the columns that a field is derived from; None for one that was removed."""
        names = {int(it.metadata[FIELD_ID.encode()]): it.name for it in self.schema}
        return [names.get(id) for id in field.source_ids]

    def metadata(self) -> dict[str, str]:
        """Returns the keys and values in the manifest's metadata."""
        specs = {f"{SPEC}{spec.id}": spec.to_json() for spec in self.specs}
        return {**specs, SCHEMA: json_schema(self.schema).model_dump_json(exclude_none=True)}


def read_partitioning(metadata: Mapping[str, str]) -> Partitioning | None:
    """Returns what the metadata of a manifest says of its partitions; None if it has none.

    Raises:
        InvalidTableStateError: The metadata does not follow the spec.
    """
    keys = [key for key in metadata if re.fullmatch(rf"{SPEC}[1-9]\d*", key)]
    if not keys:
        return None
    try:
        schema = arrow_schema(JsonArrowSchema.model_validate_json(metadata[SCHEMA]))
        for field in schema:
            int(field.metadata[FIELD_ID.encode()])
        specs = [_spec(json.loads(metadata[key]), int(key.removeprefix(SPEC))) for key in keys]
    except (KeyError, TypeError, ValueError, ValidationError) as e:
        raise InvalidTableStateError(
            f"the manifest's metadata of partitions is invalid ({type(e).__name__}: {e}); correct {SCHEMA} and {SPEC}N"
        ) from e
    return Partitioning(schema, sorted(specs, key=lambda spec: spec.id))


def _spec(content: Any, id: int) -> PartitionSpec:
    if content["id"] != id:
        raise ValueError(f"the id of {SPEC}{id} is {content['id']!r}")
    fields = [_stored_field(field) for field in content["fields"]]
    if not fields or len({field.field_id for field in fields}) < len(fields):
        raise ValueError(f"{SPEC}{id} has no fields, or two with the same id")
    return PartitionSpec(id, fields)


def _stored_field(content: Any) -> PartitionField:
    transform, expression = content.get("transform"), content.get("expression")
    if (transform is None) == (expression is None):
        raise ValueError(f"field {content['field_id']!r} needs either a transform or an expression")
    word = None if transform is None else transform["type"]
    number = None if word not in _NUMBERS else int(transform[_NUMBERS[word]])
    result_type = arrow_type(JsonArrowDataType.model_validate(content["result_type"]))
    sources = tuple(int(id) for id in content["source_ids"])
    return PartitionField(str(content["field_id"]), sources, result_type, word, number, expression)


def with_field_ids(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with an id for each column: those in its metadata, or else their positions.

    Raises:
        InvalidInputError: Only some columns have ids, or two have the same one.
    """
    ids = [(field.metadata or {}).get(FIELD_ID.encode()) for field in schema]
    if all(id is None for id in ids):
        return pa.schema(
            [field.with_metadata({**(field.metadata or {}), FIELD_ID: str(n)}) for n, field in enumerate(schema)]
        )
    if not all(id is not None and id.isdigit() for id in ids) or len(set(ids)) < len(ids):
        raise InvalidInputError(f"schema: each column needs an own number as {FIELD_ID} in its metadata, or none does")
    return schema


def new_spec(partitioning: Partitioning, by: Sequence[str | Mapping[str, Any]]) -> PartitionSpec:
    """Returns the next version of the spec; a field that derives the same value as an earlier one gets its name.

    Args:
        partitioning: The schema and the earlier versions.
        by: The fields, as `AsyncNamespace.partition_by` takes them.

    Raises:
        InvalidInputError: A field is invalid, or uses a column that does not exist.
    """
    fields: list[PartitionField] = []
    if len(by) > MAX_FIELDS:
        raise InvalidInputError(f"by: {len(by)} fields, but the ids of partitions have room for {MAX_FIELDS}")
    if not by:
        raise InvalidInputError("by: must have at least one field, such as ['day(at)', 'region']")
    for it in by:
        field = _text_field(partitioning.schema, it) if isinstance(it, str) else _object_field(partitioning.schema, it)
        _check_type(partitioning, field)
        earlier = partitioning.fields
        if (same := next((old for old in earlier.values() if _derive_the_same(old, field)), None)) is not None:
            field = same
        elif field.field_id in earlier:
            taken = earlier.keys() | {other.field_id for other in fields}
            names = (f"{field.field_id}_{n}" for n in range(2, len(taken) + 3))
            field = replace(field, field_id=next(name for name in names if name not in taken))
        if any(_derive_the_same(field, other) or field.field_id == other.field_id for other in fields):
            raise InvalidInputError(f"by {list(by)!r}: {it!r} is there twice")
        fields.append(field)
    return PartitionSpec(max((spec.id for spec in partitioning.specs), default=0) + 1, fields)


def _derive_the_same(one: PartitionField, other: PartitionField) -> bool:
    return replace(one, field_id="") == replace(other, field_id="")


def _text_field(schema: pa.Schema, text: str) -> PartitionField:
    match = _TEXT.fullmatch(text.strip())
    what = f"partition field {text!r}"
    if match is None:
        raise InvalidInputError(
            f"{what}: must be a column, a transform such as 'day(at)' or 'bucket(16, user)', or an object of the spec"
        )
    if (word := match["word"]) is None:
        word, arguments = "identity", [match["column"]]
    else:
        arguments = [part.strip() for part in match["arguments"].split(",")]
    number = None
    if word in _NUMBERS:
        if not arguments[0].isdigit() or not 0 < int(arguments[0]) <= _MAX_NUMBER:
            raise InvalidInputError(f"{what}: the first argument must be a number from 1, as in '{word}(16, user)'")
        number = int(arguments.pop(0))
        if word == "bucket" and len(arguments) > 1:
            word = "multi_bucket"
    elif word not in ("identity", *_PARTS_OF_TIME):
        raise InvalidInputError(
            f"{what}: {word!r} is no transform; use year, month, day, hour, bucket or truncate, or the column alone"
        )
    if len(arguments) != 1 and word != "multi_bucket":
        raise InvalidInputError(f"{what}: {word} takes one column")
    sources = tuple(_column_id(schema, name, what) for name in arguments)
    name = "_".join([*arguments, *([] if word == "identity" else [word.removeprefix("multi_")])])
    source = schema.field(arguments[0]).type
    result_type = source if word in ("identity", "truncate") else pa.int32()
    return PartitionField(name, sources, result_type, word, number)


def _object_field(schema: pa.Schema, content: Mapping[str, Any]) -> PartitionField:
    what = f"partition field {dict(content)!r}"
    try:
        field = _stored_field(content)
    except (KeyError, TypeError, ValueError, ValidationError) as e:
        raise InvalidInputError(f"{what}: is not one of the spec ({type(e).__name__}: {e})") from e
    ids = {int(it.metadata[FIELD_ID.encode()]) for it in schema}
    if not field.source_ids or not ids.issuperset(field.source_ids):
        raise InvalidInputError(f"{what}: source_ids must be those of columns; they have {sorted(ids)}")
    return field


def _column_id(schema: pa.Schema, name: str, what: str) -> int:
    if len(schema.get_all_field_indices(name)) != 1:
        raise InvalidInputError(f"{what}: there is no column {name!r}; the columns are {', '.join(schema.names)}")
    return int(schema.field(name).metadata[FIELD_ID.encode()])


def _check_type(partitioning: Partitioning, field: PartitionField) -> None:
    """Checks that a transform exists for the types of its columns."""
    sources = [partitioning.schema.field(name).type for name in partitioning.columns(field) if name is not None]
    is_text = [pa.types.is_string(it) or pa.types.is_large_string(it) for it in sources]
    match field.transform:
        case None:
            return
        case "identity" | "bucket" | "multi_bucket":
            # Floats that are equal may differ in their bits, and values that are not equal to themselves have no place.
            is_valid = not any(pa.types.is_floating(it) or pa.types.is_nested(it) for it in sources)
            expected = "text, whole numbers, decimals, dates, times, booleans and bytes"
        case "truncate":
            is_valid = all(text or pa.types.is_integer(it) for text, it in zip(is_text, sources, strict=True))
            expected = "text and whole numbers"
        case "hour":
            is_valid = all(pa.types.is_timestamp(it) for it in sources)
            expected = "timestamps"
        case "year" | "month" | "day":
            is_valid = all(pa.types.is_timestamp(it) or pa.types.is_date(it) for it in sources)
            expected = "dates and timestamps"
        case other:
            raise InvalidInputError(f"partition field {field.field_id!r}: {other!r} is no transform of the spec")
    if not is_valid:
        types = ", ".join(map(str, sources))
        raise InvalidInputError(
            f"partition field {field.field_id!r}: {field.transform} is for {expected}, and its column has {types}"
        )

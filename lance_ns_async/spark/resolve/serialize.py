"""Conversion of locations to and from Arrow, JSON and Spark rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.location_map import LocationMap, M
from lance_ns_async.spark.resolve.report import Problem, Report, Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("names", pa.list_(pa.string()), nullable=False),
        pa.field("location", pa.string(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("fragments", pa.int64()),
        pa.field("expires_at", pa.timestamp("us", tz="UTC")),
    ]
)
_SECRETS = pa.field("storage_options", pa.map_(pa.string(), pa.string()))
_DDL = (
    "id string, names array<string>, location string, version bigint, rows bigint, fragments bigint, "
    "expires_at timestamp"
)


def to_arrow(locations: LocationMap, *, secrets: bool) -> pa.Table:
    """Returns an Arrow table with one row for each table, in the order of the mapping."""
    schema = _COLUMNS.append(_SECRETS) if secrets else _COLUMNS
    columns = list(zip(*_rows(locations, secrets=secrets), strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def to_dataframe(locations: LocationMap, spark: SparkSession, *, secrets: bool) -> DataFrame:
    """Returns a DataFrame with one row for each table.

    It is built from rows, because Spark accepts Arrow tables only since 4.0.
    """
    ddl = f"{_DDL}, storage_options map<string,string>" if secrets else _DDL
    rows = to_arrow(locations, secrets=secrets).to_pylist(maps_as_pydicts="strict")
    return spark.createDataFrame([tuple(row.values()) for row in rows], ddl)


def to_json(locations: LocationMap, *, secrets: bool) -> str:
    """Returns one JSON object with the report, the tables, and each schema once."""
    schemas: list[pa.Schema] = []
    # The key is the identity of the object: many tables share one schema, and comparing schemas is slower.
    places: dict[int, int] = {}
    tables: list[Mapping[str, Any]] = []
    for at in locations.values():
        table: dict[str, Any] = {"id": list(at.id), "location": at.location}
        numbers = {"version": at.version, "rows": at.rows, "fragments": at.fragments, "expires_at": at.expires_at}
        table |= {name: value for name, value in numbers.items() if value is not None}
        if at.schema is not None:
            table["schema"] = places.setdefault(id(at.schema), len(schemas))
            if table["schema"] == len(schemas):
                schemas.append(at.schema)
        if secrets and at.storage_options is not None:
            table["storage_options"] = dict(at.storage_options)
        tables.append(table)
    encodings = [base64.b64encode(schema.serialize().to_pybytes()).decode() for schema in schemas]
    return json.dumps({"report": _from_report(locations.report), "schemas": encodings, "tables": tables})


def from_json(text: str, kind: type[M]) -> M:
    """Returns the locations from the output of `to_json`; raises InvalidInputError for any other text."""
    try:
        content = json.loads(text)
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoding))) for encoding in content["schemas"]]
        return kind((_location(table, schemas) for table in content["tables"]), _report(content["report"]))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError) as e:
        raise InvalidInputError(f"locations: the text is not output of to_json ({type(e).__name__}: {e})") from e


def _rows(locations: LocationMap, *, secrets: bool) -> Sequence[tuple[Any, ...]]:
    rows = []
    for at in locations.values():
        micros = None if at.expires_at is None else round(at.expires_at * 1e6)
        row = (str(at.id), list(at.id), at.location, at.version, at.rows, at.fragments, micros)
        options = None if at.storage_options is None else list(at.storage_options.items())
        rows.append((*row, options) if secrets else row)
    return rows


def _location(table: Mapping[str, Any], schemas: Sequence[pa.Schema]) -> Location:
    return Location(
        TableId(table["id"]),
        table["location"],
        table.get("version"),
        table.get("rows"),
        table.get("fragments"),
        table.get("storage_options"),
        table.get("expires_at"),
        schemas[table["schema"]] if "schema" in table else None,
    )


def _from_report(report: Report) -> Mapping[str, Any]:
    return {
        "found": report.found,
        "missing": [*map(_from_problem, report.missing)],
        "denied": [*map(_from_problem, report.denied)],
        "failed": [*map(_from_problem, report.failed)],
        "seconds": report.seconds,
        "calls": report.calls,
        "p50": report.p50,
        "p95": report.p95,
        "remembered": report.remembered,
    }


def _report(content: Mapping[str, Any]) -> Report:
    return Report(
        content["found"],
        tuple(map(_problem, content["missing"])),
        tuple(map(_problem, content["denied"])),
        tuple(map(_problem, content["failed"])),
        content["seconds"],
        content["calls"],
        content["p50"],
        content["p95"],
        content.get("remembered", 0),
    )


def _from_problem(problem: Problem) -> Mapping[str, Any]:
    subject = problem.subject
    kind = "pattern" if isinstance(subject, str) else subject.kind
    value = subject if isinstance(subject, str) else list(subject)
    return {kind: value, "reason": problem.reason, "attempts": problem.attempts}


def _problem(content: Mapping[str, Any]) -> Problem:
    subject: Subject
    match content:
        case {"table": names}:
            subject = TableId(names)
        case {"namespace": names}:
            subject = NamespaceId(names)
        case _:
            subject = content["pattern"]
    return Problem(subject, content["reason"], content["attempts"])

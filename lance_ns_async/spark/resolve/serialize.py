"""Conversion of locations to and from Arrow, JSON and Spark rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import DENIED, FAILED, MISSING
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.report import PrefetchReport, Problem
from lance_ns_async.spark.session import check_session
from lance_ns_async.tabular import Subject

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


def to_arrow(locations: Collection[Location], *, secrets: bool) -> pa.Table:
    """Returns an Arrow table with one row for each table."""
    options = [at.storage_options for at in locations]
    columns: dict[str, list[Any]] = {
        "id": [str(at.id) for at in locations],
        "names": [list(at.id) for at in locations],
        "expires_at": [None if at.expires_at is None else round(at.expires_at * 1e6) for at in locations],
        "storage_options": [it if it is None else list(it.items()) for it in options],
    }
    schema = _COLUMNS.append(_SECRETS) if secrets else _COLUMNS
    columns |= {name: [getattr(at, name) for at in locations] for name in schema.names if name not in columns}
    return pa.Table.from_arrays([pa.array(columns[it.name], it.type) for it in schema], schema=schema)


def to_dataframe(locations: Collection[Location], spark: SparkSession, *, secrets: bool) -> DataFrame:
    """Returns a DataFrame with one row for each table.

    It is built from rows, because Spark accepts Arrow tables only since 4.0.
    """
    check_session(spark)
    ddl = f"{_DDL}, storage_options map<string,string>" if secrets else _DDL
    rows = to_arrow(locations, secrets=secrets).to_pylist(maps_as_pydicts="strict")
    return spark.createDataFrame([tuple(row.values()) for row in rows], ddl)


def to_json(locations: Collection[Location], report: PrefetchReport, *, secrets: bool) -> str:
    """Returns one JSON object with the report, the tables, and each schema once."""
    schemas: list[pa.Schema] = []
    # The key is the identity of the object: many tables share one schema, and comparing schemas is slower.
    places: dict[int, int] = {}
    tables: list[Mapping[str, Any]] = []
    for at in locations:
        numbers = {"version": at.version, "rows": at.rows, "fragments": at.fragments, "expires_at": at.expires_at}
        table: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
        if at.schema is not None:
            table["schema"] = places.setdefault(id(at.schema), len(schemas))
            if table["schema"] == len(schemas):
                schemas.append(at.schema)
        if secrets and at.storage_options is not None:
            table["storage_options"] = dict(at.storage_options)
        tables.append({"id": str(at.id), "names": list(at.id), "location": at.location, **table})
    encodings = [base64.b64encode(schema.serialize().to_pybytes()).decode() for schema in schemas]
    content = {field.name: getattr(report, field.name) for field in fields(report)}
    content |= {kind: [*map(_from_problem, content[kind])] for kind in (MISSING, DENIED, FAILED)}
    return json.dumps({"report": content, "schemas": encodings, "tables": tables})


def from_json(text: str) -> tuple[Sequence[Location], PrefetchReport]:
    """Returns the locations and the report from the output of `to_json`."""
    try:
        content = json.loads(text)
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoding))) for encoding in content["schemas"]]
        report = content["report"]
        report |= {kind: tuple(map(_problem, report[kind])) for kind in (MISSING, DENIED, FAILED)}
        return [_location(table, schemas) for table in content["tables"]], PrefetchReport(**report)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError) as e:
        raise InvalidInputError(f"locations: the text is not output of to_json ({type(e).__name__}: {e})") from e


def _location(table: Mapping[str, Any], schemas: Sequence[pa.Schema]) -> Location:
    schema = schemas[table["schema"]] if "schema" in table else None
    others = {name: value for name, value in table.items() if name != "names"}
    return Location(**{**others, "id": TableId(table["names"]), "schema": schema})


def _from_problem(problem: Problem) -> Mapping[str, Any]:
    subject = problem.subject
    kind, names = ("pattern", None) if isinstance(subject, str) else (subject.kind, list(subject))
    return {"kind": kind, "id": str(subject), "names": names, "reason": problem.reason, "attempts": problem.attempts}


def _problem(content: Mapping[str, Any]) -> Problem:
    kinds: Mapping[str, Callable[[Any], Subject]] = {"table": TableId, "namespace": NamespaceId, "pattern": str}
    kind = content["kind"]
    subject = kinds[kind](content["id" if kind == "pattern" else "names"])
    return Problem(subject, content["reason"], content["attempts"])

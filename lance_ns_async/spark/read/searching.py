"""Search of many tables by Spark: each task ranks the rows of its tables, and the driver merges the rankings.

Spark's Python processes import this module, so this package must be installed there. It makes no catalog call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from lance_ns_async.spark import tasks

if TYPE_CHECKING:
    import lance_namespace as spec
    import pyarrow as pa
    from lance_namespace.errors import LanceNamespaceError
    from pyspark.sql import SparkSession

    from lance_ns_async.many.row_results import RankedRows
    from lance_ns_async.model import NamespaceId, TableId
    from lance_ns_async.spark.renewal import Renewal
    from lance_ns_async.spark.resolve.location import Location

OPENING = 10_000
"""Cost of a table without its rows, as the number of rows that take about the same time to search."""

SCHEMA = "by string, id string, rows binary"
"""The results of a task: the best rows of a table for one query, or an error of a table, which has no query."""


def search(
    locations: Collection[Location],
    spark: SparkSession,
    queries: Mapping[str, spec.QueryTableRequest],
    k: int,
    partitions: int | None,
    *,
    with_row_id: bool,
    renewal: Renewal | None = None,
) -> RankedRows:
    """Returns the best `k` rows of tables for queries by the column that they rank by; see `Locations.search`."""
    import pyarrow as pa

    from lance_ns_async.many.ranking import Ranking
    from lance_ns_async.many.row_results import RankedRows
    from lance_ns_async.many.rows import result
    from lance_ns_async.model import TableId
    from lance_ns_async.spark.session import default_tasks, one_task_each

    groups = tasks.distribute(list(locations), lambda at: (at.rows or 0) + OPENING, partitions or default_tasks(spark))
    frame = one_task_each(spark, [_encode(group, queries, k, renewal) for group in groups])
    rankings = {by: Ranking(by, k, descending=by == "_score") for by in queries}
    errors: dict[TableId | NamespaceId, LanceNamespaceError] = {}
    try:
        # An iterator would start a job for each task, one after another; the rows are few.
        for row in frame.mapInArrow(tasks.for_each_text(_result_batch), SCHEMA).collect():
            if row["by"] is None:
                errors[TableId(json.loads(row["id"]))] = tasks.rebuild(*json.loads(row["rows"]))
            else:
                rankings[row["by"]].add(row["id"], pa.ipc.open_stream(row["rows"]).read_all())
    except Exception as e:  # Spark has many classes of errors
        if (cause := tasks.cause_of(e)) is not None:
            raise cause from e
        raise
    best = {by: ranking.rows() for by, ranking in rankings.items()}
    searched = [at.id for at in locations if at.id not in errors]
    return RankedRows(result(best, k, with_row_id=with_row_id), searched, errors)


def _encode(
    locations: Iterable[Location], queries: Mapping[str, spec.QueryTableRequest], k: int, renewal: Renewal | None
) -> str:
    """Returns the work of one task as text, including the storage options."""
    from lance_ns_async.spark.resolve.location import without_expiry

    def options(at: Location) -> Mapping[str, str] | None:
        return without_expiry(at.storage_options) if renewal is None else at.storage_options

    tables = [(list(at.id), at.location, at.version, options(at)) for at in locations]
    how = renewal and astuple(renewal)
    return tasks.encode((tables, {by: query.to_dict() for by, query in queries.items()}, k, how))


def _result_batch(text: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    schema = pa.schema({"by": pa.string(), "id": pa.string(), "rows": pa.binary()})
    yield pa.RecordBatch.from_pylist([dict(zip(schema.names, it, strict=True)) for it in execute(text)], schema)


def execute(text: str) -> Iterator[tuple[str | None, str, bytes]]:
    """Performs an encoded search; yields the best rows of each table for each query, and the errors."""
    import lance_namespace as spec

    from lance_ns_async.many.ranking import Ranking
    from lance_ns_async.model import Table, TableId
    from lance_ns_async.operations import searching
    from lance_ns_async.spark.renewal import Renewal
    from lance_ns_async.storage.datasets import Snapshot
    from lance_ns_async.storage.opening import Opener
    from lance_ns_async.storage.pylance_errors import translate_errors

    tables, requests, k, how = tasks.decode(text)
    opener = Renewal(*how).opener() if how else Opener()
    queries: dict[str, Any] = {by: spec.QueryTableRequest.from_dict(fields) for by, fields in requests.items()}
    rankings = {by: Ranking(by, k, descending=by == "_score") for by in queries}
    for names, location, version, options in tables:
        table = Table(TableId(names), location, storage_options=options)
        try:
            with translate_errors(table):
                dataset = opener.open(table, Snapshot(version))
                results = {by: searching.scan(dataset, query).to_table() for by, query in queries.items()}
            for by, rows in results.items():
                rankings[by].add(str(table.id), rows)
        except Exception as e:  # an error of one table must not end the Spark task, which has further ones
            yield None, json.dumps(names), json.dumps(tasks.describe_error(e)).encode()
    for by, ranking in rankings.items():
        for id, rows in ranking.parts():
            yield by, id, _stream(rows)


def _stream(rows: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content

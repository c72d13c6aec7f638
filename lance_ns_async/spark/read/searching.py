"""Search of many tables by Spark: each task ranks the rows of its tables, and the driver merges the rankings.

Spark's Python processes import this module, so this package must be installed there. It makes no catalog call.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lance_ns_async.spark.session import distribute

if TYPE_CHECKING:
    import lance_namespace as spec
    import pyarrow as pa
    from lance_namespace.errors import LanceNamespaceError
    from pyspark.sql import SparkSession

    from lance_ns_async.many.row_results import RankedRows
    from lance_ns_async.model import NamespaceId, TableId
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
) -> RankedRows:
    """Returns the best rows of tables.

    Args:
        locations: The tables.
        spark: The Spark session.
        queries: The queries, by the column that they rank by.
        k: The number of rows.
        partitions: The maximum number of tasks; None for four per core.
        with_row_id: Whether the result has the ids of rows.
    """
    import pyarrow as pa

    from lance_ns_async.many.ranking import Ranking
    from lance_ns_async.many.row_results import RankedRows
    from lance_ns_async.many.rows import result
    from lance_ns_async.model import TableId
    from lance_ns_async.spark.session import cause_of, default_tasks, one_task_each, rebuild

    tasks = default_tasks(spark) if partitions is None else partitions
    groups = distribute(list(locations), lambda at: (at.rows or 0) + OPENING, tasks)
    frame = one_task_each(spark, [_encode(group, queries, k) for group in groups])
    rankings = {by: Ranking(by, k, descending=by == "_score") for by in queries}
    errors: dict[TableId | NamespaceId, LanceNamespaceError] = {}
    try:
        for row in frame.mapInArrow(searcher(), SCHEMA).toLocalIterator():
            if row["by"] is None:
                errors[TableId(json.loads(row["id"]))] = rebuild(*json.loads(row["rows"]))
            else:
                rankings[row["by"]].add(row["id"], pa.ipc.open_stream(row["rows"]).read_all())
    except Exception as e:  # Spark has many classes of errors
        if (cause := cause_of(e)) is not None:
            raise cause from e
        raise
    best = {by: ranking.rows() for by, ranking in rankings.items()}
    searched = [at.id for at in locations if at.id not in errors]
    return RankedRows(result(best, k, with_row_id=with_row_id), searched, errors)


def _encode(locations: Iterable[Location], queries: Mapping[str, spec.QueryTableRequest], k: int) -> str:
    """Returns the work of one task as text, including the storage options."""
    # The driver renews credentials that expire; a task has only those that it starts with.
    from lance_ns_async.model import EXPIRY

    tables = [
        (
            list(at.id),
            at.location,
            at.version,
            {key: value for key, value in (at.storage_options or {}).items() if key != EXPIRY},
        )
        for at in locations
    ]
    requests = {by: query.to_dict() for by, query in queries.items()}
    return base64.b64encode(zlib.compress(json.dumps((tables, requests, k)).encode(), 3)).decode()


def searcher() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that performs encoded searches."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.schema({"by": pa.string(), "id": pa.string(), "rows": pa.binary()})
        for batch in batches:
            for text in batch.column(0).to_pylist():
                results = [dict(zip(schema.names, result, strict=True)) for result in execute(text)]
                yield pa.RecordBatch.from_pylist(results, schema)

    return work


def execute(text: str) -> Iterator[tuple[str | None, str, bytes]]:
    """Performs an encoded search; yields the best rows of each table for each query, and the errors."""
    import lance_namespace as spec
    from lance_namespace.errors import LanceNamespaceError

    from lance_ns_async.many.ranking import Ranking
    from lance_ns_async.model import Table, TableId
    from lance_ns_async.operations import searching
    from lance_ns_async.storage.datasets import Snapshot, open_snapshot
    from lance_ns_async.storage.pylance_errors import translate_errors

    tables, requests, k = json.loads(zlib.decompress(base64.b64decode(text)))
    queries: dict[str, Any] = {by: spec.QueryTableRequest.from_dict(fields) for by, fields in requests.items()}
    rankings = {by: Ranking(by, k, descending=by == "_score") for by in queries}
    for names, location, version, options in tables:
        table = Table(TableId(names), location, storage_options=options or None)
        try:
            with translate_errors(table):
                dataset = open_snapshot(table, Snapshot(version))
                results = {by: searching.scan(dataset, query).to_table() for by, query in queries.items()}
            for by, rows in results.items():
                rankings[by].add(str(table.id), rows)
        except Exception as e:  # an error of one table must not end the Spark task, which has further ones
            name = type(e).__name__ if isinstance(e, LanceNamespaceError) else "InternalError"
            yield None, json.dumps(names), json.dumps((name, str(e))).encode()
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

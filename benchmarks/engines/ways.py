"""The ways to read: this package, and by hand what it is compared with.

Each yields the number and the sum of `x0` of rows when they arrive; an aggregate yields once. Those by hand find the
tables with pylance's own catalog of the same directory, and open one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import duckdb
import lance
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from lance.namespace import DirectoryNamespace
from lance_namespace import DescribeTableRequest, ListTablesRequest

from benchmarks.engines.lake import Job
from lance_ns_async import Namespace

Found = tuple[int, float]
Way = Callable[[Job], Iterator[Found]]


def by_sql(job: Job) -> Iterator[Found]:
    with Namespace.connect("dir", job.properties) as ns:
        yield of_result(ns.sql(statement(job, f"{job.namespace}.*")).rows)


def by_scan(job: Job) -> Iterator[Found]:
    with Namespace.connect("dir", job.properties) as ns:
        reader = ns.scan_many(f"{job.namespace}.*", columns=job.columns, filter=job.where, table_column=None)
        yield from map(of_rows, reader)


def by_polars(job: Job) -> Iterator[Found]:
    with Namespace.connect("dir", job.properties) as ns:
        reader = ns.scan_many(f"{job.namespace}.*", columns=job.columns, filter=job.where, table_column=None)
        yield of_frame(pl.scan_arrow_c_stream(reader), None)


def duckdb_by_hand(job: Job) -> Iterator[Found]:
    with duckdb.connect() as connection:
        selects = []
        for number, location in enumerate(locations(job)):
            connection.register(f"t{number}", lance.dataset(location, storage_options=job.options))
            selects.append(f"SELECT * FROM t{number}")
        text = statement(job, f"({' UNION ALL '.join(selects)})")
        yield of_result(connection.sql(text).to_arrow_table())


def polars_by_hand(job: Job) -> Iterator[Found]:
    yield of_frame(pl.concat([pl.scan_lance(it, storage_options=job.options) for it in locations(job)]), job.where)


def polars_of_datasets(job: Job) -> Iterator[Found]:
    datasets = [lance.dataset(it, storage_options=job.options) for it in locations(job)]
    yield of_frame(pl.concat([pl.scan_pyarrow_dataset(it) for it in datasets]), job.where)


def loop(job: Job, threads: int = 1) -> Iterator[Found]:
    def read(location: str) -> pa.Table:
        dataset = lance.dataset(location, storage_options=job.options)
        return dataset.to_table(columns=job.columns, filter=job.where)

    with ThreadPoolExecutor(threads) as pool:
        yield from map(of_rows, (map if threads == 1 else pool.map)(read, locations(job)))


def locations(job: Job) -> Iterator[str]:
    """Yields the locations of all tables, from pylance's directory catalog."""
    catalog: Any = DirectoryNamespace
    ns = catalog(**job.properties)
    for name in ns.list_tables(ListTablesRequest(id=[job.namespace])).tables:
        yield ns.describe_table(DescribeTableRequest(id=[job.namespace, name])).location


def statement(job: Job, source: str) -> str:
    """Returns the statement of a job: an aggregate, or all rows with all columns."""
    what = "*" if job.columns is None else "count(*) AS n, sum(x0) AS total"
    return f"SELECT {what} FROM {source} AS t" + (f" WHERE {job.where}" if job.where else "")


def of_rows(rows: pa.Table | pa.RecordBatch) -> Found:
    return rows.num_rows, pc.sum(rows["x0"]).as_py() or 0.0


def of_result(rows: pa.Table) -> Found:
    return of_rows(rows) if "x0" in rows.column_names else (rows["n"][0].as_py(), rows["total"][0].as_py())


def of_frame(frame: pl.LazyFrame, where: str | None) -> Found:
    rows = frame if where is None else frame.filter(pl.sql_expr(where))
    count, total = rows.select(pl.len().alias("n"), pl.sum("x0").alias("total")).collect().row(0)
    return count, total


STREAM = "Two columns of all rows as a stream"

WAYS: Mapping[str, Mapping[str, Way]] = {
    "One aggregate with SQL": {
        "DuckDB by hand: register each table, `UNION ALL`": duckdb_by_hand,
        "`ns.sql` of a pattern": by_sql,
    },
    STREAM: {
        "loop with pylance": loop,
        "loop with pylance, 16 threads": partial(loop, threads=16),
        "`scan_many`": by_scan,
    },
    "One aggregate with Polars": {
        "`pl.concat` of `pl.scan_lance`": polars_by_hand,
        "`pl.concat` of `pl.scan_pyarrow_dataset`": polars_of_datasets,
        "Polars over `scan_many`": by_polars,
    },
}
"""The ways of each task; the first is the peer."""

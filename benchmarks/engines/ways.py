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
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from lance.namespace import DirectoryNamespace
from lance_namespace import DescribeTableRequest, ListTablesRequest

from benchmarks.engines.lake import Job
from lance_ns_async import Namespace, RowReader

Found = tuple[int, float]
Way = Callable[[Job], Iterator[Found]]


def by_sql(job: Job) -> Iterator[Found]:
    with Namespace.connect("dir", job.properties) as ns:
        yield of_rows(ns.sql(statement(job, f"{job.namespace}.*")).rows)


def by_scan(job: Job) -> Iterator[Found]:
    with Namespace.connect("dir", job.properties) as ns:
        yield from map(of_rows, scanned(ns, job))


def by_frame(job: Job) -> Iterator[Found]:
    with Namespace.connect("dir", job.properties) as ns:
        yield of_frame(ns.open_many(f"{job.namespace}.*").polars(), job.where)


def by_polars(job: Job) -> Iterator[Found]:
    with Namespace.connect("dir", job.properties) as ns:
        yield of_frame(pl.scan_arrow_c_stream(scanned(ns, job)), None)


def scanned(ns: Namespace, job: Job) -> RowReader:
    return ns.scan_many(f"{job.namespace}.*", columns=job.columns, filter=job.where, table_column=None)


def duckdb_by_hand(job: Job) -> Iterator[Found]:
    with duckdb.connect() as connection:
        datasets = [*map(job.open, locations(job))]
        for number, dataset in enumerate(datasets):
            connection.register(f"t{number}", dataset)
        tables = " UNION ALL ".join(f"SELECT * FROM t{number}" for number in range(len(datasets)))
        yield of_rows(connection.sql(statement(job, f"({tables})")).to_arrow_table())


def polars_by_hand(job: Job, scan: Callable[[Any], pl.LazyFrame]) -> Iterator[Found]:
    yield of_frame(pl.concat([scan(it) for it in map(job.open, locations(job))]), job.where)


def loop(job: Job, threads: int = 1) -> Iterator[Found]:
    def read(location: str) -> pa.Table:
        return job.open(location).to_table(columns=job.columns, filter=job.where)

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
    if rows.schema.names == ["n", "total"]:
        return rows["n"][0].as_py(), rows["total"][0].as_py() or 0.0
    return rows.num_rows, pc.sum(rows["x0"]).as_py() or 0.0


def of_frame(frame: pl.LazyFrame, where: str | None) -> Found:
    rows = frame if where is None else frame.filter(pl.sql_expr(where))
    count, total = rows.select(pl.len().alias("n"), pl.sum("x0").alias("total")).collect().row(0)
    return count, total


STREAM = "Two columns of all rows as a stream"

WAYS: Mapping[str, Mapping[str, Way]] = {
    "One aggregate with SQL": {"DuckDB by hand, `UNION ALL`": duckdb_by_hand, "`ns.sql` of a pattern": by_sql},
    STREAM: {"loop with pylance": loop, "the same, 16 threads": partial(loop, threads=16), "`scan_many`": by_scan},
    "One aggregate with Polars": {
        "`pl.concat` of `pl.scan_lance`": partial(polars_by_hand, scan=pl.scan_lance),
        "`pl.concat` of `pl.scan_pyarrow_dataset`": partial(polars_by_hand, scan=pl.scan_pyarrow_dataset),
        "`open_many(...).polars()`": by_frame,
        "Polars over `scan_many`": by_polars,
    },
}
"""The ways of each task; the first is the peer."""

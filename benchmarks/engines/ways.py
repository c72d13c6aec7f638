"""The ways to read: this package, and by hand what it is compared with.

Each yields the number and the sum of `x0` of rows when they arrive, and an aggregate yields once. The peers find the
tables with pylance's own catalog of the same directory, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.engines.lake import Job
from lance_ns_async import Namespace

if TYPE_CHECKING:
    import polars as pl

Found = tuple[int, float]
Way = Callable[[Job], Iterator[Found]]


def by_sql(job: Job) -> Iterator[Found]:
    """Asks DuckDB through `ns.sql`."""
    with Namespace.connect("dir", job.properties) as ns:
        yield of_result(ns.sql(statement(job, f"{job.namespace}.*")).rows)


def by_scan(job: Job) -> Iterator[Found]:
    """Reads the batches of `scan_many`."""
    with Namespace.connect("dir", job.properties) as ns:
        pattern = f"{job.namespace}.*"
        for batch in ns.scan_many(pattern, columns=job.columns, filter=job.where, table_column=None):
            yield of_rows(batch)


def by_polars(job: Job) -> Iterator[Found]:
    """Gives the reader of `scan_many` to Polars."""
    import polars as pl

    with Namespace.connect("dir", job.properties) as ns:
        pattern = f"{job.namespace}.*"
        reader = ns.scan_many(pattern, columns=job.columns, filter=job.where, table_column=None)
        yield of_frame(pl.scan_arrow_c_stream(reader))


def duckdb_by_hand(job: Job) -> Iterator[Found]:
    """Registers the dataset of each table in DuckDB, and asks for the union of all."""
    import duckdb

    with duckdb.connect() as connection:
        selects = []
        for number, location in enumerate(locations(job)):
            connection.register(f"t{number}", lance.dataset(location, storage_options=job.options))
            selects.append(f"SELECT * FROM t{number}")
        text = statement(job, f"({' UNION ALL '.join(selects)})")
        yield of_result(connection.sql(text).to_arrow_table())


def polars_by_hand(job: Job) -> Iterator[Found]:
    """Concatenates the lazy frames of `pl.scan_lance`."""
    import polars as pl

    frames = [pl.scan_lance(location, storage_options=job.options) for location in locations(job)]
    yield of_frame(selected(pl.concat(frames), job.where))


def polars_datasets(job: Job) -> Iterator[Found]:
    """Concatenates the lazy frames of `pl.scan_pyarrow_dataset`."""
    import polars as pl

    datasets = [lance.dataset(location, storage_options=job.options) for location in locations(job)]
    yield of_frame(selected(pl.concat([pl.scan_pyarrow_dataset(it) for it in datasets]), job.where))


def loop(job: Job) -> Iterator[Found]:
    """Reads one table after another with pylance."""
    for location in locations(job):
        dataset = lance.dataset(location, storage_options=job.options)
        yield of_rows(dataset.to_table(columns=job.columns, filter=job.where))


def in_threads(job: Job) -> Iterator[Found]:
    """Reads 16 tables at once with pylance."""
    from concurrent.futures import ThreadPoolExecutor

    def read(location: str) -> pa.Table:
        dataset = lance.dataset(location, storage_options=job.options)
        return dataset.to_table(columns=job.columns, filter=job.where)

    with ThreadPoolExecutor(16) as threads:
        yield from map(of_rows, threads.map(read, locations(job)))


def locations(job: Job) -> list[str]:
    """Returns the locations of all tables, from pylance's directory catalog."""
    from lance.namespace import DirectoryNamespace
    from lance_namespace import DescribeTableRequest, ListTablesRequest

    ns = DirectoryNamespace(**job.properties)
    names = ns.list_tables(ListTablesRequest(id=[job.namespace])).tables
    described = (ns.describe_table(DescribeTableRequest(id=[job.namespace, name])) for name in names)
    return [str(it.location) for it in described]


def statement(job: Job, source: str) -> str:
    """Returns the statement of a job; one with all columns returns all rows."""
    what = "*" if job.columns is None else "count(*) AS n, sum(x0) AS total"
    return f"SELECT {what} FROM {source} AS t" + (f" WHERE {job.where}" if job.where else "")


def selected(frame: pl.LazyFrame, where: str | None) -> pl.LazyFrame:
    """Returns the rows that the condition selects."""
    import polars as pl

    return frame if where is None else frame.filter(pl.sql_expr(where))


def of_frame(frame: pl.LazyFrame) -> Found:
    """Returns the number and the sum of the rows of a lazy frame."""
    import polars as pl

    count, total = frame.select(pl.len().alias("n"), pl.sum("x0").alias("total")).collect().row(0)
    return count, total


def of_rows(rows: pa.Table | pa.RecordBatch) -> Found:
    """Returns the number and the sum of some rows."""
    return rows.num_rows, pc.sum(rows["x0"]).as_py() or 0.0


def of_result(rows: pa.Table) -> Found:
    """Returns the number and the sum of the rows of a statement."""
    if "x0" in rows.column_names:
        return of_rows(rows)
    [row] = rows.to_pylist()
    return row["n"], row["total"]


WAYS: Mapping[str, Mapping[str, Way]] = {
    "One aggregate with SQL": {
        "DuckDB by hand: describe, register, UNION ALL": duckdb_by_hand,
        "`ns.sql` of a pattern": by_sql,
    },
    "All rows of two columns as a stream": {
        "loop with pylance": loop,
        "16 threads with pylance": in_threads,
        "`ns.scan_many`": by_scan,
    },
    "One aggregate with Polars": {
        "`pl.concat` of `pl.scan_lance`": polars_by_hand,
        "`pl.concat` of `pl.scan_pyarrow_dataset`": polars_datasets,
        "Polars over `ns.scan_many`": by_polars,
    },
}
"""The ways of each task; the first is the peer."""

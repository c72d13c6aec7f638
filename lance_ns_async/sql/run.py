"""`sql`: a SELECT statement over tables of the catalog, run by DuckDB in this process."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.errors import one_line, raise_first, shortened
from lance_ns_async.many import rows
from lance_ns_async.many.patterns import Pattern, Selection
from lance_ns_async.many.scanning import Scan, Source, open_sources, read_sources
from lance_ns_async.many.schemas import Reader, common, with_table_column
from lance_ns_async.model import TableId
from lance_ns_async.progress import ProgressCallback, show_progress
from lance_ns_async.rendering import counted
from lance_ns_async.session import Session
from lance_ns_async.sql.statement import Reading, Searching, Statement, parse
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import TIME_TO_END, aside

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

TABLE_COLUMN = "_table"

_READER = Reader(
    "query the tables of each kind by a pattern of their own", "name fewer tables", "DuckDB", ignores_case=True
)

_INTERRUPT_INTERVAL = 0.02  # Seconds between interrupts of a statement whose result is not needed any more

_MAX_REASON = 1_000  # Maximum number of characters of a message of DuckDB

_SAFE: Mapping[str, str] = {
    # Neither files nor the network, no extensions, and no variables of Python; nothing is spilled to a disk.
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "lock_configuration": "true",
}


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The rows of a statement. Libraries that take Arrow streams take this object itself."""

    rows: pa.Table
    """The rows; of EXPLAIN, the plan as text in a column `plan`."""
    versions: Mapping[TableId, int] = field(default_factory=dict)
    """The tables that were read, with their versions."""

    def to_arrow(self) -> pa.Table:
        """Returns `rows`."""
        return self.rows

    def to_pandas(self) -> pd.DataFrame:
        """Returns the rows as a pandas DataFrame."""
        return self.rows.to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Returns the rows as a Polars DataFrame; it needs the package polars."""
        import polars as pl

        return pl.DataFrame(self.rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the rows as a stream of Arrow's C interface."""
        return self.rows.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Returns the numbers of rows, columns and tables, and the first rows."""
        counts = [counted(self.rows.num_rows, "rows"), counted(self.rows.num_columns, "columns")]
        head = f"SqlResult({', '.join(counts)} of {counted(len(self.versions), 'tables')})"
        return f"{head}\n{self.rows.slice(0, 10).to_string(preview_cols=20)}"


async def sql(
    session: Session,
    text: str,
    *,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
    max_rows: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> SqlResult:
    """See `AsyncNamespace.sql`."""
    with session.within(timeout), show_progress(progress, "open tables") as show:
        connection = await aside(lambda: _connect(memory_limit, threads))
        try:
            statement = await _on(connection, lambda: parse(connection, text))
            versions = await _register(session, connection, statement, show)
            return SqlResult(
                await _on(connection, lambda: _fetch(connection, statement, parameters, max_rows)), versions
            )
        finally:
            _close(connection)


def _connect(memory_limit: str | None, threads: int | None) -> DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as e:
        raise err.UnsupportedOperationError("Not supported: sql needs: pip install 'lance-ns-async[sql]'") from e
    limits = {"memory_limit": memory_limit, "threads": threads}
    settings: dict[str, Any] = {name: str(value) for name, value in limits.items() if value is not None}
    try:
        return duckdb.connect(config={**settings, **_SAFE})
    except duckdb.Error as e:
        raise err.InvalidInputError(f"sql: {_reason(e)}") from e


async def _register(
    session: Session, connection: DuckDBPyConnection, statement: Statement, progress: ProgressCallback
) -> Mapping[TableId, int]:
    """Opens what the statement reads, and gives it to DuckDB; returns the versions of the tables."""
    # It loads pyarrow's datasets, which nothing else needs.
    from lance_ns_async.sql.relations import Relation, in_thread_of_query, known_type

    loop, context = asyncio.get_running_loop(), copy_context()

    def read(sources: Sequence[Source], how: Scan) -> Iterator[pa.RecordBatch]:
        return in_thread_of_query(loop, context, read_sources(session, sources, how, session.workers()))

    for name, search in statement.searches:
        ranked = await _search(session, search)
        schema = pa.schema([(it.name, known_type(it.type)) for it in ranked.schema])
        _translated(partial(connection.register, name, ranked.cast(schema)))
    sources = await _open(session, list(statement.readings), progress)
    for reading, name in statement.readings.items():
        scan = await aside(partial(_plan, reading, sources[reading], known_type))
        _translated(partial(connection.register, name, Relation(sources[reading], scan, read)))
    return {source.table.id: source.version for some in sources.values() for source in some}


async def _search(session: Session, search: Searching) -> pa.Table:
    """Returns the rows of a search, with all columns that DuckDB has."""
    what, *more = search.arguments or [None]
    if not isinstance(what, str) or len(more) != 1:
        example = "[1.0, 0.5]" if search.function == "nearest" else "'words'"
        example = f"{search.function}('ml.docs', {example}, k => 5)"
        raise err.InvalidInputError(f"sql: {search.function} takes a table and what to find: {example}")
    query = {"vector": more[0]} if search.function == "nearest" else {"full_text": more[0]}
    try:
        ranked = await rows.search_many(session, what, **query, **search.options)
    except (TypeError, ValueError) as e:
        raise err.InvalidInputError(f"sql: {search.function}: {e}") from e
    return ranked.raise_for_errors().rows


async def _open(
    session: Session, readings: Sequence[Reading], progress: ProgressCallback
) -> Mapping[Reading, Sequence[Source]]:
    """Opens the tables, those without a version all at once."""
    selection = Selection.read([reading.what for reading in readings if reading.version is None])
    latest = await open_sources(session, selection, None, progress)
    raise_first(latest.errors.values(), len(latest.tables) + len(latest.errors))
    result: dict[Reading, Sequence[Source]] = {}
    for reading in readings:
        if reading.version is not None:
            result[reading] = [await _open_version(session, reading)]
        elif isinstance(reading.what, TableId):
            result[reading] = [latest.tables[reading.what]]
        else:
            matches = Pattern.parse(reading.what).matches
            result[reading] = [source for id, source in latest.tables.items() if matches(id)]
    return result


async def _open_version(session: Session, reading: Reading) -> Source:
    version = reading.version
    if not isinstance(reading.what, TableId) or session.backend.passes_on("query_table"):
        raise err.UnsupportedOperationError(
            f"Not supported: sql: {reading.what} AT (VERSION => {version!r}): a version of one table, whose data is "
            "read here"
        )
    snapshot = Snapshot(tag=version) if isinstance(version, str) else Snapshot(version)
    return await session.read(
        reading.what, lambda dataset, table: Source(table, dataset.schema, dataset.version, dataset), snapshot
    )


def _plan(reading: Reading, sources: Sequence[Source], known_type: Callable[[pa.DataType], pa.DataType]) -> Scan:
    """Returns the columns of a table or of all tables of a pattern, for DuckDB."""
    if not sources:
        raise err.TableNotFoundError(f"Table not found: sql: no table matches {reading.what!r}")
    schemas = [(source.table.id, source.schema) for source in sources]
    schema, _ = common(schemas, None, _READER, unify="by_name")
    schema = pa.schema([(it.name, known_type(it.type)) for it in schema])
    if not reading.is_pattern:
        return Scan(schema, None)
    return Scan(with_table_column(schema, TABLE_COLUMN, _READER), TABLE_COLUMN)


async def _on(connection: DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Returns the result of work on a connection, in a thread; interrupts it if the result is not needed any more."""
    ended = threading.Event()

    def run() -> T:
        try:
            return _translated(work)
        finally:
            ended.set()

    try:
        return await aside(run, "queries")
    finally:
        # After a cancellation or the end of the operation's time, the thread goes on until it is interrupted. It may
        # not have begun with the statement yet, and it may wait for this loop.
        with anyio.CancelScope(shield=True):
            until = monotonic() + TIME_TO_END
            while not ended.is_set() and monotonic() < until:
                connection.interrupt()
                await asyncio.sleep(_INTERRUPT_INTERVAL)


def _close(connection: DuckDBPyConnection) -> None:
    """Closes a connection; one that is still busy ends with its last statement."""
    import duckdb

    with suppress(duckdb.ResourceInUseException):
        connection.close()


def _fetch(
    connection: DuckDBPyConnection,
    statement: Statement,
    parameters: Sequence[Any] | Mapping[str, Any] | None,
    max_rows: int | None,
) -> pa.Table:
    if statement.explain:
        plan = connection.execute(f"{statement.explain} {statement.sql}", parameters).fetchall()
        return pa.table({"plan": [text for _, text in plan]})
    batches, count = [], 0
    with connection.sql(statement.sql, params=parameters).to_arrow_reader() as reader:
        for batch in reader:
            batches.append(batch)
            count += batch.num_rows
            if max_rows is not None and count >= max_rows:
                break
        return pa.Table.from_batches(batches, reader.schema).slice(0, max_rows)


def _translated(work: Callable[[], T]) -> T:
    """Returns the result of work of DuckDB, whose errors become errors of the spec."""
    import duckdb

    try:
        return work()
    except duckdb.OutOfMemoryException as e:
        raise err.InvalidInputError(f"sql: the statement needs more memory than memory_limit: {_reason(e)}") from e
    except duckdb.InterruptException as e:
        raise err.ServiceUnavailableError("Service unavailable: sql: the statement was stopped") from e
    except (duckdb.InternalException, duckdb.FatalException, duckdb.IOException) as e:
        raise err.InternalError(f"sql: {_reason(e)}") from e
    except duckdb.Error as e:
        raise err.InvalidInputError(f"sql: {_reason(e)}") from e


def _reason(error: Exception) -> str:
    """Returns the message without its kind, and without the excerpt of the statement, whose names are DuckDB's."""
    text = str(error).partition("\n\nLINE ")[0]
    return shortened(one_line(re.sub(r"^[\w ]+ Error: ", "", text)), _MAX_REASON)

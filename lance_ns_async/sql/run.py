"""`sql`: a SELECT statement over tables of the catalog, run by DuckDB in this process."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.calls.deadline import remaining
from lance_ns_async.errors import one_line, shortened
from lance_ns_async.many.scanning import Scan, Source
from lance_ns_async.many.schemas import Reader, common, with_table_column
from lance_ns_async.model import TableId
from lance_ns_async.progress import ProgressCallback, show_progress
from lance_ns_async.rendering import counted
from lance_ns_async.session import Session, traced
from lance_ns_async.sql.restrictions import Restrictions
from lance_ns_async.sql.statement import Reading, Statement, parse
from lance_ns_async.sql.tables import Tables
from lance_ns_async.storage.threads import TIME_TO_END, aside
from lance_ns_async.tabular import EXCERPT, html_rows

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

T = TypeVar("T")

TABLE_COLUMN = "_table"

_READER = Reader(
    "query the tables of each kind by a pattern of their own",
    "name fewer tables",
    "DuckDB",
    ignores_case=True,
    in_sql=True,
)

_INTERRUPT_INTERVAL = 0.02  # Seconds between interrupts of a statement whose result is not needed any more


_MAX_REASON = 1_000  # Maximum number of characters of a message of DuckDB

_BATCH_ROWS = 100_000  # Maximum number of rows that DuckDB converts at once.

_MAX_COLUMNS = 2_000  # Maximum number of columns for a remote caller.
_MAX_TEXT = 1_000  # Maximum number of characters of a value for a remote caller.

_FIXED = frozenset(
    """
    boolean tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint float double decimal
    date time time_ns timestamp timestamp_s timestamp_ms timestamp_ns interval uuid enum
    """.split()
)
"""Types of DuckDB whose values are short."""

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

    def line(self) -> str:
        """Returns the numbers of rows, columns and tables."""
        counts = [counted(self.rows.num_rows, "rows"), counted(self.rows.num_columns, "columns")]
        return f"SqlResult({', '.join(counts)} of {counted(len(self.versions), 'tables')})"

    def __repr__(self) -> str:
        """Returns the numbers, and the first rows as a table, or the plan."""
        import duckdb

        if self.rows.column_names == ["plan"] and self.rows.num_rows == 1:
            return f"{self.line()}\n{self.rows['plan'][0]}".rstrip()
        with duckdb.connect() as connection:
            return f"{self.line()}\n{connection.from_arrow(self.rows.slice(0, EXCERPT))!r}".rstrip()

    def _repr_html_(self) -> str:
        """Returns the numbers, and the first rows as a table, for notebooks."""
        return html_rows(self.line(), self.rows)


@traced
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
    max_in_flight: int | None = None,
    restrictions: Restrictions | None = None,
) -> SqlResult:
    """See `AsyncNamespace.sql`; `restrictions` are those of a remote caller."""
    # The errors of reads, which DuckDB would repeat with their tracebacks.
    failures: list[err.LanceNamespaceError] = []
    with session.within(timeout):
        connection = await aside(lambda: _connect(memory_limit, threads))
        try:
            check = None
            if restrictions is not None:
                restrictions.check_text(text)
                check = restrictions.check
            statement = await _on(connection, lambda: parse(connection, text, check))
            opens_tables = bool(statement.readings or statement.searches)
            with show_progress(opens_tables and progress, "open tables") as show:
                tables = Tables(session, max_in_flight, show, restrictions)
                versions = await _register(tables, connection, statement, failures)
            shorten = restrictions is not None
            rows = await _on(connection, lambda: _fetch(connection, statement, parameters, max_rows, shorten=shorten))
            return SqlResult(rows, versions)
        except err.LanceNamespaceError as e:
            if timeout is not None and (left := remaining()) is not None and left <= 0:
                message = f"Service unavailable: sql: the statement did not end within timeout={timeout:g} seconds"
                raise err.ServiceUnavailableError(message) from e
            if failures:
                raise failures[0] from None
            raise
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
    tables: Tables, connection: DuckDBPyConnection, statement: Statement, failures: list[err.LanceNamespaceError]
) -> Mapping[TableId, int]:
    """Opens what the statement reads, and gives it to DuckDB; returns the versions of the tables.

    Errors of the reads that follow are added to `failures`.
    """
    # It loads pyarrow's datasets, which nothing else needs.
    from lance_ns_async.many.relations import Relation, in_thread_of_query, with_known_types

    loop, context = asyncio.get_running_loop(), copy_context()

    def read(sources: Sequence[Source], how: Scan) -> Iterator[pa.RecordBatch]:
        try:
            yield from in_thread_of_query(loop, context, tables.read(sources, how))
        except err.LanceNamespaceError as e:
            failures.append(e)
            raise

    for name, search in statement.searches:
        ranked = await tables.search(search)
        _translated(partial(connection.register, name, ranked.cast(with_known_types(ranked.schema))))
    sources = await tables.open(list(statement.readings))
    for reading, name in statement.readings.items():
        scan = await aside(partial(_plan, reading, sources[reading], statement.columns, with_known_types))
        _translated(partial(connection.register, name, Relation(sources[reading], scan, read)))
    return {source.table.id: source.version for some in sources.values() for source in some}


def _plan(
    reading: Reading, sources: Sequence[Source], used: Collection[str] | None, known: Callable[[pa.Schema], pa.Schema]
) -> Scan:
    """Returns the columns of a table or of all tables of a pattern, for DuckDB; if they differ, only those used."""
    schemas = [(source.table.id, source.schema) for source in sources]
    try:
        schema, _ = common(schemas, None, _READER, unify="by_name")
    except err.InvalidInputError:
        if used is None:
            raise
        names = dict.fromkeys(name for _, schema in schemas for name in schema.names if name.casefold() in used)
        schema, _ = common(schemas, list(names), _READER, unify="by_name")
    if not reading.is_pattern:
        return Scan(known(schema), None)
    return Scan(known(with_table_column(schema, TABLE_COLUMN, _READER)), TABLE_COLUMN)


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
    *,
    shorten: bool,
) -> pa.Table:
    if statement.explain:
        plan = connection.execute(f"{statement.explain} {statement.sql}", parameters).fetchall()
        return pa.table({"plan": [text for _, text in plan]})
    relation = connection.sql(statement.sql, params=parameters)
    if shorten:
        relation = _shortened(relation)
    batches, count = [], 0
    with relation.to_arrow_reader(_BATCH_ROWS if max_rows is None else min(max_rows, _BATCH_ROWS)) as reader:
        for batch in reader:
            batches.append(batch)
            count += batch.num_rows
            if max_rows is not None and count >= max_rows:
                break
        return pa.Table.from_batches(batches, reader.schema).slice(0, max_rows)


def _shortened(relation: DuckDBPyRelation) -> DuckDBPyRelation:
    """Returns the rows with the beginnings of long values as texts, so that they need little memory."""
    if len(relation.columns) > _MAX_COLUMNS:
        raise err.InvalidInputError(f"sql: the result has {len(relation.columns):,} columns; select {_MAX_COLUMNS:,}")
    values = []
    for number, (name, type) in enumerate(zip(relation.columns, relation.types, strict=True), 1):
        match type.id:
            case "blob":
                value = f"octet_length(#{number}) || ' bytes'"
            case kind if kind in _FIXED:
                value = f"#{number}"
            case _:
                value = f"left(CAST(#{number} AS VARCHAR), {_MAX_TEXT})"
        quoted = name.replace('"', '""')
        values.append(f'{value} AS "{quoted}"')
    return relation.project(", ".join(values))


def _translated(work: Callable[[], T]) -> T:
    """Returns the result of work of DuckDB, whose errors become errors of the spec."""
    import duckdb

    try:
        return work()
    except duckdb.OutOfMemoryException as e:
        # The rest of the message has settings of DuckDB, which a statement cannot change.
        reason = _reason(e).partition(" Database is launched")[0].partition(" Possible solutions")[0]
        raise err.InvalidInputError(f"sql: the statement needs more memory than `memory_limit`: {reason}") from e
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

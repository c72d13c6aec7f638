"""`scan_many`: the rows of many tables as one stream, in bounded memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.engine.list import TableFilter
from lance_ns_async.errors import raise_first, without_inner_calls
from lance_ns_async.lifecycle import concurrent_changes
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.many.rows import TableWork
from lance_ns_async.many.schemas import Reader, Unify, common, with_table_column
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.operations import rows
from lance_ns_async.operations.tables import describe_table
from lance_ns_async.progress import ProgressCallback, show_progress
from lance_ns_async.rendering import counted
from lance_ns_async.session import Session, traced
from lance_ns_async.spec import arrow_json
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.scanning import Condition, conform, has_columns, scan, select
from lance_ns_async.storage.sql_bounds import Texts
from lance_ns_async.storage.threads import THREADS, aside, in_thread, under_way

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow.compute as pc
    from lance import LanceDataset

T = TypeVar("T")

_BATCH_BYTES = 4 * 2**20  # Approximate maximum size of a batch
_GROUP_BYTES = 8 * 2**20  # Size from which batches are passed on, and the next ones are read
_BUFFER_BYTES = 16 * 2**20  # Maximum number of bytes that Lance reads ahead for one table

_NO_COLUMNS = pa.schema([])
_READER = Reader("scan the tables of each kind by a call of their own", "pass fewer tables")


@dataclass(frozen=True, slots=True)
class Scanned:
    """The tables of a scan."""

    schema: pa.Schema
    """The columns of the rows."""
    versions: Mapping[TableId, int]
    """The tables, in the order of their rows, with the version that is read of each."""
    errors: Mapping[TableId | NamespaceId, err.LanceNamespaceError] = field(default_factory=dict)
    """The error for each table that is not read, and for each namespace that could not be listed."""

    def raise_for_errors(self) -> Self:
        """Returns itself if every table is read.

        Raises:
            LanceNamespaceError: The first error, with the number of further errors in its message.
        """
        raise_first(self.errors.values(), len(self.versions) + len(self.errors))
        return self

    def __repr__(self) -> str:
        counts = [counted(len(self.versions), "tables"), counted(len(self.schema), "columns")]
        return f"{type(self).__name__}({', '.join([*counts, counted(len(self.errors), 'errors')])})"


@dataclass(frozen=True, slots=True, repr=False)
class RowStream(Scanned):
    """The rows of many tables, for `async for`: batches with the columns of `schema`, table by table.

    They can be read once. Leaving the loop early, or `aclose`, ends the reading.
    """

    groups: AsyncGenerator[Sequence[pa.RecordBatch], None] = field(kw_only=True)
    """The batches, in the groups in which they arrive."""

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Yields the batches.

        Raises:
            LanceNamespaceError: A table cannot be read any more; rows of it may have been yielded before.
        """
        _check_unread(self.groups, "ag_frame")
        async with aclosing(self.groups):
            try:
                async for group in self.groups:
                    for batch in group:
                        yield batch
            except err.LanceNamespaceError as e:
                raise without_inner_calls(e) from e.__cause__

    async def to_arrow(self) -> pa.Table:
        """Returns all rows, in memory."""
        return pa.Table.from_batches([batch async for batch in self], self.schema)

    async def aclose(self) -> None:
        """Ends the reading."""
        await self.groups.aclose()


@dataclass(frozen=True, slots=True, repr=False)
class RowReader(Scanned):
    """The rows of many tables: batches with the columns of `schema`, table by table.

    They can be read once, by iteration or by one of the methods. Libraries that take Arrow streams, such as DuckDB and
    Polars, take this object itself.
    """

    batches: Generator[pa.RecordBatch, None, None] = field(kw_only=True)
    """The rows, as they arrive."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the batches.

        Raises:
            LanceNamespaceError: A table cannot be read any more; rows of it may have been yielded before.
        """
        _check_unread(self.batches, "gi_frame")
        return self.batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the rows as Arrow's reader, which reads them as they are needed."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the rows as a stream of Arrow's C interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Returns all rows, in memory."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Returns all rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Returns all rows as a Polars DataFrame; it needs the package polars."""
        import polars as pl

        return pl.DataFrame(self.to_reader())

    def close(self) -> None:
        """Ends the reading."""
        self.batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def _check_unread(generator: object, frame: str) -> None:
    """Raises InvalidInputError if a generator has ended, which has no frame any more."""
    if getattr(generator, frame) is None:
        raise err.InvalidInputError("the rows of a scan can be read once, and were; scan the tables again")


@dataclass(frozen=True, slots=True)
class Source:
    """One version of a table that is read."""

    table: Table
    schema: pa.Schema
    version: int
    dataset: LanceDataset | None = field(default=None, repr=False)
    """The dataset; None if a server reads it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The tables to read, and the errors of those that cannot be read."""

    tables: Mapping[TableId, Source]
    errors: Mapping[TableId | NamespaceId, err.LanceNamespaceError]


@traced
async def scan_many(
    session: Session,
    what: What,
    *,
    columns: Collection[str] | None = None,
    filter: str | None = None,
    unify: Unify = "strict",
    table_column: str | None = "_table",
    partial: bool = False,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> RowStream:
    """See `AsyncNamespace.scan_many`."""
    await session.check_sql(Texts({"filter": filter}))
    with session.within(timeout), show_progress(progress, "open tables") as show:
        sources = await open_sources(session, Selection.read(what), max_in_flight, show)
        if not partial:
            raise_first(sources.errors.values(), len(sources.tables) + len(sources.errors))
        if not sources.tables:
            raise err.InvalidInputError(f"scan_many: no table to read in {what!r}, and therefore no columns")
        schemas = [(id, source.schema) for id, source in sources.tables.items()]

        def check() -> tuple[pa.Schema, Condition | None]:
            schema, condition = common(
                schemas, columns, _READER, filter=filter, unify=unify, table_column=table_column or None
            )
            return with_table_column(schema, table_column, _READER), condition

        schema, condition = await aside(check)
    how = Scan(schema, table_column or None, condition)
    groups = read_sources(session, list(sources.tables.values()), how, session.workers(max_in_flight))
    versions = {id: source.version for id, source in sources.tables.items()}
    return RowStream(schema, versions, sources.errors, groups=groups)


async def open_sources(
    session: Session,
    selection: Selection,
    max_in_flight: int | None,
    progress: ProgressCallback,
    include: TableFilter | None = None,
) -> Sources:
    """Opens the selected tables at their latest versions, or asks the server that reads them for these.

    Tables for which `include` is false do not exist for this selection.
    """

    async def open_table(table: Table) -> Source:
        with session.operation():
            dataset = await session.open_and_run(table, lambda dataset: dataset)
        return Source(table, dataset.schema, dataset.version, dataset)

    async def ask(id: TableId) -> Source:
        request = spec.DescribeTableRequest(id=list(id), load_detailed_metadata=True)
        response = await describe_table(session, request)
        if response.var_schema is None or response.version is None or response.location is None:
            raise err.TableNotFoundError(f"Table not found: {id} (the server knows no version or schema of it)")
        return Source(Table(id, response.location), arrow_json.arrow_schema(response.var_schema), response.version)

    work = TableWork(session, selection, max_in_flight, progress, include)
    is_remote = session.backend.passes_on("query_table")
    tables = await (work.on_ids(ask) if is_remote else work.on_tables(open_table))
    return Sources(tables, work.errors)


@dataclass(frozen=True, slots=True)
class Scan:
    """What is read of each table."""

    schema: pa.Schema
    """The columns of the result."""
    table_column: str | None
    condition: Condition | None = None
    filter: pc.Expression | None = None
    """A filter in place of the condition."""
    filter_columns: pa.Schema = _NO_COLUMNS
    """The columns that the filter may use."""

    def conform(self, source: Source, batch: pa.RecordBatch, *, is_filtered: bool) -> pa.RecordBatch:
        """Returns the rows of a batch of a table as rows of the result."""
        if self.filter is None or is_filtered:
            return conform(batch, self.schema, self.table_column, str(source.table.id))
        others = [it for it in self.filter_columns if it.name not in self.schema.names]
        wide = pa.schema([*self.schema, *others])
        rows = pa.Table.from_batches([conform(batch, wide, self.table_column, str(source.table.id))])
        selected = rows.filter(self.filter).select(self.schema.names).combine_chunks().to_batches()
        return selected[0] if selected else pa.RecordBatch.from_pylist([], self.schema)

    def columns_of(self, source: Source) -> Sequence[str]:
        """Returns the names of the columns to read of a table."""
        names = dict.fromkeys([*self.schema.names, *self.filter_columns.names])
        return [name for name in names if name != self.table_column and name in source.schema.names]

    def can_push(self, source: Source) -> bool:
        """Returns whether the filter has the same meaning for the table itself."""
        is_of_tables = self.table_column is None or self.table_column not in self.filter_columns.names
        return is_of_tables and has_columns(source.schema, self.filter_columns)


async def read_sources(
    session: Session, sources: Sequence[Source], how: Scan, workers: int
) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    """Yields the rows of the tables in their order; tables after the current one are read ahead.

    Memory is bounded: for up to 16 tables, one group of batches of each and what Lance reads ahead.
    """

    def read(source: Source) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
        return (_read_here if source.dataset is not None else _read_remote)(session, source, how)

    async with aclosing(_ahead(map(read, sources), min(workers, THREADS))) as groups:
        async for group in groups:
            yield group


def read_opened(sources: Sequence[Source], how: Scan) -> Iterator[pa.RecordBatch]:
    """Yields the rows of tables whose datasets are open, as `read_sources` does, in the thread of their reader."""

    def next_group(rows: _Rows) -> tuple[Sequence[pa.RecordBatch], bool]:
        with translate_errors(rows.source.table):
            return rows.next_group()

    waiting = (_Rows(source, how) for source in sources)
    with ThreadPoolExecutor(THREADS, "lance-ns-rows") as pool:
        started = deque((rows, pool.submit(next_group, rows)) for rows in islice(waiting, THREADS))
        try:
            while started:
                rows, future = started.popleft()
                group, there_is_more = future.result()
                if there_is_more:
                    started.appendleft((rows, pool.submit(next_group, rows)))
                else:
                    started.extend((it, pool.submit(next_group, it)) for it in islice(waiting, 1))
                yield from group
        finally:
            for _, future in started:
                future.cancel()


class _Rows:
    """The rows of a table whose dataset is open."""

    def __init__(self, source: Source, how: Scan) -> None:
        self.source = source
        self._how = how
        self._scanned: Iterator[pa.RecordBatch] | None = None
        self._is_filtered = False

    def next_group(self) -> tuple[Sequence[pa.RecordBatch], bool]:
        """Returns a group of batches, and whether there are more."""
        if self._scanned is None:
            self._scanned = self._start()
        work, group, size = under_way(), [], 0
        for batch in self._scanned:
            work.check()
            if (rows := self._how.conform(self.source, batch, is_filtered=self._is_filtered)).num_rows:
                group.append(rows)
                size += rows.nbytes
            if size >= _GROUP_BYTES:
                return group, True
        return group, False

    def _start(self) -> Iterator[pa.RecordBatch]:
        how, columns = self._how, self._how.columns_of(self.source)
        read = partial(scan, self.source.dataset, batch_bytes=_BATCH_BYTES, buffer_bytes=_BUFFER_BYTES)
        if how.filter is not None and how.can_push(self.source):
            try:
                filtered = read([name for name in columns if name in how.schema.names], None, filter=how.filter)
            except (ValueError, NotImplementedError, pa.ArrowException):
                # Lance cannot apply some filters, and none to a table with a column of some types.
                pass
            else:
                self._is_filtered = True
                return filtered
        return read(columns, how.condition)


async def _read_here(session: Session, source: Source, how: Scan) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    rows, there_is_more = _Rows(source, how), True
    while there_is_more:
        with session.operation():
            async with concurrent_changes.explain_conflict(session.backend, source.table):
                group, there_is_more = await in_thread(source.table, rows.next_group)
        if group:
            yield group


async def _read_remote(session: Session, source: Source, how: Scan) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    condition, columns = how.condition, how.columns_of(source)
    types = None if condition is None else condition.types
    is_passed_on = condition is not None and (types is None or has_columns(source.schema, types))
    if condition is not None and types is not None and not is_passed_on:
        columns = [*columns, *(name for name in types.names if name in source.schema.names and name not in columns)]
    # A query needs a column, to count the rows.
    columns = columns or source.schema.names[:1]

    def work(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
        if condition is not None and not is_passed_on:
            batches = [select(condition, batch) for batch in batches]
        return [it for batch in batches if (it := how.conform(source, batch, is_filtered=False)).num_rows]

    scanned = rows.scan_groups(
        session,
        source.table.id,
        columns=columns,
        filter=condition.sql if condition is not None and is_passed_on else None,
        version=source.version,
    )
    async with aclosing(scanned) as groups:
        async for group in groups:
            if selected := await aside(partial(work, group)):
                yield selected


async def _ahead(generators: Iterable[AsyncGenerator[T, None]], count: int) -> AsyncGenerator[T, None]:
    """Yields the items of generators, one generator after another; the next ones get their first item meanwhile."""
    waiting = iter(generators)
    started: deque[tuple[AsyncGenerator[T, None], asyncio.Task[T | None]]] = deque()

    def start(generator: AsyncGenerator[T, None]) -> tuple[AsyncGenerator[T, None], asyncio.Task[T | None]]:
        # No task group, because its scope may not be open while a generator yields.
        return generator, asyncio.create_task(_following(generator))

    try:
        started.extend(map(start, islice(waiting, count)))
        while started:
            generator, task = started[0]
            item = await task
            if item is None:
                started.popleft()
                started.extend(map(start, islice(waiting, 1)))
                continue
            started[0] = start(generator)
            yield item
    finally:
        for _, task in started:
            task.cancel()
        if started:
            await asyncio.wait([task for _, task in started])
        for generator, task in started:
            # An error that nobody reads would be logged.
            if not task.cancelled():
                task.exception()
            await generator.aclose()


async def _following(generator: AsyncGenerator[T, None]) -> T | None:
    return await anext(generator, None)

"""Write of one DataFrame into many tables: one Spark job writes the files, and the driver commits table by table."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace import errors
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.calls.tasks import each
from lance_ns_async.fleet.report import Report, Row
from lance_ns_async.fleet.run import Run, failure_row, start
from lance_ns_async.model import TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.sync import Namespace
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.spark.labels import describe_jobs, label
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.session import context_of
from lance_ns_async.spark.write.groups import INDEX, By, Group, Grouping, Into, name_tables, raise_problems
from lance_ns_async.spark.write.task_writer import COLUMN, Names, tables_writer
from lance_ns_async.spark.write.write import VERBS, Writing, cause_of, check_pandas, interrupting
from lance_ns_async.tables.lifecycle.staging import StagedWrite

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MODES = ("create", "append", "overwrite")

_EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Division:
    """The arguments of a write into many tables; see `LocationResolver.write_many`."""

    by: By
    into: Into
    writing: Callable[[TableId], Writing]
    """Returns the arguments of the write of one table."""
    max_tables: int
    only: Collection[TableId] | None
    max_in_flight: int
    progress: bool | ProgressCallback

    def __post_init__(self) -> None:
        for name, limit in (("max_tables", self.max_tables), ("max_in_flight", self.max_in_flight)):
            if limit < 1:
                raise InvalidInputError(f"{name} {limit}: must be at least 1")


@dataclass(slots=True)
class _Files:
    """What the tasks report of one table."""

    fragments: list[FragmentMetadata] = field(default_factory=list)
    error: LanceNamespaceError | None = None

    @property
    def rows(self) -> int:
        return sum(fragment.physical_rows for fragment in self.fragments)


def write_many(namespace: Namespace, df: DataFrame, division: Division) -> Report:
    """Writes a DataFrame into many tables; see `LocationResolver.write_many`."""
    if df.isStreaming:
        raise InvalidInputError("df: is a stream; write each of its batches with df.writeStream.foreachBatch(...)")
    check_pandas()
    grouping = Grouping(df, division.by)
    context = context_of(df.sparkSession)
    with start("write_many", namespace, progress=division.progress) as run:
        with describe_jobs(context, "lance-ns: count the rows of each table to write"):
            counts = grouping.count(division.max_tables)
        groups = _select(name_tables(counts, division.into), division.only)
        if not groups:
            return run.report()
        write = _ManyTables(namespace, df.schema, division, {it.id: it for it in groups}, len(counts), run)
        write.execute(df, grouping)
        return run.report(frozenset({_EXISTS}))


class _ManyTables:
    """A write under way. Tables leave `staged` when they are committed or abandoned."""

    def __init__(
        self,
        namespace: Namespace,
        frame: StructType,
        division: Division,
        groups: Mapping[TableId, Group],
        values: int,
        run: Run,
    ) -> None:
        self.groups = groups
        self.staged: dict[TableId, StagedWrite] = {}
        self._namespace = namespace
        self._frame = frame
        self._values = values
        self._division = division
        self._run = run
        self._mode = division.writing(next(iter(groups))).mode
        run.expect(len(groups))

    def execute(self, df: DataFrame, grouping: Grouping) -> None:
        files: dict[TableId, _Files] = {}
        self._namespace.run(self._check)
        try:
            self._namespace.run(self._begin)
            if self.staged:
                files = self._write(df, grouping)
            self._namespace.run(partial(self._commit, files=files))
        except (
            BaseException
        ) as error:  # includes KeyboardInterrupt: what is not committed is useless after any exception
            self._namespace.run(partial(self._abandon_all, files=files, error=error))
            if (cause := cause_of(error)) is not None:
                raise cause from error
            raise

    async def _check(self, namespace: AsyncNamespace) -> None:
        problems = []
        catalog = namespace.session.staging()
        by_key: dict[tuple[str, ...], TableId] = {}
        for id in self.groups:
            try:
                catalog.check_new(id)
            except InvalidInputError as e:
                problems.append(str(e))
            other = by_key.setdefault(catalog.backend.capabilities.key(id), id)
            if other != id:
                problems.append(f"{other} and {id} have the same name, because the catalog ignores the case of letters")
        raise_problems(problems)

    async def _begin(self, namespace: AsyncNamespace) -> None:
        """Finds the tables, and declares the missing ones."""
        catalog = namespace.session.staging()
        new = self._division.writing(next(iter(self.groups))).fit(self._frame, None)
        missing: list[TableId] = []

        async def find(id: TableId) -> None:
            try:
                fit = partial(self._fit, id)
                self.staged[id] = await catalog.begin_existing(id, fit, replaces=self._mode == "overwrite")
            except TableNotFoundError:
                missing.append(id)
            except TableAlreadyExistsError as e:
                self._finish(Row(id, _EXISTS, str(e)))
            except LanceNamespaceError as e:
                self._finish(_failure(id, e))

        def record(id: TableId, outcome: StagedWrite | LanceNamespaceError) -> None:
            if isinstance(outcome, StagedWrite):
                self.staged[id] = outcome
                return
            self.staged.pop(id, None)
            exists = isinstance(outcome, TableAlreadyExistsError)
            self._finish(_failure(id, outcome, outcome_word=_EXISTS if exists and self._mode == "create" else None))

        await each(find, self.groups, max_in_flight=self._division.max_in_flight)
        await catalog.declare_many(missing, new, record, max_in_flight=self._division.max_in_flight)

    def _fit(self, id: TableId, dataset: LanceDataset | None) -> pa.Schema:
        if dataset is not None and self._mode == "create":
            raise TableAlreadyExistsError(f"Table already exists: {id} (version {dataset.version}; it is unchanged)")
        return self._division.writing(id).fit(self._frame, dataset)

    def _write(self, df: DataFrame, grouping: Grouping) -> dict[TableId, _Files]:
        """Writes the files of all tables in one Spark job. If the job fails, files of finished tasks are removed."""
        ids = list(self.staged)
        warn_of_expiry([Location.of(it.table, None) for it in self.staged.values()], stacklevel=5)
        context = context_of(df.sparkSession)
        names = None if context is None else context.accumulator([], Names())
        sinks = [self._division.writing(id).sink(self.staged[id]) for id in ids]
        rows = grouping.divide([self.groups[id] for id in ids], partial=len(ids) < self._values)
        tasks = rows.mapInArrow(tables_writer(sinks, INDEX, names), f"{COLUMN} string")
        try:
            with interrupting(context), describe_jobs(context, label(VERBS[self._mode], ids)):
                return _collect(ids, [row[0] for row in tasks.collect()])
        except BaseException as error:
            leftovers = _collect(ids, [] if names is None else names.value)
            self._namespace.run(partial(self._abandon_all, files=leftovers, error=error))
            raise

    async def _commit(self, namespace: AsyncNamespace, files: Mapping[TableId, _Files]) -> None:
        catalog = namespace.session.staging()

        async def commit(id: TableId) -> None:
            staged_write, written = self.staged[id], files.get(id, _Files())
            error = written.error or self._difference(id, written)
            if error is not None:
                await catalog.abandon(staged_write, written.fragments, error)
                del self.staged[id]
                self._finish(_failure(id, error, staged_write))
                return
            # From here on, the commit itself removes what it does not commit.
            del self.staged[id]
            try:
                dataset = await catalog.commit(staged_write, written.fragments)
            except LanceNamespaceError as e:
                self._finish(_failure(id, e, staged_write))
                return
            outcome = "created" if staged_write.dataset is None else _OUTCOMES[self._mode]
            numbers = {"version": dataset.version, "rows": written.rows, "fragments": len(written.fragments)}
            self._run.counters["rows"] += written.rows
            self._finish(Row(id, outcome, location=staged_write.table.location, fields=numbers))

        await each(commit, list(self.staged), max_in_flight=self._division.max_in_flight)

    def _difference(self, id: TableId, written: _Files) -> LanceNamespaceError | None:
        row_count = self.groups[id].rows
        if written.rows == row_count:
            return None
        return InvalidInputError(
            f"table {id}: the DataFrame gave {row_count:,} rows when they were counted, and {written.rows:,} when they "
            "were written; cache it, or make it deterministic"
        )

    async def _abandon_all(
        self, namespace: AsyncNamespace, files: Mapping[TableId, _Files], error: BaseException
    ) -> None:
        catalog = namespace.session.staging()

        async def abandon(id: TableId) -> None:
            await catalog.abandon(self.staged.pop(id), files.get(id, _Files()).fragments, error)

        await each(abandon, list(self.staged), max_in_flight=self._division.max_in_flight)

    def _finish(self, row: Row) -> None:
        self._run.add(row)
        self._run.advance()


_OUTCOMES = {"create": "created", "append": "appended", "overwrite": "replaced"}
"""The outcome of a committed table that had a version before, by mode."""


def _select(groups: Sequence[Group], only: Collection[TableId] | None) -> Sequence[Group]:
    if only is None:
        return groups
    unknown = sorted({*only} - {group.id for group in groups})
    if unknown:
        raise InvalidInputError(f"only: no row of the DataFrame belongs to table {unknown[0]}")
    return [group for group in groups if group.id in only]


def _collect(ids: Sequence[TableId], texts: Sequence[str]) -> dict[TableId, _Files]:
    from lance.fragment import FragmentMetadata

    result: dict[TableId, _Files] = {}
    for text in texts:
        index, metadata, error = json.loads(text)
        files = result.setdefault(ids[index], _Files())
        files.fragments += [FragmentMetadata.from_json(it) for it in metadata]
        if error is not None:
            files.error = files.error or _rebuild(*error)
    return result


def _rebuild(name: str, message: str) -> LanceNamespaceError:
    cls: Any = getattr(errors, name, None)
    is_known = isinstance(cls, type) and issubclass(cls, LanceNamespaceError)
    return cls(message) if is_known else InternalError(message)


def _failure(
    id: TableId, error: LanceNamespaceError, staged_write: StagedWrite | None = None, *, outcome_word: str | None = None
) -> Row:
    row = failure_row(id, error, None if staged_write is None else staged_write.table.location)
    reason = "; ".join([row.reason, *getattr(error, "__notes__", ())])
    return replace(row, reason=reason, outcome=outcome_word or row.outcome)

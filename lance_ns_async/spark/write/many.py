"""Write of one DataFrame into many tables: one Spark job writes the files, and the driver commits table by table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.calls.tasks import each
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import error_about
from lance_ns_async.fleet.run import Report, Run, failure_row, start
from lance_ns_async.lifecycle.staging import StagedWrite
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.session import Delivery, cause_of, context_of, describe_jobs, rebuild
from lance_ns_async.spark.write.groups import INDEX, By, Group, Grouping, Into, name_tables, raise_problems
from lance_ns_async.spark.write.task_writer import COLUMN, tables_writer
from lance_ns_async.spark.write.write import Writing, check_frame, describe_write
from lance_ns_async.sync import Namespace
from lance_ns_async.tabular import Row

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from pyspark.sql import DataFrame

MODES = ("create", "append", "overwrite")

_EXISTS = "exists"


@dataclass(slots=True)
class _Files:
    """What the tasks report of one table."""

    fragments: list[FragmentMetadata] = field(default_factory=list)
    error: err.LanceNamespaceError | None = None

    @property
    def rows(self) -> int:
        return sum(fragment.physical_rows for fragment in self.fragments)


def write_many(
    namespace: Namespace,
    df: DataFrame,
    writing: Writing,
    *,
    by: By,
    into: Into,
    max_tables: int,
    only: Collection[TableId] | None,
    max_in_flight: int,
    progress: bool | ProgressCallback,
) -> Report:
    """Writes a DataFrame into many tables; see `LocationResolver.write_many`."""
    for name, limit in (("max_tables", max_tables), ("max_in_flight", max_in_flight)):
        if limit < 1:
            raise err.InvalidInputError(f"{name} {limit}: must be at least 1")
    check_frame(df)
    grouping = Grouping(df, by)
    with start("write_many", namespace, progress=progress) as run:
        with describe_jobs(context_of(df.sparkSession), "lance-ns: count the rows of each table to write"):
            counts = grouping.count(max_tables)
        groups = {it.id: it for it in _select(name_tables(counts, into), only)}
        if groups:
            run.expect(len(groups))
            _ManyTables(namespace, df, writing, groups, max_in_flight, run).execute(grouping, len(counts))
        return run.report(frozenset({_EXISTS}))


@dataclass(slots=True)
class _ManyTables:
    """A write under way. Tables leave `staged` when they are committed or abandoned."""

    namespace: Namespace
    df: DataFrame
    writing: Writing
    groups: Mapping[TableId, Group]
    max_in_flight: int
    run: Run
    staged: dict[TableId, StagedWrite] = field(default_factory=dict)
    files: dict[TableId, _Files] = field(default_factory=lambda: defaultdict(_Files))

    def execute(self, grouping: Grouping, values: int) -> None:
        self.namespace.run(self._check)
        self.namespace.run(self._create_namespaces)
        try:
            self.namespace.run(self._begin)
            if self.staged:
                self._write(grouping, values)
            self.namespace.run(self._commit)
        except BaseException as error:  # includes KeyboardInterrupt: what is not committed is useless
            self.namespace.run(partial(self._abandon, error=error))
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
            except err.InvalidInputError as e:
                problems.append(str(e))
            other = by_key.setdefault(catalog.backend.capabilities.key(id), id)
            if other != id:
                problems.append(f"{other} and {id} have the same name, because the catalog ignores the case of letters")
        raise_problems(problems)

    async def _create_namespaces(self, namespace: AsyncNamespace) -> None:
        """Creates the namespaces of the tables that do not exist yet."""

        async def create(id: NamespaceId) -> None:
            try:
                if not await namespace.exists(id):
                    await namespace.create_namespace({"id": [*id], "mode": "exist_ok"})
            except err.PermissionDeniedError:
                # Tables may be allowed in it nevertheless; otherwise each table gets its own error.
                return

        await each(create, {id.parent for id in self.groups}, max_in_flight=self.max_in_flight)

    async def _begin(self, namespace: AsyncNamespace) -> None:
        """Finds the tables, and declares the missing ones."""
        catalog = namespace.session.staging()
        mode = self.writing.mode
        schema = self.writing.fit(next(iter(self.groups)), self.df.schema, None)
        missing: list[TableId] = []

        async def find(id: TableId) -> None:
            try:
                fit = partial(self._fit, id)
                self.staged[id] = await catalog.begin_existing(id, fit, replaces=mode == "overwrite")
            except err.TableNotFoundError:
                missing.append(id)
            except err.TableAlreadyExistsError as e:
                self._finish(Row(id, _EXISTS, str(e)))
            except err.LanceNamespaceError as e:
                self._fail(id, e)

        def record(id: TableId, outcome: StagedWrite | err.LanceNamespaceError) -> None:
            if isinstance(outcome, StagedWrite):
                self.staged[id] = outcome
                return
            self.staged.pop(id, None)
            exists = isinstance(outcome, err.TableAlreadyExistsError) and mode == "create"
            self._fail(id, outcome, outcome_word=_EXISTS if exists else None)

        await each(find, self.groups, max_in_flight=self.max_in_flight)
        await catalog.declare_many(missing, schema, record, max_in_flight=self.max_in_flight)

    def _fit(self, id: TableId, dataset: LanceDataset | None) -> pa.Schema:
        if dataset is not None and self.writing.mode == "create":
            raise error_about(err.TableAlreadyExistsError, id, f"version {dataset.version}; it is unchanged")
        return self.writing.fit(id, self.df.schema, dataset)

    def _write(self, grouping: Grouping, values: int) -> None:
        """Writes the files of all tables in one Spark job, and records them, also those of a job that fails."""
        ids, staged = list(self.staged), self.staged.values()
        warn_of_expiry([Location.of(it.table, None) for it in staged], stacklevel=5)
        context = context_of(self.df.sparkSession)
        results = None if context is None else context.accumulator([], Delivery())
        rows = grouping.divide([self.groups[id] for id in ids], partial=len(ids) < values)
        writer = tables_writer([self.writing.sink(it) for it in staged], INDEX, results)
        texts: Sequence[str] = []
        try:
            with describe_write(context, self.writing, ids):
                texts = [row[0] for row in rows.mapInArrow(writer, f"{COLUMN} string").collect()]
        except BaseException:
            texts = [] if results is None else results.value
            raise
        finally:
            self._record(ids, texts)

    def _record(self, ids: Sequence[TableId], texts: Sequence[str]) -> None:
        from lance.fragment import FragmentMetadata

        for index, metadata, error in map(json.loads, texts):
            files = self.files[ids[index]]
            files.fragments += [FragmentMetadata.from_json(it) for it in metadata]
            if error is not None:
                files.error = files.error or rebuild(*error)

    async def _commit(self, namespace: AsyncNamespace) -> None:
        catalog = namespace.session.staging()

        async def commit(id: TableId) -> None:
            staged_write, files = self.staged[id], self.files[id]
            location = staged_write.table.location
            error = files.error or self._difference(id, files)
            if error is not None:
                await catalog.abandon(staged_write, files.fragments, error)
                del self.staged[id]
                self._fail(id, error, location)
                return
            # From here on, the commit itself removes what it does not commit.
            del self.staged[id]
            try:
                dataset = await catalog.commit(staged_write, files.fragments)
            except err.LanceNamespaceError as e:
                self._fail(id, e, location)
                return
            outcome = "created" if staged_write.dataset is None else _OUTCOMES[self.writing.mode]
            numbers = {"version": dataset.version, "rows": files.rows, "fragments": len(files.fragments)}
            self.run.counters["rows"] += files.rows
            self._finish(Row(id, outcome, location=location, fields=numbers))

        await each(commit, list(self.staged), max_in_flight=self.max_in_flight)

    def _difference(self, id: TableId, files: _Files) -> err.LanceNamespaceError | None:
        row_count = self.groups[id].rows
        if files.rows == row_count:
            return None
        return err.InvalidInputError(
            f"table {id}: the DataFrame gave {row_count:,} rows when they were counted, and {files.rows:,} when they "
            "were written; cache it, or make it deterministic"
        )

    async def _abandon(self, namespace: AsyncNamespace, error: BaseException) -> None:
        catalog = namespace.session.staging()

        async def abandon(id: TableId) -> None:
            await catalog.abandon(self.staged.pop(id), self.files[id].fragments, error)

        await each(abandon, list(self.staged), max_in_flight=self.max_in_flight)

    def _fail(
        self,
        id: TableId,
        error: err.LanceNamespaceError,
        location: str | None = None,
        *,
        outcome_word: str | None = None,
    ) -> None:
        row = failure_row(id, error, location)
        reason = "; ".join([row.reason, *getattr(error, "__notes__", ())])
        self._finish(replace(row, reason=reason, outcome=outcome_word or row.outcome))

    def _finish(self, row: Row) -> None:
        self.run.add(row)
        self.run.advance()


_OUTCOMES = {"create": "created", "append": "appended", "overwrite": "replaced"}
"""The outcome of a committed table that had a version before, by mode."""


def _select(groups: Sequence[Group], only: Collection[TableId] | None) -> Sequence[Group]:
    if only is None:
        return groups
    unknown = sorted({*only} - {group.id for group in groups})
    if unknown:
        raise err.InvalidInputError(f"only: no row of the DataFrame belongs to table {unknown[0]}")
    return [group for group in groups if group.id in only]

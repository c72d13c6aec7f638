"""Write of one DataFrame into many tables: one Spark job writes the files, and the driver commits table by table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import lance_namespace.errors as err
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t

from lance_ns_async.calls.tasks import each
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import error_about
from lance_ns_async.fleet.run import Report, Run, failure_row, start
from lance_ns_async.lifecycle.staging import StagedWrite
from lance_ns_async.many.patterns import table_id
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.spark.session import context_of, default_tasks, describe_jobs
from lance_ns_async.spark.tasks import cause_of, collector, rebuild
from lance_ns_async.spark.write.task_writer import COLUMN, tables_writer
from lance_ns_async.spark.write.write import Writing, check_frame, describe_write
from lance_ns_async.sync import Namespace
from lance_ns_async.tabular import Row

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from pyspark.sql import Column, DataFrame

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
                self.run.finish(Row(id, _EXISTS, str(e)))
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
        renewal = self.writing.renewal(staged, self.df.sparkSession, stacklevel=5)
        context = context_of(self.df.sparkSession)
        results = collector(context)
        rows = grouping.divide([self.groups[id] for id in ids], partial=len(ids) < values)
        writer = tables_writer([self.writing.sink(it, renewal) for it in staged], INDEX, results)
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
            self.run.finish(Row(id, outcome, location=location, fields=numbers))

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
        self.run.finish(replace(row, outcome=outcome_word or row.outcome))


_OUTCOMES = {"create": "created", "append": "appended", "overwrite": "replaced"}
"""The outcome of a committed table that had a version before, by mode."""


def _select(groups: Sequence[Group], only: Collection[TableId] | None) -> Sequence[Group]:
    if only is None:
        return groups
    unknown = sorted({*only} - {group.id for group in groups})
    if unknown:
        raise err.InvalidInputError(f"only: no row of the DataFrame belongs to table {unknown[0]}")
    return [group for group in groups if group.id in only]


By: TypeAlias = "str | Column | Sequence[str | Column]"
"""The columns or expressions whose values select the table of a row."""

Into: TypeAlias = str | Iterable[str] | Callable[..., str | Iterable[str]]
"""The namespace of the tables, or a function that returns the id of the table for values of `by`."""

INDEX = "_lance_ns_table"
"""The column with the index of the table of a row."""

ROWS_A_PART = 1024 * 1024
"""Number of rows of one table above which several tasks write it: as many as a file of Lance has by default."""

_PART, _PARTS = "_lance_ns_part", "_lance_ns_parts"
_FORBIDDEN = frozenset("/\\$*?[]")
_LONGEST = 255
_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one table."""

    values: tuple[Any, ...]
    """The values of `by`."""
    id: TableId
    rows: int


class Grouping:
    """The expressions by which a DataFrame is divided."""

    def __init__(self, df: DataFrame, by: By) -> None:
        items: Sequence[str | Column] = by if isinstance(by, list | tuple) else [cast("str | Column", by)]
        if not items:
            raise err.InvalidInputError("by: is empty; use the name of a column, or several")
        unknown = [item for item in items if isinstance(item, str) and item not in df.columns]
        if unknown:
            raise err.InvalidInputError(f"by: {unknown[0]!r} is not a column of the DataFrame")
        self._keys = [f"_lance_ns_by_{n}" for n in range(len(items))]
        self._df = df
        expressions = [_column(item) if isinstance(item, str) else item for item in items]
        pairs = zip(expressions, self._keys, strict=True)
        self._with_keys = df.select("*", *(expression.alias(key) for expression, key in pairs))
        self._fields = [self._with_keys.schema[key] for key in self._keys]
        for n, it in enumerate(self._fields):
            if not isinstance(it.dataType, t.StringType | t.IntegralType | t.BooleanType | t.DateType):
                raise err.InvalidInputError(
                    f"by: item {n + 1} is {it.dataType.simpleString()}, and names of tables are made from string, "
                    "integer, boolean or date; cast it to string"
                )

    def count(self, limit: int) -> Sequence[tuple[tuple[Any, ...], int]]:
        """Returns the values with their number of rows. Runs a Spark job."""
        counts = self._with_keys.groupBy(*self._keys).agg(f.count(f.lit(1))).limit(limit + 1).collect()
        if len(counts) > limit:
            raise err.InvalidInputError(f"by: has more than {limit:,} values, and each is a table; raise max_tables")
        return [(tuple(row)[:-1], row[-1]) for row in counts]

    def divide(self, groups: Sequence[Group], *, partial: bool) -> DataFrame:
        """Returns the rows with the index of their group: those of a group are consecutive in each partition.

        Rows of other groups are omitted if `partial`; otherwise their index is null.
        """
        spark = self._df.sparkSession
        targets = [f"_lance_ns_to_{n}" for n in range(len(self._keys))]
        fields = [t.StructField(name, it.dataType) for name, it in zip(targets, self._fields, strict=True)]
        schema = t.StructType([*fields, t.StructField(INDEX, t.IntegerType()), t.StructField(_PARTS, t.IntegerType())])
        parts = [ceil(group.rows / ROWS_A_PART) for group in groups]
        indexes = spark.createDataFrame([(*group.values, n, parts[n]) for n, group in enumerate(groups)], schema)
        matches = [f.col(key) == f.col(target) for key, target in zip(self._keys, targets, strict=True)]
        with_indexes = self._with_keys.join(f.broadcast(indexes), matches, "inner" if partial else "left")
        # The part of a row depends on its values only, so that a task that is repeated gets the same rows.
        atomic = [_column(it.name) for it in self._df.schema.fields if isinstance(it.dataType, t.AtomicType)]
        part = f.when(f.col(_PARTS) > 1, f.pmod(f.xxhash64(*atomic), f.col(_PARTS))) if atomic else f.lit(0)
        columns = [_column(name) for name in self._df.columns]
        tasks = max(default_tasks(spark), ceil(sum(group.rows for group in groups) / ROWS_A_PART))
        return (
            with_indexes.select(*columns, INDEX, part.alias(_PART))
            .repartition(min(tasks, sum(parts)), INDEX, _PART)
            # Spark sorts with bounded memory, so that a task never holds all rows of a table.
            .sortWithinPartitions(INDEX)
            .drop(_PART)
        )


def name_tables(counts: Sequence[tuple[tuple[Any, ...], int]], into: Into) -> Sequence[Group]:
    """Returns the groups with the ids of their tables, in the order of the ids; `counts` has the rows of each.

    In a namespace, the name of a table is the value, or the values joined by `_`.
    """
    naming = into if callable(into) else _naming(into)
    groups: dict[TableId, Group] = {}
    problems: list[str] = []
    for values, rows in counts:
        problem = _problem_of_values(values)
        if problem is None:
            id = table_id(naming(*values))
            problem = next(filter(None, map(_problem_of_name, id)), None)
            if problem is None and id in groups:
                problem = f"has the same table, {id}, as {_format(groups[id].values)}"
            groups.setdefault(id, Group(values, id, rows))
        if problem is not None:
            problems.append(f"{_format(values)} {problem}")
    raise_problems(problems)
    return [groups[id] for id in sorted(groups)]


def raise_problems(problems: Collection[str]) -> None:
    """Raises InvalidInputError with the first problems, if there is one."""
    if problems:
        first_problems = "; ".join(list(problems)[:_MOST_SHOWN])
        more = f"; and {len(problems) - _MOST_SHOWN:,} more" if len(problems) > _MOST_SHOWN else ""
        raise err.InvalidInputError(
            f"by: {len(problems):,} values cannot be tables, and nothing was written: {first_problems}{more}; "
            "filter the DataFrame, or use another expression"
        )


def _naming(into: str | Iterable[str]) -> Callable[..., TableId]:
    namespace = NamespaceId(into)
    return lambda *values: namespace.table("_".join(map(_name_part, values)))


def _name_part(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _problem_of_values(values: Sequence[Any]) -> str | None:
    if any(value is None for value in values):
        return "is null"
    return "is empty" if any(value == "" for value in values) else None


def _problem_of_name(name: str) -> str | None:
    """Returns what is wrong with a name that comes from data; catalogs have further rules."""
    if name != name.strip() or name in (".", "..") or not name.isprintable() or not _FORBIDDEN.isdisjoint(name):
        return f"gives the name {name[:80]!r}, which is not safe"
    return f"gives a name of more than {_LONGEST} bytes" if len(name.encode()) > _LONGEST else None


def _format(values: Sequence[Any]) -> str:
    texts = [repr(value)[:80] for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _column(name: str) -> Column:
    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")

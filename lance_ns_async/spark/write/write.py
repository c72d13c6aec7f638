"""Write of a DataFrame: executors write the files; the driver declares the table and makes a single commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import (
    InvalidInputError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSchemaValidationError,
)
from pyspark.sql.types import StructField, StructType

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import error_about, nearest, without_source
from lance_ns_async.lifecycle.staging import StagedWrite, Staging
from lance_ns_async.model import TableId
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.resolve.report import WriteReport
from lance_ns_async.spark.session import INTERRUPT, context_of, describe_jobs, label, local_properties
from lance_ns_async.spark.tasks import cause_of, collector
from lance_ns_async.spark.types import arrow_schema, is_list, spark_type
from lance_ns_async.spark.write.task_writer import COLUMN, Sink, fragments_writer
from lance_ns_async.sync import Namespace

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lance_ns_async.spark.renewal import Renew, Renewal

MODES = ("create", "append", "overwrite", "ignore")

VERBS = {"create": "create", "append": "append to", "overwrite": "overwrite", "ignore": "create"}


@dataclass(frozen=True, slots=True)
class Writing:
    """The arguments of a write; see `LocationResolver.write`."""

    mode: str
    schema: pa.Schema | None
    data_storage_version: str | None
    limits: Mapping[str, int | None]
    renew: Renew | None = None
    """Returns what renews the credentials of tables in tasks; None if nobody does."""

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if limit is not None and limit < 1:
                raise InvalidInputError(f"{name} {limit}: must be at least 1; use None for Lance's default")
        if self.schema is not None and self.mode == "append":
            raise InvalidInputError("schema: not allowed with mode 'append', because the table has columns; omit it")

    def fit(self, id: TableId, frame: StructType, dataset: LanceDataset | None) -> pa.Schema:
        """Returns the schema of the files for a DataFrame, and the dataset of the existing table if there is one."""
        columns = frame_schema(frame)
        if dataset is not None and self.mode == "append":
            self._check_version(id, dataset.data_storage_version)
            return schema_for_append(id, columns, dataset.schema)
        schema = schema_for_new(id, columns, self.schema, None if dataset is None else dataset.schema)
        version = self.data_storage_version if dataset is None else dataset.data_storage_version
        check_storable(id, schema, version)
        if dataset is not None:
            self._check_version(id, version)
        return schema

    def renewal(self, staged: Iterable[StagedWrite], spark: SparkSession, *, stacklevel: int) -> Renewal | None:
        """Returns what renews the credentials of tables; without that, warns if they expire soon."""
        locations = [Location.of(it.table, None) for it in staged]
        if self.renew is None:
            warn_of_expiry(locations, stacklevel=stacklevel + 1, remedy="use renew=True")
            return None
        return self.renew(locations, spark) if any(it.expires_at is not None for it in locations) else None

    def sink(self, staged_write: StagedWrite, renewal: Renewal | None) -> Sink:
        """Returns the target and the options for the tasks."""
        limits = {**self.limits, "data_storage_version": self.data_storage_version}
        dataset = staged_write.dataset
        return Sink(
            str(staged_write.table.id),
            staged_write.table.location,
            staged_write.schema,
            version=None if dataset is None or staged_write.replaces else dataset.version,
            replaces=dataset is not None and staged_write.replaces,
            limits={name: value for name, value in limits.items() if value is not None},
            options=staged_write.table.storage_options,
            renewal=renewal,
        )

    def _check_version(self, id: TableId, there: str | None) -> None:
        if self.data_storage_version not in (None, there):
            raise InvalidInputError(
                f"data_storage_version {self.data_storage_version!r}: table {id} has the version {there!r}, which "
                "cannot change; omit it, or drop the table and create it again"
            )


def write(namespace: Namespace, df: DataFrame, id: TableId, writing: Writing) -> WriteReport:
    """Writes a DataFrame to a table; see `LocationResolver.write`."""
    check_frame(df)
    context = context_of(df.sparkSession)
    results = collector(context)
    mode = "create" if writing.mode == "ignore" else writing.mode
    fit = partial(writing.fit, id, df.schema)
    try:
        staged_write = namespace.run(lambda it: it.session.staging().begin(id, mode, fit))
    except TableAlreadyExistsError as e:
        if writing.mode != "ignore":
            raise
        return namespace.run(partial(_describe_existing, id=id, error=e))
    try:
        sink = writing.sink(staged_write, writing.renewal([staged_write], df.sparkSession, stacklevel=3))
        tasks = df.mapInArrow(fragments_writer(sink, results), f"{COLUMN} string")
        with describe_write(context, writing, [id]):
            fragments = _fragments([row[0] for row in tasks.collect()])
    except BaseException as error:  # includes KeyboardInterrupt: the written files are useless after any exception
        leftovers = _fragments([] if results is None else results.value)
        abandon = partial(Staging.abandon, staged_write=staged_write, fragments=leftovers, error=error)
        namespace.run(lambda it: abandon(it.session.staging()))
        if (cause := cause_of(error)) is not None:
            raise cause from error
        raise
    dataset = namespace.run(lambda it: it.session.staging().commit(staged_write, fragments))
    rows = sum(fragment.physical_rows for fragment in fragments)
    return WriteReport(id, staged_write.table.location, dataset.version, rows, len(fragments))


async def _describe_existing(namespace: AsyncNamespace, id: TableId, error: TableAlreadyExistsError) -> WriteReport:
    try:
        table, dataset = await namespace.session.staging().find(id)
    except TableNotFoundError:
        # The error refers to an object that is not a Lance table of the catalog.
        raise error from None
    return WriteReport(id, table.location, None if dataset is None else dataset.version, 0, 0)


def check_frame(df: DataFrame) -> None:
    """Checks that Spark can write a DataFrame."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    if not hasattr(df, "isStreaming"):
        kind = f"{type(df).__module__.partition('.')[0]} {type(df).__name__}"
        raise InvalidInputError(
            f"df: must be a DataFrame of Spark, not a {kind}; use spark.createDataFrame(df) here, or "
            "Namespace.write(id, data) with an Arrow table, without Spark"
        )
    if df.isStreaming:
        raise InvalidInputError("df: is a stream; write each of its batches with df.writeStream.foreachBatch(...)")
    try:
        require_minimum_pandas_version()
    except ImportError as e:
        raise ImportError(f"writing from Spark needs: pip install pandas ({e})") from e


@contextmanager
def describe_write(context: SparkContext | None, writing: Writing, ids: Sequence[TableId]) -> Iterator[None]:
    """Describes the job of a write, whose tasks end at once if it fails: before the driver removes their files."""
    with local_properties(context, {INTERRUPT: "true"}), describe_jobs(context, label(VERBS[writing.mode], ids)):
        yield


def _fragments(texts: Sequence[str]) -> list[FragmentMetadata]:
    from lance.fragment import FragmentMetadata

    return [FragmentMetadata.from_json(text) for text in texts]


_is = pa.types

_ALIKE: Sequence[Callable[[pa.DataType], bool]] = (
    _is.is_integer,
    _is.is_floating,
    _is.is_decimal,
    _is.is_date,
    _is.is_time,
    _is.is_duration,
    lambda it: _is.is_timestamp(it) and it.tz is None,
    lambda it: _is.is_timestamp(it) and it.tz is not None,
    lambda it: _is.is_string(it) or _is.is_large_string(it) or _is.is_string_view(it),
    lambda it: _is.is_binary(it) or _is.is_large_binary(it) or _is.is_fixed_size_binary(it) or _is.is_binary_view(it),
)
"""Groups of types with the same kind of values, but different ranges; a task checks the range of each value."""


def frame_schema(frame: StructType) -> pa.Schema:
    """Returns the Arrow schema of a DataFrame, nullable at every depth, as Spark creates new tables."""
    if not frame.fields:
        raise InvalidInputError("df: has no columns")
    twice = [name for name, count in Counter(frame.names).items() if count > 1]
    if twice:
        raise InvalidInputError(f"df: {frame.names.count(twice[0])} columns are named {twice[0]!r}; rename them")
    fields = {field.name: _arrow(field) for field in frame.fields}
    unfit = [f"{it.name!r} ({it.dataType.simpleString()})" for it in frame.fields if fields[it.name] is None]
    if unfit:
        raise InvalidInputError(f"df: Arrow has no type for {', '.join(unfit)}; cast or drop these columns")
    return pa.schema(fields.values())


def schema_for_append(id: TableId, frame: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Returns the schema of the table if the DataFrame can be appended to it."""
    missing = [name for name in table.names if name not in frame.names]
    extra = [name for name in frame.names if name not in table.names]
    problems = [f"column {name!r} is only in the table" for name in missing]
    for name in extra:
        near = nearest(name, missing)
        problems.append(f"column {name!r} is only in the DataFrame" + (f" (did you mean {near!r}?)" if near else ""))
    problems += _misfits(frame, [field for field in table if field.name in frame.names])
    if problems:
        advice = "select, rename or cast columns of the DataFrame, and use lit(None) for a missing column"
        raise error_about(TableSchemaValidationError, id, f"{', '.join(problems)}; {advice}")
    return table


def schema_for_new(id: TableId, frame: pa.Schema, target: pa.Schema | None, existing: pa.Schema | None) -> pa.Schema:
    """Returns the schema of a new table, or of a version that replaces all rows and columns.

    `target` has the types that the caller has requested for some or all columns. Another column keeps the type that it
    has in the existing table if Spark sees no difference, and else has that of the DataFrame.
    """
    target, existing = target or pa.schema([]), existing or pa.schema([])
    strangers = [name for name in target.names if name not in frame.names]
    if strangers:
        raise InvalidInputError(f"schema: {strangers[0]!r} is not a column of the DataFrame")
    problems = _misfits(frame, target)
    if problems:
        raise error_about(TableSchemaValidationError, id, f"{', '.join(problems)}; cast columns of the DataFrame")
    return pa.schema([_new(field, target, existing) for field in frame])


def check_storable(id: TableId, schema: pa.Schema, data_storage_version: Any) -> None:
    """Checks that Lance can store and read these columns."""
    import lance

    # All columns are nullable here, because Lance refuses some types only if there is a row.
    fields = [field.with_nullable(True) for field in schema]
    row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in fields], schema=pa.schema(fields))
    try:
        lance.write_dataset(row, "memory://", data_storage_version=data_storage_version).to_table()
    except (OSError, ValueError) as e:
        why = " ".join(without_source(str(e)).split("\n", 1)[0].split())
        raise InvalidInputError(f"table {id}: Lance cannot store these columns ({why})") from e


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether values can be cast with the same meaning; single values may still be out of range."""
    if source == target or _is.is_null(source):
        return True
    if _is.is_dictionary(target):
        return fits(source, target.value_type)
    if is_list(source) and is_list(target):
        return fits(source.value_type, target.value_type)
    if _is.is_struct(source) and _is.is_struct(target):
        inside, names = {it.name: it.type for it in source}, [it.name for it in target]
        return sorted(inside) == sorted(names) and all(fits(inside[it.name], it.type) for it in target)
    if _is.is_map(source) and _is.is_map(target):
        return fits(source.key_type, target.key_type) and fits(source.item_type, target.item_type)
    if _is.is_integer(source) and _is.is_floating(target):
        return True
    return any(kind(source) and kind(target) for kind in _ALIKE)


def _arrow(field: StructField) -> pa.Field | None:
    try:
        column_type = spark_type(arrow_schema(StructType([field])).field(0).type)
    except (TypeError, ValueError):
        return None
    return (
        None if column_type is None else arrow_schema(StructType([StructField(field.name, column_type, True)])).field(0)
    )


def _new(field: pa.Field, target: pa.Schema, existing: pa.Schema) -> pa.Field:
    if field.name in target.names:
        return target.field(field.name)
    if field.name in existing.names and spark_type(existing.field(field.name).type) == spark_type(field.type):
        return existing.field(field.name)
    return field


def _misfits(frame: pa.Schema, target: Iterable[pa.Field]) -> list[str]:
    return [
        f"column {field.name!r} is {frame.field(field.name).type} in the DataFrame, but must be {field.type}"
        for field in target
        if not fits(frame.field(field.name).type, field.type)
    ]

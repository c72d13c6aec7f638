"""Write of a DataFrame: executors write the files; the driver declares the table and makes a single commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableAlreadyExistsError, TableNotFoundError

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.lifecycle.staging import StagedWrite, Staging
from lance_ns_async.model import TableId
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.resolve.report import WriteReport
from lance_ns_async.spark.session import (
    INTERRUPT,
    Delivery,
    cause_of,
    context_of,
    describe_jobs,
    label,
    local_properties,
)
from lance_ns_async.spark.write import fitting
from lance_ns_async.spark.write.task_writer import COLUMN, Sink, fragments_writer
from lance_ns_async.sync import Namespace

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MODES = ("create", "append", "overwrite", "ignore")

VERBS = {"create": "create", "append": "append to", "overwrite": "overwrite", "ignore": "create"}


@dataclass(frozen=True, slots=True)
class Writing:
    """The arguments of a write; see `LocationResolver.write`."""

    mode: str
    schema: pa.Schema | None
    data_storage_version: str | None
    limits: Mapping[str, int | None]

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if limit is not None and limit < 1:
                raise InvalidInputError(f"{name} {limit}: must be at least 1; use None for Lance's default")
        if self.schema is not None and self.mode == "append":
            raise InvalidInputError("schema: not allowed with mode 'append', because the table has columns; omit it")

    def fit(self, id: TableId, frame: StructType, dataset: LanceDataset | None) -> pa.Schema:
        """Returns the schema of the files.

        Args:
            id: The table.
            frame: The schema of the DataFrame.
            dataset: The dataset of the existing table; None if there is none.
        """
        columns = fitting.columns(frame)
        if dataset is not None and self.mode == "append":
            self._check_version(id, dataset.data_storage_version)
            return fitting.for_append(id, columns, dataset.schema)
        schema = fitting.for_new(id, columns, self.schema, None if dataset is None else dataset.schema)
        version = self.data_storage_version if dataset is None else dataset.data_storage_version
        fitting.check_storable(id, schema, version)
        if dataset is not None:
            self._check_version(id, version)
        return schema

    def sink(self, staged_write: StagedWrite) -> Sink:
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
    results = None if context is None else context.accumulator([], Delivery())
    mode = "create" if writing.mode == "ignore" else writing.mode
    fit = partial(writing.fit, id, df.schema)
    try:
        staged_write = namespace.run(lambda it: it.session.staging().begin(id, mode, fit))
    except TableAlreadyExistsError as e:
        if writing.mode != "ignore":
            raise
        return namespace.run(partial(_describe_existing, id=id, error=e))
    try:
        warn_of_expiry([Location.of(staged_write.table, None)], stacklevel=3)
        tasks = df.mapInArrow(fragments_writer(writing.sink(staged_write), results), f"{COLUMN} string")
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

"""Write of a DataFrame: executors write the files; the driver declares the table and makes a single commit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace import errors
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableAlreadyExistsError, TableNotFoundError

from lance_ns_async.model import TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.sync import Namespace
from lance_ns_async.spark.environment import environment_error
from lance_ns_async.spark.labels import describe_jobs, label
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.resolve.report import WriteReport
from lance_ns_async.spark.session import context_of
from lance_ns_async.spark.write import fitting
from lance_ns_async.spark.write.task_writer import COLUMN, Names, Sink, fragments_writer
from lance_ns_async.tables.lifecycle.staging import StagedWrite

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MODES = ("create", "append", "overwrite", "ignore")

VERBS = {"create": "create", "append": "append to", "overwrite": "overwrite", "ignore": "create"}

_INTERRUPT = "spark.job.interruptOnCancel"
_OURS = re.compile(r"^(?:lance_namespace\.errors\.)(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Writing:
    """The arguments of one write; see `LocationResolver.write`."""

    id: TableId
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

    def fit(self, frame: StructType, dataset: LanceDataset | None) -> pa.Schema:
        """Returns the schema of the files.

        Args:
            frame: The schema of the DataFrame.
            dataset: The dataset of the existing table; None if there is none.

        Raises:
            InvalidInputError: Columns or options are invalid.
            TableSchemaValidationError: The columns do not match those of the table or of `schema`.
        """
        columns = fitting.columns(frame)
        if dataset is not None and self.mode == "append":
            self._check_version(dataset.data_storage_version)
            return fitting.for_append(self.id, columns, dataset.schema)
        schema = fitting.for_new(self.id, columns, self.schema, None if dataset is None else dataset.schema)
        version = self.data_storage_version if dataset is None else dataset.data_storage_version
        fitting.storable(self.id, schema, version)
        if dataset is not None:
            self._check_version(version)
        return schema

    def sink(self, staged_write: StagedWrite) -> Sink:
        """Returns the target and the options for the tasks."""
        limits = {**self.limits, "data_storage_version": self.data_storage_version}
        dataset = staged_write.dataset
        return Sink(
            str(self.id),
            staged_write.table.location,
            staged_write.schema,
            version=None if dataset is None or staged_write.replaces else dataset.version,
            replaces=dataset is not None and staged_write.replaces,
            limits={name: value for name, value in limits.items() if value is not None},
            options=staged_write.table.storage_options,
        )

    def _check_version(self, there: str | None) -> None:
        if self.data_storage_version not in (None, there):
            raise InvalidInputError(
                f"data_storage_version {self.data_storage_version!r}: table {self.id} has the version {there!r}, which "
                "cannot change; omit it, or drop the table and create it again"
            )


def write(namespace: Namespace, df: DataFrame, writing: Writing) -> WriteReport:
    """Writes a DataFrame to a table; see `LocationResolver.write`."""
    if df.isStreaming:
        raise InvalidInputError("df: is a stream; write each of its batches with df.writeStream.foreachBatch(...)")
    check_pandas()
    context = context_of(df.sparkSession)
    names = None if context is None else context.accumulator([], Names())
    try:
        staged_write = namespace.run(partial(_begin, writing=writing, frame=df.schema))
    except TableAlreadyExistsError as e:
        if writing.mode != "ignore":
            raise
        return namespace.run(partial(_describe_existing, id=writing.id, error=e))
    try:
        warn_of_expiry([Location.of(staged_write.table, None)], stacklevel=3)
        tasks = df.mapInArrow(fragments_writer(writing.sink(staged_write), names), f"{COLUMN} string")
        with interrupting(context), describe_jobs(context, label(VERBS[writing.mode], [writing.id])):
            fragments = _fragments([row[0] for row in tasks.collect()])
    except BaseException as error:  # includes KeyboardInterrupt: the written files are useless after any exception
        leftovers = _fragments([] if names is None else names.value)
        namespace.run(partial(_abandon, staged_write=staged_write, fragments=leftovers, error=error))
        if (cause := cause_of(error)) is not None:
            raise cause from error
        raise
    dataset = namespace.run(lambda it: it.session.staging().commit(staged_write, fragments))
    rows = sum(fragment.physical_rows for fragment in fragments)
    return WriteReport(writing.id, staged_write.table.location, dataset.version, rows, len(fragments))


async def _begin(namespace: AsyncNamespace, writing: Writing, frame: StructType) -> StagedWrite:
    mode = "create" if writing.mode == "ignore" else writing.mode
    return await namespace.session.staging().begin(writing.id, mode, partial(writing.fit, frame))


async def _abandon(
    namespace: AsyncNamespace, staged_write: StagedWrite, fragments: Sequence[FragmentMetadata], error: BaseException
) -> None:
    await namespace.session.staging().abandon(staged_write, fragments, error)


async def _describe_existing(namespace: AsyncNamespace, id: TableId, error: TableAlreadyExistsError) -> WriteReport:
    try:
        table, dataset = await namespace.session.staging().find(id)
    except TableNotFoundError:
        # The error refers to an object that is not a Lance table of the catalog.
        raise error from None
    return WriteReport(id, table.location, None if dataset is None else dataset.version, 0, 0)


def check_pandas() -> None:
    """Raises ImportError if pandas, which Spark needs for writes, is not installed."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    try:
        require_minimum_pandas_version()
    except ImportError as e:
        raise ImportError(f"writing from Spark needs: pip install pandas ({e})") from e


@contextmanager
def interrupting(context: SparkContext | None) -> Iterator[None]:
    """Makes tasks of a failed job end at once, so that they remove their files before the driver does the cleanup."""
    if context is None:
        yield
        return
    before = context.getLocalProperty(_INTERRUPT)
    context.setLocalProperty(_INTERRUPT, "true")
    try:
        yield
    finally:
        context.setLocalProperty(_INTERRUPT, before)  # type: ignore[arg-type]  # None removes it


def _fragments(texts: Sequence[str]) -> list[FragmentMetadata]:
    from lance.fragment import FragmentMetadata

    return [FragmentMetadata.from_json(text) for text in texts]


def cause_of(error: BaseException) -> Exception | None:
    """Returns the error of a writer task, or of an unsuitable environment, that made a job fail; None for others."""
    return _task_error(error) or environment_error(error)


def _task_error(error: BaseException) -> LanceNamespaceError | None:
    """Returns the error that a writer task raised; None if the job failed otherwise, as in a function of the user."""
    match = _OURS.search(str(error))
    cls: Any = None if match is None else getattr(errors, match["name"], None)
    if match is None or not (isinstance(cls, type) and issubclass(cls, LanceNamespaceError)):
        return None
    original: LanceNamespaceError = cls(match["message"])
    for note in getattr(error, "__notes__", ()):
        original.add_note(note)
    return original

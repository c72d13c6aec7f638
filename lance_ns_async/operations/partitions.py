"""The operations on partitioned namespaces, and the dataset of a partitioned table."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.calls.tasks import each
from lance_ns_async.lifecycle import creating
from lance_ns_async.model import Partition, Table, TableId
from lance_ns_async.operations import rows
from lance_ns_async.operations.tables import drop_table
from lance_ns_async.session import Session, traced
from lance_ns_async.spec.arrow_json import arrow_schema, json_schema
from lance_ns_async.spec.partitions import Partitioning, PartitionSpec, with_field_ids
from lance_ns_async.storage import arrow, datasets, fields
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.sql_bounds import Texts
from lance_ns_async.storage.threads import aside

if TYPE_CHECKING:
    from lance import LanceDataset


T = TypeVar("T")

_SLICE_BYTES = 64 * 2**20  # Approximate size of the rows that are divided into partitions at a time.

_SLICE_ROWS = 2**16  # Maximum number of rows of a table that are measured at a time.

_TIMES = 3  # Maximum number of attempts to append to partitions that other clients drop at the same time.

_NAMED = 5  # Maximum number of partitions in a note on an error.
_AHEAD = 8  # Number of partitions whose scans begin before they are read, because each of them waits for its storage.


@contextmanager
def _operation(session: Session, name: str) -> Iterator[None]:
    with session.operation():
        if not session.backend.capabilities.has_partitions:
            raise err.UnsupportedOperationError(
                f"Not supported: {name} (only a directory catalog has partitions; connect with 'dir')"
            )
        yield


async def partition_by(session: Session, by: Any, *, schema: pa.Schema | None = None) -> PartitionSpec:
    if (
        isinstance(by, str | Mapping)
        or not isinstance(by, Sequence)
        or not all(isinstance(it, str | Mapping) for it in by)
    ):
        raise err.InvalidInputError(f"by {by!r}: must be a list of partition fields, such as ['day(at)', 'region']")
    if schema is not None:
        schema = await aside(lambda: _checked(schema))
    with _operation(session, "partition_by"):
        return await session.backend.partition_by(schema, by)


def _checked(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with ids of its columns; raises InvalidInputError if it cannot be that of partitions."""
    from lance_ns_async.operations.partition_pruning import check_condition

    if not isinstance(schema, pa.Schema):
        raise err.InvalidInputError(f"schema {type(schema).__name__}: must be a pyarrow.Schema")
    fields.check_columns(schema.names, "schema")
    if len(set(schema.names)) < len(schema.names):
        raise err.InvalidInputError("schema: two columns have the same name")
    check_condition("true", schema)
    schema = with_field_ids(schema)
    for field, stored in zip(schema, arrow_schema(json_schema(schema)), strict=True):
        if field.type != stored.type:
            raise err.InvalidInputError(
                f"schema: the spec cannot store the type {field.type} of {field.name!r}; use {stored.type}"
            )
    return schema


@traced
async def list_partitions(session: Session, where: str | None = None) -> list[Partition]:
    return (await _select(session, where))[1]


async def _select(
    session: Session, where: str | None, *, is_certain: bool = False
) -> tuple[Partitioning, list[Partition]]:
    """Returns the schema and the specs, and the partitions that may have rows which match a condition.

    Args:
        session: The session with the catalog.
        where: The condition; None for all partitions.
        is_certain: Whether only partitions are returned all of whose rows match.
    """
    if not isinstance(where, str | None):
        raise err.InvalidInputError(f"where {where!r}: must be a condition in SQL, as text")
    with _operation(session, "partitions"):
        partitioning = await session.backend.partitioning()
        keep = None
        if where is not None:
            # The import of its parser takes 0.2 s.
            from lance_ns_async.operations import partition_pruning

            prune = partition_pruning.must_match if is_certain else partition_pruning.may_match
            keep = partial(prune, where)
            await session.check_sql(Texts({"where": where}))
            await aside(lambda: partition_pruning.check_condition(where, partitioning.schema))
        partitions = await session.backend.partitions(keep)
    return partitioning, sorted(partitions, key=_by_values)


def _by_values(partition: Partition) -> tuple[Any, ...]:
    # Nulls are last.
    return partition.spec_version, *((1,) if value is None else (0, value) for value in partition.values.values())


@traced
async def write_partitions(session: Session, data: Any, *, max_in_flight: int | None = None) -> Mapping[TableId, int]:
    workers = session.workers(max_in_flight)
    with _operation(session, "write_partitions"):
        partitioning = await session.backend.partitioning()
    source = await aside(lambda: arrow.readable(data))
    slices = _slices(source, partitioning.schema)
    counts: dict[TableId, int] = {}
    while (part := await aside(lambda: next(slices, None))) is not None:
        await _write_slice(session, partitioning, part, counts, workers)
    return counts


async def _write_slice(
    session: Session, partitioning: Partitioning, part: pa.Table, counts: dict[TableId, int], workers: int
) -> None:
    """Appends rows to their partitions, and counts them; raises the first error after all partitions were tried."""
    from lance_ns_async.operations.partition_values import divide

    spec = partitioning.specs[-1]
    values, parts = await aside(lambda: divide(partitioning, spec, part))
    # Rows that were written are let go at once: cycles of references would keep them for several slices.
    remaining = dict(enumerate(parts))
    del parts
    errors: dict[TableId, err.LanceNamespaceError] = {}
    dropped: dict[TableId, err.LanceNamespaceError] = {}

    async def append(numbered: tuple[int, Table]) -> None:
        number, table = numbered
        try:
            with session.operation():
                await rows.append(session, table, remaining[number])
        except err.TableNotFoundError as e:
            dropped[table.id] = e
            return
        except err.LanceNamespaceError as e:
            errors[table.id] = e
            # A new partition without rows is removed if that is possible; one that is left has no effect.
            with suppress(err.LanceNamespaceError), session.operation():
                if await datasets.is_only_declared(table):
                    await creating.undo_declaration(session.backend, table, e)
        else:
            counts[table.id] = counts.get(table.id, 0) + remaining[number].num_rows
        del remaining[number]

    for _ in range(_TIMES):
        numbers = list(remaining)
        with session.operation():
            tables = await session.backend.add_partitions(spec, values.take(numbers))
        dropped.clear()
        await each(append, zip(numbers, tables, strict=True), max_in_flight=workers)
        # Other clients dropped the remaining partitions meanwhile.
        if not remaining:
            break
    errors.update(dropped)
    if errors:
        error = _first(errors, f"{sum(counts.values()):,} rows were appended to {len(counts):,} partitions")
        error.add_note("all later rows were not appended either")
        raise error


def _first(errors: Mapping[TableId, err.LanceNamespaceError], done: str) -> err.LanceNamespaceError:
    """Returns the first error, with a note about what was done and what was not."""
    error = next(iter(errors.values()))
    some = ", ".join(map(str, list(errors)[:_NAMED])) + (", ..." if len(errors) > _NAMED else "")
    error.add_note(f"{done}, but {len(errors):,} partitions failed: {some}")
    return error


@traced
async def drop_partitions(session: Session, where: str, *, max_in_flight: int | None = None) -> list[Partition]:
    workers = session.workers(max_in_flight)
    if where is None:
        raise err.InvalidInputError("where: required; 'true' drops all partitions")
    _, partitions = await _select(session, where, is_certain=True)
    errors: dict[TableId, err.LanceNamespaceError] = {}
    dropped: set[TableId] = set()

    async def drop(it: Partition) -> None:
        try:
            # Rows that were added to the table itself may have other values than the partition.
            if await _read(session, it, lambda dataset: dataset.count_rows(where) < dataset.count_rows()):
                return
            await drop_table(session, {"id": list(it.id)})
        except err.TableNotFoundError:
            # Another client has dropped it.
            pass
        except err.LanceNamespaceError as e:
            errors[it.id] = e
            return
        dropped.add(it.id)

    await each(drop, partitions, max_in_flight=workers)
    with session.operation():
        await session.backend.remove_empty_partitions(dropped)
    if errors:
        raise _first(errors, f"{len(dropped):,} partitions were dropped")
    return [it for it in partitions if it.id in dropped]


async def _read(session: Session, partition: Partition, work: Callable[[LanceDataset], T]) -> T | None:
    """Returns the result of `work` on a partition's dataset, at the version to read; None if nothing was written."""
    snapshot = Snapshot(partition.read_version, tag=partition.read_tag, branch=partition.read_branch)
    with suppress(err.TableNotFoundError), session.operation():
        return await session.open_and_run(partition.table, work, snapshot)
    return None


def _slices(data: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the rows in parts, with the columns of the partitions."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        data = data.to_reader(_SLICE_ROWS)
    waiting: list[pa.RecordBatch] = []
    for batch in data if isinstance(data, pa.RecordBatchReader) else data.to_batches():
        waiting.append(batch)
        if sum(it.nbytes for it in waiting) >= _SLICE_BYTES:
            yield _conform(pa.Table.from_batches(waiting), schema)
            waiting = []
    if waiting:
        yield _conform(pa.Table.from_batches(waiting), schema)


def _conform(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with the columns of the partitions, if that changes no value."""
    missing, additional = set(schema.names) - set(part.schema.names), set(part.schema.names) - set(schema.names)
    if missing or additional or len(part.schema) > len(schema):
        raise err.TableSchemaValidationError(
            f"the columns are not those of the partitions: missing {sorted(missing)}, additional {sorted(additional)}"
        )
    part = part.select(schema.names)
    try:
        result = part.cast(schema)
        for name in schema.names:
            source, target = part.schema.field(name).type, schema.field(name).type
            # The cast rounds floats to decimals, and drops time zones.
            is_other_time = pa.types.is_timestamp(source) and source.tz is not None
            if source != target and (is_other_time or not result[name].cast(source).equals(part[name])):
                raise ValueError(f"column {name!r}: {source} would change as {target}; convert it first")
    except (pa.ArrowException, ValueError) as e:
        raise err.TableSchemaValidationError(f"the rows do not fit the columns of the partitions ({e})") from e
    return result


@traced
async def open_partitions(
    session: Session, where: str | None = None, *, max_in_flight: int | None = None
) -> PartitionedDataset:
    partitioning, partitions = await _select(session, where)
    opened = {}

    async def open(it: Partition) -> None:
        if (dataset := await _read(session, it, lambda dataset: dataset)) is not None:
            opened[it.id] = dataset

    await each(open, partitions, max_in_flight=session.workers(max_in_flight))
    ordered = {it.id: opened[it.id] for it in partitions if it.id in opened}
    return PartitionedDataset(partitioning.schema, ordered, where)


async def scan_partitions(
    session: Session, where: str | None = None, *, columns: Sequence[str] | None = None
) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    dataset = await open_partitions(session, where)
    reader = dataset.to_reader(columns)
    while (batch := await aside(lambda: next(reader, None))) is not None:
        yield [batch]


class PartitionedDataset:
    """The rows of partitions that match a condition, at the versions at which they were opened.

    `pyarrow.table` and other tools read it as an Arrow stream. All methods block: use threads in an event loop.
    """

    def __init__(self, schema: pa.Schema, datasets: Mapping[TableId, LanceDataset], where: str | None) -> None:
        self.schema: pa.Schema = schema
        """The columns of all partitions."""
        self.datasets: Mapping[TableId, LanceDataset] = datasets
        """The datasets of the partitions that may have rows which match the condition."""
        self.where: str | None = where
        """The condition of all rows; None for all rows."""

    def __repr__(self) -> str:
        return f"PartitionedDataset of {len(self.datasets):,} partitions, where={self.where!r}"

    def to_reader(self, columns: Sequence[str] | None = None, filter: str | None = None) -> pa.RecordBatchReader:
        """Returns a reader of the rows, one partition after the other.

        Args:
            columns: The names of the columns; None for all.
            filter: A further condition in Lance's SQL; None for none.

        Raises:
            InvalidInputError: There is no such column, or `columns` is empty.
        """
        schema = self._schema_of(columns)

        def begin(dataset: LanceDataset) -> Iterator[pa.RecordBatch]:
            scanner = dataset.scanner(columns=schema.names, filter=self._condition(filter))
            rest = iter(scanner.to_batches())
            # The scan begins with its first batch.
            return chain(list(islice(rest, 1)), rest)

        def batches() -> Iterator[pa.RecordBatch]:
            with ThreadPoolExecutor(_AHEAD) as threads:
                waiting = iter(self.datasets.values())
                begun = deque(threads.submit(begin, dataset) for dataset in islice(waiting, _AHEAD))
                while begun:
                    scan = begun.popleft().result()
                    begun.extend(threads.submit(begin, dataset) for dataset in islice(waiting, 1))
                    for batch in scan:
                        yield batch.cast(schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def to_table(self, columns: Sequence[str] | None = None, filter: str | None = None) -> pa.Table:
        """Returns the rows.

        Args:
            columns: The names of the columns; None for all.
            filter: A further condition in Lance's SQL; None for none.

        Raises:
            InvalidInputError: There is no such column, or `columns` is empty.
        """
        return self.to_reader(columns, filter).read_all()

    def count_rows(self, filter: str | None = None) -> int:
        """Returns the number of rows.

        Args:
            filter: A further condition in Lance's SQL; None for none.
        """
        with ThreadPoolExecutor(_AHEAD) as threads:
            condition = self._condition(filter)
            return sum(threads.map(lambda dataset: dataset.count_rows(condition), self.datasets.values()))

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Returns all rows as an Arrow stream, by the PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        unknown = [name for name in columns if name not in self.schema.names]
        if isinstance(columns, str) or unknown or not columns:
            raise err.InvalidInputError(
                f"columns {columns!r}: must be a list of some of {', '.join(self.schema.names)}"
            )
        return pa.schema([self.schema.field(name) for name in columns])

    def _condition(self, filter: str | None) -> str | None:
        conditions = [text for text in (self.where, filter) if text is not None]
        # A comment may be at the end of a condition.
        return (
            " AND ".join(f"({text}\n)" for text in conditions) if len(conditions) > 1 else next(iter(conditions), None)
        )

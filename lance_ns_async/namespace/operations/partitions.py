"""The operations on partitioned namespaces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableNotFoundError,
    TableSchemaValidationError,
    UnsupportedOperationError,
)

from lance_ns_async.calls.tasks import each
from lance_ns_async.model import Partition, TableId
from lance_ns_async.namespace.operations import rows
from lance_ns_async.namespace.session import Session
from lance_ns_async.spec.arrow_json import arrow_schema, json_schema
from lance_ns_async.spec.partitions import Partitioning, PartitionSpec, with_field_ids
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import aside
from lance_ns_async.tables import arrow
from lance_ns_async.tables.lifecycle import creating
from lance_ns_async.tables.partitioned_dataset import PartitionedDataset
from lance_ns_async.tables.sql_bounds import Texts

_SLICE_BYTES = 64 * 2**20
"""Approximate size of the rows that are divided into partitions at a time."""

_SLICE_ROWS = 2**16
"""Maximum number of rows of a table that are measured at a time."""

_NAMED = 5
"""Maximum number of partitions in a note on an error."""


@contextmanager
def _operation(session: Session, name: str) -> Iterator[None]:
    with session.operation():
        if not session.backend.capabilities.has_partitions:
            raise UnsupportedOperationError(
                f"Not supported: {name} (only a directory catalog has partitions; connect with 'dir')"
            )
        yield


async def partition_by(
    session: Session, by: Sequence[str | Mapping[str, Any]], *, schema: pa.Schema | None = None
) -> PartitionSpec:
    if schema is not None:
        schema = with_field_ids(schema)
        stored = arrow_schema(json_schema(schema))
        if changed := next((name for name in schema.names if stored.field(name).type != schema.field(name).type), None):
            raise InvalidInputError(
                f"schema: the spec cannot store the type {schema.field(changed).type} of {changed!r}; "
                f"use {stored.field(changed).type}"
            )
    with _operation(session, "partition_by"):
        return await session.backend.partition_by(schema, by)


async def list_partitions(session: Session, where: str | None = None) -> list[Partition]:
    return (await _select(session, where))[1]


async def _select(session: Session, where: str | None) -> tuple[Partitioning, list[Partition]]:
    """Returns the schema and the specs, and the partitions that may have rows which match a condition."""
    if not isinstance(where, str | None):
        raise InvalidInputError(f"where {where!r}: must be a condition in SQL, as text")
    with _operation(session, "partitions"):
        partitioning = await session.backend.partitioning()
        keep = None
        if where is not None:
            from lance_ns_async.tables import partition_pruning

            def keep(partitioning: Partitioning, spec: PartitionSpec, values: pa.Table) -> pa.Array:
                return partition_pruning.may_match(where, partitioning, spec, values)

            await session.check_sql(Texts({"where": where}))
            await aside(lambda: partition_pruning.check_condition(where, partitioning.schema))
        partitions = await session.backend.partitions(keep)
    return partitioning, sorted(partitions, key=_by_values)


def _by_values(partition: Partition) -> tuple[Any, ...]:
    # Nulls are last.
    return partition.spec_version, *((1,) if value is None else (0, value) for value in partition.values.values())


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
    from lance_ns_async.tables.partition_values import divide

    spec = partitioning.specs[-1]
    values, groups = await aside(lambda: divide(partitioning, spec, part))
    with session.operation():
        ids = await session.backend.add_partitions(spec, values)
    errors: dict[TableId, LanceNamespaceError] = {}

    async def append(group: tuple[TableId, pa.Table]) -> None:
        id, its_rows = group
        try:
            await rows.write(session, id, its_rows, mode="append")
            counts[id] = counts.get(id, 0) + its_rows.num_rows
        except LanceNamespaceError as e:
            errors[id] = e
            with session.operation():
                # A partition without rows is not left behind.
                await creating.take_back(session.backend, await session.backend.describe_table(id), e)

    await each(append, zip(ids, groups, strict=True), max_in_flight=workers)
    if errors:
        error = next(iter(errors.values()))
        some = ", ".join(map(str, list(errors)[:_NAMED])) + (", ..." if len(errors) > _NAMED else "")
        error.add_note(
            f"and {sum(counts.values()):,} rows were appended to {len(counts):,} partitions, but those of "
            f"{len(errors):,} partitions and all later rows were not: {some}"
        )
        raise error


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
    if sorted(part.schema.names) != sorted(schema.names):
        raise TableSchemaValidationError(
            f"the rows have the columns {part.schema.names}, and the partitions have {schema.names}"
        )
    try:
        return part.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as e:
        raise TableSchemaValidationError(f"the rows do not fit the columns of the partitions ({e})") from e


async def open_partitions(
    session: Session, where: str | None = None, *, max_in_flight: int | None = None
) -> PartitionedDataset:
    partitioning, partitions = await _select(session, where)
    datasets = {}

    async def open(it: Partition) -> None:
        snapshot = Snapshot(it.read_version, tag=it.read_tag, branch=it.read_branch)
        with suppress(TableNotFoundError), session.operation():
            # Otherwise nothing was written to it yet.
            datasets[it.id] = await session.open_and_run(it.table, lambda dataset: dataset, snapshot)

    await each(open, partitions, max_in_flight=session.workers(max_in_flight))
    ordered = {it.id: datasets[it.id] for it in partitions if it.id in datasets}
    return PartitionedDataset(partitioning.schema, ordered, where)


async def scan_partitions(
    session: Session, where: str | None = None, *, columns: Sequence[str] | None = None
) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    dataset = await open_partitions(session, where)
    reader = await aside(lambda: dataset.to_reader(columns))
    while (batch := await aside(lambda: next(reader, None))) is not None:
        yield [batch]

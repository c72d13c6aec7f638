"""Tables of the catalog as datasets that DuckDB scans: only the columns and rows that a query needs are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs

from lance_ns_async.many.scanning import Scan, Source

T = TypeVar("T")
Read = Callable[[Sequence[Source], Scan], Iterator[pa.RecordBatch]]
"""Reads tables in the thread of the query."""


class Relation(pads.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """Tables of one schema as one dataset; `scanner` has the arguments that DuckDB passes."""

    # The class of pyarrow has no constructor, and its other methods are not used.
    def __init__(self, sources: Sequence[Source], scan: Scan, read: Read) -> None:
        self._sources = sources
        self._scan = scan
        self._read = read

    @property
    def schema(self) -> pa.Schema:
        """The columns, with types that DuckDB has."""
        return self._scan.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> Scanner:
        """Returns a scan of some columns and of the rows that a filter selects."""
        names = self.schema.names if columns is None else columns
        schema = pa.schema([self.schema.field(name) for name in names])
        how = replace(self._scan, schema=schema)
        sources = self._sources
        if filter is not None:
            how = replace(how, filter=filter, filter_columns=_columns_of(filter, self.schema))
            if self._scan.table_column is not None and self._scan.table_column in how.filter_columns.names:
                sources = _matching(sources, filter, self.schema, self._scan.table_column)
        return Scanner(schema, lambda: self._read(sources, how))


class Scanner:
    """A scan that DuckDB reads."""

    def __init__(self, schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.projected_schema = schema
        self._read = read

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the rows."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._read())


def _columns_of(filter: pc.Expression, schema: pa.Schema) -> pa.Schema:
    """Returns the columns that a filter may use; pyarrow only tells its text."""
    text = str(filter)
    return pa.schema([it for it in schema if it.name in text])


def _matching(
    sources: Sequence[Source], filter: pc.Expression, schema: pa.Schema, table_column: str
) -> Sequence[Source]:
    """Returns the tables that can have rows for a filter on the column with the id of the table.

    pyarrow knows it of files whose partition has a value of the column; no file is read.
    """
    kind, files = pads.ParquetFileFormat(), pyarrow.fs.LocalFileSystem()
    ids = {
        str(number): kind.make_fragment(
            str(number), files, partition_expression=pc.field(table_column) == str(source.table.id)
        )
        for number, source in enumerate(sources)
    }
    fragments = pads.FileSystemDataset(list(ids.values()), schema, kind, files).get_fragments(filter)
    return [sources[int(fragment.path)] for fragment in fragments]


def with_known_types(schema: pa.Schema) -> pa.Schema:
    """Returns the columns with the types as which DuckDB reads them."""
    return pa.schema([(it.name, known_type(it.type)) for it in schema])


def known_type(type: pa.DataType) -> pa.DataType:
    """Returns the type as which DuckDB reads an Arrow type: those that it has not become wider or texts."""
    match type:
        case _ if pa.types.is_float16(type):
            return pa.float32()
        case pa.Decimal256Type():
            return pa.string()
        case _ if pa.types.is_fixed_size_list(type):
            return pa.list_(known_type(type.value_type), type.list_size)
        case _ if pa.types.is_large_list(type):
            return pa.large_list(known_type(type.value_type))
        case _ if pa.types.is_list(type):
            return pa.list_(known_type(type.value_type))
        case pa.StructType():
            return pa.struct([(it.name, known_type(it.type)) for it in type])
        case pa.MapType():
            return pa.map_(known_type(type.key_type), known_type(type.item_type))
    return type


def in_thread_of_query(
    loop: asyncio.AbstractEventLoop, context: Context, groups: AsyncGenerator[Sequence[pa.RecordBatch], None]
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a generator that runs on the loop, in a thread of DuckDB, which has no context of its own.

    Args:
        loop: The loop of the namespace.
        context: The context of the operation, with its end and the headers of its request.
        groups: Groups of batches.
    """

    async def following() -> Sequence[pa.RecordBatch] | None:
        return await anext(groups, None)

    def start(work: Coroutine[Any, Any, T]) -> Future[T]:
        return context.copy().run(asyncio.run_coroutine_threadsafe, work, loop)

    try:
        while (group := start(following()).result()) is not None:
            yield from group
    finally:
        # A loop that is closed has ended the generator.
        with suppress(RuntimeError):
            start(groups.aclose())

"""The partitions of a namespace, read as one dataset."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId

if TYPE_CHECKING:
    from lance import LanceDataset


_AHEAD = 8
"""Number of partitions whose scans begin before they are read, because each of them waits for its storage."""


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
            raise InvalidInputError(f"columns {columns!r}: must be a list of some of {', '.join(self.schema.names)}")
        return pa.schema([self.schema.field(name) for name in columns])

    def _condition(self, filter: str | None) -> str | None:
        conditions = [text for text in (self.where, filter) if text is not None]
        # A comment may be at the end of a condition.
        return (
            " AND ".join(f"({text}\n)" for text in conditions) if len(conditions) > 1 else next(iter(conditions), None)
        )

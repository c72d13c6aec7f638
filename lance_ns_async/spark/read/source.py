"""Spark data source for many Lance tables. Needs Spark 4.0.

It runs in Spark's Python processes: planning on the driver's host, tasks on executors, where this package must be
installed. It makes no catalog call and does not use the resolver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lance_ns_async.spark.read.plan import Plan, group_entries
from lance_ns_async.spark.read.reading import batches
from lance_ns_async.spark.types import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceWriter, Filter
    from pyspark.sql.types import StructType

NAME = "lance_ns"

OPTION = "secret_plan"
"""The option that contains the plan. Spark redacts options with such names wherever it shows its own plans."""


class LanceTables(DataSource):
    """Data source that reads the tables of a `Plan`, which is encoded in an option."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the data source in Spark; "lance" is the name of the JVM connector."""
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader of the whole plan."""
        # The plan is removed, because Spark pickles the data source into every task and the plan contains secrets.
        plan = Plan.decode(self.options.pop(OPTION))
        return FilteringReader(plan, schema) if plan.pushes_filters else TablesReader(plan, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuses writes, because Spark would commit them in a process without access to the catalog.

        Raises:
            UnsupportedOperationError: Always; the message names `LocationResolver.write`.
        """
        from lance_namespace.errors import UnsupportedOperationError

        raise UnsupportedOperationError(
            f"Not supported: df.write.format({NAME!r}), which has no access to the catalog; "
            "use LocationResolver.write(df, id, mode=...)"
        )


class TablesReader(DataSourceReader):
    """Distributes tables among tasks, and reads the tables of one task."""

    def __init__(self, plan: Plan, schema: StructType) -> None:
        self._plan: Plan | None = plan
        self._schema = arrow_schema(schema)
        self._table_column = plan.table_column
        self._condition: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader into every task, and the partition already contains the entries of the task.
        return {**self.__dict__, "_plan": None}

    def partitions(self) -> list[InputPartition]:
        """Returns one partition per task; a single empty one if filters exclude all tables, because Spark needs one."""
        assert self._plan is not None
        return [InputPartition(group) for group in group_entries(self._plan.entries, self._plan.groups)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the tables of one partition."""
        return batches(partition.value, self._schema, self._table_column, self._condition)


class FilteringReader(TablesReader):
    """Reader with filter push-down.

    It is a separate class for two reasons. Spark refuses a reader with `pushFilters` while push-down is disabled, and
    Spark 4.1 to 4.3 gives every scan of a DataFrame the filters of the scan that was planned last.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accepts the filters that it can apply exactly, and yields the others for Spark."""
        from lance_ns_async.spark.read.filters import LONGEST, MOST, column, keeps, sql

        assert self._plan is not None
        entries = self._plan.entries
        conditions: list[str] = []
        length = 0
        for filter in filters:
            name = column(filter)
            if name is not None and name == self._table_column and keeps(filter, "") is not None:
                entries = [entry for entry in entries if keeps(filter, entry.table)]
            elif (
                len(conditions) < MOST
                and (condition := sql(filter, self._plan.filterable)) is not None
                and length + len(condition) <= LONGEST
            ):
                conditions.append(condition)
                length += len(condition)
            else:
                yield filter
        self._plan = replace(self._plan, entries=entries)
        self._condition = " AND ".join(conditions) or None

"""One Spark data source over many Lance tables. Needs Spark 4.0.

Runs in Spark's own Python processes, the planning one on the driver's host and the tasks on executors, where
this package must be installed. It makes no catalog call and knows nothing of the resolver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lance_ns_async.spark.read.plan import Plan, grouped
from lance_ns_async.spark.read.reading import batches
from lance_ns_async.spark.types import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceWriter, Filter
    from pyspark.sql.types import StructType

NAME = "lance_ns"

OPTION = "secret_plan"
"""What the plan comes in. Spark redacts options named like secrets wherever it shows a plan of its own."""


class LanceTables(DataSource):
    """Reads the tables of a `Plan`, which comes encoded in an option."""

    @classmethod
    def name(cls) -> str:
        """What Spark knows it by; "lance" is the name of the JVM connector."""
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the whole plan."""
        # The data source is pickled into every task, and the plan with its secrets is not every task's business.
        plan = Plan.decode(self.options.pop(OPTION))
        return FilteringReader(plan, schema) if plan.pushes_filters else TablesReader(plan, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises UnsupportedOperationError: Spark would have it commit where the catalog is out of reach."""
        from lance_namespace.errors import UnsupportedOperationError

        raise UnsupportedOperationError(
            f"Not supported: df.write.format({NAME!r}), which knows no catalog; "
            "use LocationResolver.write(df, id, mode=...)"
        )


class TablesReader(DataSourceReader):
    """Shares tables out among tasks, and in a task reads that task's."""

    def __init__(self, plan: Plan, schema: StructType) -> None:
        self._plan: Plan | None = plan
        self._schema = arrow_schema(schema)
        self._table_column = plan.table_column
        self._condition: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader into every task; a task's own entries come in its partition.
        return {**self.__dict__, "_plan": None}

    def partitions(self) -> list[InputPartition]:
        """A partition a task; one without tables where filters left none, because Spark wants at least one."""
        assert self._plan is not None
        return [InputPartition(group) for group in grouped(self._plan.entries, self._plan.groups)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition's tables."""
        return batches(partition.value, self._schema, self._table_column, self._condition)


class FilteringReader(TablesReader):
    """One that takes filters.

    A class apart for two reasons: Spark refuses it while push-down is switched off, and Spark 4.1 to 4.3 gives
    every scan of a DataFrame the filters of the scan planned last.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes the filters it can apply exactly, and leaves the others to Spark."""
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

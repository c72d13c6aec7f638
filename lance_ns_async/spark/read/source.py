"""The Python data source that reads many tables, which needs Spark 4.0.

Spark's Python processes import this module, so this package must be installed there. It makes no catalog call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lance_ns_async.spark.read.reading import Plan, batches, group_entries
from lance_ns_async.spark.types import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceWriter
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

    def schema(self) -> str:
        """Returns an arbitrary schema if the modules that tasks need can be imported; there is no plan in this case."""
        import lance  # noqa: F401
        import pyarrow  # noqa: F401

        return "id int"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader of the whole plan."""
        # The plan is removed, because Spark pickles the data source into every task and the plan contains secrets.
        if OPTION not in self.options:
            from lance_namespace.errors import UnsupportedOperationError

            raise UnsupportedOperationError(
                f"Not supported: spark.read.format({NAME!r}), which has no access to the catalog; "
                "use LocationResolver.prefetch(...).dataframe(spark)"
            )
        plan = Plan.decode(self.options.pop(OPTION))
        return TablesReader(plan, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuses writes, because Spark would commit them in a process without access to the catalog."""
        from lance_namespace.errors import UnsupportedOperationError

        raise UnsupportedOperationError(
            f"Not supported: df.write.format({NAME!r}), which has no access to the catalog; "
            "use LocationResolver.write(df, id, mode=...)"
        )


def named(name: str) -> type[DataSource]:
    """Returns the data source with another name."""

    class NamedTables(LanceTables):
        """The data source with another name; Spark pickles it by value."""

        @classmethod
        def name(cls) -> str:
            return name

    return NamedTables


class TablesReader(DataSourceReader):
    """Distributes tables among tasks, and reads the tables of one task.

    It has no `pushFilters`: Spark 4.1 to 4.3 keeps pushed filters once for each DataFrame, not for each query, so a
    second query would lack rows. The filter of the plan is the same for all queries.
    """

    def __init__(self, plan: Plan, schema: StructType) -> None:
        self._plan = plan
        self._schema = arrow_schema(schema)

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader into every task, and the partition already contains the entries of the task.
        return {**self.__dict__, "_plan": replace(self._plan, entries=())}

    def partitions(self) -> list[InputPartition]:
        """Returns one partition per task."""
        return [InputPartition(group) for group in group_entries(self._plan.entries, self._plan.groups)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the tables of one partition."""
        return batches(self._plan, self._schema, partition.value)

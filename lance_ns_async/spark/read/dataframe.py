"""Construction of one DataFrame from many tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lance_namespace.errors import InvalidInputError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.spark.read.plan import Entry, Plan, group_entries
from lance_ns_async.spark.read.reading import batches, plans_reader
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.resolve.prefetch import open_tables
from lance_ns_async.spark.resolve.report import one_error
from lance_ns_async.spark.session import check_session, context_of, default_tasks, label, one_task_each
from lance_ns_async.spark.types import arrow_schema
from lance_ns_async.storage.opening import Opener

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceWriter
    from pyspark.sql.types import StructType

    from lance_ns_async.spark.read.schemas import Unify


_MOST_NAMES = 100
"""Maximum number of names under which a session gets the data source; Spark keeps them until the session ends."""

_MOST_SESSIONS = 1000  # Maximum number of sessions of an application in which the data source has a name.

_names_by_session: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""The registered names of the data source by labels; Spark warns of each repeated registration of a name."""


def build_dataframe(
    locations: Collection[Location],
    spark: SparkSession,
    columns: Collection[str] | None = None,
    partitions: int | None = None,
    table_column: str | None = "_table",
    *,
    filter: str | None = None,
    unify: Unify = "strict",
) -> DataFrame:
    """Builds a DataFrame of one or more tables; see `Locations.dataframe`."""
    from lance_ns_async.spark.read.schemas import common

    check_session(spark)
    if partitions is not None and partitions < 1:
        raise InvalidInputError(f"partitions {partitions}: must be at least 1")
    tables = pin(locations)
    shared, condition = common(tables, columns, filter=filter, unify=unify, table_column=table_column or None)
    schema = _with_table_column(shared, table_column)
    warn_of_expiry(tables, stacklevel=3)
    plan = Plan(
        [_entry(location) for location in tables], partitions or default_tasks(spark), table_column or None, condition
    )
    name = label("read", [location.id for location in locations])
    if int(spark.version.partition(".")[0]) < 4:
        return by_map_in_arrow(spark, plan, schema, name)
    return by_data_source(spark, plan, schema, name)


def by_data_source(spark: SparkSession, plan: Plan, schema: StructType, name: str) -> DataFrame:
    """Returns a DataFrame that reads the plan with a Python data source of this name, which needs Spark 4.0.

    The name is that of the scan in Spark's user interface.
    """
    from lance_ns_async.spark.read.dataframe import NAME, OPTION

    names = _names_by_session.setdefault(spark, {})
    if not names:
        # Users may write to this name; the data source refuses this with a remedy.
        names[NAME] = _register(spark, NAME)
        if context_of(spark) is None:
            _check_server(spark, names[NAME])
    if len(names) >= _MOST_NAMES and name not in names:
        name = NAME
    if name not in names:
        names[name] = _register(spark, name)
    return spark.read.format(names[name]).schema(schema).option(OPTION, plan.encode()).load()


def _register(spark: SparkSession, name: str) -> str:
    """Registers the data source under this name, or one with a number, and returns the registered name.

    Spark refuses a name that another session of the application has, but does not find it in this session.
    """
    from pyspark.errors import AnalysisException

    from lance_ns_async.spark.read.dataframe import named

    for free in (name, *(f"{name} ({number})" for number in range(2, _MOST_SESSIONS + 1))):
        try:
            spark.dataSource.register(named(free))
        except AnalysisException as e:
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(e):
                raise
        else:
            return free
    raise InvalidInputError(f"{_MOST_SESSIONS} sessions of this application read tables; use one of these sessions")


def _check_server(spark: SparkSession, name: str) -> None:
    """Makes a Spark Connect server start its Python, which otherwise fails in the first query."""
    from pyspark.errors import PySparkException

    from lance_ns_async.spark.session import environment_error

    try:
        _ = spark.read.format(name).load().schema
    except PySparkException as e:
        if (environment := environment_error(e)) is not None:
            raise environment from e
        raise


def by_map_in_arrow(spark: SparkSession, plan: Plan, schema: StructType, name: str) -> DataFrame:
    """Returns a DataFrame that reads the plan with `mapInArrow`, for Spark before 4.0.

    It needs pandas.
    """
    from lance_ns_async.spark.types import arrow_schema

    tasks = one_task_each(spark, [part.encode() for part in plan.split()])
    return tasks.mapInArrow(plans_reader(arrow_schema(schema), name), schema)


def pin(locations: Collection[Location]) -> Sequence[Location]:
    """Returns the locations with their versions; opens the datasets of those that are not pinned yet."""
    tables = [location.table() for location in locations if location.schema is None]
    if not tables:
        return list(locations)
    loop, opener = BackgroundLoop.lease(), Opener()
    try:
        result = loop.run(open_tables(opener, tables))
    finally:
        loop.release()
        opener.close()
    if result.errors:
        raise one_error(list(result.errors.values()), of=len(locations))
    now = {table.id: Location.of(table, result.tables[table.id]) for table in tables}
    return [now.get(location.id, location) for location in locations]


def _with_table_column(schema: StructType, table_column: str | None) -> StructType:
    if not table_column:
        if not schema.fields:
            raise InvalidInputError("columns []: must not be empty without a table_column")
        return schema
    # Spark ignores the case of column names.
    clash = [name for name in schema.names if name.casefold() == table_column.casefold()]
    if clash:
        raise InvalidInputError(
            f"table_column {table_column!r}: the tables have a column {clash[0]!r}; "
            "set another name with table_column=..., or None for no such column"
        )
    return schema.add(table_column, "string", nullable=True)


def _entry(location: Location) -> Entry:
    assert location.version is not None and location.rows is not None and location.fragments is not None
    return Entry(
        str(location.id),
        location.location,
        location.version,
        location.rows,
        location.fragments,
        location.storage_options,
    )


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
        return batches(partition.value, self._schema, self._plan.table_column, self._plan.condition)

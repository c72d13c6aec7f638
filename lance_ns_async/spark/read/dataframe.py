"""Construction of one DataFrame from many tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.many.schemas import Reader, common, with_table_column
from lance_ns_async.model import TableId
from lance_ns_async.spark.read.reading import Entry, Plan, plans_reader
from lance_ns_async.spark.renewal import Renewal
from lance_ns_async.spark.resolve.location import REFRESH, Location, warn_of_expiry
from lance_ns_async.spark.resolve.prefetch import open_tables
from lance_ns_async.spark.resolve.report import one_error
from lance_ns_async.spark.session import (
    check_partitions,
    check_session,
    context_of,
    default_tasks,
    label,
    one_task_each,
)
from lance_ns_async.spark.tasks import environment_error
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.scanning import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lance_ns_async.many.schemas import Unify

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
    renewal: Renewal | None = None,
) -> DataFrame:
    """Builds a DataFrame of one or more tables; see `Locations.dataframe`."""
    check_session(spark)
    check_partitions(partitions)
    tables = pin(locations)
    schema, condition = common_columns(tables, columns, filter=filter, unify=unify, table_column=table_column)
    if renewal is None:
        warn_of_expiry(tables, stacklevel=3, remedy=f"use renew=True, or {REFRESH}")
    entries, groups = [_entry(location) for location in tables], partitions or default_tasks(spark)
    plan = Plan(entries, groups, table_column or None, condition, renewal)
    name = label("read", [location.id for location in locations])
    if int(spark.version.partition(".")[0]) < 4 or _is_in_batch(spark):
        return by_map_in_arrow(spark, plan, schema, name)
    return by_data_source(spark, plan, schema, name)


def common_columns(
    locations: Iterable[Location],
    columns: Collection[str] | None,
    *,
    filter: str | None = None,
    unify: Unify = "strict",
    table_column: str | None = None,
) -> tuple[StructType, Condition | None]:
    """Returns the columns of the DataFrame of pinned tables, and the checked filter; see `Locations.dataframe`."""
    from lance_ns_async.spark.types import spark_type, struct_type

    reader = Reader(
        "read each kind separately with locations.select(...)",
        "use locations.select(...) or locations.where(...) to read fewer tables",
        "Spark",
        has=lambda type: spark_type(type) is not None,
        ignores_case=True,
    )
    schema, condition = common(
        schemas_of(locations), columns, reader, filter=filter, unify=unify, table_column=table_column or None
    )
    return struct_type(with_table_column(schema, table_column, reader)), condition


def by_data_source(spark: SparkSession, plan: Plan, schema: StructType, name: str) -> DataFrame:
    """Returns a DataFrame that reads the plan with a Python data source of this name, which needs Spark 4.0.

    The name is that of the scan in Spark's user interface.
    """
    from lance_ns_async.spark.read.source import NAME, OPTION

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


def _is_in_batch(spark: SparkSession) -> bool:
    """Returns whether a stream calls this thread, whose session has no data source registered after its start."""
    context = context_of(spark)
    return context is not None and context.getLocalProperty("sql.streaming.queryId") is not None


def _register(spark: SparkSession, name: str) -> str:
    """Registers the data source under this name, or one with a number, and returns the registered name.

    Spark refuses a name that another session of the application has, but does not find it in this session.
    """
    from pyspark.errors import AnalysisException

    from lance_ns_async.spark.read.source import named

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

    try:
        _ = spark.read.format(name).load().schema
    except PySparkException as e:
        if (environment := environment_error(e)) is not None:
            raise environment from e
        raise


def by_map_in_arrow(spark: SparkSession, plan: Plan, schema: StructType, name: str) -> DataFrame:
    """Returns a DataFrame that reads the plan with `mapInArrow`, for Spark before 4.0 and in streams; needs pandas."""
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


def schemas_of(locations: Iterable[Location]) -> Iterator[tuple[TableId, pa.Schema]]:
    """Yields the pinned tables with their columns."""
    for location in locations:
        assert location.schema is not None
        yield location.id, location.schema


def _entry(location: Location) -> Entry:
    it = location
    assert it.version is not None and it.rows is not None and it.fragments is not None
    return Entry(str(it.id), it.location, it.version, it.rows, it.fragments, it.storage_options)

"""Temporary views over located tables, for those who write SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId
from lance_ns_async.spark.read.dataframe import build_dataframe
from lance_ns_async.spark.read.unions import union, warn_of_chains
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.resolve.location_map import LocationMap
from lance_ns_async.spark.resolve.patterns import table_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = "lance"
"""What Spark knows the JVM connector by."""


def views(
    spark: SparkSession,
    locations: LocationMap,
    *,
    name: Callable[[TableId], str] = "_".join,
    connector: bool | None = None,
) -> Views:
    """A temporary view for each table, at its pinned version, until they are closed.

    `name` gives a view's name for an id; the default joins the id's names by `_`. `connector` says who reads: the
    JVM connector, which must be on the class path, or this package's own data source, where one DataFrame is made
    for each table; None takes the connector where there is one. No catalog call is made, then or later.

    Raises InvalidInputError, and leaves no view behind, where a table is not pinned, two views would have the same
    name, or there is a view of that name already.
    """
    named = _named(locations, name)
    made = Views(spark, locations, named)
    try:
        made._create(connector)
    except BaseException:  # a key, too, may end it, and some of the views are there
        made.close()
        raise
    if made.connector:
        warn_of_expiry(locations.values(), stacklevel=2)
    return made


class Views(Mapping[TableId, str]):
    """Temporary views by the ids of their tables: each is a name, quoted for SQL. Closing drops them."""

    def __init__(self, spark: SparkSession, locations: LocationMap, named: Mapping[TableId, str]) -> None:
        self.connector = False
        """Whether the JVM connector reads them."""
        self._spark = spark
        self._locations = locations
        self._named = named
        self._frames: dict[TableId, DataFrame] = {}

    def sql(self, query: str) -> DataFrame:
        """What `spark.sql` gives; warns of a chain of more than 200 unions, which Spark is slow to plan."""
        warn_of_chains(query, stacklevel=2)
        return self._spark.sql(query)

    def union(self, table_column: str | None = "_table") -> DataFrame:
        """All rows of all views as one DataFrame, with a column that holds the table's id as `dataframe` has it.

        With the connector a balanced union; without, one data source that reads all, as many cost a start each.
        """
        if not self.connector:
            return build_dataframe(self._locations, self._spark, table_column=table_column)
        if not table_column:
            return union(self._frames.values())
        from pyspark.sql.functions import lit

        return union(frame.withColumn(table_column, lit(str(id))) for id, frame in self._frames.items())

    def close(self) -> None:
        """Drops the views; DataFrames that were made of them go on working. May be called twice."""
        while self._frames:
            id, _ = self._frames.popitem()
            self._spark.catalog.dropTempView(self._named[id])

    def __getitem__(self, id: str | Sequence[str]) -> str:
        try:
            return quoted(self._named[table_id(id)])
        except (InvalidInputError, TypeError) as e:
            raise KeyError(id) from e

    def __iter__(self) -> Iterator[TableId]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def __repr__(self) -> str:
        return f"Views({list(self.values())})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _create(self, connector: bool | None) -> None:
        """Makes the views; whether there is a connector only its first use can tell."""
        self.connector = connector is not False
        for id, at in self._locations.items():
            try:
                self._add(id, at)
            except _spark_errors() as e:
                if "DATA_SOURCE_NOT_FOUND" not in str(e) or self._frames or not self.connector:
                    raise
                if connector:
                    raise InvalidInputError(
                        f"views: the session has no data source {CONNECTOR!r}; put the connector's jars on the class "
                        "path when Spark starts, or leave connector= out"
                    ) from e
                self.connector = False
                self._add(id, at)

    def _add(self, id: TableId, at: Location) -> None:
        frame = self._frame(at)
        try:
            frame.createTempView(quoted(self._named[id]))
        except _spark_errors() as e:
            if "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS" not in str(e):
                raise
            raise InvalidInputError(
                f"views: there is a temporary view {quoted(self._named[id])} already; drop it, or give other names "
                "with name=..."
            ) from e
        self._frames[id] = frame

    def _frame(self, at: Location) -> DataFrame:
        if not self.connector:
            return build_dataframe(LocationMap([at], self._locations.report), self._spark, table_column=None)
        # `versionAsOf` is an option that the connector takes and does not heed.
        reader = self._spark.read.format(CONNECTOR).option("version", str(at.version))
        return reader.options(**(at.storage_options or {})).load(at.location)


def quoted(name: str) -> str:
    """The name as Spark's SQL takes it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def _named(locations: LocationMap, name: Callable[[TableId], str]) -> Mapping[TableId, str]:
    named = {id: name(id) for id in locations}
    seen: dict[str, TableId] = {}
    for id, chosen in named.items():
        # Spark tells no view apart by case.
        other = seen.setdefault(chosen.casefold(), id)
        if other is not id:
            raise InvalidInputError(
                f"views: {other} and {id} would both be {quoted(chosen)}; give names that differ with name=..."
            )
        if not chosen:
            raise InvalidInputError(f"views: the name for {id} is empty")
        if locations[id].version is None:
            raise InvalidInputError(f"views: {id} is not pinned to a version; prefetch it with pin_versions=True")
    return named


def _spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises: its own errors, and what came from the JVM without being one."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException

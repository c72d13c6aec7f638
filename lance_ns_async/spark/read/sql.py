"""Temporary views of resolved tables for SQL, and the union of many DataFrames."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import suggest
from lance_ns_async.many.patterns import table_id
from lance_ns_async.model import TableId
from lance_ns_async.spark.read.dataframe import build_dataframe
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_SUCH_TABLE = re.compile(r"TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+) cannot be found")

CONNECTOR = "lance"
"""The name of the JVM connector's data source in Spark."""
MANY = 200
"""Maximum number of branches of a chain of unions without a warning; longer chains take seconds or minutes to plan."""

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | [()] | \bUNION\b""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


def views(
    spark: SparkSession,
    locations: Mapping[TableId, Location],
    *,
    name: Callable[[TableId], str] = "_".join,
    connector: bool | None = None,
) -> Views:
    """Creates a temporary view for each table, at its pinned version.

    Args:
        spark: The Spark session.
        locations: The tables, which must be pinned.
        name: Returns the name of the view for a table id; the default joins the names of the id by `_`.
        connector: True to read with the JVM connector, which must be on the class path; False to read with this
            package's data source, one DataFrame for each table; None for the connector if there is one.

    Returns:
        The views, which exist until they are closed.

    Raises:
        InvalidInputError: A table is not pinned, a name is empty, used twice or already that of a view, or there is no
            connector although it is requested. No view is left behind.

    Cost:
        No catalog call, also not in queries.
    """
    view_names = _named(locations, name)
    check_session(spark)
    result = Views(spark, locations, view_names, connector)
    if result.connector:
        warn_of_expiry(locations.values(), stacklevel=2)
    return result


class Views(Mapping[TableId, str]):
    """Mapping from table ids to the names of temporary views, quoted for SQL. Closing it drops the views."""

    def __init__(
        self,
        spark: SparkSession,
        locations: Mapping[TableId, Location],
        named: Mapping[TableId, str],
        connector: bool | None,
    ) -> None:
        self.connector: bool = False
        """Whether the JVM connector reads the views."""
        self._spark = spark
        self._locations = locations
        self._named = named
        self._frames: dict[TableId, DataFrame] = {}
        try:
            self._create(connector)
        except BaseException:  # includes KeyboardInterrupt: the views created so far must be dropped
            self.close()
            raise

    def sql(self, query: str) -> DataFrame:
        """Returns the result of `spark.sql`; warns if the query unites more than 200 branches in a chain.

        Spark is slow to plan such a chain; `union` is faster.

        Args:
            query: A query that uses the view names of this mapping.

        Raises:
            InvalidInputError: The query names a table that is neither one of the views nor another table of Spark.
            pyspark.errors.PySparkException: Spark rejects the query.
        """
        from pyspark.errors import AnalysisException

        warn_of_chains(query, stacklevel=2)
        try:
            return self._spark.sql(query)
        except AnalysisException as e:
            if (unknown := _NO_SUCH_TABLE.search(str(e))) is None:
                raise
            there_is = suggest(unknown[1].replace("`", ""), self._named.values(), most=5)
            raise InvalidInputError(
                f"sql: there is no table or view {unknown[1]}, {there_is}; "
                "a table needs a prefetch before its view can be created"
            ) from None

    def union(self, table_column: str | None = "_table") -> DataFrame:
        """Returns all rows of all views as one DataFrame.

        With the connector this is a balanced union. Otherwise one data source reads all tables, because each data
        source starts a process.

        Args:
            table_column: The name of an additional column with the table id, as in `Locations.dataframe`; None or ""
                for no such column.

        Raises:
            InvalidInputError: There is no table, or without the connector the tables cannot be read together.
        """
        if self._frames and not self.connector:
            return build_dataframe(self._locations.values(), self._spark, table_column=table_column)
        if not table_column:
            return union(self._frames.values())
        from pyspark.sql.functions import lit

        return union(frame.withColumn(table_column, lit(str(id))) for id, frame in self._frames.items())

    def close(self) -> None:
        """Drops the views; DataFrames made from them remain usable. Repeated calls have no effect."""
        while self._frames:
            id, _ = self._frames.popitem()
            self._spark.catalog.dropTempView(self._named[id])

    def __getitem__(self, id: str | Sequence[str]) -> str:
        try:
            return quote(self._named[table_id(id)])
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
        """Creates the views; only the first use of the connector shows whether it exists."""
        self.connector = connector is not False
        for id, at in self._locations.items():
            try:
                self._add(id, at)
            except _spark_errors() as e:
                if "DATA_SOURCE_NOT_FOUND" not in str(e) or self._frames or not self.connector:
                    raise
                if connector:
                    raise InvalidInputError(
                        f"views: the session has no data source {CONNECTOR!r}; start Spark with "
                        "local_spark(connector=True), or omit connector="
                    ) from e
                self.connector = False
                self._add(id, at)

    def _add(self, id: TableId, at: Location) -> None:
        frame = self._frame(at)
        try:
            frame.createTempView(quote(self._named[id]))
        except _spark_errors() as e:
            if "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS" not in str(e):
                raise
            raise InvalidInputError(
                f"views: a temporary view {quote(self._named[id])} already exists; drop it, or set other names "
                "with name=..."
            ) from e
        self._frames[id] = frame

    def _frame(self, at: Location) -> DataFrame:
        if not self.connector:
            return build_dataframe([at], self._spark, table_column=None)
        # The connector accepts the option `versionAsOf`, but ignores it.
        reader = self._spark.read.format(CONNECTOR).option("version", str(at.version))
        return reader.options(**(at.storage_options or {})).load(at.location)


def quote(name: str) -> str:
    """Returns the name as a quoted identifier of Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def _named(locations: Mapping[TableId, Location], name: Callable[[TableId], str]) -> Mapping[TableId, str]:
    named = {id: name(id) for id in locations}
    ids_by_name: dict[str, TableId] = {}
    for id, view_name in named.items():
        # Spark ignores the case of view names.
        other = ids_by_name.setdefault(view_name.casefold(), id)
        if other is not id:
            raise InvalidInputError(
                f"views: {other} and {id} would both be {quote(view_name)}; set different names with name=..."
            )
        if not view_name:
            raise InvalidInputError(f"views: the name for {id} must not be empty")
        if locations[id].version is None:
            raise InvalidInputError(f"views: {id} is not pinned to a version; prefetch it with pin_versions=True")
    return named


def _spark_errors() -> tuple[type[Exception], ...]:
    """Returns the error classes that Spark raises: its own, and the one for other errors from the JVM."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException


def union(frames: Iterable[DataFrame], *, allow_missing_columns: bool = False) -> DataFrame:
    """Returns all rows of all DataFrames, united pairwise as a balanced tree, with columns matched by name.

    In contrast, `functools.reduce(DataFrame.union, frames)` is a chain, which Spark analyses again at each step.

    Args:
        frames: The DataFrames; the first one determines the order of the columns.
        allow_missing_columns: Whether a DataFrame may lack a column, which is null for its rows.

    Raises:
        InvalidInputError: There is no DataFrame.
        pyspark.errors.AnalysisException: The columns do not match.
    """
    level = list(frames)
    if not level:
        raise InvalidInputError("union: no DataFrames; pass at least one")
    while len(level) > 1:
        halves = zip(level[::2], level[1::2], strict=False)
        pairs = [left.unionByName(right, allowMissingColumns=allow_missing_columns) for left, right in halves]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def branches(query: str) -> int:
    """Returns the number of branches of the longest chain of unions in a query; parentheses begin a separate chain."""
    chains = [1]
    longest = 1
    for token in _TOKEN.findall(query):
        match token.upper():
            case "(":
                chains.append(1)
            case ")" if len(chains) > 1:
                chains.pop()
            case "UNION":
                chains[-1] += 1
                longest = max(longest, chains[-1])
    return longest


def warn_of_chains(query: str, *, stacklevel: int) -> None:
    """Warns if a query unites more than `MANY` branches in a chain; `stacklevel` 1 refers to the caller."""
    if (count := branches(query)) > MANY:
        warnings.warn(
            f"a union of {count} branches in a chain takes planning time that grows with the square of their number: "
            "use the union of these views, or write it as a tree, (a UNION ALL b) UNION ALL (c UNION ALL d)",
            stacklevel=stacklevel + 1,
        )

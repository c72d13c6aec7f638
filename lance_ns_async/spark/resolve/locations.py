"""The result of a resolver: locations of tables, with methods for Spark, Arrow and JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Self

from lance_ns_async.spark.resolve.location_map import LocationMap

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lance_ns_async.model import TableId
    from lance_ns_async.spark.read.difference import Difference
    from lance_ns_async.spark.read.schemas import Unify
    from lance_ns_async.spark.serve.endpoint import CatalogService
    from lance_ns_async.spark.serve.upstream import Resolver


class Locations(LocationMap):
    """Immutable mapping from table ids to locations, in the order of the request.

    A key is a TableId, a sequence of names, or a string as in `LocationResolver.prefetch`. The KeyError of a table
    that was requested and not resolved contains the reason. Pickles and the forms in JSON, Arrow and Spark do not
    contain the storage options by default.
    """

    __slots__ = ()

    def dataframe(
        self,
        spark: SparkSession,
        columns: Collection[str] | None = None,
        partitions: int | None = None,
        table_column: str | None = "_table",
        *,
        filter: str | None = None,
        unify: Unify = "strict",
    ) -> DataFrame:
        """Returns all rows of all tables, at their pinned versions, as one DataFrame.

        The DataFrame keeps the storage options of these locations, and a warning is issued if they expire soon. Build
        a new DataFrame from the result of `LocationResolver.refresh` before they expire.

        Args:
            spark: The Spark session.
            columns: The columns to read; None for all. Spark itself does not prune columns here.
            partitions: The maximum number of tasks; None for four per core, but at most one per fragment.
            table_column: The name of an additional column with the table id, its names joined by `$`; None or "" for
                no such column.
            filter: A condition in Lance's SQL, such as `amount > 1 AND s = 'x'`; None for all rows. Lance applies it in
                each scan, so that it saves reading, and it holds for every query of the DataFrame. It may use columns
                that are not in `columns`, but not `table_column`: use `select` and `where` to read fewer tables. Its
                meaning is that of Lance, which differs from Spark in some respects: a quotient of integers is an
                integer, a division by zero is an error, a literal must have the type of its column
                (`date '2024-01-31'`), and a NaN whose sign bit is set is the smallest number, not the largest.
            unify: "strict" if the tables must have the same columns. "by_name" to read the columns of all tables: they
                are null for a table without them, and types are widened where that loses no value, as from int32 to
                int64. The filter then also sees these nulls and types.

        Returns:
            The requested columns in their order, or all columns in the order of a table with the most common columns,
            with those of other tables after them, and then `table_column`. All of them are nullable.

        Raises:
            InvalidInputError: There is no table, the tables have different columns or types that cannot be unified,
                Spark or Lance cannot read a column, the filter is invalid or uses an unknown column, or another
                argument is invalid. Raised before any Spark job.
            LanceNamespaceError: A table could not be opened; the class is that of the first such error.

        Cost:
            No catalog call. One open of the dataset for each table that is not pinned yet.
        """
        from lance_ns_async.spark.read.dataframe import build_dataframe

        return build_dataframe(self, spark, columns, partitions, table_column, filter=filter, unify=unify)

    def differences(self, columns: Collection[str] | None = None) -> Mapping[TableId, Difference]:
        """Returns the tables whose columns differ from those of most tables, and how.

        Column order and differences that Spark does not see, such as string and large_string, do not count.

        Args:
            columns: The columns to compare; None for all.

        Returns:
            A mapping from the ids of the differing tables to their differences; empty if `dataframe` can read all
            tables without `unify`.

        Raises:
            InvalidInputError: No table has one of the `columns`.
            LanceNamespaceError: A table could not be opened; the class is that of the first such error.

        Cost:
            No catalog call. One open of the dataset for each table that is not pinned yet. It needs PySpark.
        """
        from lance_ns_async.spark.read.dataframe import pin
        from lance_ns_async.spark.read.schemas import differences

        return differences(pin(self), columns)

    def serve(
        self, spark: SparkSession, catalog: str = "lance", *, resolver: Resolver | None = None
    ) -> AbstractContextManager[CatalogService]:
        """Serves these tables to Spark's Lance connector as a catalog while the context is open.

        SQL names a table as `catalog.namespace.table`. All queries and DataFrame actions must run inside the context,
        because Spark requests the table again for each action. Spark reads the latest version of a table unless the
        query has `VERSION AS OF`. The connector must be on Spark's class path and the driver must be this process, so
        Spark Connect is not supported.

        Args:
            spark: The Spark session.
            catalog: The name of the catalog in SQL.
            resolver: A LocationResolver with a Namespace. It handles requests for other tables, listings and changes;
                None to support only these tables.

        Returns:
            A context manager whose value counts the requests.

        Raises:
            InvalidInputError: On entering the context: the session cannot use the connector, the name is invalid or
                in use, or the resolver has an AsyncNamespace.

        Cost:
            No catalog call for these tables until their storage options expire, and none from executors. Other requests
            cost the calls of `resolver`.
        """
        from lance_ns_async.spark.serve import endpoint

        return endpoint.serve(self, spark, catalog, resolver)

    def to_arrow(self, *, secrets: bool = False) -> pa.Table:
        """Returns an Arrow table with one row for each table.

        Args:
            secrets: Whether to add a column with the storage options.

        Returns:
            The columns `id`, `names`, `location`, `version`, `rows`, `fragments` and `expires_at`; with `secrets` also
            `storage_options`.
        """
        from lance_ns_async.spark.resolve import serialize

        return serialize.to_arrow(self, secrets=secrets)

    def to_dataframe(self, spark: SparkSession, *, secrets: bool = False) -> DataFrame:
        """Returns a DataFrame with one row for each table; `dataframe` returns the rows of the tables themselves.

        Args:
            spark: The Spark session.
            secrets: Whether to add a column with the storage options.

        Returns:
            The same columns as those of `to_arrow`.
        """
        from lance_ns_async.spark.resolve import serialize

        return serialize.to_dataframe(self, spark, secrets=secrets)

    def to_json(self, *, secrets: bool = False) -> str:
        """Returns the locations and the report as one JSON object.

        Args:
            secrets: Whether to include the storage options.

        Returns:
            A text for `from_json`.
        """
        from lance_ns_async.spark.resolve import serialize

        return serialize.to_json(self, secrets=secrets)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the locations from the output of `to_json`.

        Args:
            text: The output of `to_json`.

        Raises:
            InvalidInputError: The text is not output of `to_json`.
        """
        from lance_ns_async.spark.resolve import serialize

        return serialize.from_json(text, cls)

"""Where tables are and how to read them: what a resolver hands to Spark, and to anything else."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Self

from lance_ns_async.spark.resolve.location_map import LocationMap

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lance_ns_async.spark.serve.endpoint import Served
    from lance_ns_async.spark.serve.upstream import Resolver


class Locations(LocationMap):
    """The locations of many tables, by their ids and in the order they were asked for.

    Immutable. Pickle, JSON, Arrow and Spark's form leave the storage options out unless they are asked for.
    Looked up by a TableId, by a sequence of names, or by a string as `prefetch` takes it; the KeyError of one that was
    itself asked for in vain says why.
    """

    __slots__ = ()

    def dataframe(
        self,
        spark: SparkSession,
        columns: Collection[str] | None = None,
        partitions: int | None = None,
        table_column: str | None = "_table",
        *,
        push_filters: bool = False,
    ) -> DataFrame:
        """All rows of all tables, at their pinned versions, as one DataFrame.

        `columns` are read and no others; Spark itself leaves out none, so name them. `partitions` is how many
        tasks read, None being 4 a core or one a fragment, whichever is fewer. `table_column` is a column with
        the table's id, its names joined by `$`; None or "" for none.

        `push_filters` applies simple filters while reading. Only for a DataFrame that one query reads, and once:
        a second reading could lack rows.

        Tables that are not pinned yet are opened for it. Where the tables do not have the same columns, or Spark
        has no type for one, it raises InvalidInputError before any job. Storage options freeze with the
        DataFrame: before they expire, build a new one from what `LocationResolver.refresh` gives.
        """
        from lance_ns_async.spark.read.dataframe import build_dataframe

        return build_dataframe(self, spark, columns, partitions, table_column, push_filters=push_filters)

    def serve(
        self, spark: SparkSession, catalog: str = "lance", *, resolver: Resolver | None = None
    ) -> AbstractContextManager[Served]:
        """Gives Spark's Lance connector a catalog of these tables, under that name, while the context is open.

        SQL then names them as `catalog.namespace.table`, and planning it costs no call to the real catalog. Only with
        a `resolver` is that asked, about any other table and to list or change something. Queries must run inside
        the context, DataFrames too: Spark asks again for each action. It reads the latest version of a table, unless
        told another by `VERSION AS OF`.

        Wants the connector on Spark's class path and a driver in this process, so not Spark Connect; executors ask
        nothing. Raises InvalidInputError where that is not so, or Spark has another catalog of this name.
        """
        from lance_ns_async.spark.serve import endpoint

        return endpoint.serve(self, spark, catalog, resolver)

    def to_arrow(self, *, secrets: bool = False) -> pa.Table:
        """A row a table; `secrets` adds the storage options."""
        from lance_ns_async.spark.resolve import serialize

        return serialize.to_arrow(self, secrets=secrets)

    def to_dataframe(self, spark: SparkSession, *, secrets: bool = False) -> DataFrame:
        """A row a table, in Spark; for the tables' own rows see `dataframe`."""
        from lance_ns_async.spark.resolve import serialize

        return serialize.to_dataframe(self, spark, secrets=secrets)

    def to_json(self, *, secrets: bool = False) -> str:
        """Everything as one JSON object, the report included."""
        from lance_ns_async.spark.resolve import serialize

        return serialize.to_json(self, secrets=secrets)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote; raises InvalidInputError for anything else."""
        from lance_ns_async.spark.resolve import serialize

        return serialize.from_json(text, cls)

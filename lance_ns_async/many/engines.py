"""Opened tables for the engines of other libraries: a lazy frame of Polars, and a view of DuckDB."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

from lance_ns_async.engine.results import BulkResult
from lance_ns_async.many.scanning import Scan, Source, read_opened
from lance_ns_async.many.schemas import Reader, Unify, common, with_table_column
from lance_ns_async.model import Table

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection
    from lance import LanceDataset

    from lance_ns_async.many.relations import Relation


Dataset: TypeAlias = "LanceDataset"
"""As text, because pylance is imported only when a dataset is opened."""


@dataclass(frozen=True, slots=True, repr=False)
class OpenedTables(BulkResult[Dataset]):
    """Datasets of pylance, each at the version at which it was opened."""

    def polars(
        self, *, columns: Collection[str] | None = None, unify: Unify = "strict", table_column: str | None = "_table"
    ) -> pl.LazyFrame:
        """Returns the rows of all tables as one lazy frame of Polars.

        A query reads the columns that it needs. Lance applies comparisons of columns with whole numbers, texts,
        booleans and dates that are joined by `&`; a comparison of the column with the table id leaves out tables.

        Args:
            columns: The names of the columns; None for all.
            unify: "strict" if the tables must have the same columns. "by_name" for the columns of all tables: they are
                null for a table without them, and types are widened where that loses no value.
            table_column: The name of an additional column with the table id, its names joined by `$`; None for no such
                column.

        Raises:
            LanceNamespaceError: The first error of a table that could not be opened.
            InvalidInputError: There is no table, the columns cannot be unified, or Polars has not the type of one.
            UnsupportedOperationError: Polars is too old.

        Cost:
            No remote call; those of a query when the frame is collected.
        """
        try:
            from polars.io.plugins import register_io_source
        except ImportError as e:
            raise UnsupportedOperationError("Not supported: polars() needs: pip install 'polars>=1.30'") from e
        from lance_ns_async.many.polars_source import PolarsSource, has_type, polars_types

        reader = Reader("open the tables of each kind by a call of their own", "open fewer tables", "Polars", has_type)
        schema = self._schema(reader, columns, unify, table_column)
        source = PolarsSource(self._relation(schema, table_column))
        return register_io_source(source.read, schema=polars_types(schema))

    def duckdb(
        self, connection: DuckDBPyConnection, name: str, *, unify: Unify = "strict", table_column: str | None = "_table"
    ) -> None:
        """Registers the rows of all tables as a view of DuckDB, of which Lance reads only what a query needs.

        Types that DuckDB does not have become others: float16 becomes float, decimals of more than 38 digits texts.

        Args:
            connection: The connection of DuckDB.
            name: The name of the view in this connection.
            unify: See `polars`.
            table_column: See `polars`; a condition on it leaves out tables.

        Raises:
            LanceNamespaceError: The first error of a table that could not be opened.
            InvalidInputError: There is no table, or the columns cannot be unified.

        Cost:
            No remote call; those of each query when it runs.
        """
        # It loads pyarrow's datasets, which nothing else needs.
        from lance_ns_async.many.relations import with_known_types

        separately = "register the tables of each kind under a name of their own"
        reader = Reader(separately, "register fewer tables", "DuckDB", ignores_case=True)
        schema = with_known_types(self._schema(reader, None, unify, table_column))
        connection.register(name, self._relation(schema, table_column))

    def _relation(self, schema: pa.Schema, table_column: str | None) -> Relation:
        from lance_ns_async.many.relations import Relation

        sources = [Source(Table(id, it.uri), it.schema, it.version, it) for id, it in self.tables.items()]
        return Relation(sources, Scan(schema, table_column or None), read_opened)

    def _schema(
        self, reader: Reader, columns: Collection[str] | None, unify: Unify, table_column: str | None
    ) -> pa.Schema:
        self.raise_for_errors()
        if not self.tables:
            raise InvalidInputError(f"{reader.name}: there are no tables, and therefore no columns")
        schemas = [(id, dataset.schema) for id, dataset in self.tables.items()]
        schema, _ = common(schemas, columns, reader, unify=unify)
        return with_table_column(schema, table_column, reader)

"""Opened tables for the engines of other libraries: a lazy frame of Polars, and a view of DuckDB."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

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


Dataset: TypeAlias = "LanceDataset"


@dataclass(frozen=True, slots=True, repr=False)
class OpenedTables(BulkResult[Dataset]):
    """Datasets of pylance, each at the version at which it was opened."""

    def polars(
        self, *, columns: Collection[str] | None = None, unify: Unify = "strict", table_column: str | None = "_table"
    ) -> pl.LazyFrame:
        """Returns the rows of all tables as one lazy frame of Polars, which reads only what a query needs.

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
            import polars as pl

            scan = pl.scan_lance
        except (ImportError, AttributeError) as e:
            raise UnsupportedOperationError("Not supported: polars() needs: pip install 'polars>=2.1'") from e
        reader = Reader(
            "open the tables of each kind by a call of their own", "open fewer tables", "Polars", _in_polars
        )
        schema = self._schema(reader, columns, unify, table_column)
        types = _polars_types(schema)
        frames = []
        for id, dataset in self.tables.items():
            own = _polars_types(pa.schema([it for it in dataset.schema if it.name in schema.names]))
            values = []
            for name, type in types.items():
                if name == table_column:
                    value = pl.lit(str(id), type).alias(name)
                elif name not in own:
                    value = pl.lit(None, type).alias(name)
                else:
                    value = pl.col(name) if own[name] == type else pl.col(name).cast(type)
                values.append(value)
            # Without a version, Polars reads the latest one.
            frames.append(scan(dataset, version=dataset.version).select(values))
        return pl.concat(frames)

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
        from lance_ns_async.many.relations import Relation, with_known_types

        separately = "register the tables of each kind under a name of their own"
        reader = Reader(separately, "register fewer tables", "DuckDB", ignores_case=True)
        schema = with_known_types(self._schema(reader, None, unify, table_column))
        sources = [Source(Table(id, it.uri), it.schema, it.version, it) for id, it in self.tables.items()]
        connection.register(name, Relation(sources, Scan(schema, table_column or None), read_opened))

    def _schema(
        self, reader: Reader, columns: Collection[str] | None, unify: Unify, table_column: str | None
    ) -> pa.Schema:
        self.raise_for_errors()
        if not self.tables:
            raise InvalidInputError(f"{reader.name}: there are no tables, and therefore no columns")
        schemas = [(id, dataset.schema) for id, dataset in self.tables.items()]
        schema, _ = common(schemas, columns, reader, unify=unify)
        return with_table_column(schema, table_column, reader)


def _polars_types(schema: pa.Schema) -> Mapping[str, Any]:
    import polars as pl

    return pl.DataFrame(schema.empty_table()).schema


def _in_polars(type: pa.DataType) -> bool:
    import polars as pl

    try:
        pl.DataFrame(pa.schema([("a", type)]).empty_table())
    except (pl.exceptions.PolarsError, pa.ArrowException, TypeError, ValueError, NotImplementedError):
        return False
    return True

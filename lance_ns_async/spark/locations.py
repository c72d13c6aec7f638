"""The result of a resolver: locations of tables, with methods for Spark, Arrow and JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.many.patterns import Selection, What, table_id
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import DENIED, FAILED, MISSING, counted
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.report import PrefetchReport, Problem
from lance_ns_async.spark.session import check_partitions, check_session
from lance_ns_async.tabular import Subject, html_rows

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

    from lance_ns_async.many.engines import OpenedTables
    from lance_ns_async.many.row_results import RankedRows
    from lance_ns_async.many.schemas import Difference, Unify
    from lance_ns_async.spark.renewal import Renew, Renewal
    from lance_ns_async.spark.serve import CatalogService, Resolver

_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("names", pa.list_(pa.string()), nullable=False),
        pa.field("location", pa.string(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("fragments", pa.int64()),
        pa.field("expires_at", pa.timestamp("us", tz="UTC")),
    ]
)
_SECRETS = pa.field("storage_options", pa.map_(pa.string(), pa.string()))
_DDL = (
    "id string, names array<string>, location string, version bigint, rows bigint, fragments bigint, "
    "expires_at timestamp"
)


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Locations(Mapping[TableId, Location]):
    """Immutable mapping from table ids to locations, in the order of the request.

    A key is a TableId, a sequence of names, or a string as in `LocationResolver.prefetch`. The KeyError of a table
    that was requested and not resolved contains the reason. Pickles and the forms in JSON, Arrow and Spark do not
    contain the storage options by default.
    """

    report: PrefetchReport
    """The report of the request, with everything that was not resolved."""
    _by_id: Mapping[TableId, Location]
    _reasons: Mapping[TableId, str]
    """The reasons why requested tables were not resolved."""
    _carries_secrets: bool
    _renew: Renew | None
    """Returns what renews the credentials of some tables; None in another process than that of the resolver."""

    def __init__(
        self,
        locations: Iterable[Location],
        report: PrefetchReport,
        *,
        carries_secrets: bool = False,
        renew: Renew | None = None,
    ) -> None:
        # Namespaces are left out, because a namespace and a table with the same names are equal keys.
        reasons = {problem.subject: problem.reason for problem in report.problems if type(problem.subject) is TableId}
        object.__setattr__(self, "report", report)
        object.__setattr__(self, "_by_id", {location.id: location for location in locations})
        object.__setattr__(self, "_reasons", reasons)
        object.__setattr__(self, "_carries_secrets", carries_secrets)
        object.__setattr__(self, "_renew", renew)

    def __getitem__(self, id: str | Iterable[str]) -> Location:
        try:
            key = table_id(id)
        except (InvalidInputError, TypeError) as e:
            # An invalid id is no key of the mapping, so `in` and `get` must not raise for it.
            raise KeyError(id) from e
        if (location := self._by_id.get(key)) is None:
            raise KeyError(self._describe_absence(key))
        return location

    def __iter__(self) -> Iterator[TableId]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"Locations of {counted(len(self), 'tables')}: {self.report!r}"

    def _repr_html_(self) -> str:
        rows = self.to_arrow().select(["id", "location", "version", "rows"])
        problems = self.report._repr_html_() if self.report.problems else ""
        return html_rows(f"Locations of {counted(len(self), 'tables')}: {self.report.line()}", rows) + problems

    def select(self, what: What) -> Locations:
        """Returns the locations that `what` selects.

        Args:
            what: Ids, namespaces and patterns, as in `LocationResolver.prefetch`. A pattern may match no table.

        Returns:
            A new mapping in the order of this one, with the same report.

        Raises:
            InvalidInputError: An id in `what` is invalid or is not in this mapping.

        Cost:
            No remote call.
        """
        selection = Selection.read(what)
        absent = next((id for id in selection.ids if id not in self._by_id), None)
        if absent is not None:
            raise InvalidInputError(f"select: {self._describe_absence(absent)}")
        named = frozenset(selection.ids)
        return self.where(lambda it: it.id in named or any(pattern.matches(it.id) for pattern in selection.patterns))

    def where(self, predicate: Callable[[Location], bool]) -> Locations:
        """Returns the locations for which `predicate` is true.

        Args:
            predicate: A function of a Location, such as `lambda location: location.rows > 0`. The rows, the fragments
                and the schema are None for tables that are not pinned.

        Returns:
            A new mapping in the order of this one, with the same report.

        Cost:
            No remote call.
        """
        locations, secrets = filter(predicate, self.values()), self._carries_secrets
        return Locations(locations, self.report, carries_secrets=secrets, renew=self._renew)

    def with_secrets(self) -> Locations:
        """Returns a copy whose pickle contains the storage options; store that pickle where secrets are allowed."""
        return Locations(self.values(), self.report, carries_secrets=True, renew=self._renew)

    def _describe_absence(self, id: TableId) -> str:
        reason = self._reasons.get(id)
        return f"{id} is not among these {len(self)} locations" + (f": {reason}" if reason else "")

    def __reduce__(self) -> tuple[Any, ...]:
        options = {id: at.storage_options for id, at in self.items()} if self._carries_secrets else None
        return _unpickle, (list(self.values()), self.report, options)

    def dataframe(
        self,
        spark: SparkSession,
        columns: Collection[str] | None = None,
        partitions: int | None = None,
        table_column: str | None = "_table",
        *,
        filter: str | None = None,
        unify: Unify = "strict",
        renew: bool = False,
    ) -> DataFrame:
        """Returns all rows of all tables, at their pinned versions, as one DataFrame.

        The DataFrame keeps the storage options of these locations, and a warning is issued if they expire soon. Use
        `renew`, or build a new DataFrame from the result of `LocationResolver.refresh` before they expire.

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
            renew: Whether tasks renew credentials that expire. They ask an endpoint in this process, until the resolver
                is closed; it asks the catalog once for each table and lifetime. Not with Spark Connect.

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

        if not self:
            raise InvalidInputError(f"dataframe: no tables, and therefore no columns; {self.report.line()}")
        renewal = self._renewal("dataframe", spark) if renew else None
        return build_dataframe(
            self.values(), spark, columns, partitions, table_column, filter=filter, unify=unify, renewal=renewal
        )

    def polars(
        self, *, columns: Collection[str] | None = None, unify: Unify = "strict", table_column: str | None = "_table"
    ) -> pl.LazyFrame:
        """Returns the rows of all tables, at their pinned versions, as one lazy frame of Polars, without Spark.

        The frame keeps the storage options of these locations: build a new one before they expire.

        Args:
            columns: See `OpenedTables.polars`, like the following.
            unify: Whether the columns must be the same.
            table_column: The name of the column with the table id.

        Raises:
            LanceNamespaceError: See `OpenedTables.polars`. A table could not be opened.

        Cost:
            No catalog call. One open of the dataset for each table.
        """
        return self._opened().polars(columns=columns, unify=unify, table_column=table_column)

    def duckdb(
        self, connection: DuckDBPyConnection, name: str, *, unify: Unify = "strict", table_column: str | None = "_table"
    ) -> None:
        """Registers the rows of all tables, at their pinned versions, as a view of DuckDB, without Spark.

        The view keeps the storage options of these locations: register it again before they expire.

        Args:
            connection: See `OpenedTables.duckdb`, like the following.
            name: The name of the view.
            unify: Whether the columns must be the same.
            table_column: The name of the column with the table id.

        Raises:
            LanceNamespaceError: See `OpenedTables.duckdb`. A table could not be opened.

        Cost:
            No catalog call. One open of the dataset for each table.
        """
        self._opened().duckdb(connection, name, unify=unify, table_column=table_column)

    def _opened(self) -> OpenedTables:
        from lance_ns_async.spark.resolve.prefetch import open_datasets

        return open_datasets([location.table() for location in self.values()])

    def search(
        self,
        spark: SparkSession,
        *,
        vector: Sequence[float] | None = None,
        column: str | None = None,
        full_text: str | Mapping[str, Any] | None = None,
        k: int = 10,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        partitions: int | None = None,
        renew: bool = False,
        **query: Any,
    ) -> RankedRows:
        """Searches all tables at their pinned versions in Spark, and returns the best rows of all of them.

        Each task searches some of the tables, and sends its best `k` rows to the driver, which merges them. The rows
        are those of `Namespace.search_many`.

        Args:
            spark: The Spark session.
            vector: See `AsyncNamespace.search_many`, like the following.
            column: The column of the vectors; None means `vector`, or else the only column of vectors of a table.
            full_text: The words to search by, or a `full_text_query` of the spec; None for a search by vector.
            k: The number of rows.
            filter: A condition in Lance's SQL, applied before the search; None for all rows.
            columns: The names of the columns in the result; None for all.
            partitions: The maximum number of tasks; None for four per core.
            renew: As in `dataframe`.
            **query: Further fields of a `query_table` request, such as `nprobes`, `refine_factor` and `distance_type`.

        Returns:
            The rows, and an error for each table that could not be searched.

        Raises:
            InvalidInputError: The query or `partitions` is invalid. Raised before any Spark job.

        Cost:
            No catalog call. A few Spark jobs, whatever the number of tasks, and one open of the dataset for each table.
        """
        from lance_ns_async.many.rows import queries_by_column
        from lance_ns_async.spark.read.searching import search

        check_partitions(partitions)
        queries = queries_by_column(vector, column, full_text, k=k, filter=filter, columns=columns, **query)
        renewal = self._renewal("search", spark) if renew else None
        with_row_id = bool(query.get("with_row_id"))
        return search(self.values(), spark, queries, k, partitions, with_row_id=with_row_id, renewal=renewal)

    def _renewal(self, method: str, spark: SparkSession) -> Renewal | None:
        """Returns what renews the credentials of these tables; None if they do not expire."""
        if all(at.expires_at is None for at in self.values()):
            return None
        if self._renew is None:
            raise InvalidInputError(
                f"{method}: renew needs the resolver of these locations, which is in another process; resolve them here"
            )
        return self._renew(self.values(), spark)

    def differences(self, columns: Collection[str] | None = None) -> Mapping[TableId, Difference]:
        """Returns the tables whose columns differ from those of most tables, and how.

        Column order and differences of width, unit or encoding, such as string and large_string, do not count.

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
        from lance_ns_async.many.schemas import differences
        from lance_ns_async.spark.read.dataframe import pin, schemas_of

        return differences(schemas_of(pin(self.values())), columns)

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
        from lance_ns_async.spark.serve import serve

        return serve(self, self.report, spark, catalog, resolver)

    def to_arrow(self, *, secrets: bool = False) -> pa.Table:
        """Returns an Arrow table with one row for each table.

        Args:
            secrets: Whether to add a column with the storage options.

        Returns:
            The columns `id`, `names`, `location`, `version`, `rows`, `fragments` and `expires_at`; with `secrets` also
            `storage_options`.
        """
        locations = self.values()
        options = [at.storage_options for at in locations]
        columns: dict[str, list[Any]] = {
            "id": [str(at.id) for at in locations],
            "names": [list(at.id) for at in locations],
            "expires_at": [None if at.expires_at is None else round(at.expires_at * 1e6) for at in locations],
            "storage_options": [it if it is None else list(it.items()) for it in options],
        }
        schema = _COLUMNS.append(_SECRETS) if secrets else _COLUMNS
        columns |= {name: [getattr(at, name) for at in locations] for name in schema.names if name not in columns}
        return pa.Table.from_arrays([pa.array(columns[it.name], it.type) for it in schema], schema=schema)

    def to_dataframe(self, spark: SparkSession, *, secrets: bool = False) -> DataFrame:
        """Returns a DataFrame with one row for each table; `dataframe` returns the rows of the tables themselves.

        Args:
            spark: The Spark session.
            secrets: Whether to add a column with the storage options.

        Returns:
            The same columns as those of `to_arrow`.
        """
        check_session(spark)
        ddl = f"{_DDL}, storage_options map<string,string>" if secrets else _DDL
        # The DataFrame is built from rows, because Spark accepts Arrow tables only since 4.0.
        rows = self.to_arrow(secrets=secrets).to_pylist(maps_as_pydicts="strict")
        return spark.createDataFrame([tuple(row.values()) for row in rows], ddl)

    def to_json(self, *, secrets: bool = False) -> str:
        """Returns the locations and the report as one JSON object.

        Args:
            secrets: Whether to include the storage options.

        Returns:
            A text for `from_json`.
        """
        schemas: list[pa.Schema] = []
        # The key is the identity of the object: many tables share one schema, and comparing schemas is slower.
        places: dict[int, int] = {}
        tables: list[Mapping[str, Any]] = []
        for at in self.values():
            numbers = {"version": at.version, "rows": at.rows, "fragments": at.fragments, "expires_at": at.expires_at}
            table: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
            if at.schema is not None:
                table["schema"] = places.setdefault(id(at.schema), len(schemas))
                if table["schema"] == len(schemas):
                    schemas.append(at.schema)
            if secrets and at.storage_options is not None:
                table["storage_options"] = dict(at.storage_options)
            tables.append({"id": str(at.id), "names": list(at.id), "location": at.location, **table})
        encodings = [base64.b64encode(schema.serialize().to_pybytes()).decode() for schema in schemas]
        report = {field.name: getattr(self.report, field.name) for field in fields(self.report)}
        report |= {kind: [*map(_from_problem, report[kind])] for kind in (MISSING, DENIED, FAILED)}
        return json.dumps({"report": report, "schemas": encodings, "tables": tables})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the locations from the output of `to_json`.

        Args:
            text: The output of `to_json`.

        Raises:
            InvalidInputError: The text is not output of `to_json`.
        """
        try:
            content = json.loads(text)
            schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) for text in content["schemas"]]
            report = content["report"]
            report |= {kind: tuple(map(_problem, report[kind])) for kind in (MISSING, DENIED, FAILED)}
            locations = [_location(table, schemas) for table in content["tables"]]
            prefetch_report = PrefetchReport(**report)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError) as e:
            raise InvalidInputError(f"locations: the text is not output of to_json ({type(e).__name__}: {e})") from e
        return cls(locations, prefetch_report)


def _unpickle(
    locations: Iterable[Location], report: PrefetchReport, options: Mapping[TableId, Mapping[str, str] | None] | None
) -> Locations:
    if options is not None:
        locations = (replace(location, storage_options=options[location.id]) for location in locations)
    return Locations(locations, report, carries_secrets=options is not None)


def _location(table: Mapping[str, Any], schemas: Sequence[pa.Schema]) -> Location:
    schema = schemas[table["schema"]] if "schema" in table else None
    others = {name: value for name, value in table.items() if name != "names"}
    return Location(**{**others, "id": TableId(table["names"]), "schema": schema})


def _from_problem(problem: Problem) -> Mapping[str, Any]:
    subject = problem.subject
    kind, names = ("pattern", None) if isinstance(subject, str) else (subject.kind, list(subject))
    return {"kind": kind, "id": str(subject), "names": names, "reason": problem.reason, "attempts": problem.attempts}


def _problem(content: Mapping[str, Any]) -> Problem:
    kinds: Mapping[str, Callable[[Any], Subject]] = {"table": TableId, "namespace": NamespaceId, "pattern": str}
    kind = content["kind"]
    subject = kinds[kind](content["id" if kind == "pattern" else "names"])
    return Problem(subject, content["reason"], content["attempts"])

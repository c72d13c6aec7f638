"""Where tables are and how to read them: what a resolver hands to Spark, and to anything else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import Table, TableId
from lance_ns_async.spark.resolve.expiry import expiry
from lance_ns_async.spark.resolve.patterns import Wanted, What, table_id
from lance_ns_async.spark.resolve.report import Report
from lance_ns_async.storage.datasets import Details

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lance_ns_async.spark.resolve.resolver import LocationResolver
    from lance_ns_async.spark.serve.endpoint import Served


@dataclass(frozen=True, slots=True)
class Location:
    """Where one table is and how to read it. Pickled and copied without its storage options."""

    id: TableId
    location: str
    """A URI or a path, as `lance.dataset` takes it."""
    version: int | None = None
    """The version to read; None for whatever is the latest then."""
    rows: int | None = None
    """Rows in that version; None where the dataset was not opened."""
    fragments: int | None = None
    """Fragments of that version; None where the dataset was not opened."""
    storage_options: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    """What Lance needs to reach the storage, secrets included; None where there are none or they were left out."""
    expires_at: float | None = None
    """When the storage options expire, in seconds since 1970; None where they do not."""
    schema: pa.Schema | None = field(default=None, repr=False, hash=False)
    """The columns in that version, an object shared by equal ones; None where the dataset was not opened."""

    @classmethod
    def of(cls, table: Table, details: Details | None) -> Location:
        """The location of a table as its catalog describes it, and as its dataset was found."""
        options = table.storage_options
        if details is None:
            return cls(table.id, table.location, table.version, storage_options=options, expires_at=expiry(options))
        return cls(
            table.id,
            table.location,
            details.version,
            details.rows,
            details.fragments,
            options,
            expiry(options),
            details.schema,
        )

    def renewed(self, table: Table) -> Location:
        """The same version of the same table, reached as its catalog says now."""
        options = table.storage_options
        return replace(self, location=table.location, storage_options=options, expires_at=expiry(options))

    def table(self) -> Table:
        """What is needed to open the dataset."""
        return Table(self.id, self.location, storage_options=self.storage_options, version=self.version)

    def __reduce__(self) -> tuple[Any, ...]:
        bare = (self.id, self.location, self.version, self.rows, self.fragments, None, self.expires_at, self.schema)
        return Location, bare


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Locations(Mapping[TableId, Location]):
    """The locations of many tables, by their ids and in the order they were asked for.

    Immutable. Pickle, JSON, Arrow and Spark's form leave the storage options out unless they are asked for.
    Looked up by a TableId, by a sequence of names, or by a string as `prefetch` takes it; the KeyError of one that was
    itself asked for in vain says why.
    """

    report: Report
    """What else was asked for and is not here."""
    _by_id: Mapping[TableId, Location]
    _reasons: Mapping[TableId, str]
    """Why those are not here that were asked for."""
    _carries_secrets: bool

    def __init__(self, locations: Iterable[Location], report: Report) -> None:
        object.__setattr__(self, "report", report)
        object.__setattr__(self, "_by_id", {location.id: location for location in locations})
        # A namespace of the same names would be an equal key.
        reasons = {problem.subject: problem.reason for problem in report.problems if type(problem.subject) is TableId}
        object.__setattr__(self, "_reasons", reasons)
        object.__setattr__(self, "_carries_secrets", False)

    def __getitem__(self, id: str | Iterable[str]) -> Location:
        try:
            wanted = table_id(id)
        except (InvalidInputError, TypeError) as e:
            # What can be no id is not here either, so `in` and `get` answer for it.
            raise KeyError(id) from e
        if (found := self._by_id.get(wanted)) is None:
            raise KeyError(self._lacks(wanted))
        return found

    def __iter__(self) -> Iterator[TableId]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def select(self, what: What) -> Locations:
        """Those that are asked for, in the words `prefetch` takes; costs nothing.

        A pattern may match none of them; a table that is named but not among them is an InvalidInputError.
        """
        wanted = Wanted.read(what)
        strangers = [id for id in wanted.ids if id not in self._by_id]
        if strangers:
            raise InvalidInputError(f"select: {self._lacks(strangers[0])}")
        named = frozenset(wanted.ids)
        chosen = (
            location
            for id, location in self._by_id.items()
            if id in named or any(pattern.matches(id) for pattern in wanted.patterns)
        )
        found = Locations(chosen, self.report)
        return found.with_secrets() if self._carries_secrets else found

    def _lacks(self, id: TableId) -> str:
        reason = self._reasons.get(id)
        return f"{id} is not among these {len(self)} locations" + (f": {reason}" if reason else "")

    def with_secrets(self) -> Locations:
        """The same, but its pickle keeps the storage options: keep that where they may be seen."""
        same = Locations(self.values(), self.report)
        object.__setattr__(same, "_carries_secrets", True)
        return same

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
        from lance_ns_async.spark.read.dataframe import dataframe

        return dataframe(self, spark, columns, partitions, table_column, push_filters=push_filters)

    def serve(
        self, spark: SparkSession, catalog: str = "lance", *, resolver: LocationResolver | None = None
    ) -> AbstractContextManager[Served]:
        """Gives Spark's Lance connector a catalog of these tables, under that name, while the context is open.

        SQL then names them as `catalog.namespace.table`, and planning it costs no call to the real catalog. Only with
        a `resolver` is that asked, about any other table and to list or change something. Queries must run inside
        the context, DataFrames too: Spark asks again for each action. It reads the latest version of a table, unless
        told another by `VERSION AS OF`.

        Wants the connector on Spark's class path and a driver in this process, so not Spark Connect; executors ask
        nothing. Raises InvalidInputError where that is not so, or Spark has another catalog of this name.
        """
        from lance_ns_async.spark.serve.endpoint import serve

        return serve(self, spark, catalog, resolver)

    def to_arrow(self, *, secrets: bool = False) -> pa.Table:
        """A row a table; `secrets` adds the storage options."""
        from lance_ns_async.spark.resolve.serialize import to_arrow

        return to_arrow(self, secrets=secrets)

    def to_dataframe(self, spark: SparkSession, *, secrets: bool = False) -> DataFrame:
        """A row a table, in Spark; for the tables' own rows see `dataframe`."""
        from lance_ns_async.spark.resolve.serialize import to_dataframe

        return to_dataframe(self, spark, secrets=secrets)

    def to_json(self, *, secrets: bool = False) -> str:
        """Everything as one JSON object, the report included."""
        from lance_ns_async.spark.resolve.serialize import to_json

        return to_json(self, secrets=secrets)

    @classmethod
    def from_json(cls, text: str) -> Locations:
        """What `to_json` wrote; raises InvalidInputError for anything else."""
        from lance_ns_async.spark.resolve.serialize import from_json

        return from_json(text)

    def __repr__(self) -> str:
        return f"Locations of {len(self)} tables: {self.report!r}"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        options = {id: at.storage_options for id, at in self.items()} if self._carries_secrets else None
        return _unpickled, (list(self.values()), self.report, options)


def _unpickled(
    locations: list[Location], report: Report, options: Mapping[TableId, Mapping[str, str] | None] | None
) -> Locations:
    if options is None:
        return Locations(locations, report)
    whole = (replace(location, storage_options=options[location.id]) for location in locations)
    return Locations(whole, report).with_secrets()

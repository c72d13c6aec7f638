"""The tables that a statement reads: searches, opens, and the rights of a remote caller."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.engine.list import TableFilter
from lance_ns_async.errors import raise_first, suggest
from lance_ns_async.many import rows
from lance_ns_async.many.patterns import Pattern, Selection
from lance_ns_async.many.scanning import Scan, Source, open_sources, read_sources
from lance_ns_async.many.similar_ids import similar_id
from lance_ns_async.model import Id, TableId
from lance_ns_async.operations.tables import list_tables
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.session import Session
from lance_ns_async.sql.restrictions import Restrictions
from lance_ns_async.sql.statement import Reading, Searching
from lance_ns_async.storage.datasets import Snapshot

_FEW = 5  # Maximum number of names in a message.


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that a statement may read."""

    session: Session
    max_in_flight: int | None
    progress: ProgressCallback
    restrictions: Restrictions | None

    async def search(self, search: Searching) -> pa.Table:
        """Returns the rows of a search, with all columns that DuckDB has."""
        what, *more = search.arguments or [None]
        if not isinstance(what, str) or len(more) != 1:
            example = "[1.0, 0.5]" if search.function == "nearest" else "'words'"
            example = f"{search.function}('ml.docs', {example}, k => 5)"
            raise err.InvalidInputError(f"sql: {search.function} takes a table and what to find: {example}")
        self._check(Selection.read(what).ids)
        query = {"vector": more[0]} if search.function == "nearest" else {"full_text": more[0]}
        own: dict[str, Any] = {"include": self._include, "max_in_flight": self.max_in_flight}
        try:
            ranked = await rows.search_many(self.session, what, **query, **own, **search.options)
        except (TypeError, ValueError) as e:
            raise err.InvalidInputError(f"sql: {search.function}: {e}") from e
        raise_first(self._known(ranked.errors).values(), len(ranked.searched) + len(ranked.errors))
        return ranked.rows

    async def open(self, readings: Sequence[Reading]) -> Mapping[Reading, Sequence[Source]]:
        """Opens the tables, those without a version all at once."""
        self._check(reading.what for reading in readings if isinstance(reading.what, TableId))
        selection = Selection.read([reading.what for reading in readings if reading.version is None])
        latest = await open_sources(self.session, selection, self.max_in_flight, self.progress, self._include)
        errors = self._known(latest.errors)
        for id, error in errors.items():
            if isinstance(error, err.TableNotFoundError | err.NamespaceNotFoundError):
                raise await self._explained(id, error) from error
        raise_first(errors.values(), len(latest.tables) + len(latest.errors))
        result: dict[Reading, Sequence[Source]] = {}
        for reading in readings:
            if reading.version is not None:
                result[reading] = [await self._open_version(reading)]
            elif isinstance(reading.what, TableId):
                result[reading] = [latest.tables[reading.what]]
            else:
                matches = Pattern.parse(reading.what).matches
                result[reading] = [source for id, source in latest.tables.items() if matches(id)]
                if not result[reading]:
                    raise await self._unmatched(reading.what)
        return result

    def read(self, sources: Sequence[Source], how: Scan) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
        """Yields the rows of the tables."""
        return read_sources(self.session, sources, how, self.session.workers(self.max_in_flight))

    async def _open_version(self, reading: Reading) -> Source:
        version = reading.version
        if not isinstance(reading.what, TableId) or self.session.backend.passes_on("query_table"):
            raise err.UnsupportedOperationError(
                f"Not supported: sql: {reading.what} AT (VERSION => {version!r}): a version of one table, whose data "
                "is read here"
            )
        snapshot = Snapshot(tag=version) if isinstance(version, str) else Snapshot(version)
        return await self.session.read(
            reading.what, lambda dataset, table: Source(table, dataset.schema, dataset.version, dataset), snapshot
        )

    @property
    def _include(self) -> TableFilter | None:
        return None if self.restrictions is None else self.restrictions.may_see

    def _check(self, ids: Iterable[TableId]) -> None:
        if self.restrictions is not None:
            self.restrictions.check_tables(ids)

    def _known(self, errors: Mapping[Any, err.LanceNamespaceError]) -> Mapping[Any, err.LanceNamespaceError]:
        """Returns the errors of tables and namespaces of which the caller may know; others do not exist for it."""
        return {id: error for id, error in errors.items() if self._may_see(id)}

    async def _explained(self, id: Id, error: err.LanceNamespaceError) -> err.LanceNamespaceError:
        """Returns the error for an id that does not exist, with the one that is probably meant. Cost: `similar_id`."""
        near = await similar_id(self.session, id, self._may_see)
        return error if near is None else type(error)(f"{error}; did you mean {near}?")

    async def _unmatched(self, pattern: str) -> err.TableNotFoundError:
        """Returns the error for a pattern without a table, with some tables where it starts; costs a listing."""
        parent = Pattern.parse(pattern).start
        names: Sequence[str] = ()
        with suppress(err.LanceNamespaceError):  # It must not hide the error that is explained.
            listed = await list_tables(self.session, spec.ListTablesRequest(id=list(parent), limit=_FEW))
            names = [name for name in listed.tables if self._may_see(parent.table(name))]
        there_is = f"; {suggest('', names, most=_FEW)}" if names else ""
        return err.TableNotFoundError(f"Table not found: sql: no table matches {pattern!r}{there_is}")

    def _may_see(self, id: Id) -> bool:
        return self.restrictions is None or self.restrictions.may_see(id)

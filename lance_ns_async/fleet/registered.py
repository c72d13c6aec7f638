"""The registered tables of a whole catalog, for a comparison with what is in a storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from lance_namespace.errors import TableNotFoundError

from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.many import bulk, search
from lance_ns_async.model import TableId
from lance_ns_async.session import Session
from lance_ns_async.storage.folders import place_keys


@dataclass(frozen=True, slots=True)
class RegisteredTables:
    """The registered tables of a catalog."""

    places: Set[str]
    ids: Set[tuple[str, ...]]
    key: Callable[[Sequence[str]], tuple[str, ...]]

    @classmethod
    async def read(cls, session: Session) -> RegisteredTables:
        """Reads the whole catalog; raises the first error of a table. Cost: its listings and a bulk describe."""
        ids = [id async for id in bulk.flatten(bulk.table_groups(session, recursive=True))]
        described = await search.describe_tables(session, ids)
        for error in described.errors.values():
            # The others may have been dropped since the listing, or replaced.
            if not isinstance(error, TableNotFoundError | NotALanceTableError):
                raise error
        places = await place_keys([table.location for table in described.tables.values()])
        key = session.backend.capabilities.key
        return cls({*places}, {key(id) for id in ids}, key)

    async def claims(self, locations: Sequence[str]) -> Sequence[bool]:
        """Returns whether a table is registered at each of the locations."""
        return [place in self.places for place in await place_keys(locations)]

    def is_free(self, id: TableId) -> bool:
        """Returns whether no table has this id."""
        return self.key(id) not in self.ids

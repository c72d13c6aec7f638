"""Search for another table that is registered at a location, with few calls.

A location contains the names of the table for which the catalog's layout made it. Therefore it often shows which other
table to describe.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing, suppress
from functools import partial
from urllib.parse import unquote

from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError, PermissionDeniedError, TableNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.paging import walk
from lance_ns_async.engine.describe import describe_tables
from lance_ns_async.engine.list import Lister
from lance_ns_async.errors import BadLocationError, NotALanceTableError, UnreadableRegistrationError
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.storage.folders import find_same_place
from lance_ns_async.storage.locations import without_suffix

_MAX_CONCURRENT = 16  # Maximum number of concurrent describes.

_NO_CLAIM = (TableNotFoundError, NotALanceTableError, BadLocationError, UnreadableRegistrationError)
"""Errors of tables that are not registered at a location that can be compared."""


class Claims:
    """The search for claims in one catalog; it remembers the layout of namespaces, for checks of many tables."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._folders: dict[NamespaceId, str | None] = {}
        """The folder of the layout for the tables of a namespace; None if there is none."""

    async def check_unclaimed(self, id: TableId, location: str) -> None:
        """Checks that no other table has a location that was requested for a new registration.

        Only a table for which the catalog's layout made the location is found. The check is skipped with
        `allow_aliases`.

        Cost:
            No call if the location contains the names of the table. Otherwise a describe of at most four tables; on
            catalogs that store the location of a namespace, also a describe of each of their namespaces, once.
        """
        can = self._backend.capabilities
        # A REST server performs its drops itself, and is responsible for its locations.
        if self._backend.allow_aliases or can.unshared_locations or can.drops:
            return
        if (other := await self._find_owner(id, location)) is not None:
            raise InvalidInputError(
                f"table {id}: its location {location} is that of table {other}; choose another location, or connect "
                "with allow_aliases=true"
            )

    async def find(self, table: Table) -> TableId | None:
        """Returns another table that is registered at the location of a table to drop; None if there is none.

        Tables of other namespaces are found only if the catalog's layout made the location for them. A location that
        the layout made for the table itself belongs to no other table, unless `allow_aliases` is set.

        Cost:
            No call if the catalog refuses shared locations, if the catalog itself chose the location, or if the layout
            made it for the table with a random suffix. Otherwise the calls of
            `check_unclaimed`, and a describe of all tables of the namespace; without a batch call, this is skipped if
            the location contains the names of the table.
        """
        backend, can = self._backend, self._backend.capabilities_now
        if can.unshared_locations or (backend.made_location(table.location) and not backend.allow_aliases):
            return None
        has_names = backend.has_layout and _has_names(backend, table.id, table.location)
        if has_names and without_suffix(table.location) is not None and not backend.allow_aliases:
            return None
        if (owner := await self._find_owner(table.id, table.location)) is not None:
            return owner
        if has_names and not (backend.allow_aliases or can.listing_has_locations or can.describe_batch):
            return None
        return await self._at_location(table)

    async def names(self, table: Table) -> Collection[str]:
        """Returns the names in the namespace of a table, as far as `find_since` needs them; see there for the cost."""
        if self._backend.capabilities.listing_has_locations:
            return ()
        names: list[str] = []
        # A client that may drop a table need not have the right to list the namespace.
        with suppress(PermissionDeniedError):
            async with aclosing(walk(partial(self._backend.list_tables, table.id.parent, limit=None))) as pages:
                async for _, page in pages:
                    names += page.items
        return frozenset(names)

    async def find_since(self, table: Table, before: Collection[str]) -> TableId | None:
        """Returns a table of the same namespace that is registered at the location of a table that was removed.

        Catalogs remove by name. So another client may have given the location to another table before the removal, and
        the removed registration was a newer one. After the removal, another client may have registered the name itself
        at the location again. In other namespaces, only a table for which the layout made the location is found.

        Args:
            table: The table as it was before its removal.
            before: The result of `names` before the removal: tables that had a name then are not described again.

        Cost:
            The calls of `check_unclaimed`, and those to list the namespace: once if listings have locations, otherwise
            before and now, with a describe of each new name.
        """
        if (owner := await self._find_owner(table.id, table.location)) is not None:
            return owner
        return await self._at_location(table, since=before)

    async def _at_location(self, table: Table, *, since: Collection[str] | None = None) -> TableId | None:
        """Returns a table of the namespace that has the location of a table.

        Args:
            table: The table, which does not count.
            since: None if the table is registered. Otherwise it counts, too, if it is there again, and the tables that
                had these names before its removal do not.
        """
        backend, can, parent = self._backend, self._backend.capabilities, table.id.parent
        lister = Lister(backend, max_in_flight=_MAX_CONCURRENT)
        own = can.key(table.id)
        ids: Sequence[TableId]
        try:
            if since:
                named = [parent.table(name) for name in await self.names(table)]
                ids = [id for id in named if id.name not in since or can.key(id) == own]
            else:
                ids = await lister.everything(parent)
        except (PermissionDeniedError, NamespaceNotFoundError):
            # A client that may drop a table need not have the right to list the namespace.
            return None
        others = [id for id in ids if since is not None or can.key(id) != own]
        if not others:
            return None
        left = [id for id in others if id not in lister.descriptions]
        descriptions = await describe_tables(backend, left, max_in_flight=_MAX_CONCURRENT)
        for error in descriptions.errors.values():
            if not isinstance(error, (*_NO_CLAIM, PermissionDeniedError)):
                raise error
        tables = {**lister.descriptions, **descriptions.tables}
        by_location = {tables[id].location: id for id in reversed(others) if id in tables}
        same = await find_same_place(table.location, by_location)
        return None if same is None else by_location[same]

    async def _find_owner(self, id: TableId, location: str) -> TableId | None:
        """Returns another table for which the layout made a location, if it is registered there."""
        if _has_names(self._backend, id, location):
            return None
        folder = location.rstrip("/").rpartition("/")[0] or "/"
        for other in _candidates(self._backend, id, location):
            place = await self._folder(other.parent)
            if place is None or await find_same_place(folder, [place]) is None:
                continue
            with suppress(NamespaceNotFoundError, PermissionDeniedError, *_NO_CLAIM):
                there = (await self._backend.describe_table(other)).location
                if await find_same_place(location, [there]) is not None:
                    return other
        return None

    async def _folder(self, parent: NamespaceId) -> str | None:
        if parent not in self._folders:
            self._folders[parent] = None
            # The namespace need not exist, and the client may not be permitted to read it.
            with suppress(NamespaceNotFoundError, InvalidInputError, PermissionDeniedError):
                if (location := await self._backend.layout_location(parent.table("t"))) is not None:
                    self._folders[parent] = location.rpartition("/")[0]
        return self._folders[parent]


def _names(location: str) -> Sequence[str]:
    """Returns the names of the folders of a location, without its bucket, and without suffixes of the last one."""
    plain = (without_suffix(location) or location).rstrip("/")
    path = plain.partition("://")[2].partition("/")[2] if "://" in plain else plain
    *folders, last = path.split("/")
    return [unquote(part.replace("~", "%")) for part in (*folders, last.removesuffix(".lance"))]


def _has_names(backend: Backend, id: TableId, location: str) -> bool:
    """Returns whether a location ends with the names of the table and of its namespace."""
    *_, parent, name = ("", "", *_names(location))
    own = backend.capabilities.key(id)
    return backend.capabilities.key((parent.removesuffix(".db"), name)) == own[-2:]


def _candidates(backend: Backend, id: TableId, location: str) -> Sequence[TableId]:
    """Returns the ids of other tables for which a layout may have made a location."""
    *folders, name = _names(location)
    levels = folders[-len(id.parent) :] if id.parent else []
    # Hive stores databases in folders named `{database}.db`, optionally below a folder with the catalog's name.
    last = [part.removesuffix(".db") for part in levels[-1:]]
    parents = ([*id.parent], levels, [*levels[:-1], *last], [*id.parent[:-1], *last])
    ids = [TableId([*parent, name]) for parent in parents if len(parent) == len(id.parent) and all([*parent, name])]
    return [it for it in dict.fromkeys(ids) if backend.capabilities.key(it) != backend.capabilities.key(id)]

"""Replacement of registrations by a journal entry, for catalogs that cannot change a registration in place.

The journal entry, called a note, is a registration named `lance_ns_replacing_` plus the table's name. It has the new
location and the new properties. It is declared before the old registration is removed, and it is removed after the new
one is declared. A client that is killed in between leaves the old registration or the note. If the name is missing and
its note exists, a describe returns the note's content, a declaration turns the note into the registration, and a
removal also removes the note. Listings do not show notes.

A replacement continues only while the registration is the one that its caller saw and the note is its own. If two
clients replace one table, at least one gets a `ConcurrentModificationError`. A table that has the name of a note but
is not one belongs to a user, and is kept.

Cost: two more calls for a missing name, one more for a declaration, one more for a removal. Describing an existing
table costs nothing more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.policy import rollback
from lance_ns_async.errors import PHRASES, NotALanceTableError
from lance_ns_async.model import Table, TableId, is_same

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "lance_ns_replacing_"
"""Prefix of the names of notes."""

_OF = "lance_ns.replaces"
"""The property of a note that contains the name of its table."""

_BY = "lance_ns.replacement"
"""The property of a note that contains the unique identity of the replacement that declared it."""

_LONGEST = 255


def note_of(id: TableId) -> TableId:
    """Returns the id of the note of a table."""
    return id.parent.table(PREFIX + id.name)


def visible_names(names: Sequence[str]) -> Sequence[str]:
    """Returns the names of a complete listing, with the table's name for each note whose table is missing."""
    return list(dict.fromkeys(name.removeprefix(PREFIX) for name in sorted(names, key=is_note)))


def is_note(name: str) -> bool:
    """Returns whether a name is reserved for notes."""
    return name.startswith(PREFIX)


def _check_name(id: TableId) -> None:
    if is_note(id.name):
        raise InvalidInputError(
            f"table {id}: names that begin with {PREFIX} are reserved for replacements of tables; choose another"
        )


@dataclass(frozen=True, slots=True)
class _Note:
    """The content of a note."""

    table: Table
    """The table as it will be registered, under its own name."""
    by: str | None
    """Identity of the replacement that declared the note; None if an older version of this package declared it."""


class JournalBackend(Backend):
    """A backend whose catalog cannot change a registration in place."""

    @abstractmethod
    async def _describe_registration(self, id: TableId, *, vend: bool) -> Table:
        """Describes the registration of exactly this id, without its note."""

    @abstractmethod
    async def _declare_registration(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None
    ) -> Table:
        """Declares exactly this id, without regard to notes."""

    @abstractmethod
    async def _remove_registration(self, id: TableId) -> None:
        """Deregisters exactly this id, without regard to notes."""

    async def _deregister(self, id: TableId) -> None:
        """Deregisters exactly this id for a user, where that differs from the removals of a replacement."""
        await self._remove_registration(id)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        try:
            return await self._describe_registration(id, vend=vend)
        except TableNotFoundError:
            if (note := await self._find_note(id, vend=vend)) is not None:
                return note.table
        # The replacement may have completed between the two calls.
        return await self._describe_registration(id, vend=vend)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        _check_name(id)
        table = await self._declare_registration(id, location, properties, schema)
        async with rollback(partial(self._take_back, table)):
            note = await self._find_note(id, vend=False)
            if note is None:
                return table
            # The name is taken by an interrupted replacement, which is completed here.
            await self._remove_registration(id)
            await self._end(note)
        raise TableAlreadyExistsError(
            f"{PHRASES[TableAlreadyExistsError]}: {id} (this call completed its interrupted replacement)"
        )

    async def deregister_table(self, id: TableId) -> None:
        # The note is read before the removal, because an error afterwards would hide that the table is gone.
        note = await self._find_note(id, vend=False)
        try:
            await self._deregister(id)
        except TableNotFoundError as e:
            if note_of(id).name in str(e):
                # A broken proxy sent the response to the read again, which says nothing about the removal.
                raise InternalError(
                    f"{PHRASES[InternalError]}: {id} (deregister_table: a response about another table; whether it "
                    "took effect is unknown: describe the table)"
                ) from e
            # A note without a registration also counts as the table.
            if note is None or not await self._forget(id):
                raise
        else:
            if note is not None:
                await self._forget(id)

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Replaces a registration by means of a note.

        Another client can still replace the registration between the last check and the removal, because the catalog
        removes by name only.

        Raises:
            InvalidInputError: The table's name is too long for the name of a note.
            TableNotFoundError: Another client has removed the table.
            ConcurrentModificationError: Another client has replaced the table, or is replacing it now.
            InvalidTableStateError: The note's name is taken by a user's table, or by the note of another replacement.

        Cost: seven calls, more if an earlier replacement was interrupted.
        """
        note = note_of(old.id)
        if len(note.name) > _LONGEST:
            raise InvalidInputError(
                f"table {old.id}: its name is too long for its registration to be replaced: only "
                f"{_LONGEST - len(PREFIX)} characters are allowed; deregister it and register it again"
            )
        by, removing = uuid4().hex, False

        async def undo(error: BaseException) -> None:
            # A table that another client has removed is not restored.
            await self._put_back(
                old, location, by, error, may_be_missing=removing and not isinstance(error, TableNotFoundError)
            )

        async with rollback(undo):
            there = await self._take_note(old, location, {**properties, _OF: old.id.name, _BY: by}, schema)
            await self._check_unchanged(there, by)
            removing = True
            await self._remove_registration(old.id)
            try:
                new = await self._declare_registration(old.id, location, properties, schema)
            except TableAlreadyExistsError as e:
                raise _replaced_error(old.id) from e
            await self._forget(old.id, by)
        return new

    async def _complete(self, *ids: TableId) -> None:
        """Completes interrupted replacements of tables that are to be renamed, or whose names are to be taken.

        Cost: one call per id.
        """
        for id in ids:
            _check_name(id)
            if (note := await self._find_note(id, vend=False)) is not None:
                await self._end(note)

    async def _take_note(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None
    ) -> Table:
        """Declares the note; returns the registration to be replaced, unless another client changes it.

        An interrupted replacement is completed first.
        """
        note_id = note_of(old.id)
        try:
            await self._declare_registration(note_id, location, properties, schema)
            return old
        except TableAlreadyExistsError:
            note = await self._find_note(old.id, vend=False)
        completed_table = None if note is None else await self._end(note)
        try:
            await self._declare_registration(note_id, location, properties, schema)
        except TableAlreadyExistsError as e:
            raise InvalidTableStateError(
                f"{PHRASES[InvalidTableStateError]}: {old.id} (its registration cannot be replaced while there is "
                f"{note_id}: if that is a table of yours, give it another name; otherwise another client is replacing "
                f"{old.id} now; try again later)"
            ) from e
        # A caller whose `old` comes from the note has seen the registration that the note has just become.
        return completed_table if note is not None and completed_table is not None and is_same(old, note.table) else old

    async def _check_unchanged(self, old: Table, by: str) -> None:
        """Raises ConcurrentModificationError if another client has changed the registration or the note."""
        if not is_same(old, await self._describe_registration(old.id, vend=False)):
            raise _replaced_error(old.id)
        # Another client that replaces the table now treats this call's note as that of a process that died.
        note = await self._find_note(old.id, vend=False)
        if note is None or note.by != by:
            raise _replaced_error(old.id)

    async def _take_back(self, table: Table, error: BaseException) -> None:
        """Removes the registration that was just declared, unless another client has changed it."""
        try:
            if is_same(table, await self._describe_registration(table.id, vend=False)):
                await self._remove_registration(table.id)
        except TableNotFoundError:
            return
        except LanceNamespaceError as e:
            error.add_note(
                f"and table {table.id} stays registered at {table.location}, because it could not be removed ({e}); "
                "deregister_table removes it"
            )

    async def _put_back(
        self, old: Table, location: str, by: str, error: BaseException, *, may_be_missing: bool
    ) -> None:
        """Removes the note; with `may_be_missing`, first restores the old registration if it is missing."""
        try:
            if may_be_missing and not await self._is_there(old.id):
                with suppress(TableAlreadyExistsError):
                    await self._declare_registration(old.id, old.location, old.properties or {}, old.schema)
            await self._forget(old.id, by)
        except LanceNamespaceError as e:
            error.add_note(
                f"and the earlier state could not be restored ({e}): table {old.id} was registered at {old.location}; "
                f"if it is missing, this package uses {location} until it is declared or removed"
            )

    async def _end(self, note: _Note) -> Table | None:
        """Completes an interrupted replacement.

        Returns:
            The table that was registered from the note; None if the name was taken.
        """
        table, completed_table = note.table, None
        if not await self._is_there(table.id):
            with suppress(TableAlreadyExistsError):
                completed_table = await self._declare_registration(
                    table.id, table.location, table.properties or {}, table.schema
                )
        await self._forget(table.id, note.by)
        return completed_table

    async def _is_there(self, id: TableId) -> bool:
        try:
            await self._describe_registration(id, vend=False)
        except TableNotFoundError:
            return False
        return True

    async def _find_note(self, id: TableId, *, vend: bool) -> _Note | None:
        """Returns the note of a name; None if there is none."""
        if len(note_of(id).name) > _LONGEST:
            return None
        try:
            table = await self._describe_registration(note_of(id), vend=vend)
        except (TableNotFoundError, NamespaceNotFoundError, NotALanceTableError):
            return None
        properties = dict(table.properties or {})
        if properties.pop(_OF, None) != id.name:
            return None
        by = properties.pop(_BY, None)
        options = {key: value for key, value in (table.storage_options or {}).items() if key not in (_OF, _BY)}
        return _Note(replace(table, id=id, properties=properties, storage_options=options or None), by)

    async def _forget(self, id: TableId, by: str | None = None) -> bool:
        """Removes the note of a name; returns whether there was one.

        A user's table that has the name of a note is kept.

        Args:
            by: The identity of the replacement whose note is removed; None for any replacement.
        """
        note = await self._find_note(id, vend=False)
        if note is None or by not in (None, note.by):
            return False
        try:
            await self._remove_registration(note_of(id))
        except TableNotFoundError:
            return False
        return True


def _replaced_error(id: TableId) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"{PHRASES[ConcurrentModificationError]}: {id} (another client has replaced it, or is replacing it: describe "
        "it and try again)"
    )

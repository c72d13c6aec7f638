"""Replacing registrations where the catalog has no call for it: the new one is noted beside the old one first.

The note is a registration of its own, named `lance_ns_replacing_` and the table's name, at the new location and with
the new properties. It is declared before the old registration is removed, and removed after the new one is declared. So
a client that is killed in between leaves the old registration or the note. Who finds the name missing and the note
there answers with the note's content; who declares the name makes the note the registration; who removes the name
removes the note, too. Listings do not show notes.

A replacement goes on only while the registration is the one that its caller saw, and the note its own: of two clients
that replace one table, at least one gets a `ConcurrentModificationError`. A table with the name of a note that is none
is a user's own, and stays.

A name that is missing costs two more calls, a declaration one, and a removal one; describing a table that is there
costs nothing more.
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
"""Begins the names of notes."""

_OF = "lance_ns.replaces"
"""The property of a note that holds the name of its table."""

_BY = "lance_ns.replacement"
"""The property of a note that holds an identity of the replacement that made it, which no other one has."""

_LONGEST = 255


def note_of(id: TableId) -> TableId:
    """Returns the id of the note of a table."""
    return id.parent.table(PREFIX + id.name)


def shown(names: Sequence[str]) -> Sequence[str]:
    """Returns the names of a whole listing with notes in place of the tables that are missing for them."""
    return list(dict.fromkeys(name.removeprefix(PREFIX) for name in sorted(names, key=_is_note)))


def _is_note(name: str) -> bool:
    return name.startswith(PREFIX)


@dataclass(frozen=True, slots=True)
class _Note:
    """What is noted of a table."""

    table: Table
    """As it is to be registered, under its own name."""
    by: str | None
    """The replacement that has made the note; None for one of an older version of this package."""


class Journalled(Backend):
    """A backend whose catalog changes no registration in place."""

    @abstractmethod
    async def _described(self, id: TableId, *, vend: bool) -> Table:
        """What `describe_table` gives, of this very id."""

    @abstractmethod
    async def _declared(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None
    ) -> Table:
        """What `declare_table` does, for this very id."""

    @abstractmethod
    async def _deregistered(self, id: TableId) -> None:
        """What `deregister_table` does, for this very id."""

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        try:
            return await self._described(id, vend=vend)
        except TableNotFoundError:
            if (noted := await self._noted(id, vend=vend)) is not None:
                return noted.table
        # The replacement may have ended between the two calls.
        return await self._described(id, vend=vend)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        if _is_note(id.name):
            raise InvalidInputError(
                f"table {id}: names that begin with {PREFIX} are of tables that are being replaced; choose another"
            )
        made = await self._declared(id, location, properties, schema)
        async with rollback(partial(self._take_back, made)):
            noted = await self._noted(id, vend=False)
            if noted is None:
                return made
            # The name was taken: its replacement was cut off, and is ended here.
            await self._deregistered(id)
            await self._end(noted)
        raise TableAlreadyExistsError(
            f"{PHRASES[TableAlreadyExistsError]}: {id} (its replacement, which was cut off, was ended by this call)"
        )

    async def deregister_table(self, id: TableId) -> None:
        # Before the removal: an error afterwards would hide that the table is gone.
        noted = await self._noted(id, vend=False)
        try:
            await self._deregistered(id)
        except TableNotFoundError:
            # A note alone is the table, too.
            if noted is None or not await self._forget(id):
                raise
        else:
            if noted is not None:
                await self._forget(id)

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Replaces a registration by a note.

        Between the last look at the registration and its removal somebody else can still replace it: the catalog
        removes by the name alone.

        Raises:
            TableNotFoundError: Somebody else has removed it.
            ConcurrentModificationError: Somebody else has replaced it, or replaces it now.
            InvalidTableStateError: A table that is no note has the note's name.

        Cost: seven calls, or more where a replacement was cut off.
        """
        note = note_of(old.id)
        if len(note.name) > _LONGEST:
            raise InvalidInputError(
                f"table {old.id}: its name is too long for its registration to be replaced, {_LONGEST - len(PREFIX)} "
                "characters are the most; deregister it and register it again"
            )
        by, removing = uuid4().hex, False

        async def undo(error: BaseException) -> None:
            # Where somebody else has removed the table, it is not put back.
            await self._put_back(old, location, by, error, gone=removing and not isinstance(error, TableNotFoundError))

        async with rollback(undo):
            there = await self._take_note(old, location, {**properties, _OF: old.id.name, _BY: by}, schema)
            await self._check_unchanged(there, by)
            removing = True
            await self._deregistered(old.id)
            try:
                new = await self._declared(old.id, location, properties, schema)
            except TableAlreadyExistsError as e:
                raise _replaced(old.id) from e
            await self._forget(old.id, by)
        return new

    async def _take_note(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None
    ) -> Table:
        """Declares the note; returns the registration that it is to take the place of, where nobody has changed it."""
        note = note_of(old.id)
        try:
            await self._declared(note, location, properties, schema)
            return old
        except TableAlreadyExistsError:
            noted = await self._noted(old.id, vend=False)
        ended = None if noted is None else await self._end(noted)
        try:
            await self._declared(note, location, properties, schema)
        except TableAlreadyExistsError as e:
            raise InvalidTableStateError(
                f"{PHRASES[InvalidTableStateError]}: {old.id} (its registration cannot be replaced while there is "
                f"{note}: if that is a table of yours, give it another name; otherwise somebody else replaces {old.id} "
                "now, try again later)"
            ) from e
        # Who has described the table by the note has seen what is registered now.
        return ended if noted is not None and ended is not None and is_same(old, noted.table) else old

    async def _check_unchanged(self, old: Table, by: str) -> None:
        """Raises where the name, or the note of this replacement, is somebody else's by now."""
        if not is_same(old, await self._described(old.id, vend=False)):
            raise _replaced(old.id)
        # Who replaces the table now, too, takes the note of this call for one of a process that died.
        noted = await self._noted(old.id, vend=False)
        if noted is None or noted.by != by:
            raise _replaced(old.id)

    async def _take_back(self, made: Table, error: BaseException) -> None:
        """Removes what was just declared, unless it is somebody else's by now."""
        try:
            if is_same(made, await self._described(made.id, vend=False)):
                await self._deregistered(made.id)
        except TableNotFoundError:
            return
        except LanceNamespaceError as e:
            error.add_note(
                f"and table {made.id} stays registered at {made.location}, for it could not be removed ({e}); "
                "deregister_table removes it"
            )

    async def _put_back(self, old: Table, location: str, by: str, error: BaseException, *, gone: bool) -> None:
        """Removes the note; before that, puts the old registration back where it is gone."""
        try:
            if gone and not await self._is_there(old.id):
                with suppress(TableAlreadyExistsError):
                    await self._declared(old.id, old.location, old.properties or {}, old.schema)
            await self._forget(old.id, by)
        except LanceNamespaceError as e:
            error.add_note(
                f"and what was before could not be put back ({e}): table {old.id} was registered at {old.location}; "
                f"where it is missing, this package finds it at {location} until it is declared or removed"
            )

    async def _end(self, noted: _Note) -> Table | None:
        """Ends a replacement that was cut off: returns what the note became, None where the name was not free."""
        table, ended = noted.table, None
        if not await self._is_there(table.id):
            with suppress(TableAlreadyExistsError):
                ended = await self._declared(table.id, table.location, table.properties or {}, table.schema)
        await self._forget(table.id, noted.by)
        return ended

    async def _is_there(self, id: TableId) -> bool:
        try:
            await self._described(id, vend=False)
        except TableNotFoundError:
            return False
        return True

    async def _noted(self, id: TableId, *, vend: bool) -> _Note | None:
        """Returns the note of a name; None where there is none."""
        if len(note_of(id).name) > _LONGEST:
            return None
        try:
            found = await self._described(note_of(id), vend=vend)
        except (TableNotFoundError, NamespaceNotFoundError, NotALanceTableError):
            return None
        properties = dict(found.properties or {})
        if properties.pop(_OF, None) != id.name:
            return None
        by = properties.pop(_BY, None)
        options = {key: value for key, value in (found.storage_options or {}).items() if key not in (_OF, _BY)}
        return _Note(replace(found, id=id, properties=properties, storage_options=options or None), by)

    async def _forget(self, id: TableId, by: str | None = None) -> bool:
        """Removes the note of a name; whether there was one.

        A table with the name of a note stays where it is none: it is a user's own.

        Args:
            by: The replacement whose note it must be; None for any.
        """
        noted = await self._noted(id, vend=False)
        if noted is None or by not in (None, noted.by):
            return False
        try:
            await self._deregistered(note_of(id))
        except TableNotFoundError:
            return False
        return True


def _replaced(id: TableId) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"{PHRASES[ConcurrentModificationError]}: {id} (somebody else has replaced it, or replaces it now: describe it "
        "and try again)"
    )

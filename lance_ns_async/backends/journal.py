"""Replacing registrations where the catalog has no call for it: the new one is noted beside the old one first.

The note is a registration of its own, named `lance_ns_replacing_` and the table's name, at the new location and with
the new properties. It is declared before the old registration is removed, and removed after the new one is declared. So
a client that is killed in between leaves the old registration or the note. Who finds the name missing and the note
there answers with the note's content; who declares the name makes the note the registration; who removes the name
removes the note, too. Listings do not show notes.

A name that is missing costs two more calls, a declaration one, and a removal one; describing a table that is there
costs nothing more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.policy import rollback
from lance_ns_async.errors import PHRASES, NotALanceTableError
from lance_ns_async.model import Table, TableId

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "lance_ns_replacing_"
"""Begins the names of notes."""

_OF = "lance_ns.replaces"
"""The property of a note that holds the name of its table."""

_LONGEST = 255


def note_of(id: TableId) -> TableId:
    """Returns the id of the note of a table."""
    return id.parent.table(PREFIX + id.name)


def shown(names: Sequence[str]) -> Sequence[str]:
    """Returns the names of a whole listing with notes in place of the tables that are missing for them."""
    return list(dict.fromkeys(name.removeprefix(PREFIX) for name in sorted(names, key=_is_note)))


def _is_note(name: str) -> bool:
    return name.startswith(PREFIX)


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
                return noted
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
        try:
            noted = await self._noted(id, vend=False)
            if noted is None:
                return made
            # The name was taken: its replacement was cut off, and is ended here.
            await self._deregistered(id)
            with suppress(TableAlreadyExistsError):
                await self._declared(id, noted.location, noted.properties or {}, noted.schema)
            await self._forget(id)
        except LanceNamespaceError as e:
            raise type(e)(
                f"{e}; table {id} was declared at {made.location}, and whether it took effect is unknown: describe it"
            ) from e
        raise TableAlreadyExistsError(
            f"{PHRASES[TableAlreadyExistsError]}: {id} (its replacement, which was cut off, was ended by this call)"
        )

    async def deregister_table(self, id: TableId) -> None:
        try:
            await self._deregistered(id)
        except TableNotFoundError:
            # A note alone is the table, too.
            if not await self._forget(id):
                raise
        else:
            await self._forget(id)

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Replaces a registration in four calls, or more; see the module."""
        note = note_of(old.id)
        if len(note.name) > _LONGEST:
            raise InvalidInputError(
                f"table {old.id}: its name is too long for its registration to be replaced, {_LONGEST - len(PREFIX)} "
                "characters are the most; deregister it and register it again"
            )
        removing = False

        async def undo(error: BaseException) -> None:
            # Where somebody else has removed the table, it is not put back.
            await self._put_back(old, location, error, gone=removing and not isinstance(error, TableNotFoundError))

        async with rollback(undo):
            kept = {**properties, _OF: old.id.name}
            try:
                await self._declared(note, location, kept, schema)
            except TableAlreadyExistsError:
                await self._end(old.id)
                await self._declared(note, location, kept, schema)
            removing = True
            await self._deregistered(old.id)
            new = await self._declared(old.id, location, properties, schema)
            await self._forget(old.id)
        return new

    async def _put_back(self, old: Table, location: str, error: BaseException, *, gone: bool) -> None:
        """Removes the note; before that, puts the old registration back where it is gone."""
        try:
            if gone and not await self._is_there(old.id):
                with suppress(TableAlreadyExistsError):
                    await self._declared(old.id, old.location, old.properties or {}, old.schema)
            await self._forget(old.id)
        except LanceNamespaceError as e:
            error.add_note(
                f"and what was before could not be put back ({e}): table {old.id} was registered at {old.location}; "
                f"where it is missing, this package finds it at {location} until it is declared or removed"
            )

    async def _end(self, id: TableId) -> None:
        """Ends a replacement that was cut off: the note becomes the registration where that is gone."""
        noted = await self._noted(id, vend=False)
        if noted is not None and not await self._is_there(id):
            with suppress(TableAlreadyExistsError):
                await self._declared(id, noted.location, noted.properties or {}, noted.schema)
        await self._forget(id)

    async def _is_there(self, id: TableId) -> bool:
        try:
            await self._described(id, vend=False)
        except TableNotFoundError:
            return False
        return True

    async def _noted(self, id: TableId, *, vend: bool) -> Table | None:
        """Returns the table that the note of a name says; None where there is no note."""
        if len(note_of(id).name) > _LONGEST:
            return None
        try:
            noted = await self._described(note_of(id), vend=vend)
        except (TableNotFoundError, NamespaceNotFoundError, NotALanceTableError):
            return None
        properties = dict(noted.properties or {})
        if properties.pop(_OF, None) != id.name:
            return None
        options = {key: value for key, value in (noted.storage_options or {}).items() if key != _OF}
        return replace(noted, id=id, properties=properties, storage_options=options or None)

    async def _forget(self, id: TableId) -> bool:
        """Removes the note of a name; whether there was one."""
        if len(note_of(id).name) > _LONGEST:
            return False
        try:
            await self._deregistered(note_of(id))
        except TableNotFoundError:
            return False
        return True

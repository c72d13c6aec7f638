"""Creating tables: declared in the catalog, then written; what fails is undone in both.

Of several that create one table, the catalog lets one declare it. So whoever declared it may undo that, unless
another has written to it meanwhile, and one that is registered is there, even if nothing was written to it yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.policy import rollback
from lance_ns_async.engine.locate import located
from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table, TableId, is_same
from lance_ns_async.storage import datasets, dir_markers
from lance_ns_async.storage.threads import in_thread, under_way
from lance_ns_async.tables import dropping, first, meanwhile, names, replacing, writing
from lance_ns_async.tables.opening import Opener

if TYPE_CHECKING:
    from lance import LanceDataset


_TIMES = 3
"""How often an overwrite that others were quicker than is tried again."""


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be written, and what the catalog is told of it."""

    data: Any
    """Arrow data with a schema: a table, a batch, a reader, a dataset."""
    properties: Mapping[str, str] | None = None
    """None to leave those of a table that is there as they are."""
    options: Mapping[str, str] | None = None
    """Storage options that go before those of the catalog, for this write."""

    def __post_init__(self) -> None:
        names.check(self.schema.names, "columns")

    def place(self, table: Table) -> Table:
        """The table as it is written to."""
        return (
            replace(table, storage_options={**(table.storage_options or {}), **self.options}) if self.options else table
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.data.schema

    @property
    def lasts(self) -> bool:
        """Whether its rows can be read more than once."""
        return not isinstance(self.data, pa.RecordBatchReader)


@dataclass(frozen=True, slots=True)
class Made:
    """A table and its dataset; None where nothing was written to it yet."""

    table: Table
    dataset: LanceDataset | None


async def create(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    """Declares a table that must not exist yet, and writes its first version; if that fails neither stays.

    Cost: the default place's call where there is one, an open, a declaration, and a describe before and after.
    """
    table = await declare(backend, id, content)
    place = content.place(table)

    def work() -> first.First:
        try:
            return first.create(opener, place, content.data)
        finally:
            if under_way().given_up.is_set():
                # The declaration was taken back before the last file was gone.
                dir_markers.remove(place.location, place.storage_options)

    async with rollback(partial(take_back, backend, place)):
        async with meanwhile.explained(backend, place, makes=True):
            made = await in_thread(place, work, changes=True, reads=True)
        await confirm(backend, place, made.transaction)
    return Made(table, made.dataset)


async def declare(backend: Backend, id: TableId, content: Content) -> Table:
    """Returns a table that is registered just now, at a place where nothing is, with what it takes to write there.

    Raises:
        DataThereError: There is data at its default place; nothing was declared.
        TableAlreadyExistsError: It is registered, or somebody has written to it since it was declared here.
    """
    backend.check_declaration(id, None, content.properties or {})
    location, looked = await look_before(backend, id, content.options)
    try:
        mine = await backend.declare_table(id, location, content.properties or {}, content.schema)
    except TableAlreadyExistsError as e:
        raise TableAlreadyExistsError(f"{e}; append to it, overwrite it, or drop it first") from e
    place = content.place(mine)
    async with rollback(partial(take_back, backend, place)):
        # Described, it comes with credentials.
        table = await located(backend, id)
        if not is_same(mine, table):
            raise TableAlreadyExistsError(
                f"{PHRASES[TableAlreadyExistsError]}: {id} (somebody has dropped it since it was declared here, and "
                "declared it again; append to it, overwrite it, or drop it first)"
            )
        place = content.place(table)
        async with meanwhile.explained(backend, place, makes=True):
            free = looked or await datasets.is_only_declared(place) or await dropping.finish(backend, place)
        if not free:
            # At a place that nobody could know before the declaration, nothing was there before.
            kind = TableAlreadyExistsError if location is None else DataThereError
            raise kind(
                f"{PHRASES[TableAlreadyExistsError]}: {id} (there is data at {table.location}, which somebody else has "
                "written since it was declared here, or which was there before; append to it, overwrite it, or drop it "
                "first)"
            )
    return table


async def look_before(
    backend: Backend, id: TableId, options: Mapping[str, str] | None = None
) -> tuple[str | None, bool]:
    """Looks at the default place of a table that is to be declared.

    Args:
        options: Storage options that go before those of the catalog.

    Returns:
        The place, None where only declaring tells it; and whether no table is there. That is False, too, where it was
        not looked at: where the storage is not at hand, as where only a declared table has credentials.

    Raises:
        DataThereError: There is data of no table of that name.

    Cost: an open, and the call of `Backend.default_location`; where there is data a describe, too.
    """
    location = await backend.default_location(id)
    if location is None:
        return None, False
    table = Table(id, location, storage_options={**(backend.configured_options or {}), **(options or {})} or None)
    if not datasets.is_at_hand(table):
        return location, False
    if not await datasets.is_only_declared(table):
        try:
            await backend.describe_table(id)
        except TableNotFoundError:
            if await dropping.finish(backend, table):
                return location, True
            raise DataThereError(
                f"{PHRASES[TableAlreadyExistsError]}: {id} (not in the catalog, but at {location} there is data; "
                "register it there, give another location, or remove it; where a drop of it is under way, try again "
                "later, and where one was cut off, drop_table goes on with it)"
            ) from None
        # It is that of the table itself. Declaring tells so, unless the table is deregistered before.
        return location, False
    return location, True


class DataThereError(TableAlreadyExistsError):
    """There is data where a table would go, of which the catalog knows nothing."""


async def keep_or_create(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    """The table that is there, or else one created."""
    try:
        return await create(backend, opener, id, content)
    except TableAlreadyExistsError as e:
        try:
            table = await located(backend, id)
        except TableNotFoundError:
            raise e from None
    try:
        async with meanwhile.explained(backend, table, makes=True):
            return Made(table, await in_thread(table, lambda: opener.open(table)))
    except TableNotFoundError:
        return Made(table, None)


async def overwrite(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    """Writes a version that replaces all rows and columns of a table, or creates it.

    It is registered anew where its catalog is told other properties or columns than it keeps. Old versions stay.
    """
    for _ in range(_TIMES if content.lasts else 0):
        try:
            return await _overwritten(backend, opener, id, content)
        except DataThereError:
            raise
        except TableAlreadyExistsError:
            # Somebody else may be about to write its first version.
            continue
    return await _overwritten(backend, opener, id, content)


async def _overwritten(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    try:
        old = await located(backend, id)
    except TableNotFoundError:
        return await create(backend, opener, id, content)
    wanted = what_to_register(backend, old, content)
    if wanted is None:
        return await _written_over(backend, opener, old, content)
    async with rollback(partial(replacing.restore, backend, old, wanted)):
        table = await register_anew(backend, old, wanted, content.schema)
        return await _written_over(backend, opener, table, content)


async def _written_over(backend: Backend, opener: Opener, table: Table, content: Content) -> Made:
    place = content.place(table)
    work = partial(writing.insert, opener, place, None, content.data, "overwrite")
    async with meanwhile.explained(backend, place, makes=True):
        dataset, made = await in_thread(place, work, changes=True, reads=True)
    if made is not None:
        await confirm(backend, place, made)
    return Made(table, dataset)


async def confirm(backend: Backend, table: Table, transaction: str) -> None:
    """Makes sure that a first version, which was just committed, can be found by the table's name.

    Where the table was dropped or deregistered meanwhile, the version is removed again, unless others use it by now:
    else nobody would find its rows, and they would be in the way of the next table of that name. The catalog does not
    tell a drop from a deregister afterwards.

    Args:
        transaction: The id of the transaction that made the version.

    Raises:
        ConcurrentModificationError: The name was taken from the place meanwhile; it says what became of the rows.

    Cost: a describe.
    """
    if table.managed_versioning:
        # The catalog itself has committed the version.
        return
    why, delete = "it was dropped or deregistered while its first rows were written", True
    try:
        there = await backend.describe_table(table.id)
        if is_same(table, there):
            return
        why = "it was dropped or deregistered, and registered again, while its first rows were written"
        # What is registered there by now is somebody else's, with these rows.
        delete = _path(there.location) != _path(table.location)
    except TableNotFoundError:
        pass
    except LanceNamespaceError as e:
        e.add_note(f"and the rows are written to {table.location}; whether table {table.id} is still there is unknown")
        raise
    error = _withdrawn(table, why, _UNKNOWN.format(location=table.location))

    async def withdraw(_: BaseException) -> None:
        became = await in_thread(table, partial(first.withdraw, table, transaction, delete=delete), changes=True)
        error.args = _withdrawn(table, why, _BECAME[became].format(location=table.location)).args

    async with rollback(withdraw):
        raise error


_UNKNOWN = "whether they stay at {location} is unknown: look there before you write them again"

_BECAME: Mapping[first.Fate, str] = {
    "gone": "they are gone again: write them again",
    "there": "they stay at {location}, in data that others use by now: look there, do not write them again",
    "unknown": _UNKNOWN,
}
"""What an error says of the rows of a first version that was to be taken back."""


def _withdrawn(table: Table, why: str, became: str) -> ConcurrentModificationError:
    return ConcurrentModificationError(f"{PHRASES[ConcurrentModificationError]}: {table.id} ({why}; {became})")


def _path(location: str) -> str:
    """The location as it can be compared: who registers a local one may spell it with or without its scheme."""
    return unquote(location.removeprefix("file://")).rstrip("/")


async def take_back(backend: Backend, table: Table, error: BaseException, *, clear: bool = False) -> None:
    """Takes back a declaration that is still this one and that nobody has written to.

    Where that cannot be known the registration stays, and the error says so.

    Args:
        table: As it was declared here, with the storage options that are known.
        error: What was in the way of going on.
        clear: Whether the data files at the place go, too, which are of writers that were cut off. Others' may be
            among them that no version holds yet: they find the table gone when they have committed it.
    """
    files: Sequence[str] = ()
    left = (
        f"and table {table.id} stays registered at {table.location}, for whether somebody has written to it is unknown "
        "({why}); if nobody has, deregister_table removes it"
    )
    try:
        there = await backend.describe_table(table.id)
        if not is_same(table, there):
            return
        if backend.capabilities.vends and not table.storage_options:
            there = await located(backend, table.id)
        place = replace(there, storage_options={**(there.storage_options or {}), **(table.storage_options or {})})
        if not datasets.is_at_hand(place):
            error.add_note(left.format(why="its storage cannot be looked at from here"))
            return
        if not await datasets.is_only_declared(place):
            error.add_note(f"and table {table.id} stays registered, for a version of it is at {table.location}")
            return
        if clear:
            # While the name is taken: later ones may be of the next table of that name.
            files = await datasets.data_files(place)
        # Catalogs remove by name alone, so what the name stands for is looked at just before.
        if not is_same(table, await backend.describe_table(table.id)):
            return
    except TableNotFoundError:
        return
    except LanceNamespaceError as e:
        error.add_note(left.format(why=e))
        return
    try:
        await backend.deregister_table(table.id)
    except TableNotFoundError:
        return
    except LanceNamespaceError as e:
        error.add_note(f"and of table {table.id} is left: its registration at {table.location} ({e})")
        return
    await _look_once_more(backend, place, files, error)


async def _look_once_more(backend: Backend, table: Table, files: Sequence[str], error: BaseException) -> None:
    """Declares a table again that somebody has written to while it was deregistered; else removes what is left of it.

    Args:
        files: Data files to remove.
    """
    try:
        free = await datasets.is_only_declared(table)
    except LanceNamespaceError as e:
        error.add_note(
            f"and whether somebody has written to table {table.id} at {table.location} is unknown ({e}); it is not "
            "registered any more: if there is data, register_table makes it a table again"
        )
        return
    if free:
        try:
            await datasets.remove_files(table, files)
            await datasets.tidy(table)
        except LanceNamespaceError as e:
            error.add_note(f"and files that are of no use are left at {table.location} ({e})")
        return
    try:
        await backend.declare_table(table.id, table.location, table.properties or {}, table.schema)
        error.add_note(f"and table {table.id} is registered again, for somebody has just written to it")
    except TableAlreadyExistsError:
        return
    except LanceNamespaceError as e:
        error.add_note(
            f"and somebody has just written to {table.location}, where table {table.id} could not be registered again "
            f"({e}); where it is missing, register_table makes it a table again"
        )


def what_to_register(backend: Backend, old: Table, content: Content) -> tuple[str, Mapping[str, str]] | None:
    """Returns location and properties of the registration that an overwrite wants; None where it is there already."""
    kept, wanted = old.properties or {}, content.properties or {}
    same = all(kept.get(key) == value for key, value in wanted.items())
    if same and (old.schema is None or old.schema.equals(content.schema)):
        return None
    if old.managed_versioning and not backend.capabilities.replaces:
        raise InvalidInputError(
            f"table {old.id}: its catalog commits its versions, and would forget them with other properties; "
            "leave the properties out, or drop the table first"
        )
    properties = dict(wanted if content.properties is not None else kept)
    if old.managed_versioning:
        # Who commits the versions does not change with the other properties.
        properties.setdefault("managed_by", kept.get("managed_by", "impl"))
    backend.check_declaration(old.id, old.location, properties)
    return old.location, properties


async def register_anew(
    backend: Backend, old: Table, wanted: tuple[str, Mapping[str, str]], schema: pa.Schema
) -> Table:
    """Returns the table with the registration that is wanted, and with what it takes to write there."""
    await replacing.replace(backend, old, *wanted, schema)
    return await located(backend, old.id)

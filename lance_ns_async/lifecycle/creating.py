"""Creation of tables: declaration in the catalog, then the first write; a failure is rolled back in both.

If several clients create one table, the catalog accepts one declaration. Its client may therefore undo it, unless
another client has written to the table meanwhile. A registered table exists, even if nothing was written to it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.backends.base import Backend, Declaration
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.declare import declare_tables
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import PHRASES
from lance_ns_async.lifecycle import concurrent_changes, first_version, replacing, writing
from lance_ns_async.model import Table, TableId, is_same, same_place
from lance_ns_async.storage import datasets, dir_markers, fields
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.options import ends_soon, merge_options
from lance_ns_async.storage.threads import in_thread, under_way

if TYPE_CHECKING:
    from lance import LanceDataset


_TIMES = 3
"""Maximum number of attempts of an overwrite that conflict with concurrent first writes, before a final attempt."""


@dataclass(frozen=True, slots=True)
class Content:
    """The rows to write, and the properties to register in the catalog."""

    data: Any
    """Arrow data with a schema: a table, a batch, a reader, a dataset."""
    properties: Mapping[str, str] | None = None
    """The table's properties; None leaves the properties of an existing table unchanged."""
    options: Mapping[str, str] | None = None
    """Storage options for this write, which override those of the catalog."""

    def __post_init__(self) -> None:
        fields.check_columns(self.schema.names, "columns")

    def place(self, table: Table) -> Table:
        """Returns the table with the storage options for this write."""
        return replace(table, storage_options=merge_options(table.storage_options, self.options) or None)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the data."""
        return self.data.schema

    @property
    def is_repeatable(self) -> bool:
        """Whether the rows can be read more than once."""
        return not isinstance(self.data, pa.RecordBatchReader)


@dataclass(frozen=True, slots=True)
class TableAndDataset:
    """A table and its dataset; the dataset is None if nothing was written to the table yet."""

    table: Table
    dataset: LanceDataset | None


async def create(backend: Backend, opener: Opener, id: TableId, content: Content) -> TableAndDataset:
    """Declares a table that must not exist yet, and writes its first version; a failure removes both.

    Cost: a declaration, and a describe if the catalog vends credentials. If the location may have been used before,
    also the call for the default location, a describe and an open.
    """
    table = await declare(backend, id, content)
    place = content.place(table)

    def work() -> LanceDataset:
        try:
            return first_version.create(opener, place, content.data)
        finally:
            if under_way().given_up.is_set():
                # The declaration may have been removed before the last file was deleted.
                dir_markers.remove(place.location, place.storage_options)

    async with rollback(partial(undo_declaration, backend, place)):
        async with concurrent_changes.explain_conflict(backend, place, makes=True):
            return TableAndDataset(table, await in_thread(place, work, changes=True, kind="writing"))


async def declare(backend: Backend, id: TableId, content: Content) -> Table:
    """Registers a table at an empty location, and returns it with the credentials for writes."""
    location, is_free = await check_default_location(backend, id, content.options)
    try:
        mine = await declare_at(backend, id, location, content.properties or {}, content.schema)
    except err.TableAlreadyExistsError as e:
        raise err.TableAlreadyExistsError(f"{e}; append to it, overwrite it, or drop it first") from e
    return await _check_declared(backend, mine, content, is_free=is_free, is_expected=location is not None)


async def declare_at(
    backend: Backend, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None
) -> Table:
    """Registers a table that must not exist yet; an interrupted call leaves no registration.

    After an interrupt, it is unknown whether the catalog has registered the table. If the location was never used
    before, a registration there is certainly that of this call, and is removed. Otherwise a note on the error says what
    may be left.

    Args:
        location: The location; None for the default one.

    Cost: a declaration; after an interrupt a describe, and the removal.
    """
    backend.check_declaration(id, location, properties)
    new_location = await backend.new_location(id) if location is None else None

    async def undo(error: BaseException) -> None:
        is_definite = not isinstance(error, err.ServiceUnavailableError | err.InternalError)
        if isinstance(error, err.LanceNamespaceError) and (is_definite or new_location is None):
            # The error itself says what is left.
            return
        try:
            there = await backend.describe_table(id)
        except (err.TableNotFoundError, err.NamespaceNotFoundError):
            return
        if new_location is None:
            error.add_note(
                f"and table {id} is registered at {there.location}, perhaps by this call; deregister_table removes it"
            )
        elif same_place(there.location, new_location):
            await undo_declaration(backend, there, error)

    async with rollback(undo):
        return await backend.declare_table(id, location or new_location, properties, schema)


async def declare_many(
    backend: Backend,
    ids: Sequence[TableId],
    content: Content,
    record: Callable[[TableId, Table | err.LanceNamespaceError], None],
    *,
    max_in_flight: int,
) -> None:
    """Registers tables like `declare`, in batches where the catalog has them; a failure does not affect the others.

    Args:
        backend: The backend to call.
        ids: The ids of the tables, without duplicates.
        content: The columns and properties of each table.
        record: Receives each table or its error as soon as that is known.
        max_in_flight: Maximum number of tables at a time.

    Cost:
        A `declare` for each table. With batches, a call for each batch instead of each declaration.
    """

    async def one(id: TableId) -> None:
        try:
            record(id, await declare(backend, id, content))
        except err.LanceNamespaceError as e:
            record(id, e)

    new_tables: list[Table] = []

    async def note(declaration: Declaration, outcome: Table | err.LanceNamespaceError) -> None:
        record(declaration.id, outcome)
        if isinstance(outcome, Table):
            new_tables.append(outcome)

    async def check(table: Table) -> None:
        try:
            place = await _check_declared(backend, table, content, is_free=False, is_expected=False)
            record(table.id, place)
        except err.LanceNamespaceError as e:
            record(table.id, e)

    # Outside of namespaces, the location follows from the name and must be examined before the declaration.
    in_batches = [id for id in ids if backend.capabilities.declare_batch and id.parent]
    single = ids if not in_batches else [id for id in ids if not id.parent]
    await each(one, single, max_in_flight=max_in_flight)
    if not in_batches:
        return
    declarations = [Declaration(id, None, content.properties or {}, content.schema) for id in in_batches]
    await declare_tables(backend, declarations, note, max_in_flight=max_in_flight)
    await each(check, new_tables, max_in_flight=max_in_flight)


async def _check_declared(
    backend: Backend, mine: Table, content: Content, *, is_free: bool, is_expected: bool
) -> Table:
    """Returns a table that was just declared, with credentials, if nothing is at its location; else takes it back.

    Args:
        backend: The backend to call.
        mine: The table as it was declared.
        content: The columns and properties of the table.
        is_free: Whether the location was free before the declaration.
        is_expected: Whether the location was known before the declaration.
    """
    id, place = mine.id, content.place(mine)
    is_free = is_free or backend.makes_new_locations(id.parent)
    if is_free and not backend.capabilities.vends:
        return mine
    async with rollback(partial(undo_declaration, backend, place)):
        # The describe returns credentials.
        table = await locate(backend, id)
        if not is_same(mine, table):
            raise err.TableAlreadyExistsError(
                f"{PHRASES[err.TableAlreadyExistsError]}: {id} (another client dropped and declared it again after "
                "this declaration; append to it, overwrite it, or drop it first)"
            )
        place = content.place(table)
        async with concurrent_changes.explain_conflict(backend, place, makes=True):
            free = is_free or await datasets.is_only_declared(place)
        if not free:
            # If the location was unknown before the declaration, the data was written after it.
            kind = DataThereError if is_expected else err.TableAlreadyExistsError
            raise kind(
                f"{PHRASES[err.TableAlreadyExistsError]}: {id} (there is data at {table.location}, which "
                "another client wrote "
                "before or after this declaration; append to it, overwrite it, or drop it first)"
            )
    return table


async def check_default_location(
    backend: Backend, id: TableId, options: Mapping[str, str] | None = None
) -> tuple[str | None, bool]:
    """Checks the default location of a table before its declaration.

    Args:
        options: Storage options that override those of the catalog.

    Returns:
        The location, or None if it is known only after the declaration; and whether it is free. The second value is
        also False if the location was not checked, for example because only a declared table has credentials.

    Cost: an open, and the call of `Backend.default_location`; if there is data, also a describe.
    """
    location = await backend.default_location(id)
    if location is None:
        return None, False
    table = Table(id, location, storage_options=merge_options(backend.configured_options, options) or None)
    if not datasets.is_at_hand(table):
        return location, False
    if not await datasets.is_only_declared(table):
        try:
            await backend.describe_table(id)
        except err.TableNotFoundError:
            raise DataThereError(
                f"{PHRASES[err.TableAlreadyExistsError]}: {id} (not in the catalog, but there is data at {location}, "
                "perhaps of a table with another name; register it there, bring it back with fleet.undrop if it was "
                "dropped, or use another location)"
            ) from None
        # The data belongs to the registered table. The declaration fails, unless the table is deregistered before.
        return location, False
    return location, True


class DataThereError(err.TableAlreadyExistsError):
    """The location of a new table has data of which the catalog has no record."""


async def keep_or_create(backend: Backend, opener: Opener, id: TableId, content: Content) -> TableAndDataset:
    """Returns the existing table, or creates it."""
    try:
        return await create(backend, opener, id, content)
    except err.TableAlreadyExistsError as e:
        try:
            table = await locate(backend, id)
        except err.TableNotFoundError:
            raise e from None
    try:
        async with concurrent_changes.explain_conflict(backend, table, makes=True):
            return TableAndDataset(table, await in_thread(table, lambda: opener.open(table)))
    except err.TableNotFoundError:
        return TableAndDataset(table, None)


async def overwrite(backend: Backend, opener: Opener, id: TableId, content: Content) -> TableAndDataset:
    """Writes a version that replaces all rows and columns of a table, or creates the table.

    The registration is replaced if the catalog stores other properties or columns. Old versions stay.
    """
    for _ in range(_TIMES if content.is_repeatable else 0):
        try:
            return await _overwrite_once(backend, opener, id, content)
        except DataThereError:
            raise
        except (err.TableAlreadyExistsError, err.TableNotFoundError, err.TableVersionNotFoundError):
            # Another client may be writing the first version, or may have withdrawn it after it was opened here.
            continue
    return await _overwrite_once(backend, opener, id, content)


async def _overwrite_once(backend: Backend, opener: Opener, id: TableId, content: Content) -> TableAndDataset:
    try:
        old = await locate(backend, id)
    except err.TableNotFoundError:
        return await create(backend, opener, id, content)
    registration = what_to_register(backend, old, content)
    if registration is None:
        return await _replace_rows(backend, opener, old, content)
    async with rollback(partial(replacing.restore, backend, old, registration)):
        table = await replace_registration(backend, old, registration, content.schema)
        return await _replace_rows(backend, opener, table, content)


async def _replace_rows(backend: Backend, opener: Opener, table: Table, content: Content) -> TableAndDataset:
    place = content.place(table)
    work = partial(writing.insert, opener, place, None, content.data, "overwrite")
    async with concurrent_changes.explain_conflict(backend, place, makes=True):
        return TableAndDataset(table, await in_thread(place, work, changes=True, kind="writing"))


async def undo_declaration(backend: Backend, table: Table, error: BaseException, *, clear: bool = False) -> None:
    """Removes a declaration if it is unchanged and nothing was written to the table.

    If that cannot be determined, the registration stays, and a note on the error says so.

    Args:
        table: The table as it was declared, with the known storage options.
        error: The error that is the reason for the removal.
        clear: Whether the data files of interrupted writers at the location are deleted, too. These may include files
            of other writers that have not committed yet; their commit then reports that the table is gone.
    """
    files: Sequence[str] = ()
    left = (
        f"and table {table.id} stays registered at {table.location}, because it is unknown whether "
        "another client wrote "
        "to it ({why}); if not, deregister_table removes it"
    )
    try:
        there = await backend.describe_table(table.id)
        if not is_same(table, there):
            return
        options = merge_options(there.storage_options, table.storage_options)
        if backend.capabilities.vends and (not table.storage_options or ends_soon(table.storage_options)):
            there = await locate(backend, table.id)
            options = merge_options(table.storage_options, there.storage_options)
        place = replace(there, storage_options=options)
        if not datasets.is_at_hand(place):
            error.add_note(left.format(why="its storage is not accessible from here"))
            return
        if not await datasets.is_only_declared(place):
            error.add_note(f"and table {table.id} stays registered, because a version of it is at {table.location}")
            return
        if clear:
            # Listed while the name is registered: later files may belong to the next table of that name.
            files = await datasets.data_files(place)
    except err.TableNotFoundError:
        return
    except err.LanceNamespaceError as e:
        error.add_note(left.format(why=e))
        return
    try:
        await backend.deregister_table(table.id, table)
    except err.TableNotFoundError:
        return
    except err.LanceNamespaceError as e:
        error.add_note(f"and table {table.id} stays registered at {table.location} ({e})")
        return
    await _look_once_more(backend, place, files, error)


async def _look_once_more(backend: Backend, table: Table, files: Sequence[str], error: BaseException) -> None:
    """Declares a table again if another client wrote to it during the deregistration; else removes its leftovers.

    Args:
        files: Data files to remove.
    """
    try:
        free = await datasets.is_only_declared(table)
    except err.LanceNamespaceError as e:
        error.add_note(
            f"and it is unknown whether another client wrote to table {table.id} at {table.location} ({e}); it is "
            "no longer registered: if there is data, register_table registers it again"
        )
        return
    if free:
        try:
            await datasets.remove_files(table, files)
            await datasets.tidy(table)
        except err.LanceNamespaceError as e:
            error.add_note(f"and unused files are left at {table.location} ({e})")
        return
    try:
        await backend.register_table(table.id, table.location, table.properties or {}, table.schema)
        error.add_note(f"and table {table.id} is registered again, because another client wrote to it")
    except err.TableAlreadyExistsError:
        return
    except err.LanceNamespaceError as e:
        error.add_note(
            f"and another client wrote to {table.location}, but table {table.id} could not be registered again "
            f"({e}); if it is missing, register_table registers it again"
        )


def what_to_register(backend: Backend, old: Table, content: Content) -> tuple[str, Mapping[str, str]] | None:
    """Returns location and properties of the registration for an overwrite; None if it needs no change."""
    old_properties, new_properties = old.properties or {}, content.properties or {}
    same = all(old_properties.get(key) == value for key, value in new_properties.items())
    if same and (old.schema is None or old.schema.equals(content.schema)):
        return None
    if not backend.capabilities.replaces:
        if same:
            # Readers get the columns from the data. Those in the catalog stay as they were declared.
            return None
        raise err.UnsupportedOperationError(
            f"{PHRASES[err.UnsupportedOperationError]}: {old.id} (this catalog cannot change the properties of a "
            "registered table; omit the properties, or drop the table first)"
        )
    if old.managed_versioning and not backend.capabilities.commits_versions:
        raise err.InvalidInputError(
            f"table {old.id}: its catalog commits its versions, and would lose them with other properties; "
            "omit the properties, or drop the table first"
        )
    properties = dict(new_properties if content.properties is not None else old_properties)
    if old.managed_versioning:
        # A change of the other properties does not change which side commits the versions.
        properties.setdefault("managed_by", old_properties.get("managed_by", "impl"))
    backend.check_declaration(old.id, old.location, properties)
    return old.location, properties


async def replace_registration(
    backend: Backend, old: Table, registration: tuple[str, Mapping[str, str]], schema: pa.Schema
) -> Table:
    """Replaces the registration; returns the table with the credentials for writes."""
    await backend.replace_table(old, *registration, schema)
    return await locate(backend, old.id)

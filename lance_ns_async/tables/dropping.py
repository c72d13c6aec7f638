"""Drops of tables. A process killed during a drop leaves either the table or a name that can be used again.

A drop has four steps. Each one starts only after the previous one took effect:

1. A mark is written under the table's location. It contains the process, its time limit and a digest of the data files.
2. The registration is removed. Until then nothing is lost: if the catalog rejects the removal, or another client has
   removed the registration, the mark is removed again.
3. The mark is updated: it states that the registration was removed.
4. The data is deleted, with the latest manifest after all others. A reader by path finds the latest version or nothing,
   never an older version. Files with names that another table could also use are deleted before the latest manifest.
   Therefore, a new table of the name can be created as soon as nothing can be read at the location.

Of data files and the catalog's own files, step 4 deletes only those that existed at step 1, because later ones may
belong to a new table of that name. Iceberg metadata files must also contain the registration's id, because a server
writes them before it registers a table. A version committed between these steps is deleted, with the files that it
refers to. So is a version committed during the deletion, if the name is still free and the mark still exists. Versions
committed even later are left to their writers.

If a drop was killed after step 3, `finish` completes it when the name is declared again, unless another table of the
namespace is registered at the location by then. If a drop was killed between steps 2 and 3, the result of the removal
was not recorded. The mark shows that a user requested the drop of this data: it identifies the table, and has a digest
of the data files. Therefore `finish` completes the drop until ten minutes after the mark's time limit, if no table of
the namespace is registered at the location. The only risk is another client that, in this time and after the process
was killed before step 2, removes the registration to keep the data, or renames the table to another namespace. A later
declaration is rejected, because a mark can exist for years at a table in use; then only another `drop_table` of the
same name completes the drop. No data is deleted while the process that marked it may still be running, or if it differs
from the marked data. An operation that leaves the data to another name, or to none, removes the marks, and a drop whose
own mark was removed stops deleting.
"""

from __future__ import annotations

import os
import time
from asyncio import CancelledError
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from urllib.parse import unquote

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.policy import deadline, rollback
from lance_ns_async.engine.describe import describe_tables
from lance_ns_async.engine.list import Lister
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import PHRASES, UnreadableRegistrationError
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage import datasets
from lance_ns_async.storage.dir_markers import local_path, same_place
from lance_ns_async.storage.files import delete
from lance_ns_async.storage.threads import in_thread
from lance_ns_async.tables.deletion import DELETES_AT_ONCE, Deletion
from lance_ns_async.tables.drop_marks import (
    CATALOGS,
    CATALOGS_MOST,
    Files,
    Mark,
    at_work,
    content_of,
    digest,
    give_up_time,
    new_mark,
    read_marks,
    session_of,
    write_mark,
)

_DESCRIBES_AT_ONCE = 16

_RECENT_SECONDS = 600.0
"""Seconds after a drop's time limit in which a missing registration counts as removed by the drop."""

_LOOK_SECONDS = 5.0
"""Maximum seconds that the search for marks delays operations that do not need the storage."""

_METADATA = ".metadata.json"
"""Suffix of the catalog's files that contain the id of their registration."""


async def drop(backend: Backend, id: TableId) -> Table:
    """Removes a table from the catalog, and then its data with everything under its location.

    Returns:
        The table as it was registered. Its location is empty if the catalog had lost it.

    Raises:
        TableNotFoundError: The table does not exist, and there is no interrupted drop of it.
        InvalidTableStateError: Other tables are under its location, or another one is registered at it; nothing was
            removed.
        PermissionDeniedError: The catalog does not permit the removal, or the storage does not permit writes; nothing
            was removed.

    Cost: two calls, those for credentials, a listing and the deletes in the storage. One or two more calls if the
    last part of the location is not the table's own name.
    """
    try:
        table = await locate(backend, id)
    except UnreadableRegistrationError:
        return await _deregister_lost(backend, id)
    except TableNotFoundError as e:
        if backend.capabilities.drops or (left := await _left_behind(backend, id, e)) is None:
            raise
        return left
    if not backend.passes_on("drop_table"):
        await datasets.check_alone(table)
    if backend.capabilities.drops:
        await backend.drop_table(table)
        return table
    await check_not_shared(backend, table)
    mark = new_mark(id)
    with at_work(mark.token):
        before, own_mark = await _write_mark(table, mark)
        async with rollback(partial(_unmark, backend, table, own_mark)):
            await backend.deregister_table(id)
        await _delete_dropped(backend, table, before, own_mark)
    return table


async def finish(backend: Backend, table: Table) -> bool:
    """Deletes the data that an interrupted drop left at the location of an unregistered table.

    The drop must have recorded that the registration is gone, or must have been killed just before that, at most a few
    minutes ago. In addition, no other table of the namespace may be registered at the location. Tables of other
    namespaces are not checked: `disown` removes the marks for them.

    Returns:
        Whether the data was deleted, and no readable version is left.

    Cost: a listing of the location; if there is a mark of a drop, a describe of all tables of the namespace.
    """
    return await _finish(backend, table, within=_RECENT_SECONDS)


async def disown(backend: Backend, table: Table) -> None:
    """Removes the marks of drops from a registered table's location.

    It is called before the data is left to another name or to none, and after a registration. It is not called before
    a registration, because the catalog decides whether that is permitted; until then, `finish` checks for registered
    tables of the namespace. The marks stay if the storage cannot be accessed or listed.

    Cost: a listing; also a describe if only the catalog has credentials.
    """
    if backend.capabilities.drops:
        return
    with deadline(_LOOK_SECONDS):
        try:
            if backend.capabilities.vends and not datasets.is_at_hand(table):
                table = await locate(backend, table.id)
            if datasets.is_at_hand(table):
                await in_thread(table, partial(_remove_marks, table), changes=True)
        except LanceNamespaceError:
            # Renames and deregistrations must work even if the storage is gone, and registrations even without read
            # access to it.
            return


def _remove_marks(table: Table) -> None:
    if (folder := local_path(table.location)) is not None:
        # Without pylance, whose calls can crash in a process that was forked after pylance was used.
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in Files(os.listdir(folder)).marks:
                with suppress(FileNotFoundError):
                    os.remove(os.path.join(folder, path))
        return
    session = session_of(table)
    for path in Files(session.list_with_delimiter().objects).marks:
        delete(session, path)


async def check_not_shared(backend: Backend, table: Table) -> None:
    """Raises InvalidTableStateError if the location is the default one of another table that is registered there.

    Only tables whose default location in the catalog is this location are found, and only in these namespaces: the
    table's own, a sibling with the name of the folder above the location, and one with the names of the last folders
    above the location; each with or without Hive's `.db`. Tables of other namespaces are not found, for example of
    Glue databases whose `LocationUri` does not end with their name, nor tables registered with an explicit location:
    finding those would need a scan of the whole catalog.

    Cost: no call if the location has the names of the table itself, else up to two calls for each of four names.
    """
    for other in _owners(backend, table):
        try:
            place = await backend.layout_location(other)
        except (NamespaceNotFoundError, InvalidInputError, PermissionDeniedError):
            # The location does not exist, or the client may not read it.
            continue
        if place is None or not same_place(place, table.location):
            continue
        with suppress(TableNotFoundError):
            owner = await backend.describe_table(other)
            if same_place(owner.location, table.location):
                raise InvalidTableStateError(
                    f"Invalid table state: {table.id} (table {other} is also registered at its location "
                    f"{table.location}; deregister one of them to keep the data)"
                )


async def _deregister_lost(backend: Backend, id: TableId) -> Table:
    """Removes a registration whose location the catalog has lost."""
    await backend.deregister_table(id)
    place = await backend.default_location(id)
    if place is None:
        return Table(id, "")
    table = Table(id, place, storage_options=backend.configured_options)
    if not datasets.is_at_hand(table) or await datasets.is_only_declared(table):
        return Table(id, "")
    raise InvalidTableStateError(
        f"Invalid table state: {id} (it is no longer registered, but the catalog had lost its location, so no data was "
        f"deleted; there is data at its default location {place}: register it there, or remove it)"
    )


async def _left_behind(backend: Backend, id: TableId, error: TableNotFoundError) -> Table | None:
    """Completes a drop that was interrupted after the registration was gone; None if there is no such drop.

    If that fails or cannot be determined, a note on `error` says what may be left.
    """
    place: str | None = None
    try:
        place = await backend.default_location(id)
        if place is None:
            return None
        table = Table(id, place, storage_options=backend.configured_options)
        if not datasets.is_at_hand(table) or await datasets.is_only_declared(table):
            return None
        return table if await _finish(backend, table, within=inf) else None
    except LanceNamespaceError as e:
        where = "its default location, which is unknown," if place is None else place
        error.add_note(f"and data of an earlier drop may exist at {where}; it was not deleted ({e})")
        return None


async def _finish(backend: Backend, table: Table, *, within: float) -> bool:
    """Completes an interrupted drop; returns whether the data was deleted.

    Args:
        within: Maximum seconds since the time limit of a drop that did not record that the registration is gone.
    """
    mark = new_mark(table.id)

    def look() -> tuple[Files, bool]:
        """Returns the files, and whether the drop has certainly removed the registration."""
        session = session_of(table)
        files = Files(session.list())
        matches = [it for it in read_marks(session, files) if it.content == files.content]
        recent = [it for it in matches if it.subject == mark.subject and time.time() < it.until + within]
        certain = any(it.deregistered for it in matches)
        return files if certain or recent else Files([]), certain

    def claim() -> Deletion | None:
        session = session_of(table)
        before = read_marks(session, files)
        if any(it.is_at_work() for it in before):
            return None
        catalogs = {name for it in before if it.content == files.content for name in it.catalogs}
        mine = replace(mark, content=files.content, catalogs=sorted(catalogs)[:CATALOGS_MOST])
        with at_work(mine.token):
            write_mark(session, mine)
            now = Files(session.list())
            others = [it for it in read_marks(session, now) if it.token != mine.token]
            matches = [it for it in others if it.content == files.content]
            is_known = any(it.deregistered or it.subject == mine.subject for it in matches)
            if now.content != files.content or not is_known or any(it.is_at_work() for it in others):
                # Another process completes the drop, or has completed it, and another table uses the location now. Or
                # the mark is gone, because the drop was rejected or the data was left to another name.
                delete(session, mine.path)
                return None
        paths = [path for path in now.paths if not path.startswith(CATALOGS) or digest(path) in catalogs]
        return Deletion(table, Files(paths), mine, mine.until)

    files, certain = await in_thread(table, look)
    if not files.manifests or not await _is_unregistered(backend, table, certain=certain):
        return False
    with at_work(mark.token):
        deletion = await in_thread(table, claim, changes=True)
        return deletion is not None and await deletion.run(backend)


async def _is_unregistered(backend: Backend, table: Table, *, certain: bool) -> bool:
    """Returns whether no table of the namespace is registered at the location.

    Args:
        certain: Whether the drop has removed the registration. If so, only another name that is found at the location
            counts. If not, the table may have been renamed to a name that cannot be described.
    """
    lister = Lister(backend, max_in_flight=_DESCRIBES_AT_ONCE)
    try:
        ids = await lister.everything(table.id.parent)
    except PermissionDeniedError:
        if certain:
            return True
        raise
    if certain:
        # The client that now uses the name may just have declared it.
        ids = [id for id in ids if backend.capabilities.key(id) != backend.capabilities.key(table.id)]
    descriptions = await describe_tables(backend, ids, max_in_flight=_DESCRIBES_AT_ONCE)
    unknown = [error for error in descriptions.errors.values() if not isinstance(error, TableNotFoundError)]
    if unknown and not certain:
        return False
    return not any(same_place(it.location, table.location) for it in descriptions.tables.values())


async def _write_mark(table: Table, mark: Mark) -> tuple[Files, Mark | None]:
    """Returns the files at the location, and the mark that was written.

    The mark is None if there is nothing to delete, or if the storage cannot be written.
    """
    files = await in_thread(table, partial(_own, table))
    if not files.manifests:
        return files, None
    full_mark = replace(mark, content=files.content, catalogs=files.catalogs[:CATALOGS_MOST])
    try:
        await in_thread(table, lambda: write_mark(session_of(table), full_mark), changes=True)
    except InternalError:
        # A full disk must not prevent drops.
        return files, None
    return files, full_mark


def _own(table: Table) -> Files:
    """Returns the files at the location, without metadata that a catalog wrote for another registration. Blocks.

    Catalogs write metadata before they register a table; the registration may fail or follow later.
    """
    session = session_of(table)
    paths: Sequence[str] = session.list()
    metadata = [path for path in paths if path.startswith(CATALOGS) and path.endswith(_METADATA)]
    if table.registration is None or not metadata:
        return Files(paths)
    registration = table.registration.encode()
    with ThreadPoolExecutor(DELETES_AT_ONCE) as pool:
        texts = pool.map(partial(content_of, session), metadata)
        others = {path for path, text in zip(metadata, texts, strict=True) if registration not in text}
    return Files([path for path in paths if path not in others])


async def _unmark(backend: Backend, table: Table, mark: Mark | None, error: BaseException) -> None:
    """Removes a mark, unless the registration may be gone: then the next drop needs the mark to continue."""
    if mark is None:
        return
    try:
        if not isinstance(error, TableNotFoundError):
            await backend.describe_table(table.id)
        # Otherwise another client has removed the registration, and may need the data.
        await in_thread(table, lambda: delete(session_of(table), mark.path), changes=True)
    except TableNotFoundError:
        return
    except LanceNamespaceError as e:
        error.add_note(f"and a file that marks the drop is left at {table.location}/{mark.path} ({e})")


async def _delete_dropped(backend: Backend, table: Table, before: Files, mark: Mark | None) -> None:
    """Deletes the data of a table that is no longer registered; a location without a dataset counts as deleted."""
    left = f"the table is no longer registered; its remaining data is at {table.location}"
    deletion = Deletion(table, before, mark, mark.until if mark is not None else give_up_time())
    try:
        if not await deletion.run(backend) and not await _is_registered_at(backend, table):
            raise ConcurrentModificationError(
                f"{PHRASES[ConcurrentModificationError]}: {table.id} (another client wrote to its location, or "
                "registered it, while the data was deleted; the remaining data was not deleted)"
            )
    except LanceNamespaceError as e:
        raise type(e)(f"{e}; {left}") from e
    except CancelledError as e:
        e.add_note(left)
        raise


async def _is_registered_at(backend: Backend, table: Table) -> bool:
    """Returns whether the name is registered again at the same location; the data then belongs to that table."""
    try:
        return same_place((await backend.describe_table(table.id)).location, table.location)
    except TableNotFoundError:
        return False


def _owners(backend: Backend, table: Table) -> Sequence[TableId]:
    """Returns the ids whose default location may be the table's location, without the table's own id."""
    parts = [unquote(part.replace("~", "%")) for part in table.location.rstrip("/").split("/")]
    name = parts[-1].removesuffix(".lance")
    levels = parts[-len(table.id) : -1]
    # Hive stores databases in folders named `{database}.db`, optionally below a folder with the catalog's name.
    last = [part.removesuffix(".db") for part in levels[-1:]]
    parents = ([*table.id.parent], levels, [*levels[:-1], *last], [*table.id.parent[:-1], *last])
    candidates = [[*parent, name] for parent in parents]
    ids = [TableId(names) for names in candidates if all(names)]
    return [id for id in dict.fromkeys(ids) if backend.capabilities.key(id) != backend.capabilities.key(table.id)]

"""Dropping tables so that a process that dies on the way leaves the table, or a name that can be used again.

A drop has four steps. Each is done only after the one before it took effect:

1. A mark is written under the table's location: who drops, until when, and what data is meant.
2. The registration is removed. Up to here nothing is lost: where the catalog refuses, or where somebody else has
   removed it, the mark is removed again.
3. The mark says that the registration is gone.
4. The data is deleted, the latest manifest after all others: whoever reads by path finds the latest version or nothing,
   never an older one. Files whose names another table could use, too, go before it, so that the name can be used as
   soon as nothing can be read there.

Of the catalog's own files, and of data files, step 4 deletes those that were there at step 1: later ones may be of a
table that has the name since. Iceberg's metadata files have to name the registration, too: a server writes them before
it registers a table. A version that somebody commits in between goes, with the files that it names. So does
one that is committed while the data is deleted, if the name is still free and the mark is still there. What comes even
later is the affair of whoever commits it.

Where a drop died after step 3, `finish` does the rest for whoever declares the name again, unless another table of
the namespace is registered at the place by then. Where it died between steps 2 and 3, nobody has noted what the
catalog did. The mark says that a user wanted this very data dropped: it names the table and holds a digest of the
data files. So `finish` goes on for ten minutes after the mark's time, if no table of the namespace is registered at
the place. The only risk is another client that, within this time and after the process died before step 2, removes
the registration to keep the data, or renames the table to another namespace. A later declaration is refused, because
a mark can lie for years at a table that is in use: then only another `drop_table` of the same name goes on. Nobody
touches the data while the process that marked it may still be at work, nor data that is not what was marked. What
leaves the data to another name, or to none, removes the marks, and a drop that finds its own mark removed deletes no
more.
"""

from __future__ import annotations

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
from lance_ns_async.engine.locate import located
from lance_ns_async.errors import PHRASES, UnreadableRegistrationError
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage import datasets
from lance_ns_async.storage.dir_markers import same_place
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
"""For how long after a drop it is taken for certain that it was the drop which removed the registration."""

_LOOK_SECONDS = 5.0
"""How long looking for marks may keep what does not need the storage."""

_METADATA = ".metadata.json"
"""How names of these end that hold the id of the registration which they are of."""


async def drop(backend: Backend, id: TableId) -> Table:
    """Removes a table from the catalog, and then its data with everything under its location.

    Returns:
        The table as it was registered. Its location is empty where the catalog had lost it.

    Raises:
        TableNotFoundError: There is no such table, nor a drop of it that died half way.
        InvalidTableStateError: Other tables lie under its location, or another one is registered at it: nothing was
            removed.
        PermissionDeniedError: The catalog refuses to remove it, or the storage refuses to be written to: nothing was
            removed.

    Cost: two calls, those for credentials, and listing and deleting what is stored. One or two calls more where the
    last part of the location is not the table's own name.
    """
    try:
        table = await located(backend, id)
    except UnreadableRegistrationError:
        return await _free(backend, id)
    except TableNotFoundError as e:
        if backend.capabilities.drops or (left := await _left_behind(backend, id, e)) is None:
            raise
        return left
    await datasets.check_alone(table)
    if backend.capabilities.drops:
        await backend.drop_table(table)
        return table
    await check_not_shared(backend, table)
    mark = new_mark(id)
    with at_work(mark.token):
        before, marked = await _marked(table, mark)
        async with rollback(partial(_unmark, backend, table, marked)):
            await backend.deregister_table(id)
        await _delete_dropped(backend, table, before, marked)
    return table


async def finish(backend: Backend, table: Table) -> bool:
    """Deletes the data that a drop has left at the place of a table that is not registered, if it is certainly that.

    It is where the drop noted that the registration is gone, or was killed just before it could a few minutes ago at
    most, and no other table of the namespace is registered at the place. Tables of other namespaces that are registered
    there are not looked for: `disown` removes the mark for them.

    Returns:
        Whether nothing is left there that could be read.

    Cost: a listing of the place; where there is a mark of a drop, a describe of all tables of the namespace.
    """
    return await _finished(backend, table, within=_RECENT_SECONDS)


async def disown(backend: Backend, table: Table) -> None:
    """Removes the marks of drops from a registered table's place.

    Before its data is left to another name or to none, and after it was registered: not before, because the catalog
    decides who may register what is there, and until then `finish` looks whether a table of the namespace is. Where
    the storage is not at hand, or cannot be listed, they stay.

    Cost: a listing; a describe more where only the catalog has credentials.
    """
    if backend.capabilities.drops:
        return
    with deadline(_LOOK_SECONDS):
        try:
            if backend.capabilities.vends and not datasets.is_at_hand(table):
                table = await located(backend, table.id)
            if datasets.is_at_hand(table):
                await in_thread(table, partial(_remove_marks, table), changes=True)
        except LanceNamespaceError:
            # A table whose storage is gone can be renamed and deregistered all the same, and registered by those who
            # may not read it.
            return


def _remove_marks(table: Table) -> None:
    session = session_of(table)
    for path in Files(session.list_with_delimiter().objects).marks:
        delete(session, path)


async def check_not_shared(backend: Backend, table: Table) -> None:
    """Raises InvalidTableStateError where the data is also that of the table whose default place it is.

    Known are the tables whose default place, as the catalog tells it, is that location, if they are in the namespace of
    the table, in one beside it that has the name of the folder above the location, or in one whose names are those of
    the last folders above it; each with or without Hive's `.db`. Not known are tables of other namespaces, such as of
    Glue databases whose `LocationUri` does not end with their name, and tables that were registered there by a
    location: a catalog would have to be read whole for them.

    Cost: none where the location has the names of the table itself, and else up to two calls for each of four names.
    """
    for other in _owners(backend, table):
        try:
            place = await backend.layout_location(other)
        except (NamespaceNotFoundError, InvalidInputError, PermissionDeniedError):
            # There is no such place, or nobody may know it.
            continue
        if place is None or not same_place(place, table.location):
            continue
        with suppress(TableNotFoundError):
            found = await backend.describe_table(other)
            if same_place(found.location, table.location):
                raise InvalidTableStateError(
                    f"Invalid table state: {table.id} (its data at {table.location} is also that of table {other}, "
                    "which is registered there; deregister one of them, and nothing is deleted)"
                )


def _is_same_name(backend: Backend, one: TableId, other: TableId) -> bool:
    fold = backend.capabilities.folds_case
    return one == other or (fold and [name.lower() for name in one] == [name.lower() for name in other])


async def _free(backend: Backend, id: TableId) -> Table:
    """Removes a registration whose location nobody knows any more."""
    await backend.deregister_table(id)
    place = await backend.default_location(id)
    if place is None:
        return Table(id, "")
    table = Table(id, place, storage_options=backend.configured_options)
    if not datasets.is_at_hand(table) or await datasets.is_only_declared(table):
        return Table(id, "")
    raise InvalidTableStateError(
        f"Invalid table state: {id} (it is no longer registered, but the catalog had lost where its data was, so none "
        f"was deleted; there is data at its default place {place}: register it there, or remove it)"
    )


async def _left_behind(backend: Backend, id: TableId, error: TableNotFoundError) -> Table | None:
    """Finishes a drop that died after the registration was gone; None where there is none.

    Where that cannot be done or known, the error that the name is not registered is told what may be left.
    """
    place: str | None = None
    try:
        place = await backend.default_location(id)
        if place is None:
            return None
        table = Table(id, place, storage_options=backend.configured_options)
        if not datasets.is_at_hand(table) or await datasets.is_only_declared(table):
            return None
        return table if await _finished(backend, table, within=inf) else None
    except LanceNamespaceError as e:
        where = "its default place, which is unknown" if place is None else place
        error.add_note(f"and whether an earlier drop has left data at {where} is unknown, or it was not deleted ({e})")
        return None


async def _finished(backend: Backend, table: Table, *, within: float) -> bool:
    """Finishes a drop.

    Args:
        within: How many seconds ago a drop may have ended that did not note that the registration is gone.
    """
    mark = new_mark(table.id)

    def look() -> tuple[Files, bool]:
        """The files, and whether it is certain that the registration was removed by the drop."""
        session = session_of(table)
        files = Files(session.list())
        meant = [it for it in read_marks(session, files) if it.content == files.content]
        recent = [it for it in meant if it.subject == mark.subject and time.time() < it.until + within]
        certain = any(it.deregistered for it in meant)
        return files if certain or recent else Files([]), certain

    def claim() -> Deletion | None:
        session = session_of(table)
        before = read_marks(session, files)
        if any(it.is_at_work() for it in before):
            return None
        catalogs = {digest for it in before if it.content == files.content for digest in it.catalogs}
        mine = replace(mark, content=files.content, catalogs=sorted(catalogs)[:CATALOGS_MOST])
        with at_work(mine.token):
            write_mark(session, mine)
            now = Files(session.list())
            others = [it for it in read_marks(session, now) if it.token != mine.token]
            meant = [it for it in others if it.content == files.content]
            known = any(it.deregistered or it.subject == mine.subject for it in meant)
            if now.content != files.content or not known or any(it.is_at_work() for it in others):
                # Another process finishes it, or has, and the place is another table's by now. Or the drop was refused,
                # or the data left to somebody, and so the mark is gone.
                delete(session, mine.path)
                return None
        paths = [path for path in now.paths if not path.startswith(CATALOGS) or digest(path) in catalogs]
        return Deletion(table, Files(paths), mine, mine.until)

    files, certain = await in_thread(table, look)
    if not files.manifests or not await _is_nobodys(backend, table, certain=certain):
        return False
    with at_work(mark.token):
        deletion = await in_thread(table, claim, changes=True)
        return deletion is not None and await deletion.run(backend)


async def _is_nobodys(backend: Backend, table: Table, *, certain: bool) -> bool:
    """Returns whether no table of the namespace is registered at the place.

    Args:
        certain: Whether it was the drop that removed the registration. Then only another name that is found there
            counts. Else the table may have been renamed, to a name that cannot be described.
    """
    lister = Lister(backend, max_in_flight=_DESCRIBES_AT_ONCE)
    try:
        ids = await lister.everything(table.id.parent)
    except PermissionDeniedError:
        if certain:
            return True
        raise
    if certain:
        # Whoever wants the name may have declared it just now.
        ids = [id for id in ids if not _is_same_name(backend, id, table.id)]
    described = await describe_tables(backend, ids, max_in_flight=_DESCRIBES_AT_ONCE)
    unknown = [error for error in described.errors.values() if not isinstance(error, TableNotFoundError)]
    if unknown and not certain:
        return False
    return not any(same_place(it.location, table.location) for it in described.tables.values())


async def _marked(table: Table, mark: Mark) -> tuple[Files, Mark | None]:
    """The files at the place, and the mark as it was written.

    There is no mark where there is nothing to delete, or where nothing can be written.
    """
    files = await in_thread(table, partial(_own, table))
    if not files.manifests:
        return files, None
    written = replace(mark, content=files.content, catalogs=files.catalogs[:CATALOGS_MOST])
    try:
        await in_thread(table, lambda: write_mark(session_of(table), written), changes=True)
    except InternalError:
        # A full disk must not keep tables from being dropped.
        return files, None
    return files, written


def _own(table: Table) -> Files:
    """The files at the place, without metadata that a catalog has written for another registration. Blocks.

    Catalogs write it before they register a table, and then may refuse to register it, or do so later.
    """
    session = session_of(table)
    paths: Sequence[str] = session.list()
    metadata = [path for path in paths if path.startswith(CATALOGS) and path.endswith(_METADATA)]
    if table.registration is None or not metadata:
        return Files(paths)
    told = table.registration.encode()
    with ThreadPoolExecutor(DELETES_AT_ONCE) as pool:
        texts = pool.map(partial(content_of, session), metadata)
        others = {path for path, text in zip(metadata, texts, strict=True) if told not in text}
    return Files([path for path in paths if path not in others])


async def _unmark(backend: Backend, table: Table, mark: Mark | None, error: BaseException) -> None:
    """Removes a mark, unless the registration may be gone: then it is what the next drop goes on by."""
    if mark is None:
        return
    try:
        if not isinstance(error, TableNotFoundError):
            await backend.describe_table(table.id)
        # Else somebody else has removed the registration, and may want to keep the data.
        await in_thread(table, lambda: delete(session_of(table), mark.path), changes=True)
    except TableNotFoundError:
        return
    except LanceNamespaceError as e:
        error.add_note(f"and a file that marks the drop is left at {table.location}/{mark.path} ({e})")


async def _delete_dropped(backend: Backend, table: Table, before: Files, mark: Mark | None) -> None:
    """Deletes the data of a table that is no longer registered; a place without a dataset counts as deleted."""
    left = f"the table is no longer registered; what is left of its data is at {table.location}"
    deletion = Deletion(table, before, mark, mark.until if mark is not None else give_up_time())
    try:
        if not await deletion.run(backend) and not await _is_registered_at(backend, table):
            raise ConcurrentModificationError(
                f"{PHRASES[ConcurrentModificationError]}: {table.id} (others have written to its place, or registered "
                "it, while the data was deleted, so the rest was left to them)"
            )
    except LanceNamespaceError as e:
        raise type(e)(f"{e}; {left}") from e
    except CancelledError as e:
        e.add_note(left)
        raise


async def _is_registered_at(backend: Backend, table: Table) -> bool:
    """Returns whether the name is registered again, at the same place: what is there is that table's."""
    try:
        return same_place((await backend.describe_table(table.id)).location, table.location)
    except TableNotFoundError:
        return False


def _owners(backend: Backend, table: Table) -> Sequence[TableId]:
    """Ids whose default place the location may be, without the table's own."""
    parts = [unquote(part.replace("~", "%")) for part in table.location.rstrip("/").split("/")]
    name = parts[-1].removesuffix(".lance")
    levels = parts[-len(table.id) : -1]
    # Hive has databases in folders named `{database}.db`, below one of the catalog's name or none.
    last = [part.removesuffix(".db") for part in levels[-1:]]
    parents = ([*table.id.parent], levels, [*levels[:-1], *last], [*table.id.parent[:-1], *last])
    candidates = [[*parent, name] for parent in parents]
    ids = [TableId(names) for names in candidates if all(names)]
    return [id for id in dict.fromkeys(ids) if not _is_same_name(backend, id, table.id)]

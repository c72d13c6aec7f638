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

Where a drop died after step 3, `finish` does the rest for whoever declares the name again. Where it died between steps
2 and 3, nobody has noted what the catalog did. The mark says that a user wanted this very data dropped: it names the
table and holds a digest of the data files. So `finish` goes on for ten minutes after the mark's time, if no table of
the namespace is registered at the place. The only risk is another client that, within this time and after the process
died before step 2, removes the registration to keep the data, or renames the table to another namespace. A later
declaration is refused, because a mark can lie for years at a table that is in use: then only another `drop_table` of
the same name goes on. Nobody touches the data while the process that marked it may still be at work, nor data that is
not what was marked. What leaves the data to another name, or to none, removes the marks.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import tempfile
import time
import zlib
from asyncio import CancelledError
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from math import inf
from threading import Lock
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

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

from lance_ns_async import storage
from lance_ns_async.backends import locations
from lance_ns_async.backends.base import Backend
from lance_ns_async.bulk import describe_tables
from lance_ns_async.errors import PHRASES, UnreadableRegistrationError
from lance_ns_async.files import delete, download, open_session
from lance_ns_async.listing import Lister
from lance_ns_async.locating import located
from lance_ns_async.marks import local_path
from lance_ns_async.model import Table, TableId
from lance_ns_async.policy import deadline, remaining, rollback
from lance_ns_async.storage import Snapshot
from lance_ns_async.threads import PATIENCE, in_thread

PREFIX = ".lance-dropping-"
"""How the names of marks begin; they lie directly under a table's location."""

_GRACE_SECONDS = 30.0
"""For clocks that differ, and for requests on their way, before a mark of another machine counts as left behind."""

_DELETES_AT_ONCE = 16

_DESCRIBES_AT_ONCE = 16

_RECENT_SECONDS = 600.0
"""For how long after a drop it is taken for certain that it was the drop which removed the registration."""

_LOOK_SECONDS = 5.0
"""How long looking for marks may keep what does not need the storage."""

_MANIFEST = ".manifest"

_CATALOGS = "metadata/"
"""Where catalogs keep files of their own: for all that can be seen, a later one is the next table's."""

_METADATA = ".metadata.json"
"""How names of these end that hold the id of the registration which they are of."""

_ZIPPED = b"\x1f\x8b"

_CATALOGS_MOST = 16
"""How many of these a mark tells. Those beyond are left where another process finishes the drop."""

_LATE_TIMES = 3
"""How often versions are looked for that others committed while the data was deleted."""

_NEVER_TWICE = ("data/", "_transactions/", "_deletions/", "_indices/", ".lance-reserved", ".lance-deregistered")
"""Files whose names are made up for each write, and those by which directory catalogs hide a table."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Says that a process drops a table."""

    token: str
    subject: str
    """Digest of the table's id."""
    content: str
    """Digest of the names of the data files: whatever is written later, or by another table, changes it."""
    host: str
    process: int
    started: str
    """Tells processes apart that had the same number."""
    until: float
    """When the process gives up, in seconds since the epoch."""
    deregistered: bool = False
    catalogs: Sequence[str] = ()
    """Digests of the names of the catalog's own files that were there before the registration was removed."""

    @property
    def path(self) -> str:
        """Where the mark lies, relative to the table."""
        return f"{PREFIX}{self.token}.json"

    def is_at_work(self) -> bool:
        """Returns whether its process may still delete what it has marked."""
        if self.host != _host():
            return time.time() < self.until + _GRACE_SECONDS
        if self.process == os.getpid():
            return self.started == _started(self.process) and _running[self.token] > 0
        return _started(self.process) == self.started != ""


@dataclass(frozen=True, slots=True)
class Files:
    """What lies under a table's location."""

    paths: Sequence[str]

    @property
    def manifests(self) -> Sequence[str]:
        """Those of the main branch, oldest first."""
        found = [path for path in self.paths if path.startswith("_versions/") and path.endswith(_MANIFEST)]
        return sorted(found, key=_version)

    def manifests_after(self, latest: str) -> Sequence[str]:
        """Those of versions after `latest`, where it and all before it are gone."""
        found = self.manifests
        return found if all(_version(path) > _version(latest) for path in found) else []

    @property
    def content(self) -> str:
        """Digest of the names that are made up for each write."""
        lines = sorted(path for path in self.paths if path.startswith(("data/", "_transactions/")))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def catalogs(self) -> Sequence[str]:
        """Digests of the names of the catalog's own files, the latest first."""
        found = sorted((path for path in self.paths if path.startswith(_CATALOGS)), reverse=True)
        return [_digest(path) for path in found]

    @property
    def marks(self) -> Sequence[str]:
        """The marks of drops."""
        return [path for path in self.paths if path.startswith(PREFIX)]


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
    await storage.check_alone(table)
    if backend.capabilities.drops:
        await backend.drop_table(table)
        return table
    await check_not_shared(backend, table)
    mark = _mark(id)
    with _at_work(mark.token):
        before, marked = await _marked(table, mark)
        async with rollback(partial(_unmark, backend, table, marked)):
            await backend.deregister_table(id)
        await _delete_dropped(backend, table, before, marked)
    return table


async def finish(backend: Backend, table: Table) -> bool:
    """Deletes the data that a drop has left at the place of a table that is not registered, if it is certainly that.

    It is where the drop noted that the registration is gone, or was killed just before it could a few minutes ago at
    most, and no other table of the namespace is registered at the place. Tables of other namespaces that are registered
    there are not looked for: `adopt` removes the mark for them.

    Returns:
        Whether nothing is left there that could be read.

    Cost: a listing of the place; where there is a mark of a drop, a describe of all tables of the namespace.
    """
    return await _finished(backend, table, within=_RECENT_SECONDS)


async def disown(backend: Backend, table: Table) -> None:
    """Removes the marks of drops, where a table's data is left to another name or to none.

    Where the storage is not at hand, or cannot be listed, they stay.

    Cost: a listing.
    """
    if backend.capabilities.drops or not storage.is_at_hand(table):
        return

    def work() -> None:
        session = _session(table)
        for path in Files(session.list_with_delimiter().objects).marks:
            delete(session, path)

    with deadline(_LOOK_SECONDS):
        try:
            await in_thread(table, work, changes=True)
        except LanceNamespaceError:
            # A table whose storage is gone can be renamed and deregistered all the same.
            return


async def adopt(backend: Backend, table: Table) -> None:
    """Removes the marks of drops that died at the place of a table that was just registered, see `disown`.

    Not before: the catalog decides who may register what is there. Until the marks are removed, `finish` looks whether
    a table of the same namespace is registered at the place.

    Cost: a listing; a describe more where only the registered table has credentials.
    """
    if backend.capabilities.vends and not storage.is_at_hand(table):
        try:
            with deadline(_LOOK_SECONDS):
                table = await located(backend, table.id)
        except LanceNamespaceError:
            # It is registered all the same: credentials for reading it are another permission.
            return
    await disown(backend, table)


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
            place = await backend.default_location(other)
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


def same_place(one: str, other: str) -> bool:
    """Returns whether two spellings of a location mean the same place."""
    return _plain(one) == _plain(other)


async def _free(backend: Backend, id: TableId) -> Table:
    """Removes a registration whose location nobody knows any more."""
    await backend.deregister_table(id)
    place = await backend.default_location(id)
    if place is None:
        return Table(id, "")
    table = Table(id, place, storage_options=backend.configured_options)
    if not storage.is_at_hand(table) or await storage.is_only_declared(table):
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
        if not storage.is_at_hand(table) or await storage.is_only_declared(table):
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
    mark = _mark(table.id)

    def look() -> tuple[Files, bool]:
        """The files, and whether it is certain that the registration was removed by the drop."""
        session = _session(table)
        files = Files(session.list())
        meant = [it for it in _marks(session, files) if it.content == files.content]
        recent = [it for it in meant if it.subject == mark.subject and time.time() < it.until + within]
        certain = any(it.deregistered for it in meant)
        return files if certain or recent else Files([]), certain

    def claim() -> Deletion | None:
        session = _session(table)
        before = _marks(session, files)
        if any(it.is_at_work() for it in before):
            return None
        catalogs = {digest for it in before if it.content == files.content for digest in it.catalogs}
        mine = replace(mark, content=files.content, catalogs=sorted(catalogs)[:_CATALOGS_MOST])
        with _at_work(mine.token):
            _write(session, mine)
            now = Files(session.list())
            others = [it for it in _marks(session, now) if it.token != mine.token]
            meant = [it for it in others if it.content == files.content]
            known = any(it.deregistered or it.subject == mine.subject for it in meant)
            if now.content != files.content or not known or any(it.is_at_work() for it in others):
                # Another process finishes it, or has, and the place is another table's by now. Or the drop was refused,
                # or the data left to somebody, and so the mark is gone.
                delete(session, mine.path)
                return None
        paths = [path for path in now.paths if not path.startswith(_CATALOGS) or _digest(path) in catalogs]
        return Deletion(table, Files(paths), mine, mine.until)

    files, certain = await in_thread(table, look)
    if not files.manifests or not await _is_nobodys(backend, table, certain=certain):
        return False
    with _at_work(mark.token):
        deletion = await in_thread(table, claim, changes=True)
        return deletion is not None and await deletion.run(backend)


async def _is_nobodys(backend: Backend, table: Table, *, certain: bool) -> bool:
    """Returns whether no other table of the namespace is registered at the place.

    Args:
        certain: Whether it was the drop that removed the registration. Then only another registration that is found
            counts. Else the table may have been renamed, to a name that cannot be described.
    """
    lister = Lister(backend, max_in_flight=_DESCRIBES_AT_ONCE)
    try:
        ids = await lister.everything(table.id.parent)
    except PermissionDeniedError:
        if certain:
            return True
        raise
    others = [id for id in ids if not _is_same_name(backend, id, table.id)]
    described = await describe_tables(backend, others, max_in_flight=_DESCRIBES_AT_ONCE)
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
    written = replace(mark, content=files.content, catalogs=files.catalogs[:_CATALOGS_MOST])
    try:
        await in_thread(table, lambda: _write(_session(table), written), changes=True)
    except InternalError:
        # A full disk must not keep tables from being dropped.
        return files, None
    return files, written


def _own(table: Table) -> Files:
    """The files at the place, without metadata that a catalog has written for another registration. Blocks.

    Catalogs write it before they register a table, and then may refuse to register it, or do so later.
    """
    session = _session(table)
    paths: Sequence[str] = session.list()
    metadata = [path for path in paths if path.startswith(_CATALOGS) and path.endswith(_METADATA)]
    if table.registration is None or not metadata:
        return Files(paths)
    told = table.registration.encode()
    with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:
        texts = pool.map(partial(_downloaded, session), metadata)
        others = {path for path, text in zip(metadata, texts, strict=True) if told not in text}
    return Files([path for path in paths if path not in others])


def _downloaded(session: Any, path: str) -> bytes:
    """What is in a file; nothing where it is gone."""
    with tempfile.TemporaryDirectory(prefix="lance-dropping-") as folder:
        local = os.path.join(folder, "file")
        if not download(session, path, local):
            return b""
        with open(local, "rb") as file:
            content = file.read()
    if not content.startswith(_ZIPPED):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        # It is damaged, and so is of no registration.
        return content


async def _unmark(backend: Backend, table: Table, mark: Mark | None, error: BaseException) -> None:
    """Removes a mark, unless the registration may be gone: then it is what the next drop goes on by."""
    if mark is None:
        return
    try:
        if not isinstance(error, TableNotFoundError):
            await backend.describe_table(table.id)
        # Else somebody else has removed the registration, and may want to keep the data.
        await in_thread(table, lambda: delete(_session(table), mark.path), changes=True)
    except TableNotFoundError:
        return
    except LanceNamespaceError as e:
        error.add_note(f"and a file that marks the drop is left at {table.location}/{mark.path} ({e})")


async def _delete_dropped(backend: Backend, table: Table, before: Files, mark: Mark | None) -> None:
    """Deletes the data of a table that is no longer registered; a place without a dataset counts as deleted."""
    left = f"the table is no longer registered; what is left of its data is at {table.location}"
    deletion = Deletion(table, before, mark, mark.until if mark is not None else _until())
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


@dataclass(frozen=True, slots=True)
class Deletion:
    """Deletes the data of a table whose registration is gone."""

    table: Table
    before: Files
    """What was there before the registration was removed; of files whose names say nothing, only these are meant."""
    mark: Mark | None
    until: float
    """When to give up, in seconds since the epoch."""

    async def run(self, backend: Backend) -> bool:
        """Returns whether no version is left.

        Versions that others committed meanwhile go, too, with the files that they name, as long as nobody has
        registered the name again or left the data to somebody.

        Cost: a listing before and one after; a describe more where others have committed meanwhile.
        """
        marks, late = await in_thread(self.table, self._delete_listed, changes=True)
        for _ in range(_LATE_TIMES):
            if not late:
                break
            # Whoever registers the name from now on finds these versions, and whoever did before is found here.
            if not await _is_free(backend, self.table.id):
                break
            late = await in_thread(self.table, partial(self._delete_late, late), changes=True)
        if marks:
            await in_thread(self.table, partial(self._end, marks), changes=True)
        return not late

    def _delete_listed(self) -> tuple[Sequence[str], Sequence[str]]:
        """Deletes what was there before, and versions that were committed since.

        Returns:
            Marks to remove at the end, and versions that need another look. Blocks.
        """
        # Given up, it goes on in its thread.
        with self._at_work():
            session = _session(self.table)
            files = Files(session.list())
            late: Sequence[str] = files.manifests
            if self.mark is not None and late:
                if self.mark.path not in files.paths:
                    # Somebody has left the data to another name.
                    return (), late
                # On a full disk the data goes all the same.
                with suppress(OSError):
                    _write(session, replace(self.mark, deregistered=True))
            if self.before.manifests and late:
                known = {*self.before.paths, *self._named(session, files.manifests)}
                some = (_CATALOGS, *_NEVER_TWICE)
                paths = [path for path in files.paths if path in known or not path.startswith(some)]
                late = self._clear(session, [path for path in paths if path not in files.marks], late[-1])
            if not late:
                self._end(files.marks)
                return (), ()
            return files.marks, late

    def _delete_late(self, manifests: Sequence[str]) -> Sequence[str]:
        """Deletes versions that others have committed; gives those that came since. Blocks."""
        with self._at_work():
            session = _session(self.table)
            if self.mark is not None and not session.contains(self.mark.path):
                # Somebody has left the data to another name.
                return manifests
            hints = [path for path in session.list("_versions") if not path.endswith(_MANIFEST)]
            return self._clear(session, [*manifests, *hints, *self._named(session, manifests)], manifests[-1])

    def _named(self, session: Any, manifests: Sequence[str]) -> set[str]:
        """The files that these versions name, and that were not there before. Blocks."""
        named: set[str] = set()
        for path in manifests:
            if path in self.before.paths:
                continue
            try:
                dataset = storage.opened(self.table, Snapshot(_version(path)))
                committed = dataset.read_transaction(dataset.version)
            except (OSError, ValueError):
                if session.contains(path):
                    raise
                # Its writer has found the table gone.
                continue
            named |= {f"data/{it.path}" for one in dataset.get_fragments() for it in one.data_files()}
            named |= {it for one in dataset.get_fragments() if (it := one.deletion_file()) is not None}
            if committed is not None:
                uuids = [committed.uuid, *(it.uuid for it in getattr(committed.operation, "new_indices", None) or ())]
                listed = [*session.list("_transactions"), *session.list("_indices")]
                named |= {it for it in listed if any(uuid in it for uuid in uuids)}
        return named.difference(self.before.paths)

    def _clear(self, session: Any, paths: Sequence[str], latest: str) -> Sequence[str]:
        """Deletes the files; gives the versions that others have committed meanwhile. Blocks.

        Names that a new table at the same place would use go while the latest manifest still keeps it from being
        made, and none of them after the time is over.
        """
        locations.check_deletable(self.table)
        unique = [path for path in paths if path.startswith(_NEVER_TWICE)]
        shared = sorted({*paths} - {latest, *unique})
        with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:

            def in_time(path: str) -> None:
                _check_time(self.until)
                delete(session, path)

            for done in [pool.submit(in_time, path) for path in shared]:
                done.result()
            in_time(latest)
            for done in [pool.submit(delete, session, path) for path in unique]:
                done.result()
        return Files(session.list("_versions")).manifests_after(latest)

    def _end(self, marks: Sequence[str]) -> None:
        """Removes marks, and folders with nothing in them. Blocks."""
        session = _session(self.table)
        for path in marks:
            delete(session, path)
        if (place := local_path(self.table.location)) is not None:
            _remove_empty(place)

    def _at_work(self) -> AbstractContextManager[None]:
        return _at_work(self.mark.token if self.mark is not None else "")


async def _is_registered_at(backend: Backend, table: Table) -> bool:
    """Returns whether the name is registered again, at the same place: what is there is that table's."""
    try:
        return same_place((await backend.describe_table(table.id)).location, table.location)
    except TableNotFoundError:
        return False


async def _is_free(backend: Backend, id: TableId) -> bool:
    """Returns whether a name is certainly not registered."""
    try:
        await backend.describe_table(id)
    except UnreadableRegistrationError:
        return False
    except TableNotFoundError:
        return True
    return False


def _digest(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:8]


def _check_time(until: float) -> None:
    if time.time() > until:
        raise TimeoutError("operation timed out: the data was not deleted within the operation's time")


def _remove_empty(folder: str) -> None:
    """Removes a folder and those in it, as far as they are empty."""
    for path, _, _ in os.walk(folder, topdown=False):
        # Others may be about to write there.
        with suppress(OSError):
            os.rmdir(path)


def _write(session: Any, mark: Mark) -> None:
    with tempfile.NamedTemporaryFile("w", prefix="lance-dropping-") as file:
        json.dump(asdict(mark), file)
        file.flush()
        session.upload_file(file.name, mark.path)


def _read(session: Any, path: str) -> Mark | None:
    """The mark in a file; None where it is none, or is gone. OSError where it cannot be read."""
    try:
        return Mark(**json.loads(_downloaded(session, path)))
    except (ValueError, TypeError):
        return None


def _marks(session: Any, files: Files) -> Sequence[Mark]:
    return [mark for mark in (_read(session, path) for path in files.marks) if mark is not None]


def _mark(id: TableId) -> Mark:
    process = os.getpid()
    return Mark(
        token=uuid4().hex,
        subject=hashlib.sha256(str(id).lower().encode()).hexdigest(),
        content="",
        host=_host(),
        process=process,
        started=_started(process),
        until=_until(),
    )


def _until() -> float:
    left = remaining()
    return time.time() + (PATIENCE if left is None else left)


_running: Counter[str] = Counter()
"""Tokens of the drops of this process that are under way."""

_lock = Lock()


@contextmanager
def _at_work(token: str) -> Iterator[None]:
    with _lock:
        _running[token] += 1
    try:
        yield
    finally:
        with _lock:
            _running[token] -= 1
            if not _running[token]:
                del _running[token]


@cache
def _host() -> str:
    """The machine, and on it the numbering of processes."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _started(process: int) -> str:
    """When a process of this machine began; the empty string where there is none of that number."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    except FileNotFoundError:
        return "" if os.path.exists("/proc/self/stat") else _signalled(process)


def _signalled(process: int) -> str:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "unknown"


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


def _plain(location: str) -> str:
    local = local_path(location)
    return location.rstrip("/") if local is None else f"file://{local}"


def _version(path: str) -> int:
    name = path.rpartition("/")[2].removesuffix(_MANIFEST)
    if not name.isdecimal():
        return -1
    # Newer tables count down, so that the latest version is listed first.
    return 2**64 - 1 - int(name) if len(name) == 20 else int(name)


def _session(table: Table) -> Any:
    return open_session(table.location, table.storage_options)

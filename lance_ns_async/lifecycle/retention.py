"""Drops that can be taken back: the data stays until a time, and a file in the table's folder says what it was.

A drop writes the file before it removes the registration, so that a killed drop leaves a table, or a dropped table.
Beside a registered table, the file means nothing: that drop did not happen, or was taken back. Afterwards it writes a
mark that the drop is done. Without one, the table can be brought back, but is not purged: if the drop was killed before
the removal, another client may have deregistered the table later, to keep its data.

Each drop has a file of its own, in `.lance-ns-dropped`. Beside it are marks of the other two operations, which both
look again after they have acted, so that one of two at the same time sees the other:

- A purge marks the files that it has seen, whose retention must have ended, and then deletes the data, unless a table
  is registered there, or another drop has written a file since.
- An undrop marks the id that it restores, registers it, and takes this back if a file is marked by a purge, if a purge
  has deleted the mark, or if the table is registered under the id of another mark. Then it deletes the files of drops;
  its mark stays until the data is deleted. While a file that the mark names is there, the undrop is in progress or was
  killed, and no purge begins: another client may have deregistered the restored table later, to keep its data.
"""

from __future__ import annotations

import json
import os
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.errors import error_about
from lance_ns_async.lifecycle.dropping import delete_data
from lance_ns_async.model import NamespaceId, Table, TableId, local_path, same_place
from lance_ns_async.storage import files
from lance_ns_async.storage.lance_layout import DROP_NOTES
from lance_ns_async.storage.threads import in_thread

_FORMAT = 1  # The version of the files' format.

_RECORD, _DONE, _PURGE, _UNDROP = ".json", ".done", ".purge", ".undrop"
"""The ends of the names of files: of a drop, its end, the purge of the same name, and of an undrop."""

_RESOLUTION = timedelta(seconds=2)  # The largest one of the times of files.

_LONGEST_DROP = timedelta(days=1)  # A drop that was begun before that is not in progress any more.


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that was dropped, and can be brought back."""

    id: TableId
    location: str
    """The location of its data."""
    catalog: str
    """The catalog that it was dropped from."""
    dropped: datetime
    until: datetime
    """The time until which nothing is deleted."""
    properties: Mapping[str, str] | None = None
    schema: pa.Schema | None = None
    """The columns in the catalog; None if it stores none."""
    namespaces: Mapping[NamespaceId, Mapping[str, str]] = field(default_factory=dict)
    """The properties of the namespaces above it, in which a directory notes the values of partitions."""
    noted_location: str = ""
    """The location at the time of the drop; the folder may have been copied since."""
    is_done: bool = False
    """Whether the drop is known to have removed the registration."""
    is_purged: bool = False
    """Whether a purge deletes the data, so that the table cannot be brought back any more."""


async def drop(backend: Backend, table: Table, catalog: str, keep: float) -> None:
    """Writes the file of a dropped table, and removes the registration.

    Args:
        backend: The catalog.
        table: The table, with its credentials.
        catalog: The text that identifies the catalog.
        keep: The seconds for which the table can be brought back.

    Cost: a write of a small file, and the calls of `deregister_table`.
    """
    now = datetime.now(UTC)
    try:
        until = now + timedelta(seconds=keep)
    except OverflowError as e:
        raise err.InvalidInputError(f"keep {keep:g} seconds: too large") from e
    parents = [NamespaceId(table.id[:end]) for end in range(1, len(table.id))]
    namespaces: dict[NamespaceId, Mapping[str, str]] = {}
    if backend.capabilities.has_partitions:
        with suppress(err.NamespaceNotFoundError):
            namespaces = {parent: await backend.describe_namespace(parent) for parent in parents}
    record = DroppedTable(table.id, table.location, catalog, now, until, table.properties, table.schema, namespaces)
    name = uuid4().hex
    try:
        await in_thread(table, partial(_write, table, f"{name}{_RECORD}", _content(record)), changes=True)
    except err.LanceNamespaceError as e:
        raise type(e)(f"{e}; nothing was dropped, because a drop with retention is noted in the table's folder") from e
    try:
        await backend.deregister_table(table.id, table)
    except err.TableNotFoundError:
        # Another client has removed it; its own file says how long its data stays.
        await in_thread(table, partial(_delete, table, [f"{name}{_RECORD}"]), changes=True)
        raise
    await in_thread(table, partial(_write, table, f"{name}{_DONE}", {}), changes=True)


async def read(location: str, options: Mapping[str, str] | None) -> DroppedTable | None:
    """Returns the dropped table at a location, as its last drop left it; None if there is none.

    Cost: a listing, and a read of each file of a drop, of which there is usually one.
    """
    return (await _look(_place(location, options))).newest


async def undrop(backend: Backend, dropped: DroppedTable, id: TableId, options: Mapping[str, str] | None) -> Table:
    """Registers a dropped table again, as it was, and removes its files of drops.

    Args:
        backend: The catalog.
        dropped: The table.
        id: The id that it gets.
        options: The storage options for its folder.

    Raises:
        TableNotFoundError: It was brought back meanwhile, or a purge deletes its data.
        TableAlreadyExistsError: Another table has the id.

    Cost: one call, two listings, and reads, writes and deletions of small files; a describe for each
    other id as which the table was brought back before.
    """
    place = _place(dropped.location, options)
    before = await _look(place)
    if before.newest is None or before.newest.is_purged:
        raise _gone(dropped, before)
    mark = f"{uuid4().hex}{_UNDROP}"
    content = {"id": list(id), "drops": [*before.records]}
    await in_thread(place, partial(_write, place, mark, content), changes=True)
    table: Table | None = None

    async def undo(_: BaseException) -> None:
        if table is not None:
            await backend.deregister_table(id, table)
        await in_thread(place, partial(_delete, place, [mark]), changes=True)

    async with rollback(undo):
        table = await backend.restore_table(
            id, dropped.location, dropped.properties or {}, dropped.schema, former_id=dropped.id
        )
        problem = await _conflict(backend, dropped, id, mark, await _look(place))
        if problem is not None:
            try:
                await backend.deregister_table(id, table)
            except err.TableNotFoundError:
                problem = None  # It was there, and another client has removed it since.
            table = None
            if problem is not None:
                raise problem
    # The mark stays, for others that look later.
    await in_thread(place, partial(_delete, place, before.names_of_drops()), changes=True)
    return table or replace(place, id=id)


async def forget(location: str, options: Mapping[str, str] | None) -> None:
    """Removes the files of drops of a table that was registered again by other means."""
    place = _place(location, options)
    seen = await _look(place)
    await in_thread(place, partial(_delete, place, seen.names_of_drops()), changes=True)


async def _conflict(
    backend: Backend, dropped: DroppedTable, id: TableId, mark: str, now: _Seen
) -> err.LanceNamespaceError | None:
    """Returns why a table must not stay registered that was just brought back; None if it may."""
    for other in {*now.undrops.values()} - {id}:
        with suppress(err.TableNotFoundError, err.NamespaceNotFoundError):
            if same_place((await backend.describe_table(other)).location, dropped.location):
                return error_about(err.TableAlreadyExistsError, id, f"it was brought back as {other}")
    # A purge deletes all files; an undrop that succeeded since deletes those of drops, and checks what is here.
    is_marked = now.newest is not None and now.newest.is_purged
    return _gone(dropped, now) if is_marked or mark not in now.undrops else None


async def begin_purge(
    dropped: DroppedTable, before: datetime, options: Mapping[str, str] | None, *, dry_run: bool
) -> Collection[str] | None:
    """Marks a dropped table, so that it is not brought back any more, unless it is a dry run.

    Args:
        dropped: The table.
        before: The time before which the retention of all its drops must have ended. In a local folder, it must also
            have ended by the times of the files, which a file server may set by its own clock.
        options: The storage options for its folder.
        dry_run: Whether to mark nothing.

    Returns:
        The files of drops that it has seen; None if it must not be purged: a drop has a later end or may be in
            progress, no drop is known to be done, an undrop did not end, or the folder is a copy.

    Cost: a listing, and a write of a small file for each file of a drop.
    """
    place = _place(dropped.location, options)
    seen = await _look(place)
    drops = seen.records.values()
    if not any(it.is_done or it.is_purged for it in drops):
        return None
    if not all(same_place(it.noted_location, it.location) for it in drops):
        return None
    ages = await in_thread(place, partial(_ages, place, seen.records))
    for name, it in seen.records.items():
        # A purge that marked it has found that it ended, and may have deleted the file of its end.
        if it.is_purged:
            continue
        keep = it.until - it.dropped if it.is_done else _LONGEST_DROP
        is_late = it.dropped + keep > before or ages.get(name, keep) < keep - _RESOLUTION
        if is_late or name in seen.restored:
            return None
    for name in () if dry_run else seen.records:
        await in_thread(place, partial(_write, place, name.replace(_RECORD, _PURGE), {}), changes=True)
    return seen.records.keys()


async def finish_purge(dropped: DroppedTable, seen: Collection[str], options: Mapping[str, str] | None) -> bool:
    """Deletes the data of a marked table, which no registration claims; returns False if it was dropped again since.

    Args:
        dropped: The table.
        seen: The result of `begin_purge`.
        options: The storage options for its folder.

    Cost: three listings and the deletes.
    """
    place = _place(dropped.location, options)
    now = await _look(place)
    if now.records.keys() - seen:
        return False
    await delete_data(place, is_partial=dropped.is_purged)
    return True


@dataclass(frozen=True, slots=True)
class _Seen:
    """The files of drops at a location."""

    records: Mapping[str, DroppedTable]
    """The dropped tables by the names of the files."""
    purges: Collection[str]
    """The names of the marks of purges."""
    undrops: Mapping[str, TableId]
    """The ids as which the table was brought back, or is to be, by the names of the marks."""
    restored: Collection[str] = ()
    """The names of the files whose drops these marks take back."""

    def names_of_drops(self) -> Collection[str]:
        """Returns the names of the files of drops and of their marks, those of drops first."""
        return [*self.records, *self.purges, *(name.replace(_RECORD, _DONE) for name in self.records)]

    @property
    def newest(self) -> DroppedTable | None:
        return max(self.records.values(), key=lambda it: it.dropped, default=None)


def _gone(dropped: DroppedTable, seen: _Seen) -> err.TableNotFoundError:
    """Returns the error of a table that cannot be brought back."""
    reason = "it is not a dropped table any more: it was brought back or purged"
    if seen.newest is not None:
        reason = "a purge deletes its data"
    return error_about(err.TableNotFoundError, dropped.id, f"{reason}, at {dropped.location}")


def _place(location: str, options: Mapping[str, str] | None) -> Table:
    return Table(TableId([location]), location, storage_options=options)


async def _look(place: Table) -> _Seen:
    """Returns what drops, purges and undrops have left at a location."""
    return await in_thread(place, partial(_read, place))


def _write(place: Table, name: str, content: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="lance-ns-dropped-") as folder:
        path = os.path.join(folder, "file")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        files.open_files(place.location, place.storage_options).upload_file(path, f"{DROP_NOTES}/{name}")


def _read(place: Table) -> _Seen:
    if (folder := local_path(place.location)) is not None and not os.path.isdir(folder):
        return _Seen({}, (), {})  # Otherwise, pylance would create it.
    session = files.open_files(place.location, place.storage_options)
    names = {path.rpartition("/")[2] for path in session.list(DROP_NOTES)}
    records, undrops, restored = {}, {}, set[str]()
    for name in sorted(names):
        if not name.endswith((_RECORD, _UNDROP)):
            continue
        if (content := _load(place, session, name)) is None:
            # It was deleted since the listing; what else was deleted with it?
            return _read(place)
        try:
            if name.endswith(_UNDROP):
                undrops[name] = TableId(content["id"])
                restored.update(content["drops"])
            else:
                marks = {it: name.replace(_RECORD, it) in names for it in (_DONE, _PURGE)}
                records[name] = _record(content, place.location, is_done=marks[_DONE], is_purged=marks[_PURGE])
        except (ValueError, KeyError, TypeError, err.InvalidInputError) as e:
            raise _damaged(place, name, e) from e
    return _Seen(records, [name for name in names if name.endswith(_PURGE)], undrops, restored)


def _ages(place: Table, names: Iterable[str]) -> Mapping[str, timedelta]:
    """Returns the ages of files in a local folder, by the time of its storage; empty for an object store.

    Object stores refuse signed requests of clocks that are not theirs: S3 allows a difference of 15 minutes.
    """
    if (path := local_path(place.location)) is None:
        return {}
    folder, ages = os.path.join(path, DROP_NOTES), dict[str, timedelta]()
    with suppress(FileNotFoundError):  # Another client has deleted them meanwhile.
        with tempfile.TemporaryFile(dir=folder) as file:
            now = os.fstat(file.fileno()).st_mtime
        for name in names:
            ages[name] = timedelta(seconds=now - os.stat(os.path.join(folder, name)).st_mtime)
    return ages


def _load(place: Table, session: Any, name: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="lance-ns-dropped-") as folder:
        path = os.path.join(folder, "file")
        if not files.download(session, f"{DROP_NOTES}/{name}", path):
            return None
        with open(path, "rb") as file:
            content = file.read()
    try:
        return json.loads(content)
    except ValueError as e:
        raise _damaged(place, name, e) from e


def _damaged(place: Table, name: str, error: Exception) -> err.InvalidTableStateError:
    reason = f"{DROP_NOTES}/{name} cannot be read ({type(error).__name__}); delete it, or register the table by hand"
    return error_about(err.InvalidTableStateError, place.id, reason)


def _delete(place: Table, names: Iterable[str]) -> None:
    session = files.open_files(place.location, place.storage_options)
    for name in names:
        files.delete(session, f"{DROP_NOTES}/{name}")
    if (folder := local_path(place.location)) is not None:
        # Another drop may have written there.
        with suppress(OSError):
            os.rmdir(os.path.join(folder, DROP_NOTES))


def _content(record: DroppedTable) -> Mapping[str, Any]:
    return {
        "format": _FORMAT,
        "id": list(record.id),
        "location": record.location,
        "catalog": record.catalog,
        "dropped": record.dropped.isoformat(),
        "until": record.until.isoformat(),
        "properties": None if record.properties is None else dict(record.properties),
        "namespaces": [[list(id), dict(properties)] for id, properties in record.namespaces.items()],
        "schema": None if record.schema is None else b64encode(record.schema.serialize()).decode(),
    }


def _record(content: Mapping[str, Any], location: str, *, is_done: bool, is_purged: bool) -> DroppedTable:
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}")
    schema = content["schema"]
    return DroppedTable(
        TableId(content["id"]),
        location,
        str(content["catalog"]),
        datetime.fromisoformat(content["dropped"]).astimezone(UTC),
        datetime.fromisoformat(content["until"]).astimezone(UTC),
        content["properties"],
        None if schema is None else pa.ipc.read_schema(pa.py_buffer(b64decode(schema))),
        {NamespaceId(names): properties for names, properties in content["namespaces"]},
        str(content["location"]),
        is_done,
        is_purged,
    )

"""Tables that were dropped with a retention: a list of them, their return, and the deletion of those that expired."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import lance_namespace.errors as err

from lance_ns_async.calls.tasks import each
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import error_about, suggest
from lance_ns_async.fleet.registered import RegisteredTables
from lance_ns_async.fleet.run import Report, Run, failure_row, for_async, start
from lance_ns_async.fleet.table_search import read_facts
from lance_ns_async.fleet.unclaimed import measure_folder
from lance_ns_async.lifecycle import retention
from lance_ns_async.lifecycle.retention import DroppedTable
from lance_ns_async.many import bulk
from lance_ns_async.many.patterns import Selection, What, matcher
from lance_ns_async.model import NamespaceId, Table, TableId, local_path
from lance_ns_async.operations import maintaining, namespaces
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.session import Session
from lance_ns_async.settings import seconds
from lance_ns_async.storage.datasets import open_snapshot
from lance_ns_async.storage.folders import LISTINGS, Folders
from lance_ns_async.storage.lance_layout import DROP_NOTES, PARTS
from lance_ns_async.storage.threads import THREADS, in_thread
from lance_ns_async.tabular import Row

DROPPED, EXPIRED, PURGING = "dropped", "expired", "purging"
PURGED, KEPT = "purged", "kept"
BROUGHT_BACK = "brought back"

_ROUND = 512  # Maximum number of folders that are looked at, and of tables that are purged, at once.

_WHY_KEPT = (
    "its drop or undrop was interrupted, it was dropped again or copied, or its drop is later by the clock of the "
    "storage; undrop it, or delete it by hand"
)

_TIMEOUT = 3600.0  # Seconds for the deletion of one table.


@for_async
async def dropped(
    namespace: AsyncNamespace,
    /,
    *,
    under: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Finds the dropped tables that can be brought back, below a folder or bucket.

    Args:
        namespace: The catalog.
        under: A local folder, or a URI that Lance supports; None means the catalog's property `root`.
        storage_options: Options for the storage; None uses those of the catalog's properties, and the environment.
        progress: Shows a bar in a terminal or notebook, or receives the number of folders so far.

    Returns:
        A row for each table, the last dropped first: "dropped", "expired" (`purge` deletes it), or "purging". Its
            fields are the times `dropped` and `until`, the `size` in bytes and the number of `rows` of the newest
            version, the `catalog` that it was dropped from, and `name_is_free`, which is False if another table has the
            name now. Folders that could not be read are rows with errors.

    Raises:
        InvalidInputError: The folder does not exist, or the catalog has no root and `under` is None.

    Cost:
        A listing of the storage for each folder; for each dropped table also two reads and an open. A listing and a
            bulk describe of the whole catalog.
    """
    report, _ = await list_dropped(namespace, under, storage_options, progress=progress)
    return report


async def list_dropped(
    namespace: AsyncNamespace,
    under: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    include: Callable[[TableId], bool] = lambda _: True,
    most: int | None = None,
    progress: bool | ProgressCallback = False,
) -> tuple[Report, int]:
    """Returns the result of `dropped` for the tables that `include` selects, and their number.

    Args:
        namespace: The catalog.
        under: As in `dropped`.
        storage_options: As in `dropped`.
        include: Whether a table is in the result, by its id.
        most: Maximum number of rows, those of the last dropped tables; None means all.
        progress: As in `dropped`.
    """
    session, options = namespace.session, _options(namespace, storage_options)
    folders = Folders(_under(session, under), options)
    with start("dropped", namespace, progress=progress) as run, session.within(None):
        tables, catalog = await _find_all(session, folders, options, run, include)
        last_tables = tables[:most]
        rows: dict[str, Row] = {}

        async def add(table: DroppedTable) -> None:
            rows[table.location] = await _row(table, options, is_free=catalog.is_free(table.id))

        await each(add, last_tables, max_in_flight=THREADS)
        for table in last_tables:
            run.add(rows[table.location])
        run.counters["folders"] = folders.listings
        return run.report(shown_outcomes=frozenset({DROPPED, EXPIRED, PURGING})), len(tables)


@for_async
async def undrop(
    namespace: AsyncNamespace,
    /,
    table: str | Iterable[str],
    *,
    as_: str | Iterable[str] | None = None,
    under: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Brings back a dropped table: registers it again, as it was, with its versions, tags, branches and indexes.

    Missing namespaces of the id are created.

    Args:
        namespace: The catalog.
        table: The id that the table had; the one that was dropped last has precedence. Or its location.
        as_: The id that it gets; None means the one that it had.
        under: Where the table is searched by its id; see `dropped`.
        storage_options: As in `dropped`.

    Returns:
        The table.

    Raises:
        TableNotFoundError: There is no such dropped table; it was brought back already, or a purge deletes its data.
        TableAlreadyExistsError: Another table has the id.

    Cost:
        By location: two or three calls, and a few reads and writes of small files. By id, also a listing of the storage
            for each folder, and a read for each dropped table.
    """
    session, options = namespace.session, _options(namespace, storage_options)
    location = table if isinstance(table, str) and ("://" in table or table.startswith("/")) else None
    with session.within(None):
        if location is not None:
            record = await dropped_at(location, options)
        else:
            folders = Folders(_under(session, under), options)
            record = await _find(session, session.table(TableId(table)), folders, options)
    try:
        return await bring_back(session, record, record.id if as_ is None else TableId(as_), options)
    except err.TableAlreadyExistsError as e:
        if as_ is not None:
            raise
        raise err.TableAlreadyExistsError(f"{e}; to bring it back under another id, pass as_") from e


@for_async
async def undrop_many(
    namespace: AsyncNamespace,
    /,
    what: What,
    *,
    under: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Brings back many dropped tables, each under the id that it had; of several with one id the last dropped.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables.
        under: See `dropped`.
        storage_options: As in `dropped`.
        progress: Shows a bar in a terminal or notebook, or receives the number of folders and tables so far.

    Returns:
        A row for each table: "brought back"; or "missing", "denied" or "failed" for errors, also if its name is taken.

    Raises:
        InvalidInputError: As in `dropped`; or an id or a pattern is invalid.

    Cost:
        As of `dropped`, without the opens; for each table, as of an undrop by location.
    """
    selection, key = Selection.read(what), namespace.session.backend.capabilities.key
    session, options = namespace.session, _options(namespace, storage_options)
    ids, matches = {key(session.table(id)): id for id in selection.ids}, matcher(selection.patterns)
    folders = Folders(_under(session, under), options)
    with start("undrop", namespace, progress=progress) as run, session.within(None):
        tables, _ = await _find_all(session, folders, options, run, lambda id: key(id) in ids or matches(id))
        newest = {key(table.id): table for table in reversed(tables)}
        for id in (id for names, id in ids.items() if names not in newest):
            missing = error_about(err.TableNotFoundError, id, f"it is no dropped table below {folders.root}")
            run.add(failure_row(id, missing))

        async def restore(table: DroppedTable) -> None:
            try:
                await bring_back(session, table, table.id, options)
            except err.LanceNamespaceError as e:
                run.finish(failure_row(table.id, e, table.location))
            else:
                run.finish(Row(table.id, BROUGHT_BACK, "", table.location))

        run.expect(len(newest))
        await each(restore, newest.values(), max_in_flight=THREADS)
        return run.report()


async def dropped_at(location: str, options: Mapping[str, str] | None) -> DroppedTable:
    """Returns the dropped table at a location; raises TableNotFoundError if there is none."""
    place = Folders(location, options).root
    if (record := await retention.read(place, options)) is None:
        raise err.TableNotFoundError(f"Table not found: undrop: no dropped table is at {place}")
    return record


async def bring_back(session: Session, record: DroppedTable, id: TableId, options: Mapping[str, str] | None) -> Table:
    """Registers a dropped table again, and creates the namespaces of its id that do not exist; see `undrop`."""
    id = session.table(id)
    await _create_namespaces(session, id, record)
    with session.changing(id):
        return await retention.undrop(session.backend, record, id, options)


@for_async
async def purge(
    namespace: AsyncNamespace,
    /,
    *,
    older_than: str | timedelta | None = None,
    under: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Deletes the data of dropped tables whose retention has ended, unless a table of the catalog is registered there.

    A purge that was interrupted is finished by the next one. Registrations that are not visible to this client, and
    those of other catalogs, are not known here.

    Args:
        namespace: The catalog.
        older_than: Also requires that the drop is so long ago, such as `30d`; None does not.
        under: See `dropped`.
        storage_options: As in `dropped`.
        dry_run: Whether to delete nothing, and report what would be deleted.
        progress: Shows a bar in a terminal or notebook, or receives the number of folders and tables so far.

    Returns:
        A row for each expired table: "purged", with the `size` in bytes that is deleted, in an object store without
            indexes of the newest version; or "kept", with the reason. Tables that could not be deleted are rows with
            errors. The counter `bytes` is the sum.

    Raises:
        InvalidInputError: As in `dropped`; or `older_than` is invalid.

    Cost:
        As of `dropped`; for 512 tables each, another listing and bulk describe of the whole catalog; and the deletes.
            In an object store, also a listing of each table, and a read of each version.
    """
    session, options = namespace.session, _options(namespace, storage_options)
    age = timedelta(0) if older_than is None else timedelta(seconds=seconds("older_than", older_than))
    folders = Folders(_under(session, under), options)
    with start("purge", namespace, progress=progress) as run, session.within(None):
        now = datetime.now(UTC)
        async for tables in _walk(folders, options, run):
            due = [it for it in tables if it.is_purged or (it.until <= now and it.dropped <= now - age)]
            if due:
                await _purge(session, due, now, options, run, dry_run=dry_run)
        return run.report(dry_run=dry_run, shown_outcomes=frozenset({PURGED, KEPT}))


async def _purge(
    session: Session,
    due: Sequence[DroppedTable],
    now: datetime,
    options: Mapping[str, str] | None,
    run: Run,
    *,
    dry_run: bool,
) -> None:
    """Purges up to some hundred tables, of which those that are registered are left out first."""
    due = await _unclaimed(await RegisteredTables.read(session), due)
    sizes: dict[str, int | None] = {}
    seen: dict[str, Collection[str]] = {}

    def purged_row(table: DroppedTable) -> Row:
        run.counters["bytes"] += sizes[table.location] or 0
        return Row(table.id, PURGED, "", table.location, fields=_times(table) | {"size": sizes[table.location]})

    async def begin(table: DroppedTable) -> None:
        sizes[table.location] = await _deleted_bytes(table, options)
        try:
            marked = await retention.begin_purge(table, now, options, dry_run=dry_run)
        except err.LanceNamespaceError as e:
            run.add(failure_row(table.id, e, table.location))
            return
        if marked is None:
            run.add(Row(table.id, KEPT, _WHY_KEPT, table.location))
        elif dry_run:
            run.add(purged_row(table))
        else:
            seen[table.location] = marked

    await each(begin, due, max_in_flight=THREADS)
    marked = [table for table in due if table.location in seen]
    if not marked:
        return
    # A table that was brought back before it was marked is registered now.
    free = await _unclaimed(await RegisteredTables.read(session), marked)
    kept = {table.location for table in marked}.difference(table.location for table in free)
    for table in marked:
        if table.location in kept:
            run.add(Row(table.id, KEPT, "it was brought back meanwhile", table.location))

    async def finish(table: DroppedTable) -> None:
        try:
            with session.within(_TIMEOUT):
                is_gone = await retention.finish_purge(table, seen[table.location], options)
        except err.LanceNamespaceError as e:
            run.add(failure_row(table.id, e, table.location))
            return
        if is_gone:
            run.add(purged_row(table))
        else:
            run.add(Row(table.id, KEPT, "it was dropped again meanwhile", table.location))

    await each(finish, free, max_in_flight=THREADS)


async def _walk(
    folders: Folders, options: Mapping[str, str] | None, run: Run
) -> AsyncGenerator[Sequence[DroppedTable], None]:
    """Yields the dropped tables below a root, in rounds of some hundred folders; tables are not searched for others."""
    stack = [""]
    while stack:
        batch, stack[-_ROUND:] = stack[-_ROUND:], []
        tables: list[DroppedTable] = []

        async def look(path: str, tables: list[DroppedTable] = tables) -> None:
            location = folders.location(path)
            try:
                if (folder := await folders.list(path)) is None:
                    if not path:
                        raise err.InvalidInputError(f"under {folders.root!r}: there is no such folder, or it is empty")
                    return
                if DROP_NOTES in folder.folders and (table := await retention.read(location, options)) is not None:
                    tables.append(table)
            except err.LanceNamespaceError as e:
                if not path:
                    raise
                run.add(failure_row(location, e, location))
                return
            finally:
                run.advance()
            if PARTS.isdisjoint(folder.folders):
                children = (name for name in folder.folders if not name.startswith((".", "_")))
                stack.extend(f"{path}/{name}" if path else name for name in children)

        run.expect(len(batch))
        await each(look, batch, max_in_flight=LISTINGS)
        if tables:
            yield tables


async def _find_all(
    session: Session, folders: Folders, options: Mapping[str, str] | None, run: Run, include: Callable[[TableId], bool]
) -> tuple[Sequence[DroppedTable], RegisteredTables]:
    """Returns the dropped tables that `include` selects, the last dropped first, and the registered tables."""
    tables: list[DroppedTable] = []
    async for some in _walk(folders, options, run):
        tables += (table for table in some if include(table.id))
    catalog = await RegisteredTables.read(session)
    return sorted(await _unclaimed(catalog, tables), key=lambda it: it.dropped, reverse=True), catalog


async def _create_namespaces(session: Session, id: TableId, dropped: DroppedTable) -> None:
    """Creates the namespaces of an id that do not exist, with the properties that they had."""
    if id.parent and not await bulk.exists(session, id.parent):
        for end in range(1, len(id)):
            parent = NamespaceId(id[:end])
            if not await bulk.exists(session, parent):
                properties = dict(dropped.namespaces.get(parent, {})) or None
                await namespaces.create_namespace(
                    session, {"id": list(parent), "mode": "ExistOk", "properties": properties}
                )


async def _find(session: Session, id: TableId, folders: Folders, options: Mapping[str, str] | None) -> DroppedTable:
    """Returns the dropped table that had an id, the last one if there are several."""
    key, others = session.backend.capabilities.key, set[str]()
    newest: DroppedTable | None = None
    with start("undrop", AsyncNamespace(session)) as run:
        async for tables in _walk(folders, options, run):
            others.update(str(table.id) for table in tables)
            for table in tables:
                if key(table.id) == key(id) and (newest is None or table.dropped > newest.dropped):
                    newest = table
    if newest is None:
        hint = suggest(str(id), sorted(others), most=5)
        if await bulk.exists(session, id):
            hint = "the catalog has a table of that id"
        reason = f"undrop: no dropped table of that id is below {folders.root}; {hint}"
        raise err.TableNotFoundError(f"Table not found: {id} ({reason})")
    return newest


async def _unclaimed(catalog: RegisteredTables, tables: Sequence[DroppedTable]) -> list[DroppedTable]:
    """Returns the tables at whose locations none is registered: there, the files of drops mean nothing."""
    claims = await catalog.claims([table.location for table in tables])
    return [table for table, is_claimed in zip(tables, claims, strict=True) if not is_claimed]


async def _row(table: DroppedTable, options: Mapping[str, str] | None, *, is_free: bool) -> Row:
    """Returns the row of a dropped table. Cost: one open."""
    size, rows = await _size(table, options)
    now = datetime.now(UTC)
    if table.is_purged:
        outcome, reason = PURGING, "a purge has begun to delete it"
    elif table.until <= now:
        outcome, reason = EXPIRED, f"since {_text(table.until)}"
    else:
        outcome, reason = DROPPED, f"until {_text(table.until)}"
    if not is_free:
        reason += "; another table has the name now"
    fields = _times(table) | {"size": size, "rows": rows, "catalog": table.catalog, "name_is_free": is_free}
    return Row(table.id, outcome, reason, table.location, fields=fields)


async def _size(table: DroppedTable, options: Mapping[str, str] | None) -> tuple[int | None, int | None]:
    """Returns the bytes and the rows of the newest version; None if nothing was written, or it cannot be read."""
    place = Table(table.id, table.location, storage_options=options)

    def read() -> tuple[int | None, int | None]:
        facts = read_facts(place.id, place.location, {}, open_snapshot(place))
        return facts.size, facts.rows

    try:
        return await in_thread(place, read)
    except err.LanceNamespaceError:
        return None, None


async def _deleted_bytes(table: DroppedTable, options: Mapping[str, str] | None) -> int | None:
    """Returns the bytes that a purge deletes; None if they are not known.

    Cost: for a local folder its listing; otherwise an open, a listing, and a read of each version.
    """
    place = Table(table.id, table.location, storage_options=options)

    def read() -> int:
        if (path := local_path(place.location)) is not None:
            return measure_folder(path)[0]
        dataset = open_snapshot(place)
        newest = read_facts(place.id, place.location, {}, dataset).size
        everything = maintaining.CleanupLimits(older_than=0, retain_versions=None, delete_unverified=True)
        removed: int = maintaining.cleanup_numbers(dataset, everything).bytes_removed
        return newest + removed

    try:
        return await in_thread(place, read)
    except err.LanceNamespaceError:
        return None


def _times(table: DroppedTable) -> dict[str, Any]:
    return {"dropped": _text(table.dropped), "until": _text(table.until)}


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


def _under(session: Session, under: str | None) -> str:
    """Returns where dropped tables are searched; None means the root of the catalog."""
    if under is None and session.root is None:
        raise err.InvalidInputError("under: this catalog has no root; pass the folder or bucket of the tables as under")
    return under or str(session.root)


def _options(namespace: AsyncNamespace, storage_options: Mapping[str, str] | None) -> Mapping[str, str] | None:
    return namespace.session.backend.configured_options if storage_options is None else storage_options

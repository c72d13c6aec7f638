"""Discovery: finds the Lance tables below a folder or bucket, and registers those that the catalog does not have."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import lance_namespace.errors as err

from lance_ns_async.backends.base import Declaration
from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.engine.declare import Outcome
from lance_ns_async.fleet.folder_walk import ExaminedFolder, FolderKind, FolderWalker, walk_folders
from lance_ns_async.fleet.journal import Journal, JournalEntry, function_name, open_journal
from lance_ns_async.fleet.reading import namespaces_of
from lance_ns_async.fleet.run import Report, Run, failure_row, for_async, start
from lance_ns_async.fleet.unclaimed import describe_missing, find_missing
from lance_ns_async.lifecycle import retention
from lance_ns_async.many import bulk, search
from lance_ns_async.model import DELIMITER, NamespaceId, Table, TableId
from lance_ns_async.operations import namespaces
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.session import Session
from lance_ns_async.storage.folders import Folders, find_same_place, place_keys
from lance_ns_async.storage.locations import name_of_segment, without_suffix
from lance_ns_async.storage.threads import THREADS
from lance_ns_async.tabular import Row, Subject

NameFunction = Callable[[str], Iterable[str] | None]
"""Returns the names below `into` for a table's path relative to the root; None leaves the table out."""

REGISTERED = "registered"
PRESENT = "present"
ELSEWHERE = "elsewhere"
OTHER_NAME = "other name"
CONFLICT = "conflict"
UNFINISHED = "unfinished"
VANISHED = "vanished"
HALF_DELETED = "half-deleted"
DROPPED = "dropped"

_PROBLEMS = frozenset({ELSEWHERE, CONFLICT, HALF_DELETED})
_FOLDERS, _TABLES, _ROWS = "folders", "tables", "rows"
"""The stages in the journal: folders to look at, paths of tables, and finished rows."""
_DONE = "done"
_SUFFIX = ".lance"
_NESTED = re.compile(r"(?P<digits>[0-9a-f]{8})_(?P<id>[^/]+)")
"""The folder of a table in a namespace of a directory catalog, in pylance's form."""


@for_async
async def discover(
    namespace: AsyncNamespace,
    uri: str,
    *,
    into: Iterable[str] = (),
    name: NameFunction | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    whole_catalog: bool = False,
    include_dropped: bool = False,
    dry_run: bool = False,
    max_in_flight: int | None = None,
    journal: str | os.PathLike[str] | None = None,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Finds the Lance tables below a folder or bucket, and registers those that the catalog does not have.

    A folder is a table if its `_versions` contains a manifest. Tables are not searched for further tables. Branches,
    hidden folders (names with `.` or one `_` in front) and symbolic links are not followed.

    Args:
        namespace: The catalog.
        uri: A local folder, or a URI that Lance supports.
        into: The namespace for the tables, which is created if it does not exist.
        name: Returns the names of a table below `into`; None uses its path, so that `a/b/c.lance` becomes a, b, c. The
            random digits of default locations are removed, unless several folders would then have one name.
        include: Patterns of table paths relative to `uri`, such as `sales/*`; none for all. `*` also matches `/`.
        exclude: Patterns of paths of tables and folders, which are then not looked at.
        storage_options: Options for the storage; None uses those of the catalog's properties, and the environment.
        whole_catalog: Whether a location counts as registered if any table of the catalog has it, instead of only
            tables below `into`.
        include_dropped: Whether dropped tables that `undrop` could bring back are registered, too.
        dry_run: Whether to register nothing, and report what would be done.
        max_in_flight: Maximum number of concurrent calls to the catalog; None means the policy's limit.
        journal: A file with which a stopped run goes on; see `fleet.journal`.
        progress: Shows a bar in a terminal or notebook, or receives the number of completed items and the total so far.

    Returns:
        A row for each table, and for each folder that needs attention. The outcomes are "registered", "present" (under
            this name), "other name" (registered under another name, which `other_id` says), "elsewhere" (the name
            belongs to a table at `other_location`), "conflict" (several locations have this name), "unfinished" (the
            folder looks like a table without a version), "half-deleted" (data files of the newest version are missing,
            because a drop was interrupted; it is not registered), "dropped" (`undrop` brings it back), "vanished", and
            those of errors. The counters are the listings of the storage, with their further pages, the tables and
            other folders among the folders, and the new tables that could not be opened.

    Raises:
        InvalidInputError: The folder or bucket does not exist, the catalog can register nothing below it, or an
            argument is invalid.
        PermissionDeniedError: The storage refuses to list the folder itself.

    Cost:
        About one listing of the storage for each table and each other folder, and further pages; a listing and describe
            of the tables below `into`; one open and two listings for each new table, and a call for each
        namespace, and the calls of `register_tables` for new tables.
    """
    session = namespace.session
    target, workers = session.namespace(into), session.workers(max_in_flight)
    options = session.backend.configured_options if storage_options is None else storage_options
    folders = Folders(uri, options)
    session.backend.check_area(folders.root)
    arguments = {
        "uri": folders.root,
        "catalog": session.catalog,
        "into": [*target],
        "name": function_name(name),
        "include": [*include],
        "exclude": [*exclude],
        "whole_catalog": whole_catalog,
        "dry_run": dry_run,
    }
    with start("discover", namespace, progress=progress) as run:
        async with open_journal(journal, "discover", arguments) as record:
            work = _Discovery(session, run, record, folders, target, name, workers)
            paths = await work.find(FolderWalker(folders, tuple(include), tuple(exclude)))
            tables = await work.compare(await work.choose_ids(paths), whole_catalog)
            tables = await work.select_complete(tables, options, include_dropped=include_dropped, dry_run=dry_run)
            if dry_run:
                for id, path in tables.items():
                    run.add(work.registered_row(id, path))
            else:
                await work.register(tables)
            if work.is_complete:
                await record.finish()
        run.counters["listings"] = folders.listings
        run.counters["pages"] = folders.pages
        return run.report(_PROBLEMS, dry_run=dry_run)


@dataclass(slots=True)
class _Discovery:
    """One run of `discover`."""

    session: Session
    run: Run
    journal: Journal
    folders: Folders
    into: NamespaceId
    name: NameFunction | None
    workers: int
    is_complete: bool = True
    """Whether no error was raised that another run may not get, so that the journal need not be kept."""
    finished: dict[str, Any] = field(default_factory=dict)
    """The rows in the journal by path."""
    shared: dict[str, TableId] = field(default_factory=dict)
    """The id that a table would have if other folders would not have it, too, by its path."""

    async def find(self, walker: FolderWalker) -> Sequence[str]:
        """Returns the paths of the tables, sorted; the journal's first, and then those of the rest of the walk."""
        journal, run = self.journal, self.run
        states = await journal.entries(_FOLDERS)
        recorded = await journal.entries(_TABLES)
        self.finished = await journal.entries(_ROWS)
        tables = dict.fromkeys(path for path in recorded if walker.selects(path))
        pending = [path for path, state in states.items() if state != _DONE] if states else [""]
        entries: list[JournalEntry] = []
        run.expect(len(pending) + len(tables))

        def on_folder(folder: ExaminedFolder) -> None:
            if not folder.path and folder.kind is FolderKind.VANISHED:
                raise err.InvalidInputError(f"uri {self.folders.root!r}: there is no such folder, or it is empty")
            run.counters["tables" if folder.kind is FolderKind.TABLE else "folders"] += 1
            run.expect(len(folder.children))
            run.advance()
            entries.append((_FOLDERS, folder.path, _DONE))
            entries.extend((_FOLDERS, child, "") for child in folder.children)
            if folder.kind is FolderKind.TABLE:
                entries.append((_TABLES, folder.path, None))
                if walker.selects(folder.path):
                    run.expect(1)
                    tables[folder.path] = None
            elif folder.kind is not FolderKind.FOLDER:
                location = self.folders.location(folder.path)
                row = run.add(Row(location, str(folder.kind), folder.reason, location))
                entries.append((_ROWS, folder.path, row.to_dict()))

        def on_error(location: str, error: err.LanceNamespaceError) -> None:
            run.advance()
            # Its entry in the journal stays pending, so that another run lists it again.
            run.add(self._failure(location, error, location))

        async def save() -> None:
            batch = entries.copy()
            entries.clear()
            await journal.put(*batch)

        # The rows of folders come from the journal here, and those of tables later.
        for path, row in self.finished.items():
            if path not in recorded:
                run.add(Row.from_dict(row), resumed=True)
        await walk_folders(walker, pending, on_folder, on_error, save)
        await journal.flush()
        return sorted(tables)

    async def choose_ids(self, paths: Sequence[str]) -> Mapping[TableId, str]:
        """Returns the path of each table by its id; reports invalid and conflicting ids."""
        by_key: dict[tuple[str, ...], list[tuple[TableId, str]]] = defaultdict(list)
        key = self.session.backend.capabilities.key

        def choose(path: str) -> None:
            location = self.folders.location(path)
            try:
                id = self._choose_id(path)
            except err.LanceNamespaceError as e:
                self.run.finish(failure_row(location, e, location))
                return
            if id is not None:
                by_key[key(id)].append((id, path))

        await in_slices(choose, paths)
        if self.name is None:
            for candidates in [it for it in by_key.values() if len(it) > 1]:
                for id, path in candidates.copy():
                    own = self._folder_id(path)
                    if own is not None and key(own) != key(id):
                        candidates.remove((id, path))
                        by_key[key(own)].append((own, path))
                        self.shared[path] = id
        tables: dict[TableId, str] = {}
        for candidates in by_key.values():
            if len(candidates) == 1:
                tables[candidates[0][0]] = candidates[0][1]
                continue
            for id, path in candidates:
                others = ", ".join(self.folders.location(other) for _, other in candidates if other != path)
                reason = f"other tables have this name, too: {others}; use a name function, or exclude all but one"
                self.run.finish(Row(id, CONFLICT, reason, self.folders.location(path)))
        return tables

    def _choose_id(self, path: str) -> TableId | None:
        """Returns the id of a table; None to leave it out."""
        text = path or self.folders.root.rpartition("/")[2]
        if self.name is not None:
            names = self.name(text)
            return None if names is None else self._checked_id(names, path)
        try:
            return self._checked_id(original_names(text), path)
        except err.LanceNamespaceError:
            if (id := self._folder_id(path)) is None:
                raise
            return id

    def _folder_id(self, path: str) -> TableId | None:
        """Returns the id with the whole name of a table's folder; None if the catalog cannot have it."""
        try:
            return self._checked_id(folder_names(path or self.folders.root.rpartition("/")[2]), path)
        except err.LanceNamespaceError:
            return None

    def _checked_id(self, names: Iterable[str], path: str) -> TableId:
        location = self.folders.location(path)
        id = self.session.table([*self.into, *names])
        self.session.backend.check_location(id, location)
        self.session.backend.check_declaration(id, location, {})
        return id

    async def compare(self, tables: Mapping[TableId, str], whole_catalog: bool) -> Mapping[TableId, str]:
        """Returns the paths of tables that are not registered; reports the others."""
        registered = await self._registered(NamespaceId() if whole_catalog else self.into)
        places = await place_keys([table.location for table in registered])
        locations = {path: self.folders.location(path) for path in tables.values()}
        places_found = dict(zip(locations, await place_keys([*locations.values()]), strict=True))
        key = self.session.backend.capabilities.key
        by_place: dict[str, TableId] = {}
        by_id: dict[tuple[str, ...], Table] = {}
        place_by_id: dict[TableId, str] = {}

        def index(item: tuple[str, Table]) -> None:
            place, table = item
            by_place.setdefault(place, table.id)
            by_id[key(table.id)] = table
            place_by_id[table.id] = place

        await in_slices(index, zip(places, registered, strict=True))
        new: dict[TableId, str] = {}

        def check(item: tuple[TableId, str]) -> None:
            id, path = item
            location = locations[path]
            if (row := self.finished.get(path)) is not None:
                self.run.finish(Row.from_dict(row), resumed=True)
                return
            table = by_id.get(key(id))
            if table is not None:
                self.run.finish(
                    _registered_row(id, location, table, is_there=place_by_id[table.id] == places_found[path])
                )
            elif (other := by_place.get(places_found[path])) is not None:
                if other == self.shared.get(path):
                    self.run.finish(Row(other, PRESENT, location=location))
                    return
                reason = f"it is registered as {other}"
                self.run.finish(Row(id, OTHER_NAME, reason, location, fields={"other_id": str(other)}))
            else:
                new[id] = path

        await in_slices(check, tables.items())
        return new

    async def select_complete(
        self, tables: Mapping[TableId, str], options: Mapping[str, str] | None, *, include_dropped: bool, dry_run: bool
    ) -> Mapping[TableId, str]:
        """Returns the tables whose data files exist; reports the others, which a drop has left.

        A table that cannot be opened is not excluded: `audit` reports it.
        """
        excluded: set[TableId] = set()

        async def check(id: TableId) -> None:
            location = self.folders.location(tables[id])
            try:
                table = await retention.read(location, options)
                if table is not None and include_dropped and not dry_run:
                    await retention.forget(location, options)
                elif table is not None and not include_dropped:
                    excluded.add(id)
                    until = table.until.isoformat(timespec="seconds")
                    self.run.finish(Row(id, DROPPED, f"as {table.id}; undrop brings it back until {until}", location))
                    return
                missing = await find_missing(location, options)
            except err.LanceNamespaceError:
                self.run.counters["not opened"] += 1
                return
            if missing:
                excluded.add(id)
                self.run.finish(Row(id, HALF_DELETED, describe_missing(missing), location))

        with self.session.within(None):
            await each(check, tables, max_in_flight=THREADS)
        return {id: path for id, path in tables.items() if id not in excluded}

    async def register(self, tables: Mapping[TableId, str]) -> None:
        """Creates the namespaces of the tables, and registers the tables."""
        bad_namespaces = await self._create_namespaces(id.parent for id in tables)

        def declarations() -> Iterator[Declaration]:
            for id, path in tables.items():
                location = self.folders.location(path)
                if (reason := bad_namespaces.get(id.parent)) is None:
                    yield Declaration(id, location)
                else:
                    self.run.finish(Row(id, "failed", f"its namespace could not be created: {reason}", location))

        async def record(declaration: Declaration, outcome: Outcome) -> None:
            id, path = declaration.id, tables[declaration.id]
            location = self.folders.location(path)
            match outcome:
                case Table():
                    row = self.registered_row(id, path)
                case err.TableAlreadyExistsError():
                    row = await self._existing_row(id, location, outcome)
                case _:
                    row = self._failure(id, outcome, location)
            self.run.finish(row)
            if row.outcome in (REGISTERED, PRESENT, ELSEWHERE):
                await self.journal.put((_ROWS, path, row.to_dict()))

        with self.session.within(None):
            await bulk.register_each(self.session, declarations(), record, max_in_flight=self.workers)

    def registered_row(self, id: TableId, path: str) -> Row:
        """Returns the row of a new table."""
        shared = self.shared.get(path)
        reason = "" if shared is None else f"other folders could be {shared}, too; rename one, and drop the others"
        return Row(id, REGISTERED, reason, self.folders.location(path))

    async def _existing_row(self, id: TableId, location: str, error: err.LanceNamespaceError) -> Row:
        """Returns the row of a table that another client registered meanwhile, or a lost response of this one."""
        result = await search.describe_tables(self.session, [id])
        if id in result.tables:
            table = result.tables[id]
            is_there = await find_same_place(location, [table.location]) is not None
            return _registered_row(id, location, table, is_there=is_there)
        return self._failure(id, error, location)

    async def _registered(self, start: NamespaceId) -> Sequence[Table]:
        """Returns the tables of the catalog below a namespace; none if it does not exist."""
        try:
            ids = [id async for id in bulk.flatten(bulk.table_groups(self.session, start, recursive=True))]
        except err.NamespaceNotFoundError:
            return []
        described = await search.describe_tables(self.session, ids, max_in_flight=self.workers)
        # A table that cannot be described has no known location; a registration under its name reports it.
        return list(described.tables.values())

    async def _create_namespaces(self, parents: Iterable[NamespaceId]) -> Mapping[NamespaceId, str]:
        """Creates the namespaces and those above them; returns the errors of those that could not be created."""
        errors: dict[NamespaceId, str] = {}

        async def create(id: NamespaceId) -> None:
            if (reason := errors.get(id.parent)) is not None:
                errors[id] = reason
                return
            try:
                if not await bulk.exists(self.session, id):
                    await namespaces.create_namespace(self.session, {"id": [*id], "mode": "ExistOk"})
                    self.run.counters["namespaces"] += 1
            except err.LanceNamespaceError as e:
                errors[id] = str(e)
                self.run.add(self._failure(id, e))

        for _, level in groupby(namespaces_of((), parents), key=len):
            await each(create, level, max_in_flight=self.workers)
        return errors

    def _failure(self, id: Subject, error: err.LanceNamespaceError, location: str | None = None) -> Row:
        self.is_complete = self.is_complete and isinstance(error, err.InvalidInputError)
        return failure_row(id, error, location)


def _registered_row(id: TableId, location: str, table: Table, *, is_there: bool) -> Row:
    if is_there:
        return Row(id, PRESENT, location=location)
    reason = f"this name belongs to the table at {table.location}"
    return Row(id, ELSEWHERE, reason, location, fields={"other_location": table.location})


def original_names(path: str) -> Sequence[str]:
    """Returns the levels and the name of the table for which a folder was probably made: without random digits."""
    *levels, folder = path.split("/")
    if (nested := _nested(folder)) is not None:
        return [*levels, *nested[1]]
    if not (stem := without_suffix(folder)):
        return folder_names(path)
    return [*map(name_of_segment, levels), name_of_segment(_without_end(stem))]


def folder_names(path: str) -> Sequence[str]:
    """Returns the levels and a name that is unique for each folder: with its random digits, but without `.lance`."""
    *levels, folder = path.split("/")
    if (nested := _nested(folder)) is not None:
        digits, (*inner, name) = nested
        return [*levels, *inner, f"{digits}_{name}"]
    return [*levels, _without_end(folder)]


def _nested(folder: str) -> tuple[str, Sequence[str]] | None:
    match = _NESTED.fullmatch(folder)
    names = [] if match is None else match["id"].split(DELIMITER)
    return (match["digits"], names) if match is not None and len(names) > 1 and all(names) else None


def _without_end(folder: str) -> str:
    return folder.removesuffix(_SUFFIX) or folder

"""The embedded catalog: a directory of Lance tables with pylance's manifest, without a server.

Spec: https://lance.org/format/namespace/dir.
"""

from __future__ import annotations

import os
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from errno import ELOOP
from itertools import islice
from os.path import abspath, expanduser
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import lance_namespace.errors as err
from lance_namespace import DeclareTableRequest, DescribeTableRequest, ListTablesRequest
from pydantic import Field, field_validator

from lance_ns_async.backends.base import Backend, Capabilities, Declaration, KeepPartitions
from lance_ns_async.backends.directory import partitions
from lance_ns_async.backends.directory.dropping import Dropping
from lance_ns_async.backends.directory.manifest import (
    MANIFEST,
    Directory,
    Entries,
    ManifestChange,
    ManifestEntry,
    read_metadata,
)
from lance_ns_async.backends.directory.overlaps import Overlaps
from lance_ns_async.backends.directory.places import OutsideError, RootNames, TableLocations, masked_uri
from lance_ns_async.backends.directory.transport import LANCE_ERRORS, LanceTransport, error_of
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import BadLocationError, ErrorTable, Failure
from lance_ns_async.model import DELIMITER, Id, NamespaceId, Page, Partition, Table, TableId, local_path
from lance_ns_async.settings import Settings
from lance_ns_async.spec.partitions import Partitioning, PartitionSpec
from lance_ns_async.storage import dir_markers
from lance_ns_async.storage.lance_layout import DROP_NOTES
from lance_ns_async.storage.locations import Root
from lance_ns_async.storage.process_end import check_given_up

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

_PLAIN = re.compile(r"[A-Za-z0-9_.\- ]+")
"""Names for which pylance writes and reads the same location. For other names the two differ, and data is not found."""

_UNFINISHED_FILE = re.compile(r"#\d+$")
"""Suffix of the temporary names of local files that Lance has not finished writing."""

MAX_ID_LENGTH = 255 - len("0123abcd_")
"""Maximum length of an id: pylance's name for the table's folder is the id after a prefix of eight hex digits."""


_USUAL_THREADS, _MOST_THREADS = 32, 64
"""The default and the largest number of calls in flight: each of them uses one thread."""
"""pylance's errors; the backend adds no codes of its own."""


class DirSettings(Settings):
    """Properties of the embedded catalog."""

    backend = "dir"

    root: Root
    """The directory: a path, or a URI of an object store."""
    max_in_flight: int = Field(default=_USUAL_THREADS, ge=1)

    @field_validator("root")
    @classmethod
    def _check_root(cls, root: str) -> str:
        if root.lower().startswith("memory:"):
            # Each open of such a URI creates a separate storage.
            raise ValueError("data in memory:// is lost after each call; use shared-memory://lake, or a directory")
        if "://" in root and "?" in root:
            raise ValueError("a URI with a query cannot be extended to table locations; give options as storage.*")
        return root

    def limit(self, policy: Policy) -> Policy:
        """Returns the policy with a number of threads that a process can have."""
        return replace(policy, max_in_flight=min(policy.max_in_flight, _MOST_THREADS))

    def identity(self) -> str:
        """Returns the directory, without credentials in its URI."""
        return masked_uri(self.path)

    @property
    def path(self) -> str:
        """The directory as an absolute path, or as the URI in the settings."""
        return self.root.rstrip("/") if "://" in self.root else abspath(expanduser(self.root))


ERRORS = LANCE_ERRORS
"""pylance's errors; the backend adds no codes of its own."""


class DirectoryBackend(Backend):
    """A directory. Each method runs in one worker thread, on the current manifest.

    Tables in namespaces are entries of the manifest. A table at the root is a folder `<name>.lance` that pylance lists
    and that no table in a namespace uses as its location.
    """

    settings: ClassVar[type[DirSettings]] = DirSettings
    errors: ClassVar[ErrorTable] = ERRORS
    capabilities: Capabilities = Capabilities(
        min_depth=0,
        max_depth=None,
        listing_has_locations=True,
        relative_locations=True,
        replaces=True,
        drops=True,
        unshared_locations=True,
        declare_batch=500,
        leaves_markers=True,
        has_partitions=True,
    )

    def __init__(self, lance: LanceTransport, settings: DirSettings) -> None:
        self._lance = lance
        self._storage_options = settings.storage_options()
        self.configured_options: Mapping[str, str] | None = self._storage_options
        self._path = settings.path
        self._places = TableLocations(settings.path)
        self._directory = Directory(settings.path, self._storage_options, lance.repeat_in_thread)
        self._dropping = Dropping(self._directory, self._places, self._storage_options)

    @classmethod
    def open(cls, settings: DirSettings, caller: Caller) -> DirectoryBackend:
        """Returns a backend for the directory `settings.root`, which need not exist yet."""
        return cls(LanceTransport(caller), settings)

    async def may_have_dropped(self, ids: Collection[TableId]) -> bool:
        if (root := local_path(self._path)) is None:
            return True
        # Tables in namespaces are entries of the manifest, which stays when they are dropped.
        needed = os.path.join(root, MANIFEST) if any(id.parent for id in ids) else root
        return await self._call(lambda: os.path.isdir(needed), NamespaceId(), "may_have_dropped")

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        def work() -> Page[str]:
            entries = self._directory.entries()
            _properties(entries, parent)
            return Page([_name(entry) for entry in entries.below(_key(parent)) if entry.kind == "namespace"])

        return await self._call(work, parent, "list_namespaces")

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        def work() -> Mapping[str, str]:
            entries = self._directory.entries()
            return {**_properties(entries, id), **partitions.properties_of(entries, id)}

        return await self._call(work, id, "describe_namespace")

    def check_new_namespace(self, id: NamespaceId) -> None:
        """Checks the names; see the base class."""
        _check_names(id)

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        self.check_new_namespace(id)

        def edit(entries: Entries) -> ManifestChange:
            _properties(entries, id.parent)
            if (there := entries.get(_key(id))) is not None:
                raise err.NamespaceAlreadyExistsError(f"there is a {there.kind} of that name")
            # The namespaces of a partition are made again by the return of its table.
            values = partitions.values_of(entries, id, properties)
            return ManifestChange(put=[ManifestEntry(_key(id), "namespace", None, properties, values)])

        await self._call(lambda: self._directory.change(edit), id, "create_namespace", safe=False)
        return properties

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        def edit(entries: Entries) -> ManifestChange:
            _properties(entries, id)
            if count := entries.count_below(_key(id)):
                raise err.NamespaceNotEmptyError(f"it contains {count} tables and namespaces; drop them first")
            return ManifestChange(remove=[_key(id)])

        await self._call(lambda: self._directory.change(edit), id, "drop_namespace", safe=False)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        def work() -> Page[str]:
            entries = self._directory.entries()
            if parent:
                return Page([_name(entry) for entry, _ in self._tables(entries, parent)])
            # Each folder at the root has to be read, so a page reads only as many as it needs.
            names = self._names_at_root(entries, token or "")
            page = list(islice(names, limit))
            return Page(page, page[-1] if page and next(names, None) is not None else None)

        return await self._call(work, parent, "list_tables")

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        def work() -> Page[Table]:
            entries, names = self._directory.entries(), self._places.read_names()
            tables: list[Table] = []
            # A table with an invalid location is skipped here; describing it raises its error.
            if parent:
                for entry, place in self._tables(entries, parent, names):
                    if place is not None:
                        tables.append(self._table(parent.table(_name(entry)), place, entry.metadata))
            else:
                for name in self._names_at_root(entries):
                    with suppress(OutsideError):
                        tables.append(self._at_root(NamespaceId().table(name), entries, names))
            return Page(tables)

        return await self._call(work, parent, "scan_tables")

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        return await self._call(lambda: self._describe(id), id, "describe_table")

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)

        def edit(entries: Entries) -> ManifestChange:
            names = self._places.read_names()
            overlaps = Overlaps(entries, self._places, self._dropping, names)
            return ManifestChange(
                put=[self._new_entry(entries, Declaration(id, location, properties), overlaps, names)]
            )

        def work() -> Table:
            if id.parent:
                self._directory.change(edit)
            else:
                self._declare_at_root(id)
            return self._describe(id)

        return await self._call(work, id, "declare_table", safe=False)

    async def declare_tables(
        self, declarations: Sequence[Declaration]
    ) -> Mapping[TableId, Table | err.LanceNamespaceError]:
        errors: dict[TableId, err.LanceNamespaceError] = {}
        alone: list[Declaration] = []
        batch: list[Declaration] = []
        for it in declarations:
            try:
                self.check_declaration(it.id, it.location, it.properties)
            except err.InvalidInputError as e:
                errors[it.id] = e
                continue
            # A table at the root is a folder, so that several of them cannot be declared at once.
            (batch if it.id.parent else alone).append(it)
        tables: dict[TableId, Table] = {}
        refusals: dict[TableId, err.LanceNamespaceError] = {}
        waiting: list[Declaration] = []

        def edit(entries: Entries) -> ManifestChange:
            for outcome in (tables, refusals, waiting):
                outcome.clear()
            names = self._places.read_names()
            overlaps = Overlaps(entries, self._places, self._dropping, names)
            put = []
            for it in batch:
                try:
                    entry = self._new_entry(entries, it, overlaps, names)
                except (err.TableAlreadyExistsError, err.NamespaceNotFoundError, err.InvalidInputError) as e:
                    refusals[it.id] = error_of(e, it.id, "declare_table")
                except (err.LanceNamespaceError, OSError, ValueError, RuntimeError):
                    waiting.append(it)
                else:
                    overlaps.add(entry.object_id, entry.location or "")
                    tables[it.id] = self._table(it.id, entry.location or "", entry.metadata)
                    put.append(entry)
            return ManifestChange(put=put)

        if batch:
            await self._call(lambda: self._directory.change(edit), NamespaceId(), "declare_tables", safe=False)
        outcomes: dict[TableId, Table | err.LanceNamespaceError] = {**errors, **refusals, **tables}
        # A call of its own repeats what may pass.
        for it in (*alone, *waiting):
            try:
                outcomes[it.id] = await self.declare_table(it.id, it.location, it.properties)
            except err.LanceNamespaceError as e:
                outcomes[it.id] = e
        return outcomes

    def _new_entry(self, entries: Entries, it: Declaration, overlaps: Overlaps, names: RootNames) -> ManifestEntry:
        """Returns the entry of a new table in a namespace; raises the error of the first check that fails."""
        _properties(entries, it.id.parent)
        if (there := entries.get(_key(it.id))) is not None:
            raise err.TableAlreadyExistsError(f"there is a {there.kind} of that name")
        if it.location is None:
            return ManifestEntry(_key(it.id), "table", _new_place(it.id), it.properties)
        place = self._relative_place(it.id, it.location, names)
        if not _is_new_place(it.id, place) or place in entries.nested_locations or self._places.has_files(place):
            overlaps.check(place)
            self._check_not_at_root(entries, place, names)
        return ManifestEntry(_key(it.id), "table", place, it.properties)

    async def partition_by(self, schema: pa.Schema | None, by: Sequence[str | Mapping[str, Any]]) -> PartitionSpec:
        def work() -> PartitionSpec:
            self._directory.change(lambda entries: partitions.add_spec(entries, schema, by))
            return partitions.partitioning_of(self._directory.entries()).specs[-1]

        return await self._call(work, NamespaceId(), "partition_by", safe=False)

    async def partitioning(self) -> Partitioning:
        def work() -> Partitioning:
            return partitions.partitioning_of(self._directory.entries())

        return await self._call(work, NamespaceId(), "partitions")

    async def partitions(self, keep: KeepPartitions | None) -> Sequence[Partition]:
        def work() -> Sequence[Partition]:
            entries = self._directory.entries()
            partitioning = partitions.partitioning_of(entries)
            names = self._places.read_names()
            result = []
            for spec in partitioning.specs:
                rows = partitions.tables_of(entries, spec)
                if keep is not None:
                    rows = rows.filter(keep(partitioning, spec, rows))
                for row in rows.to_pylist():
                    check_given_up()
                    id = TableId(row["object_id"].split(DELIMITER))
                    try:
                        place = self._places.normalize(row["location"] or "", names)
                    except OutsideError as e:
                        raise BadLocationError(
                            f"partition {id} has the location {row['location']!r}, which {e}; deregister it"
                        ) from e
                    values = {field.field_id: row[field.column] for field in spec.fields}
                    pinned = {name: row.get(name) for name in partitions.READ_COLUMNS}
                    properties = read_metadata(row["object_id"], row["metadata"])
                    result.append(Partition(self._table(id, place, properties), values, spec.id, **pinned))
            return result

        return await self._call(work, NamespaceId(), "partitions")

    async def add_partitions(self, spec: PartitionSpec, values: pa.Table) -> Sequence[Table]:
        tables: Sequence[ManifestEntry] = ()

        def edit(entries: Entries) -> ManifestChange:
            nonlocal tables
            change, tables = partitions.add_partitions(entries, spec, values, _new_place)
            return change

        def work() -> Sequence[Table]:
            self._directory.change(edit)
            names = self._places.read_names()
            ids = [TableId(it.object_id.split(DELIMITER)) for it in tables]
            return [self._table(id, self._place(it, names), it.metadata) for id, it in zip(ids, tables, strict=True)]

        return await self._call(work, NamespaceId(), "add_partitions", safe=False)

    async def remove_empty_partitions(self, dropped: Collection[TableId]) -> None:
        def work() -> None:
            self._directory.change(lambda entries: partitions.remove_empty(entries, dropped))

        await self._call(work, NamespaceId(), "remove_empty_partitions", safe=False)

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        id = old.id
        if not id.parent:
            # A table at the root has a location fixed by its name and no properties, so nothing can change.
            self.check_declaration(id, location, properties)
            return await self.describe_table(id)
        self.check_declaration(id, location, properties)

        def edit(entries: Entries) -> ManifestChange:
            entry, was = self._entry(entries, id)
            if was != old.registration:
                raise Failure(
                    "ConcurrentModificationError",
                    message=f"it was registered again by another client, at {was}",
                    delivered=False,
                )
            place = self._relative_place(id, location)
            if place != was:
                self._overlaps(entries, id).check(place)
                self._check_not_at_root(entries, place, self._places.read_names())
            return ManifestChange(put=[replace(entry, location=place, metadata=properties)])

        def work() -> Table:
            self._directory.change(edit)
            return self._describe(id)

        return await self._call(work, id, "replace_table", safe=False)

    async def layout_location(self, id: TableId) -> str | None:
        # In a namespace, each declaration gets a new folder with a random name.
        return None if id.parent else self._places.at_root(id.name)

    def makes_new_locations(self, parent: NamespaceId) -> bool:
        return bool(parent)

    async def new_location(self, id: TableId) -> str | None:
        return self._places.uri(_new_place(id)) if id.parent else None

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        _check_names(id)
        if properties and not id.parent:
            raise err.InvalidInputError(
                f"table {id}: the directory catalog stores properties only for tables in a namespace; "
                "omit the properties"
            )
        if location is not None and not id.parent and self._relative_place(id, location) != f"{id.name}.lance":
            raise err.InvalidInputError(
                f"table {id}: at the root its location must be {masked_uri(self._places.at_root(id.name))}; register "
                "other locations in a namespace"
            )
        if location is not None:
            self._relative_place(id, location)

    async def restore_table(
        self,
        id: TableId,
        location: str,
        properties: Mapping[str, str],
        schema: pa.Schema | None = None,
        *,
        former_id: TableId,
    ) -> Table:
        """Registers a table again; at the root, by removing the marker that hides it. See the base class."""
        self.check_declaration(id, location, properties)

        def edit(entries: Entries) -> ManifestChange:
            names = self._places.read_names()
            overlaps = Overlaps(entries, self._places, self._dropping, names)
            entry = self._new_entry(entries, Declaration(id, location, properties), overlaps, names)
            return ManifestChange(put=[replace(entry, column_values=partitions.values_of(entries, id, {}))])

        def work() -> Table:
            if id.parent:
                self._directory.change(edit)
            else:
                self._check_root(id, self._directory.entries())
                self._dropping.show(f"{id.name}.lance")
            return self._describe(id)

        return await self._call(work, id, "register_table", safe=False)

    async def deregister_table(self, id: TableId, expected: Table | None = None) -> Table:
        """Removes the registration that is returned, and no other one; see the base class. Cost: one call."""
        removed: list[Table] = []

        def edit(entries: Entries) -> ManifestChange:
            if (entry := entries.get(_key(id))) is None or entry.kind != "table":
                raise err.TableNotFoundError("there is no table of that name")
            look(entries)
            return ManifestChange(remove=[_key(id)])

        def look(entries: Entries | None = None) -> None:
            try:
                table = self._describe(id, entries)
            except BadLocationError:
                # This is the only way to remove an entry with an invalid location.
                table = Table(id, "")
            self.check_expected(table, expected)
            removed[:] = [table]

        def work() -> Table:
            if id.parent:
                self._directory.change(edit)
            else:
                look()
                self._deregister_at_root(id)
            return removed[0]

        return await self._call(work, id, "deregister_table", safe=False)

    async def remove_registration(self, id: TableId) -> None:
        await self.deregister_table(id)

    async def drop_table(self, table: Table) -> None:
        id = table.id

        def work() -> None:
            there = self._describe(id)
            if (there.registration, there.location) != (table.registration, table.location):
                raise err.TableNotFoundError("it was replaced by another table")
            self._dropping.drop(_key(id), self._relative_place(id, there.location))

        await self._call(work, id, "drop_table", safe=False)

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise err.UnsupportedOperationError(
            f"Not supported: rename_table of {id} (a directory catalog does not rename; "
            f"deregister it, and register {to} at its location)"
        )

    async def aclose(self) -> None:
        """Does nothing: no resource outlives a call."""

    async def _call(self, work: Callable[[], T], subject: Id, operation: str, *, safe: bool = True) -> T:
        return await self._lance.call(work, subject=subject, operation=operation, safe=safe)

    def _describe(self, id: TableId, entries: Entries | None = None) -> Table:
        entries = entries or self._directory.entries()
        try:
            if not id.parent:
                return self._at_root(id, entries)
            entry, place = self._entry(entries, id)
        except OutsideError as e:
            raise BadLocationError(f"{e}; deregister it, and register it at another location") from e
        return self._table(id, place, entry.metadata)

    def _entry(self, entries: Entries, id: TableId) -> tuple[ManifestEntry, str]:
        """Returns the entry and the relative location of a table in a namespace.

        Raises:
            TableNotFoundError: The table does not exist.
            OutsideError: The entry's location is invalid.
        """
        entry = entries.get(_key(id))
        if entry is None or entry.kind != "table":
            raise err.TableNotFoundError("there is no table of that name")
        return entry, self._place(entry)

    def _place(self, entry: ManifestEntry, names: RootNames | None = None) -> str:
        try:
            return self._places.normalize(entry.location or "", names)
        except OutsideError as e:
            raise OutsideError(f"its entry in the manifest has the location {entry.location!r}, which {e}") from e

    def _tables(
        self, entries: Entries, parent: NamespaceId, names: RootNames | None = None
    ) -> Iterator[tuple[ManifestEntry, str | None]]:
        """Yields the entries of a namespace's tables with their relative locations; None for an invalid location."""
        _properties(entries, parent)
        names = names or self._places.read_names()
        for entry in entries.below(_key(parent)):
            if entry.kind != "table":
                continue
            try:
                yield entry, self._place(entry, names)
            except OutsideError:
                yield entry, None

    def _names_at_root(self, entries: Entries, after: str = "") -> Iterator[str]:
        """Yields the names of the tables at the root that sort after a name, in order."""
        if self._places.local is None:
            listed = self._directory.flat.list_tables(ListTablesRequest(id=[])).tables
            names: Iterable[str] = sorted(name for name in listed if name > after)
        else:
            names = self._local_names(self._places.local, after)
        return (name for name in names if f"{name}.lance" not in entries.nested_locations)

    def _local_names(self, root: str, after: str) -> Iterator[str]:
        """Yields the names of the tables at a local root that sort after a name, as pylance does.

        pylance itself would fail for all tables if one entry is a file, a loop of symbolic links, or contains one.
        """
        try:
            names = sorted(name.removesuffix(".lance") for name in os.listdir(root) if name.endswith(".lance"))
        except FileNotFoundError:
            return
        for name in names[bisect_right(names, after) :]:
            check_given_up()
            if self._is_folder(name) and self._holds_files(name):
                yield name

    def _holds_files(self, name: str) -> bool:
        """Returns whether the folder of a table at a local root is not hidden, and has more than unfinished files.

        A process that dies while it declares a table leaves only unfinished files. pylance lists such a folder, but
        cannot describe it as a table.
        """
        try:
            files = os.listdir(self._places.path(f"{name}.lance"))
        except FileNotFoundError:
            return False
        return dir_markers.HIDDEN_MARK not in files and not all(map(_UNFINISHED_FILE.search, files))

    def _is_folder(self, name: str) -> bool:
        """Returns whether a folder of a table is at a local root; False for a file, and for a link to nothing."""
        try:
            return S_ISDIR(os.stat(self._places.path(f"{name}.lance")).st_mode)
        except FileNotFoundError:
            return False
        except OSError as e:
            if e.errno != ELOOP:
                raise
            return False

    def _check_not_at_root(self, entries: Entries, place: str, names: RootNames) -> None:
        """Raises InvalidInputError if a location is that of a table at the root, which it would replace."""
        name = (real := self._places.real(place, names)).removesuffix(".lance")
        if name in ("", real) or "/" in name or real in entries.nested_locations:
            return
        is_table = False
        if self._places.local is not None:
            is_table = self._is_folder(name) and self._holds_files(name)
        else:
            with suppress(err.TableNotFoundError, err.NamespaceNotFoundError):
                self._directory.flat.describe_table(DescribeTableRequest(id=[name]))
                is_table = True
        if is_table:
            raise err.InvalidInputError(
                f"the location {place!r} is that of the table {name!r} at the root; use that table, or deregister it "
                "first"
            )

    def _at_root(self, id: TableId, entries: Entries, names: RootNames | None = None) -> Table:
        place = f"{id.name}.lance"
        if place in entries.nested_locations:
            raise err.TableNotFoundError("there is no table of that name")
        if self._places.local is not None and not self._is_folder(id.name):
            raise err.TableNotFoundError("there is no table of that name")
        try:
            self._directory.flat.describe_table(DescribeTableRequest(id=list(id)))
        except err.NamespaceNotFoundError as e:
            # pylance raises this if the directory does not exist yet.
            raise err.TableNotFoundError("there is no table of that name") from e
        self._places.normalize(place, names)
        return Table(
            id, self._places.at_root(id.name), {}, self._storage_options, registration=self._folder_identity(place)
        )

    def _table(self, id: TableId, place: str, properties: Mapping[str, str]) -> Table:
        return Table(id, self._places.uri(place), properties, self._storage_options, registration=place)

    def _folder_identity(self, place: str) -> str | None:
        """Returns the identity of a folder at a local root, which differs from that of a later folder.

        Returns:
            The identity; None for an object store, which has none.
        """
        if self._places.local is None:
            return None
        stats = []
        for name in (place, f"{place}/.lance-reserved"):
            with suppress(FileNotFoundError):
                stats.append(os.stat(self._places.path(name)))
        return ":".join(
            [place, *(str(stat.st_ino) for stat in stats[:1]), *(str(stat.st_mtime_ns) for stat in stats[1:])]
        )

    def _declare_at_root(self, id: TableId) -> None:
        place = f"{id.name}.lance"
        self._check_root(id, entries := self._directory.entries())
        self._overlaps(entries, id).check(place)
        if self._places.local is not None and os.path.lexists(path := self._places.path(place)):
            if not self._is_folder(id.name):
                raise err.InvalidTableStateError(f"{path} is a file, or a symbolic link to no folder; remove it")
        request = DeclareTableRequest(id=list(id))
        try:
            self._directory.flat.declare_table(request)
        except err.TableAlreadyExistsError as e:
            # The folder may be the remains of a table whose creating process or drop ended early.
            is_free = dir_markers.clear(self._places.at_root(id.name), self._storage_options)
            if not is_free and not self._dropping.finish(place):
                there = self._directory.files(self._places.uri(place))
                if not there.contains(dir_markers.HIDDEN_MARK):
                    raise
                if there.list(DROP_NOTES):
                    raise err.TableAlreadyExistsError(
                        "a table of this name was dropped with a retention, and its data is at its location; bring it "
                        "back with fleet.undrop, or choose another name until its data is purged"
                    ) from e
                raise err.TableAlreadyExistsError(
                    "the data of a table that was deregistered, or whose drop was interrupted, is at its location; "
                    f"register {place} in a namespace, and drop that table unless you want to keep it"
                ) from e
            self._directory.flat.declare_table(request)

    def _check_root(self, id: TableId, entries: Entries) -> None:
        """Raises TableAlreadyExistsError if a namespace has the name, or a table in a namespace the location."""
        if (there := entries.get(_key(id))) is not None and there.kind == "namespace":
            raise err.TableAlreadyExistsError("there is a namespace of that name")
        if (place := f"{id.name}.lance") in entries.nested_locations:
            raise err.TableAlreadyExistsError(f"a table in a namespace is at {place}")

    def _deregister_at_root(self, id: TableId) -> None:
        if f"{id.name}.lance" in self._directory.entries().nested_locations:
            raise err.TableNotFoundError("there is no table of that name")
        self._dropping.hide(_key(id), f"{id.name}.lance")

    def check_area(self, uri: str) -> None:
        """Checks whether the folder and the root have a part in common; see the base class."""
        if not self._places.can_contain(uri):
            raise err.InvalidInputError(
                f"uri {masked_uri(uri)!r}: this catalog has only tables inside its root {self._places.masked_root}; "
                "use a catalog that registers any location, or a 'dir' catalog with a root above the folder"
            )

    def _relative_place(self, id: TableId, location: str, names: RootNames | None = None) -> str:
        """Returns a caller's location relative to the root; raises InvalidInputError if it is invalid."""
        try:
            return self._places.normalize(self._places.relative(location), names)
        except OutsideError as e:
            raise err.InvalidInputError(
                f"table {id}: locations must be inside {self._places.masked_root}, and the location "
                f"{masked_uri(location)!r} {e}"
            ) from e

    def _overlaps(self, entries: Entries, id: TableId) -> Overlaps:
        """Returns the check of the location of a new table, or of a table that moves."""
        return Overlaps(entries, self._places, self._dropping, self._places.read_names(), except_for=_key(id))


def _key(id: Id) -> str:
    """Returns the id as a key of the manifest."""
    return DELIMITER.join(id)


def _name(entry: ManifestEntry) -> str:
    return entry.object_id.rpartition(DELIMITER)[2]


def _new_place(id: TableId) -> str:
    """Returns a new folder name in pylance's form: eight random hex digits and the id."""
    return f"{secrets.token_hex(4)}_{_key(id)}"


def _is_new_place(id: TableId, place: str) -> bool:
    """Returns whether a relative location has the form of `_new_place`."""
    return len(place) == len(_new_place(id)) and place.endswith(f"_{_key(id)}") and "/" not in place


def _properties(entries: Entries, id: NamespaceId) -> Mapping[str, str]:
    """Returns the properties of a namespace; raises NamespaceNotFoundError if it does not exist."""
    if not id:
        return {}
    entry = entries.get(_key(id))
    if entry is None or entry.kind != "namespace":
        raise err.NamespaceNotFoundError("there is no namespace of that name")
    return entry.metadata


def _check_names(id: Id) -> None:
    # The id of a namespace must leave room for the name of a table.
    longest = MAX_ID_LENGTH - (len(f"{DELIMITER}t") if id.kind == "namespace" else 0)
    if len(DELIMITER.join(id)) > longest:
        raise err.InvalidInputError(
            f"{id.kind} id {DELIMITER.join(id)[:80]!r}...: it has {len(DELIMITER.join(id)):,} characters with its "
            f"delimiters, but a directory catalog allows at most {longest}; use shorter names"
        )
    for name in id:
        if not _PLAIN.fullmatch(name) or name in (".", ".."):
            raise err.InvalidInputError(
                f"{id.kind} id {list(id)!r}: the name {name!r} is invalid in a directory catalog; use ASCII letters, "
                "digits, '_', '-', '.' and spaces"
            )

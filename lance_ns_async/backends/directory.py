"""The embedded catalog: a directory of Lance tables and pylance's manifest of them, no server needed.

Spec: https://lance.org/format/namespace/dir.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os.path import abspath, expanduser
from typing import TYPE_CHECKING, TypeVar

from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RegisterTableRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)

from lance_ns_async import marks
from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.backends.locations import Root
from lance_ns_async.model import DELIMITER, Id, NamespaceId, Page, Table, TableId
from lance_ns_async.policy import Caller
from lance_ns_async.settings import Settings
from lance_ns_async.transports.lance import LANCE_ERRORS, Directory, LanceTransport

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_PLAIN = re.compile(r"[A-Za-z0-9_.\- ]+")
"""Names whose location pylance writes and reads alike; with others the two differ, and data is lost sight of."""

LONGEST = 255 - len("0123abcd_")
"""How long an id may be: pylance names the table's folder by it, with a number of eight digits before it."""


class DirSettings(Settings):
    """Properties of the embedded catalog."""

    backend = "dir"

    root: Root
    """The directory: a path, or a URI of an object store."""

    def identity(self) -> str:
        """The directory."""
        return self.path

    @property
    def path(self) -> str:
        """The directory as an absolute path, or the URI it was given as."""
        return self.root.rstrip("/") if "://" in self.root else abspath(expanduser(self.root))


class DirectoryBackend(Backend):
    """A directory. Every duty is one call of pylance in a worker thread; scanning reads the manifest once."""

    settings = DirSettings
    errors = LANCE_ERRORS
    capabilities = Capabilities(min_depth=0, max_depth=None, listing_has_locations=True)

    def __init__(self, lance: LanceTransport, settings: DirSettings) -> None:
        self._lance = lance
        self._path = settings.path
        self._storage_options = settings.storage_options()
        self._directory = Directory(self._path, self._storage_options)

    @classmethod
    def open(cls, settings: DirSettings, caller: Caller) -> DirectoryBackend:
        """A backend for the directory `settings.root`, which need not exist before something is made in it."""
        return cls(LanceTransport(caller), settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        def work() -> Page[str]:
            self._properties(parent)
            found = self._directory.namespace.list_namespaces(ListNamespacesRequest(id=list(parent)))
            return Page(found.namespaces)

        return await self._call(work, parent, "list_namespaces")

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        return await self._call(partial(self._properties, id), id, "describe_namespace")

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        _check_names(id)
        request = CreateNamespaceRequest(id=list(id), properties=dict(properties))

        def work() -> Mapping[str, str]:
            return self._directory.namespace.create_namespace(request).properties or {}

        return await self._call(work, id, "create_namespace", safe=False)

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        def work() -> None:
            self._directory.namespace.drop_namespace(DropNamespaceRequest(id=list(id)))

        await self._call(work, id, "drop_namespace", safe=False)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._call(lambda: Page(self._names(parent)), parent, "list_tables")

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        def work() -> Page[Table]:
            names = self._names(parent)
            known = self._known(parent) if parent else self._at_root(names)
            found = (known.get(name) or self._if_there(parent.table(name)) for name in names)
            return Page([table for table in found if table is not None])

        return await self._call(work, parent, "scan_tables")

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        return await self._call(partial(self._describe, id), id, "describe_table")

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        declare = DeclareTableRequest(id=list(id), properties=dict(properties) or None)
        register = location and RegisterTableRequest(id=list(id), location=self._inside(id, location))

        def work() -> Table:
            self._properties(id.parent)
            if register:
                self._register(register, properties)
            else:
                self._declare(id, declare)
            return self._describe(id)

        return await self._call(work, id, "declare_table", safe=False)

    def _declare(self, id: TableId, request: DeclareTableRequest) -> None:
        try:
            self._directory.namespace.declare_table(request)
        except TableAlreadyExistsError:
            # It may be what is left at the root of one that was being created when its process ended.
            if id.parent or not marks.clear(self._place(id), self._storage_options):
                raise
            self._directory.namespace.declare_table(request)

    def _place(self, id: TableId) -> str:
        """Where a table at the root lies."""
        return f"{self._path}/{id.name}.lance"

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        _check_names(id)
        if properties and not id.parent:
            raise InvalidInputError(
                f"table {id}: the directory catalog keeps properties only of tables that are in a namespace; "
                "leave the properties out"
            )
        if location is not None and not id.parent:
            raise InvalidInputError(
                f"table {id}: at the root a table is what lies at {self._place(id)}; register others in a namespace"
            )
        if location is not None:
            self._inside(id, location)

    async def deregister_table(self, id: TableId) -> None:
        request = DeregisterTableRequest(id=list(id))

        def work() -> None:
            if id.parent:
                self._directory.namespace.deregister_table(request)
                return
            # Tables at the root are found by their directories: only the flat view can hide one of them.
            self._directory.flat.deregister_table(request)
            # Those that were declared are in the manifest, too, and would keep their names.
            with suppress(TableNotFoundError):
                self._directory.namespace.deregister_table(request)
            # Where nothing was written the mark hides nothing, and would take the name.
            marks.remove(self._place(id), self._storage_options)

        await self._call(work, id, "deregister_table", safe=False)

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise UnsupportedOperationError(
            f"Not supported: rename_table of {id} (a directory catalog derives locations from names; "
            "declare the new name and copy the data)"
        )

    async def aclose(self) -> None:
        """Holds nothing that outlives a call."""

    async def _call(self, work: Callable[[], T], subject: Id, operation: str, *, safe: bool = True) -> T:
        return await self._lance.call(work, subject=subject, operation=operation, safe=safe)

    def _properties(self, id: NamespaceId) -> Mapping[str, str]:
        """Those of a namespace that must exist: pylance lists a missing one as empty, or even as the root."""
        if not id:
            return {}
        try:
            return self._directory.namespace.describe_namespace(DescribeNamespaceRequest(id=list(id))).properties or {}
        except NamespaceNotFoundError as e:
            # Where nothing was made yet, pylance tells of its manifest.
            raise NamespaceNotFoundError("create it with create_namespace") from e

    def _register(self, request: RegisterTableRequest, properties: Mapping[str, str]) -> None:
        self._directory.namespace.register_table(request)
        if not properties:
            return
        try:
            # pylance itself keeps none of a table that is registered.
            self._directory.keep(DELIMITER.join(request.id or ()), properties)
        except (LanceNamespaceError, OSError, ValueError, RuntimeError):
            self._directory.namespace.deregister_table(DeregisterTableRequest(id=request.id))
            raise

    def _names(self, parent: NamespaceId) -> Sequence[str]:
        self._properties(parent)
        found: Sequence[str] = self._directory.namespace.list_tables(ListTablesRequest(id=list(parent))).tables
        return found

    def _describe(self, id: TableId) -> Table:
        try:
            found = self._directory.namespace.describe_table(DescribeTableRequest(id=list(id)))
        except NamespaceNotFoundError as e:
            # It says so where there is no manifest yet; else it misses the table.
            raise TableNotFoundError(f"table id '{id}'") from e
        return self._table(id, found.location, found.properties or {})

    def _if_there(self, id: TableId) -> Table | None:
        """The table, unless it was dropped since it was listed."""
        try:
            return self._describe(id)
        except TableNotFoundError:
            return None

    def _at_root(self, names: Sequence[str]) -> Mapping[str, Table]:
        """The tables at the root, which are where their names say; the manifest does not know them."""
        plain = (name for name in names if _PLAIN.fullmatch(name))
        return {name: self._table(NamespaceId().table(name), f"{self._path}/{name}.lance", {}) for name in plain}

    def _known(self, parent: NamespaceId) -> Mapping[str, Table]:
        """The tables of a namespace that the manifest describes fully."""
        scheme, _, path = self._path.rpartition("://")
        if not _PLAIN.fullmatch(path.replace("/", "_")):
            return {}
        prefix = f"{parent}{DELIMITER}"
        escaped = prefix.replace("'", "''")
        rows = self._directory.entries(f"object_type = 'table' AND starts_with(object_id, '{escaped}')")
        base = f"{scheme or 'file'}://{path}"
        found: dict[str, Table] = {}
        for row in rows:
            name = row["object_id"].removeprefix(prefix)
            if _PLAIN.fullmatch(name):
                kept = json.loads(row["metadata"] or "{}")
                found[name] = self._table(parent.table(name), f"{base}/{row['location']}", kept)
        return found

    def _table(self, id: TableId, location: str, properties: Mapping[str, str]) -> Table:
        return Table(id, location, properties, self._storage_options)

    def _inside(self, id: TableId, location: str) -> str:
        """The location relative to the root, which is how pylance keeps it."""
        path = location.removeprefix("file://") if "://" not in self._path else location
        if "://" not in path and not path.startswith("/"):
            return path
        if not path.startswith(f"{self._path}/"):
            raise InvalidInputError(
                f"table {id}: a directory catalog holds only what is inside {self._path}, and {location} is not"
            )
        return path.removeprefix(f"{self._path}/")


def _check_names(id: Id) -> None:
    # A namespace leaves room for a table in it.
    longest = LONGEST - (len(f"{DELIMITER}t") if id.kind == "namespace" else 0)
    if len(DELIMITER.join(id)) > longest:
        raise InvalidInputError(
            f"{id.kind} id {DELIMITER.join(id)[:80]!r}...: it is {len(DELIMITER.join(id)):,} characters long with its "
            f"delimiters, and a directory catalog, which names folders by it, takes {longest}"
        )
    for name in id:
        if not _PLAIN.fullmatch(name) or name in (".", ".."):
            raise InvalidInputError(
                f"{id.kind} id {list(id)!r}: a directory catalog takes names of ASCII letters, digits, "
                f"'_', '-', '.' and blanks, which {name!r} is not"
            )

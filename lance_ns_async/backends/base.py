"""The interface of a backend: one catalog's operations, and a description of what the catalog can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.tagged_results import CacheUse
from lance_ns_async.errors import BadLocationError, ErrorTable, UnreadableRegistrationError, error_about, spelled
from lance_ns_async.model import NamespaceId, Page, Partition, Table, TableId, has, is_same, same_place
from lance_ns_async.settings import Settings
from lance_ns_async.spec.partitions import Partitioning, PartitionSpec
from lance_ns_async.storage.locations import RESERVED_NAMES, check_location, unique_location

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel

KeepPartitions: TypeAlias = "Callable[[Partitioning, PartitionSpec, pa.Table], pa.Array]"
"""Returns for each row of a version of the partition spec, with the values of its fields, whether it is kept."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a catalog can do, as data. The engine chooses by these values alone, never by the backend's class."""

    min_depth: int
    """Minimum number of namespace levels above a table."""
    max_depth: int | None
    """Maximum number of namespace levels above a table; None if nesting is unbounded."""
    paginates: bool = False
    """Whether listings come in pages with the catalog's own tokens."""
    lists_only_lance: bool = True
    """Whether `list_tables` returns only Lance tables; if not, each name is described to find the Lance tables."""
    listing_has_locations: bool = False
    """Whether `scan_tables` returns a page of tables with their locations at the cost of one listing call."""
    page_worth: int = 1
    """Number of concurrent describes that take as long as one page of `scan_tables`; pages are read in sequence."""
    describe_batch: int = 0
    """Maximum number of names in one `describe_tables` call; 0 if the catalog has no such call."""
    batch_from: int = 2
    """Minimum number of names in one namespace for which `describe_tables` is used instead of single describes."""
    declare_batch: int = 0
    """Maximum number of tables in one `declare_tables` call; 0 if the catalog has no such call."""
    cascades: bool = False
    """Whether `drop_namespace` can also drop the namespace's content."""
    folds_case: bool = False
    """Whether names are compared without regard to case."""
    keeps_case: bool = False
    """Whether a catalog that folds case lists names as they were declared; if not, it stores them in lower case."""
    vends: bool = False
    """Whether the catalog may vend credentials for a table's storage; if not, `vend` has no effect."""
    vends_by_default: bool = False
    """Whether credentials are also requested if a request does not set `vend_credentials`."""
    renames: bool = False
    """Whether a table can be renamed without moving its data."""
    replaces: bool = False
    """Whether `replace_table` changes properties and location of a registration, in one atomic call."""
    has_partitions: bool = False
    """Whether the catalog can be divided into partitions by the partitioning spec."""
    unshared_locations: bool = False
    """Whether the catalog itself refuses a location that another of its tables has."""
    relative_locations: bool = False
    """Whether a declaration may have a relative location, which the catalog resolves against its root."""
    location_schemes: tuple[str, ...] = ()
    """URI schemes that Lance cannot open, and that the backend replaces by equivalent ones."""
    location_properties: tuple[str, ...] = ()
    """Names of namespace properties that hold the location for the namespace's tables."""
    drops: bool = False
    """Whether `drop_table` removes a registration and its data, in an order that the catalog defines."""
    commits_versions: bool = False
    """Whether the catalog can commit the versions of tables that request it (`managed_by=impl`)."""
    stores_columns: bool = False
    """Whether the catalog stores the columns of tables; its listings do not have them."""
    own_properties: tuple[str, ...] = ()
    """Names of table properties that the catalog itself sets or interprets, as shell patterns."""
    own_namespace_properties: tuple[str, ...] = ()
    """Names of namespace properties that the catalog itself sets or interprets, as shell patterns."""
    leaves_markers: bool = False
    """Whether a deregistration leaves a marker at the table's location, by which the catalog hides the table."""
    parent_properties: tuple[tuple[str, str], ...] = ()
    """Properties with which a namespace is created that will contain other namespaces."""

    def check_table(self, id: TableId) -> None:
        """Raises InvalidInputError if the catalog cannot have a table at this depth."""
        depth = len(id) - 1
        if depth < self.min_depth or (self.max_depth is not None and depth > self.max_depth):
            if self.max_depth is None:
                depths = f"{self.min_depth} or more"
            elif self.min_depth == self.max_depth:
                depths = f"exactly {self.min_depth}"
            else:
                depths = f"{self.min_depth} to {self.max_depth}"
            raise InvalidInputError(
                f"table id {list(id)!r}: this catalog requires {depths} namespace levels above a table, not {depth}"
            )

    def check_namespace(self, id: NamespaceId) -> None:
        """Raises InvalidInputError if the catalog cannot have a namespace at this depth."""
        if self.max_depth is not None and len(id) > self.max_depth:
            raise InvalidInputError(
                f"namespace id {list(id)!r}: this catalog has at most {self.max_depth} namespace levels, not {len(id)}"
            )

    def key(self, id: Sequence[str]) -> tuple[str, ...]:
        """Returns a key that two ids share if the catalog regards them as the same."""
        return tuple(name.lower() for name in id) if self.folds_case else tuple(id)


@dataclass(frozen=True, slots=True)
class ServerTraits:
    """What responses have shown about one server, where servers of one catalog differ; None means not shown yet."""

    batches: bool | None = None
    """Whether `describe_tables` works."""
    filters: bool | None = None
    """Whether the server itself selects the Lance tables of a listing."""
    has_catalogs: bool | None = None
    """Whether namespaces can be catalogs, which contain other namespaces."""
    missing: frozenset[str] = frozenset()
    """Operations of the protocol that the server does not have."""
    present: frozenset[str] = frozenset()
    """Operations on data that the server has performed."""

    def limit(self, capabilities: Capabilities) -> Capabilities:
        """Returns the capabilities without those that this server does not have."""
        return replace(capabilities, describe_batch=0) if self.batches is False else capabilities


class ObservedServer:
    """The server of a backend: holds the traits that were learned so far."""

    def __init__(self) -> None:
        self.traits: ServerTraits = ServerTraits()

    def learn(
        self, *, missing: frozenset[str] = frozenset(), present: frozenset[str] = frozenset(), **traits: bool
    ) -> None:
        """Records traits that a response has shown."""
        old = self.traits
        self.traits = replace(old, missing=old.missing | missing, present=old.present | present, **traits)

    def lacks(self, operation: str) -> bool:
        """Returns whether a response has shown that the server does not have an operation of its protocol."""
        return operation in self.traits.missing

    def has(self, operation: str) -> bool:
        """Returns whether the server has performed an operation on data."""
        return operation in self.traits.present


class OperationMissingError(UnsupportedOperationError):
    """The server does not have an operation, so it has done nothing, and this process may perform the operation."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A table to register; see `Backend.declare_table`."""

    id: TableId
    location: str | None
    properties: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, as described by the catalog or the storage that commits the table's versions."""

    number: int
    staging: str | None
    """Path of the manifest as it was written, in object-store form; None if the catalog has no record of it."""
    size: int | None = None
    """Size of the manifest, in bytes."""
    timestamp_millis: int | None = None
    """Time of the commit, in milliseconds since the Unix epoch."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Metadata from the version's writer."""

    @property
    def manifest(self) -> str | None:
        """The path where Lance reads the manifest: `staging` up to and including `.manifest`."""
        return None if self.staging is None else self.staging.rpartition(".manifest")[0] + ".manifest"


@dataclass(frozen=True, slots=True)
class Versions:
    """A table and the versions in its catalog, newest first; no versions if the storage commits them."""

    table: Table
    items: Sequence[Version]


Prepare = Callable[[Table, Version], Awaitable["pa.Schema"]]
"""Callback that checks a version's manifest just before the commit and returns the schema in the manifest."""


class Backend(ABC):
    """The operations of one catalog.

    Methods raise the errors of `lance_namespace.errors`. "Cost" counts remote calls.
    """

    settings: ClassVar[type[Settings]]
    errors: ClassVar[ErrorTable]
    capabilities: Capabilities
    """What the catalog can do: set on the class, or when the instance is created if it depends on the settings."""
    unique_locations: bool = False
    """Whether each declaration without a location gets a unique location."""
    allow_aliases: bool = False
    """Whether a table may have the location of another one, so that each drop looks for such tables."""
    takes_request_headers: bool = False
    """Whether calls have the headers of `calls.request_headers`; if not, requests with an identity are rejected."""
    has_layout: bool = True
    """Whether `layout_location` has a location for each name; if not, a location with the names was requested."""
    configured_options: Mapping[str, str] | None = None
    """Storage options from the settings, used for every table; None if there are none."""

    @cached_property
    def server(self) -> ObservedServer:
        """What was learned about the server while the backend is open."""
        return ObservedServer()

    @property
    def capabilities_now(self) -> Capabilities:
        """What this server can do, as far as is known: the catalog's capabilities, limited by the server's traits."""
        return self.server.traits.limit(self.capabilities)

    @classmethod
    @abstractmethod
    def open(cls, settings: Any, caller: Caller) -> Self:
        """Returns a backend for the catalog of `settings` that makes its remote calls through `caller`.

        Cost: no call.
        """

    @abstractmethod
    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        """Returns a page of the names of the namespaces directly below `parent`.

        Args:
            token: The token of the page; None for the first page.
            limit: A hint for the number of names in the page; None for the default.
        """

    @abstractmethod
    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        """Returns the namespace's properties."""

    @abstractmethod
    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Creates a namespace, which must not exist yet, in an existing parent; returns its properties."""

    @abstractmethod
    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        """Removes an empty namespace; with `cascade`, also all registrations in it. Never removes data."""

    @abstractmethod
    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        """Returns a page of the names of the tables in `parent`; see `Capabilities.lists_only_lance`.

        Args:
            token: The token of the page; None for the first page.
            limit: A hint for the number of names in the page; None for the default.
        """

    async def list_all_tables(self, token: str | None, limit: int | None) -> Page[str]:
        """Returns a page of the ids of the tables in all namespaces, joined by `$`; see `list_tables`.

        Raises:
            UnsupportedOperationError: The catalog has no such listing, so its namespaces must be walked.
        """
        raise UnsupportedOperationError("Not supported: a listing of all tables")

    @abstractmethod
    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        """Describes one table.

        Args:
            vend: Whether the storage options include credentials from the catalog, if the catalog vends any.

        Raises:
            NotALanceTableError: The table has another format.
        """

    @abstractmethod
    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Registers a table, which must not exist yet.

        Args:
            location: The table's location; None for the catalog's default location.
            schema: The columns; ignored by catalogs that store no columns.
        """

    async def register_table(
        self, id: TableId, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Registers a table whose data is at `location`, and which must not be registered yet.

        Most catalogs have one call for this and for a declaration with a location.

        Args:
            schema: The columns; ignored by catalogs that store no columns.
        """
        return await self.declare_table(id, location, properties, schema)

    async def restore_table(
        self,
        id: TableId,
        location: str,
        properties: Mapping[str, str],
        schema: pa.Schema | None = None,
        *,
        former_id: TableId,
    ) -> Table:
        """Registers a table that was deregistered to be brought back, with its data at `location`.

        Args:
            schema: The columns; ignored by catalogs that store no columns.
            former_id: The id that it had; for catalogs that keep deleted tables.
        """
        return await self.register_table(id, location, properties, schema)

    async def declare_tables(
        self, declarations: Sequence[Declaration]
    ) -> Mapping[TableId, Table | LanceNamespaceError]:
        """Registers tables in one change; requires `declare_batch`.

        Each table is checked as in `declare_table`. A table that fails a check does not affect the others. The others
        are registered all or none, also if the process is killed.

        Args:
            declarations: At most `declare_batch` tables with different ids.

        Returns:
            The table or the error for each id.

        Raises:
            LanceNamespaceError: The change itself failed, as `declare_table` would; it applies to every table.
        """
        raise AssertionError(f"{type(self).__name__} declares no batches")

    async def deregister_table(self, id: TableId, expected: Table | None = None) -> Table:
        """Removes the registration of a table, and returns it; its data stays.

        No catalog with a server removes a registration only if it is the expected one, so it is looked at immediately
        before.

        Args:
            id: The table.
            expected: The table as the caller has seen it; None for any Lance table of that name.

        Returns:
            The table. Its location is empty if its registration cannot be read, or if its location is invalid.

        Raises:
            TableNotFoundError: The table does not exist, or another client has replaced the expected one.

        Cost: two calls.
        """
        try:
            table = await self.describe_table(id)
        except (BadLocationError, UnreadableRegistrationError):
            table = Table(id, "")
        self.check_expected(table, expected)
        await self.remove_registration(id)
        return table

    @staticmethod
    def check_expected(table: Table, expected: Table | None) -> None:
        """Raises TableNotFoundError if a table is not the expected one; None expects any."""
        if expected is not None and not is_same(expected, table):
            raise error_about(TableNotFoundError, table.id, "another client has replaced it by another table")

    @abstractmethod
    async def remove_registration(self, id: TableId) -> None:
        """Removes the registration that a name has, which must be that of a Lance table; its data stays."""

    @abstractmethod
    async def rename_table(self, id: TableId, to: TableId) -> None:
        """Moves the registration to another id.

        Raises:
            UnsupportedOperationError: The catalog cannot rename tables, or not this one.
        """

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Changes location, properties and columns of a registration in one atomic call.

        Args:
            old: The registration as it was described. A catalog that can compare registrations changes only this one.
            location: The new location; the data at the old one stays.
            properties: All properties the registration has afterwards.
            schema: The new columns, if the catalog stores columns; None leaves them unchanged.

        Returns:
            The table as it is registered afterwards.

        Raises:
            TableNotFoundError: The table is no longer registered.
            ConcurrentModificationError: The current registration is not `old`.
            UnsupportedOperationError: The catalog cannot change registrations, or (Nessie) not their location.
        """
        if same_place(old.location, location) and has(old, properties) and schema is None:
            return old
        raise error_about(
            UnsupportedOperationError,
            old.id,
            f"this catalog cannot change a registered table, and this "
            f"one is at {old.location}: deregister it, and register it at {location}: the name is missing in between",
        )

    def needs_protection(self, table: Table) -> bool:
        """Returns whether other tools of the catalog may delete a table's files, and `protect_table` prevents that."""
        return False

    async def protect_table(self, table: Table) -> bool:
        """Prevents other tools of the catalog from deleting a table's files; returns whether a change was needed.

        Cost: no call if no change is needed.
        """
        return False

    async def drop_table(self, table: Table) -> None:
        """Removes a registration and its data; requires `drops`.

        If the process is killed, either the table is unchanged, or its name is not found and can be declared again.

        Args:
            table: The registration as it was described; no other registration is removed.

        Raises:
            TableNotFoundError: Another client has removed the table.
            InvalidTableStateError: The drop would delete files of other tables, or files outside the catalog.
        """
        raise AssertionError(f"{type(self).__name__} drops no data")

    async def layout_location(self, id: TableId) -> str | None:
        """Returns the location for a table name in the catalog's layout; None if the layout defines none.

        Cost: no call, or one if the catalog stores the default location of a namespace.
        """
        return None

    def makes_new_locations(self, parent: NamespaceId) -> bool:
        """Returns whether a table declared without a location gets one that was never used before."""
        return self.unique_locations

    def made_location(self, location: str) -> bool:
        """Returns whether the catalog itself chose a location, so that no other table can have been declared there."""
        return False

    async def default_location(self, id: TableId) -> str | None:
        """Returns the location that `declare_table` uses by default; None if it is known only after the declaration.

        A declaration with this location is equivalent to one without a location.

        Cost: no call, or one if the catalog stores the default location of a namespace.
        """
        return None if self.makes_new_locations(id.parent) else await self.layout_location(id)

    async def new_location(self, id: TableId) -> str | None:
        """Returns a location that was never used before, for one declaration; None if only the catalog can choose it.

        Cost: no call, or one if the catalog stores the default location of a namespace.
        """
        location = await self.layout_location(id) if self.unique_locations else None
        return None if location is None else unique_location(location)

    async def _choose_location(self, id: TableId) -> str:
        """Returns the location of a table declared without one: `new_location`, or else that of the layout.

        Raises:
            InvalidInputError: The location is predictable, and may be among the files of another table.
        """
        if (location := await self.new_location(id) or await self.layout_location(id)) is None:
            raise AssertionError(f"{type(self).__name__} has no layout of locations")
        if self.unique_locations:
            return location
        nests = self.capabilities.min_depth != self.capabilities.max_depth
        if nests and (name := next((name for name in id[2:] if name in RESERVED_NAMES), None)) is not None:
            raise InvalidInputError(
                f"table {id}: its default location {location} may be among the files of another table, because "
                f"{name!r} is the name of one of Lance's folders; give a location, or set unique_locations=true"
            )
        return location

    async def may_have_dropped(self, ids: Collection[TableId]) -> bool:
        """Returns whether a catalog in which none of these tables is left has dropped them.

        Otherwise its own storage is gone, for example because a disk is not mounted. Cost: no remote call.
        """
        return True

    async def partition_by(self, schema: pa.Schema | None, by: Sequence[str | Mapping[str, Any]]) -> PartitionSpec:
        """Adds the next version of the partition spec; see `AsyncNamespace.partition_by`. Requires `has_partitions`."""
        raise AssertionError(f"{type(self).__name__} has no partitions")

    async def partitioning(self) -> Partitioning:
        """Returns the schema and the versions of the partition spec; requires `has_partitions`.

        Raises:
            InvalidInputError: The catalog has no partitions yet.
        """
        raise AssertionError(f"{type(self).__name__} has no partitions")

    async def partitions(self, keep: KeepPartitions | None) -> Sequence[Partition]:
        """Returns the partitions, in no order; requires `has_partitions`.

        Args:
            keep: Returns which rows of one version of the spec are kept; None for all.
        """
        raise AssertionError(f"{type(self).__name__} has no partitions")

    async def add_partitions(self, spec: PartitionSpec, values: pa.Table) -> Sequence[Table]:
        """Returns the tables of partitions; those that do not exist yet are declared in one commit.

        Requires `has_partitions`.

        Args:
            spec: The version of the spec.
            values: A row for each partition, with a column for each field.
        """
        raise AssertionError(f"{type(self).__name__} has no partitions")

    async def remove_empty_partitions(self, dropped: Collection[TableId]) -> None:
        """Removes the namespaces of partitions whose tables were dropped; requires `has_partitions`."""
        raise AssertionError(f"{type(self).__name__} has no partitions")

    def passes_on(self, operation: str, *, streamed: bool = False) -> bool:
        """Returns whether the server performs an operation on a table's data or versions, instead of this process.

        Args:
            streamed: Whether the rows of the request can be read only once, so that no other side can follow.
        """
        return False

    async def pass_on(self, operation: str, request: BaseModel, data: bytes | Iterator[bytes] | None = None) -> Any:
        """Sends the request of an operation to the server; requires `passes_on`.

        Args:
            operation: The name of the operation in the spec.
            request: The request model of the operation.
            data: The rows of the request, as an Arrow IPC stream or as its parts; None if the operation has none.

        Returns:
            The response model of the operation, or the text of a query plan.

        Raises:
            OperationMissingError: The server does not have the operation, and `passes_on` is false from now on.
        """
        raise AssertionError(f"{type(self).__name__} passes no operation on")

    def table_cache(self) -> CacheUse:
        """Returns the content and the use of the cache of described tables."""
        return CacheUse(entries=0, max_entries=0, hits=0, misses=0)

    @abstractmethod
    async def aclose(self) -> None:
        """Releases the backend's resources; may be called twice."""

    @abstractmethod
    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        """Checks a declaration without a remote call.

        Raises:
            InvalidInputError: The catalog would always reject the declaration.
        """

    def check_location(self, id: TableId, location: str) -> None:
        """Checks the requested location of a table without a remote call, before `check_declaration`.

        Raises:
            InvalidInputError: The location is ambiguous, or Lance cannot open it; see `locations.check_location`.
        """
        can = self.capabilities
        what = f"table {spelled(id)}"
        check_location(what, location, relative=can.relative_locations, also=can.location_schemes)

    def check_new_namespace(self, id: NamespaceId) -> None:  # noqa: B027
        """Checks a namespace to create, without a remote call.

        Raises:
            InvalidInputError: The catalog would always reject the namespace.
        """

    def check_area(self, uri: str) -> None:  # noqa: B027
        """Checks without a remote call whether tables somewhere below a folder can be registered.

        Raises:
            InvalidInputError: The catalog would reject all of them.
        """

    def listed_name(self, id: NamespaceId) -> str:
        """Returns the spelling of a child namespace in a `list_namespaces` response of the Lance spec."""
        return id.name

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        """Returns a page of the Lance tables in `parent`, described; requires `listing_has_locations`."""
        raise AssertionError(f"{type(self).__name__} declares no listing with locations")

    async def describe_tables(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        """Returns the tables that exist, keyed by the requested names; requires `describe_batch`."""
        raise AssertionError(f"{type(self).__name__} declares no batch describe")

    async def table_versions(self, id: TableId, *, all: bool) -> Versions:
        """Returns a table's current version, or with `all` every stored version; requires `commits_versions`."""
        raise AssertionError(f"{type(self).__name__} commits no versions")

    async def commit_versions(
        self, new_versions: Mapping[TableId, Version], prepare: Prepare
    ) -> Mapping[TableId, Versions]:
        """Makes each version the current version of its table, all or none; returns the committed versions.

        Requires `commits_versions`. A version that exists with the same `staging` counts as committed, so that a call
        can be repeated.

        Raises:
            ConcurrentModificationError: Another writer has committed a version with the same number.
            UnsupportedOperationError: The catalog cannot commit several tables at once.
        """
        raise AssertionError(f"{type(self).__name__} commits no versions")

    async def forget_versions(self, id: TableId, numbers: Sequence[int]) -> None:
        """Removes the records of versions, but never that of the current version; requires `commits_versions`."""
        raise AssertionError(f"{type(self).__name__} commits no versions")

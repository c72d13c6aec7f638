"""What a backend is: one catalog's meaning, as ten duties and a record of what the catalog can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lance_ns_async.calls.policy import Caller
from lance_ns_async.errors import ErrorTable
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.settings import Settings
from lance_ns_async.storage.locations import unique_location

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a catalog can do, as data: the engine chooses by it and never asks who it talks to."""

    min_depth: int
    """Fewest namespace levels above a table."""
    max_depth: int | None
    """Most namespace levels above a table; None where nesting is unbounded."""
    paginates: bool = False
    """Whether listings come in pages with the catalog's own tokens."""
    lists_only_lance: bool = True
    """Whether `list_tables` gives Lance tables alone; if not, each name is described to find out."""
    listing_has_locations: bool = False
    """Whether `scan_tables` gives a page of tables, locations included, for the price of a listing."""
    page_worth: int = 1
    """Describes, made side by side, that take as long as one of those pages, which come one after another."""
    describe_batch: int = 0
    """Names one `describe_tables` call may take; 0 where there is no such call."""
    batch_from: int = 2
    """Fewest names of a namespace for which such a call is better than describing each."""
    cascades: bool = False
    """Whether `drop_namespace` can drop what is inside, too."""
    folds_case: bool = False
    """Whether names are kept, and compared, in lower case."""
    vends: bool = False
    """Whether the catalog may give out credentials for a table's storage; if not, `vend` changes nothing."""
    vends_unasked: bool = False
    """Whether it is asked for them also where a request leaves that open."""
    renames: bool = False
    """Whether a table may get another name, while its data stays where it is."""
    replaces: bool = False
    """Whether `replace_table` changes a registration in one atomic call."""
    relative_locations: bool = False
    """Whether relative locations of tables are the catalog's own way, which it resolves against its root."""
    location_properties: tuple[str, ...] = ()
    """Properties of namespaces that say where their tables go."""
    drops: bool = False
    """Whether `drop_table` removes a registration and its data, in an order of the catalog's own."""
    commits_versions: bool = False
    """Whether the catalog can be the one that commits a table's versions, where the table asks for it."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, as who commits its versions tells of it: the catalog, or the storage."""

    number: int
    staging: str | None
    """Where the manifest was written, or is, as object stores spell paths; None where the catalog was not told."""
    size: int | None = None
    """Of the manifest, in bytes."""
    timestamp_millis: int | None = None
    """When it was committed."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What its writer said of it."""

    @property
    def manifest(self) -> str | None:
        """Where Lance looks for the manifest: `staging`, cut after `.manifest`."""
        return None if self.staging is None else self.staging.rpartition(".manifest")[0] + ".manifest"


@dataclass(frozen=True, slots=True)
class Versions:
    """A table with the versions that its catalog knows, newest first; none where the storage commits them."""

    table: Table
    found: Sequence[Version]


Prepare = Callable[[Table, Version], Awaitable["pa.Schema"]]
"""Is asked just before a version is committed whether its manifest is good; gives the schema in it."""


class Backend(ABC):
    """A catalog's semantics. Errors are those of `lance_namespace.errors`; costs are remote calls."""

    settings: ClassVar[type[Settings]]
    errors: ClassVar[ErrorTable]
    capabilities: Capabilities
    """Of the class, or of an instance where settings or the server decide."""
    unique_locations: bool = False
    """Whether each declaration without a location gets one that no other declaration has."""
    configured_options: Mapping[str, str] | None = None
    """Storage options of the settings, which hold for every table."""

    @classmethod
    @abstractmethod
    def open(cls, settings: Any, caller: Caller) -> Self:
        """A backend that talks to the catalog of `settings` through `caller`; costs no call."""

    @abstractmethod
    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        """A page of the names directly below `parent`; `limit` is a hint of how many are wanted."""

    @abstractmethod
    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        """The namespace's properties."""

    @abstractmethod
    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Makes a namespace that must not exist yet below one that must; gives its properties."""

    @abstractmethod
    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        """Removes an empty namespace, or with `cascade` one with all its registrations; never any data."""

    @abstractmethod
    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        """A page of the names of the tables in `parent`; see `Capabilities.lists_only_lance`."""

    @abstractmethod
    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        """The table; raises NotALanceTableError where the catalog has one of another format.

        With `vend` its storage options hold the credentials that the catalog gives out for it, if it does.
        """

    @abstractmethod
    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Registers a table that must not exist yet; without `location` the catalog's default place is taken.

        A `schema` is kept where the catalog keeps columns, and of no use elsewhere.
        """

    @abstractmethod
    async def deregister_table(self, id: TableId) -> None:
        """Removes the registration of a table that is known to be Lance; its data stays."""

    @abstractmethod
    async def rename_table(self, id: TableId, to: TableId) -> None:
        """Moves the registration to another id; UnsupportedOperationError says why a catalog cannot."""

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Changes location, properties and columns of a registration in one atomic call; only where `replaces`.

        Args:
            old: The registration as it was described. Where the catalog can compare, another one is not touched.
            location: The new location; the data at the old one stays.
            properties: All properties the registration has afterwards.
            schema: The new columns, where the catalog keeps columns; None leaves them as they are.

        Returns:
            The table as it is registered afterwards.

        Raises:
            TableNotFoundError: The name is free by now.
            ConcurrentModificationError: The registration is not the `old` one any more.
            UnsupportedOperationError: This catalog changes properties in place, and locations it does not (Nessie).
        """
        raise AssertionError(f"{type(self).__name__} replaces no registration in place")

    async def protect_table(self, table: Table) -> bool:
        """Keeps other tools of the catalog from deleting a table's files; tells whether anything had to change for it.

        Cost: no call where nothing has to.
        """
        return False

    async def drop_table(self, table: Table) -> None:
        """Removes a registration and its data; only where `drops`.

        A call that is killed leaves the table as it was, or a name that is not found and is free for the next one.

        Args:
            table: The registration as it was described; another one is not touched.

        Raises:
            TableNotFoundError: Somebody else has removed it.
            InvalidTableStateError: Files of other tables would be deleted, or files outside of the catalog.
        """
        raise AssertionError(f"{type(self).__name__} drops no data")

    async def layout_location(self, id: TableId) -> str | None:
        """Returns the location that the catalog's layout has for a table name; None where the layout has none.

        Cost: no call, or one where the catalog keeps the default location of a namespace.
        """
        return None

    async def default_location(self, id: TableId) -> str | None:
        """Returns where `declare_table` puts a table without a location; None where only declaring it tells.

        To declare the table with this location is the same as to declare it without one.

        Cost: no call, or one where the catalog keeps the default location of a namespace.
        """
        return None if self.unique_locations else await self.layout_location(id)

    async def _new_location(self, id: TableId) -> str:
        """Returns the location of a table that is declared without one, in a catalog whose layout has one."""
        location = await self.layout_location(id)
        assert location is not None
        return unique_location(location) if self.unique_locations else location

    @abstractmethod
    async def aclose(self) -> None:
        """Gives back what the backend holds; may be called twice."""

    @abstractmethod
    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        """Raises InvalidInputError for a declaration that the catalog would refuse for ever; costs no call."""

    def listed_name(self, id: NamespaceId) -> str:
        """How a listing after the spec spells a namespace below the one that was listed."""
        return id.name

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        """A page of the Lance tables in `parent`, described; only where `listing_has_locations`."""
        raise AssertionError(f"{type(self).__name__} declares no listing with locations")

    async def describe_tables(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        """Those of the named tables that were found, by the names as given; only where `describe_batch`."""
        raise AssertionError(f"{type(self).__name__} declares no batch describe")

    async def table_versions(self, id: TableId, *, all: bool) -> Versions:
        """The current version, or all that the catalog still knows; only where `commits_versions`."""
        raise AssertionError(f"{type(self).__name__} commits no versions")

    async def commit_versions(self, wanted: Mapping[TableId, Version], prepare: Prepare) -> Mapping[TableId, Versions]:
        """Makes each of them its table's current version, all or none; gives them as committed.

        One that is there already with the same `staging` counts as made: so a call may be repeated. Only where
        `commits_versions`; UnsupportedOperationError where a catalog cannot commit several tables at once.
        """
        raise AssertionError(f"{type(self).__name__} commits no versions")

    async def forget_versions(self, id: TableId, numbers: Sequence[int]) -> None:
        """Removes the records of versions, none of them the current one; only where `commits_versions`."""
        raise AssertionError(f"{type(self).__name__} commits no versions")

"""The backend for AWS Glue: Lance tables as external tables of its Data Catalog, with versions in the storage.

Spec: https://lance.org/format/namespace/integrations/glue.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import lance_namespace.errors as err
from pydantic import Field, model_validator

from lance_ns_async.backends.base import Backend, Capabilities, ObservedServer
from lance_ns_async.backends.glue import wire
from lance_ns_async.backends.glue.catalogs import Catalogs
from lance_ns_async.backends.glue.credentials import LakeFormation, Operation
from lance_ns_async.backends.glue.namespaces import Namespaces
from lance_ns_async.backends.glue.wire import ERRORS, ListedTable
from lance_ns_async.backends.shared.lost_responses import create_or_find, remove_or_check
from lance_ns_async.backends.shared.response_checks import check_empty
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import SingleFlights, each
from lance_ns_async.errors import ErrorTable, error_about
from lance_ns_async.masked import MaskedPartial
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.settings import Endpoint, LocationSettings, Seconds
from lance_ns_async.storage.locations import Root, default_location, segment
from lance_ns_async.storage.options import merge_options
from lance_ns_async.transports.aws.settings import AwsSettings
from lance_ns_async.transports.aws.transport import AwsTransport, open_aws

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)


class GlueSettings(LocationSettings, AwsSettings):
    """Properties of an AWS Glue Data Catalog; all times without a unit are in seconds."""

    backend = "glue"

    catalog_id: str | None = Field(default=None, min_length=1, max_length=255)
    """The id of the catalog that is the root namespace, in any account; None means the caller's own catalog."""
    root: Root | None = None
    """Root of default locations, `{root}/{namespace}/{table}`, for tables whose database has no `LocationUri`."""
    catalogs: Literal["auto", "off"] = "auto"
    """`off`: namespaces are only databases, and no permission to read catalogs is needed."""
    bulk_strategy: Literal["auto", "get", "list"] = "auto"
    """How many tables of one database are described.

    `get` describes each table by a call of its own, `list` reads the pages of the database. `auto` chooses between
    these and calls with patterns of names.
    """
    vend_credentials: bool = False
    """Whether credentials for tables in S3 are requested from Lake Formation, unless a request sets it to False."""
    credentials_operation: Operation = "auto"
    """Permission of the requested credentials: `auto`, `read` or `read_write`."""
    credentials_timeout_sec: Seconds = Field(default=3600.0, ge=900, le=21600)
    """Requested lifetime of the credentials."""
    lake_formation_endpoint: Endpoint | None = None
    """The URL of Lake Formation; None means AWS's own endpoint."""

    @model_validator(mode="after")
    def _whole_vending(self) -> Self:
        alone = [name for name in _VENDING_ONLY if getattr(self, name) != type(self).model_fields[name].default]
        if alone and not self.vend_credentials:
            raise ValueError(f"{', '.join(alone)}: set vend_credentials to true with it")
        return self

    def identity(self) -> str:
        """Returns the catalog id and the identity of the AWS settings."""
        return "|".join(filter(None, (self.catalog_id, super().identity())))


_VENDING_ONLY = ("credentials_operation", "credentials_timeout_sec", "lake_formation_endpoint")
"""The properties that only matter for vended credentials."""


class GlueBackend(Backend):
    """An AWS Glue Data Catalog: databases are the lowest level of namespaces, catalogs are the levels above.

    If a catalog and a database have the same name, the name refers to the database.

    Cost: one call to describe a table, two if it is missing or with credentials; two concurrent calls to describe a
    namespace until its kind (catalog or database) is known.
    """

    settings: ClassVar[type[GlueSettings]] = GlueSettings
    errors: ClassVar[ErrorTable] = ERRORS
    capabilities: Capabilities = Capabilities(
        min_depth=1,
        max_depth=None,
        listing_has_locations=True,
        page_worth=4,
        describe_batch=100,
        batch_from=8,
        folds_case=True,
        replaces=True,
        own_properties=tuple(sorted(wire.OWN_PARAMETERS - {"comment"})),
        own_namespace_properties=(wire.KIND,),
        parent_properties=((wire.KIND, "catalog"),),
    )

    def __init__(self, aws: AwsTransport, settings: GlueSettings) -> None:
        self._aws = aws
        self._place = settings.root
        self._options = settings.storage_options()
        self.unique_locations: bool = settings.unique_locations
        self.allow_aliases: bool = settings.allow_aliases
        self.configured_options: Mapping[str, str] | None = self._options
        self._catalogs = Catalogs(aws, settings.catalog_id, self.server, use_catalogs=settings.catalogs == "auto")
        self._namespaces = Namespaces(aws, self._catalogs)
        self._patterns = Patterns(partial(self._tables, operation="describe_tables"), self.server)
        self._databases = SingleFlights(self._location_uri)
        self._lake: LakeFormation | None = None
        if settings.vend_credentials:
            self._lake = LakeFormation(
                aws,
                operation=settings.credentials_operation,
                lifetime=settings.credentials_timeout_sec,
                endpoint=settings.lake_formation_endpoint,
                sts_endpoint=settings.sts_endpoint,
            )
            self.capabilities = replace(self.capabilities, vends=True, vends_by_default=True)
        if settings.bulk_strategy != "auto":
            self.capabilities = replace(self.capabilities, describe_batch=0)
        if settings.bulk_strategy == "get":
            self.capabilities = replace(self.capabilities, listing_has_locations=False)

    @classmethod
    def open(cls, settings: GlueSettings, caller: Caller) -> GlueBackend:
        """Returns a backend for the Data Catalog of `settings`."""
        return cls(open_aws("glue", settings, caller), settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return Page(await self._namespaces.names(parent))

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        return (await self._catalogs.find(id, "describe_namespace")).properties

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        return await self._namespaces.create(id, properties)

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        await self._namespaces.drop(id)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        names: list[str] = []
        async with aclosing(walk(partial(self._page, parent, "list_tables"))) as pages:
            async for _, page in pages:
                names += [table.id.name for table in page.items]
        return Page(names)

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        return await self._page(parent, "scan_tables", token)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        is_there = self._patterns.watch(id)
        if self._lake is None or not vend:
            table = await self._table(id)
            is_there()
            return table
        table, catalog_id = await self._load(id, MaskedPartial(wire.table_and_catalog, id, self._options))
        is_there()
        if not table.location.lower().startswith("s3://"):
            return table
        catalog_id = (await self._catalogs.parent_arguments(id.parent)).get("CatalogId", catalog_id)
        try:
            credentials = await self._lake.vend(id, catalog_id)
        except err.PermissionDeniedError:
            # A principal may have the right to describe a table, but no right to its credentials.
            if self._options is None:
                raise
            return table
        return replace(table, storage_options=merge_options(table.storage_options, credentials))

    async def describe_tables(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        return await self._patterns.describe(await self._within(parent), parent, names)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        body = wire.table_input(id, location or await self._choose_location(id), properties)
        declaration = wire.table(id, self._options, {"Table": body})
        arguments = {**await self._within(id.parent), "TableInput": body}

        async def declare() -> Table:
            await self._change("create_table", arguments, id, "declare_table")()
            return declaration

        async def find() -> Table | None:
            table = await self._table(id)
            return table if wire.is_made_of(table, declaration) else None

        return await create_or_find(id, declare, find)

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """See `Backend.replace_table`.

        UpdateTable compares versions, but a table that was dropped and created again may have the same one. Therefore
        the times of creation are compared afterwards, and a table that was replaced by mistake is restored from its
        archived version.

        Cost: three calls, because UpdateTable replaces the whole table and the parts to keep have to be read first.
        """
        current = await self._stored(old.id)
        if current.table.registration != old.registration or current.table.location != old.location:
            raise _declared_again(old.id)
        body = wire.replaced_input(current, location, properties)
        replacement = wire.table(old.id, self._options, {"Table": {**body, "CreateTime": None}})
        replacement = replace(replacement, registration=old.registration)

        async def update() -> Table:
            await self._update(old.id, body, current.version)
            return replacement

        async def find() -> Table | None:
            table = await self._table(old.id)
            return table if wire.is_made_of(table, replacement) else None

        replaced = await create_or_find(old.id, update, find, err.ConcurrentModificationError)
        try:
            there = await self._stored(old.id)
        except err.LanceNamespaceError as e:
            # The change was made. A later removal, or a busy server, is no reason to report a failure.
            log.debug("%s was replaced, but could not be read afterwards: %s", old.id, e)
            return replaced
        if there.created != current.created and there.table.registration == old.registration:
            error = _declared_again(old.id)
            try:
                await self._restore(there, current.version)
            except err.LanceNamespaceError as e:
                error.add_note(f"and its new registration was replaced by one at {location}, and not restored ({e})")
            raise error
        return replaced

    async def _stored(self, id: TableId) -> wire.StoredTable:
        arguments = {**await self._within(id.parent), "Name": id.name.lower()}
        decode = MaskedPartial(wire.stored_table, id, self._options)
        return await self._aws.call("get_table", arguments, subject=id, operation="replace_table", decode=decode)

    async def _update(self, id: TableId, body: Mapping[str, Any], version: str | None) -> None:
        arguments = {**await self._within(id.parent), "TableInput": body}
        if version is not None:
            arguments["VersionId"] = version
        await self._change("update_table", arguments, id, "replace_table")()

    async def _restore(self, there: wire.StoredTable, version: str | None) -> None:
        """Restores an archived version of a table, if its registration has not changed since."""
        id = there.table.id
        arguments = {**await self._within(id.parent), "TableName": id.name.lower(), "VersionId": version}
        body = await self._aws.call(
            "get_table_version", arguments, subject=id, operation="replace_table", decode=wire.archived_input
        )
        await self._update(id, body, there.version)

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        wire.check_name(id)
        wire.check_properties(id, properties)
        if location is not None:
            wire.check_location(id, location)
        for key, only in (("table_type", "lance"), ("managed_by", "storage")):
            if (value := properties.get(key, only)).lower() != only:
                raise err.InvalidInputError(f"table {id}: {key}={value!r} is not supported; only {only!r} is")

    async def remove_registration(self, id: TableId) -> None:
        arguments = {**await self._within(id.parent), "Name": id.name.lower()}
        await remove_or_check(self._change("delete_table", arguments, id, "deregister_table"), partial(self._table, id))

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise err.UnsupportedOperationError(
            f"Not supported: rename_table of {id} (Glue cannot rename tables; register {to} at the same location, "
            "then deregister the old name)"
        )

    async def aclose(self) -> None:
        await self._aws.aclose()

    def _change(
        self, action: str, arguments: Mapping[str, Any], id: TableId, operation: str
    ) -> Callable[[], Awaitable[None]]:
        return partial(
            self._aws.call, action, arguments, subject=id, operation=operation, decode=check_empty, safe=False
        )

    async def _within(self, database: NamespaceId) -> dict[str, Any]:
        """Returns the arguments that identify the database of tables."""
        return {**await self._catalogs.parent_arguments(database), "DatabaseName": database.name.lower()}

    async def _table(self, id: TableId) -> Table:
        return await self._load(id, MaskedPartial(wire.table, id, self._options))

    async def _load(self, id: TableId, decode: Callable[[Any], T]) -> T:
        named = {**await self._within(id.parent), "Name": id.name.lower()}
        try:
            return await self._aws.call("get_table", named, subject=id, operation="describe_table", decode=decode)
        except err.TableNotFoundError as missing:
            # Glue returns the same error if the database is missing. Concurrent checks of a database share one call.
            try:
                await self._databases.outcome(id.parent)
            except err.NamespaceNotFoundError:
                raise
            except err.LanceNamespaceError:
                # The table is missing in any case, so the error of the check of the database is ignored.
                raise missing from missing.__cause__
            raise

    async def _location_uri(self, id: NamespaceId) -> str:
        """Returns the database's `LocationUri`, empty if it has none.

        Raises:
            NamespaceNotFoundError: The database does not exist.
        """
        named = await self._namespaces.id_arguments(id)
        return await self._aws.call(
            "get_database", named, subject=id, operation="describe_table", decode=partial(wire.location_uri, id)
        )

    async def layout_location(self, id: TableId) -> str:
        lower_id = TableId(name.lower() for name in id)
        if uri := await self._location_uri(id.parent):
            return wire.location_inside(id, f"{uri.rstrip('/')}/{segment(f'{lower_id.name}.lance')}")
        if self._place is not None:
            return default_location(self._place, lower_id)
        raise err.InvalidInputError(
            f"table {id}: its database has no LocationUri; give a location, or set the property root"
        )

    async def _tables(
        self, which: Mapping[str, Any], parent: NamespaceId, token: str | None, *, operation: str
    ) -> Page[wire.ListedTable]:
        fetch = self._aws.page_fetcher(
            "get_tables",
            {**which, "MaxResults": wire.PAGE_SIZE},
            subject=parent,
            operation=operation,
            decode=MaskedPartial(wire.tables, parent, self._options),
        )
        return await fetch(token)

    async def _page(self, parent: NamespaceId, operation: str, token: str | None) -> Page[Table]:
        """Returns a page of the Lance tables in a database; an empty page for a catalog."""
        if self._catalogs.kind(parent) == "catalog" and await self._is_catalog(parent, operation):
            return Page([])
        try:
            page = await self._tables(await self._within(parent), parent, token, operation=operation)
        except err.NamespaceNotFoundError:
            if token is None and await self._is_catalog(parent, operation):
                return Page([])
            raise
        if token is None and not page.items and page.token is None:
            # Some servers return an empty listing for a missing database.
            await self._catalogs.find(parent, operation)
        return wire.lance_tables(page)

    async def _is_catalog(self, id: NamespaceId, operation: str) -> bool:
        return (await self._catalogs.find(id, operation)).kind == "catalog"


def _declared_again(id: TableId) -> err.ConcurrentModificationError:
    return error_about(err.ConcurrentModificationError, id, "another client replaced it meanwhile")


_MAX_EXPRESSION_LENGTH = 2048  # Maximum length of a name pattern, in characters.

_PLAIN = re.compile(r"[\w -]+")
"""Names that match the same in every pattern dialect, including servers that use shell patterns."""

_SIDE_BY_SIDE = 8  # Maximum number of concurrent pattern requests for one batch.

_MAX_EXTRA = 100
"""Maximum number of tables in a response that do not match its pattern; more mean that the server ignores patterns."""

Fetch = Callable[[Mapping[str, Any], NamespaceId, str | None], Awaitable[Page[ListedTable]]]
"""Function that returns the page of a database's tables at a token; the mapping contains the request arguments."""


class Patterns:
    """Requests tables by name patterns, filters the results, and detects servers that ignore patterns."""

    def __init__(self, fetch: Fetch, server: ObservedServer) -> None:
        """Creates the object.

        Args:
            server: Learns that it ignores patterns.
        """
        self._fetch = fetch
        self._server = server
        self._missed_ids: set[TableId] = set()

    async def describe(
        self, within: Mapping[str, Any], parent: NamespaceId, names: Sequence[str]
    ) -> Mapping[str, Table]:
        """Returns the Lance tables that were found, keyed by the requested names."""
        lower_names = dict.fromkeys(name.lower() for name in names)
        matches: set[str] = set()
        tables: dict[str, Table] = {}

        async def look(part: tuple[str, Sequence[str]]) -> None:
            expression, part_names = part
            extra = 0
            if self._server.traits.batches is False:
                return
            fetch = partial(self._fetch, {**within, "Expression": expression}, parent)
            async with aclosing(walk(fetch)) as pages:
                async for _, page in pages:
                    entries = {entry.name.lower(): entry.table for entry in page.items}
                    extra += len(entries.keys() - set(part_names))
                    matches.update(entries.keys() & lower_names.keys())
                    tables.update({name: table for name, table in entries.items() if table and name in lower_names})
                    if extra > _MAX_EXTRA:
                        self._give_up()
                        return

        await each(look, expressions(lower_names), max_in_flight=_SIDE_BY_SIDE)
        if not matches and self._server.traits.batches is not False:
            self._missed_ids.update(map(parent.table, names))
        results = ((name, tables.get(name.lower())) for name in names)
        return {name: replace(table, id=parent.table(name)) for name, table in results if table is not None}

    def watch(self, id: TableId) -> Callable[[], None]:
        """Returns the function to call if a describe of this single name finds the table.

        If patterns found none of their names and one of those tables exists, the server does not support patterns.
        """
        if id not in self._missed_ids:
            return _nothing
        self._missed_ids.discard(id)
        return self._give_up

    def _give_up(self) -> None:
        self._server.learn(batches=False)
        self._missed_ids.clear()


def expressions(names: Iterable[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields patterns that together match the names, each with the names that it matches.

    Names that servers could interpret differently in a pattern are omitted.

    Args:
        names: The names, in lower case.
    """
    length, part = 0, list[str]()
    for name in names:
        pattern = re.escape(name)
        if not _PLAIN.fullmatch(name) or len(pattern) > _MAX_EXPRESSION_LENGTH:
            continue
        if part and length + len(pattern) + 1 > _MAX_EXPRESSION_LENGTH:
            yield "|".join(map(re.escape, part)), part
            length, part = 0, []
        length += len(pattern) + bool(part)
        part.append(name)
    if part:
        yield "|".join(map(re.escape, part)), part


def _nothing() -> None:
    """Does nothing."""

"""The namespaces of AWS Glue: listing, creation and removal of catalogs and databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import lance_namespace.errors as err

from lance_ns_async.backends.glue import wire
from lance_ns_async.backends.glue.catalogs import Catalogs, DescribedNamespace, NamespaceKind
from lance_ns_async.backends.shared.lost_responses import create_or_find, remove_or_check
from lance_ns_async.backends.shared.response_checks import check_empty
from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import each
from lance_ns_async.errors import error_about
from lance_ns_async.model import NamespaceId, Page
from lance_ns_async.transports.aws.transport import AwsTransport

Change = Callable[[], Awaitable[None]]
"""A prepared call that changes a catalog or database."""


class Namespaces:
    """Lists, creates and drops databases and the catalogs that contain them."""

    def __init__(self, aws: AwsTransport, catalogs: Catalogs) -> None:
        self._aws = aws
        self._catalogs = catalogs

    async def names(self, parent: NamespaceId) -> list[str]:
        """Returns the names of the databases and catalogs directly in `parent`, sorted and without duplicates."""
        if parent and (await self._catalogs.find(parent, "list_namespaces")).kind == "database":
            return []
        names: dict[NamespaceKind, Sequence[str]] = {}

        async def look(kind: NamespaceKind) -> None:
            below = self._databases if kind == "database" else self._catalogs.children
            names[kind] = await below(parent)

        # Databases come last: if a catalog and a database have the same name, it refers to the database.
        kinds: tuple[NamespaceKind, ...] = ("catalog", "database")
        await each(look, kinds, max_in_flight=len(kinds))
        for kind in kinds:
            for name in names[kind]:
                self._catalogs.note(parent.child(name), kind)
        return sorted({*names["catalog"], *names["database"]})

    async def create(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Creates a database, or a catalog if the property `wire.KIND` is `catalog`; returns its properties."""
        wire.check_name(id)
        wire.check_properties(id, properties)
        parameters = {key: value for key, value in properties.items() if key != wire.KIND}
        match properties.get(wire.KIND, "database"):
            case "database":
                new_namespace, change = (
                    DescribedNamespace("database", {"Parameters": parameters}),
                    await self._new_database(id, parameters),
                )
            case "catalog":
                new_namespace, change = (
                    DescribedNamespace("catalog", {"Parameters": parameters}),
                    self._new_catalog(id, parameters),
                )
            case other:
                raise err.InvalidInputError(f"namespace {id}: {wire.KIND}={other!r}: it must be database or catalog")

        async def create() -> DescribedNamespace:
            await change()
            return new_namespace

        async def find() -> DescribedNamespace | None:
            current = await self._catalogs.find(id, "describe_namespace")
            return current if current.properties == new_namespace.properties else None

        namespace = await create_or_find(id, create, find, err.NamespaceAlreadyExistsError)
        self._catalogs.note(id, namespace.kind)
        return namespace.properties

    async def drop(self, id: NamespaceId) -> None:
        """Drops an empty database or catalog. It checks the content first, because Glue would also drop that."""
        kind = (await self._catalogs.find(id, "drop_namespace")).kind
        if (content := await self._content(id, kind)) is not None:
            raise error_about(err.NamespaceNotEmptyError, id, f"drop_namespace: it contains the {content}")
        if kind == "database":
            remove = self._change("delete_database", await self.id_arguments(id), id, "drop_namespace")
        else:
            remove = self._change("delete_catalog", await self._catalogs.id_arguments(id), id, "drop_namespace")
        self._catalogs.note(id, None)
        await remove_or_check(remove, partial(self._catalogs.find, id, "drop_namespace"))

    async def id_arguments(self, database: NamespaceId) -> dict[str, Any]:
        """Returns the arguments that identify a database."""
        return {**await self._catalogs.parent_arguments(database), "Name": database.name.lower()}

    async def _new_database(self, id: NamespaceId, properties: Mapping[str, str]) -> Change:
        if id.parent:
            await self._must_be_catalog(id.parent)
        body = {"Name": id.name.lower(), "Parameters": properties}
        arguments = {**await self._catalogs.parent_arguments(id), "DatabaseInput": body}
        return self._change("create_database", arguments, id, "create_namespace")

    def _new_catalog(self, id: NamespaceId, properties: Mapping[str, str]) -> Change:
        if id.parent:
            raise err.UnsupportedOperationError(
                f"Not supported: create_namespace of {id} (Glue cannot create a catalog inside another; "
                "create a database there, or the catalog in the system that owns it)"
            )
        self._catalogs.check_supported(id)
        wire.check_catalog_name(id)
        arguments = {"Name": id.name.lower(), "CatalogInput": {"Parameters": properties}}
        return self._change("create_catalog", arguments, id, "create_namespace", optional=True)

    async def _must_be_catalog(self, id: NamespaceId) -> None:
        self._catalogs.check_supported(id)
        if (await self._catalogs.find(id, "describe_namespace")).kind == "database":
            raise err.UnsupportedOperationError(
                f"Not supported: create_namespace in {id} (it is a database, which can contain only tables)"
            )

    async def _content(self, id: NamespaceId, kind: NamespaceKind) -> str | None:
        """Returns the kind and name of one object in a namespace, for messages; None if the namespace is empty."""
        if kind == "database":
            # Any table counts, whatever its format.
            within = {
                **await self._catalogs.parent_arguments(id),
                "DatabaseName": id.name.lower(),
                "AttributesToGet": ["NAME"],
            }
            name = await self._first("get_tables", within, id, wire.names)
            return None if name is None else f"table {name}"
        name = await self._first("get_databases", await self._catalogs.id_arguments(id), id, wire.databases)
        if name is not None:
            return f"database {name}"
        children = await self._catalogs.children(id)
        return f"catalog {children[0]}" if children else None

    async def _first(
        self, action: str, arguments: Mapping[str, Any], id: NamespaceId, decode: Callable[[Any], Page[str]]
    ) -> str | None:
        one = {**arguments, "MaxResults": 1}
        fetch = self._aws.page_fetcher(action, one, subject=id, operation="drop_namespace", decode=decode)
        async with aclosing(walk(fetch)) as pages:
            async for _, page in pages:
                if page.items:
                    return page.items[0]
        return None

    async def _databases(self, catalog: NamespaceId) -> list[str]:
        arguments = {**await self._catalogs.id_arguments(catalog), "MaxResults": wire.PAGE_SIZE}
        fetch = self._aws.page_fetcher(
            "get_databases", arguments, subject=catalog, operation="list_namespaces", decode=wire.databases
        )
        async with aclosing(walk(fetch)) as pages:
            return [name async for _, page in pages for name in page.items]

    def _change(
        self, action: str, arguments: Mapping[str, Any], id: NamespaceId, operation: str, *, optional: bool = False
    ) -> Change:
        return partial(
            self._aws.call,
            action,
            arguments,
            subject=id,
            operation=operation,
            decode=check_empty,
            safe=False,
            optional=optional,
        )

"""The catalogs of AWS Glue: their ids, the catalog that contains a namespace, and the kind of each namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import lance_namespace.errors as err

from lance_ns_async.backends.base import ObservedServer
from lance_ns_async.backends.glue import wire
from lance_ns_async.backends.shared.response_checks import check_name
from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.errors import error_about
from lance_ns_async.model import NamespaceId
from lance_ns_async.transports.aws.transport import AwsTransport

T = TypeVar("T")
NamespaceKind: TypeAlias = Literal["database", "catalog"]


@dataclass(frozen=True, slots=True)
class DescribedNamespace:
    """A namespace as described by Glue."""

    kind: NamespaceKind
    about: Mapping[str, Any]

    @property
    def properties(self) -> dict[str, str]:
        """The stored properties; those of a catalog also contain `wire.KIND`."""
        parameters = wire.parameters(self.about)
        return parameters if self.kind == "database" else {**parameters, wire.KIND: self.kind}


class Catalogs:
    """Finds Glue's catalogs and their ids.

    As long as the backend is open, it caches three facts: the ids of the root's catalogs, whether a name was last seen
    as a catalog or as a database (which saves one of two calls), and whether the server supports operations on
    catalogs (servers other than AWS may not). A cached entry never counts as proof that an object still exists.
    """

    def __init__(self, aws: AwsTransport, root: str | None, server: ObservedServer, *, use_catalogs: bool) -> None:
        """Creates the cache.

        Args:
            root: The id of the catalog that is the root namespace; None for the caller's own catalog.
            server: Learns whether it has operations on catalogs.
            use_catalogs: Whether catalogs may be used; False restricts namespaces to databases.
        """
        self._aws = aws
        self._root = root
        self._server = server
        self._use_catalogs = use_catalogs
        self._ids: dict[str, str] = {}
        self._account: str | None = None
        self._learning = SingleFlight(self._learn)
        self._kinds: dict[NamespaceId, NamespaceKind] = {}

    @property
    def _supports_catalogs(self) -> bool | None:
        """Whether namespaces can be catalogs, by the settings and by what the server has shown; None if unknown."""
        return self._server.traits.has_catalogs if self._use_catalogs else False

    async def parent_arguments(self, id: NamespaceId) -> dict[str, str]:
        """Returns the `CatalogId` argument for the catalog that contains `id`; empty for the caller's own root."""
        return await self.id_arguments(id.parent)

    async def id_arguments(self, id: NamespaceId) -> dict[str, str]:
        """Returns the `CatalogId` argument for the catalog `id`; empty for the caller's own root."""
        catalog_id = await self._id(id) if id else self._root
        return {"CatalogId": catalog_id} if catalog_id else {}

    def kind(self, id: NamespaceId) -> NamespaceKind | None:
        """Returns the kind that the namespace last had; None if unknown."""
        return self._kinds.get(_fold_case(id))

    def note(self, id: NamespaceId, kind: NamespaceKind | None) -> None:
        """Caches the kind of a namespace; None removes it from the cache."""
        if kind is None:
            self._kinds.pop(_fold_case(id), None)
        else:
            self._kinds[_fold_case(id)] = kind

    def check_supported(self, id: NamespaceId) -> None:
        """Raises UnsupportedOperationError for `id` if the endpoint or the settings exclude catalogs."""
        if self._supports_catalogs is False:
            raise error_about(
                err.UnsupportedOperationError,
                id,
                "this endpoint has no catalogs, or the property catalogs is off; use the name of a database alone",
            )

    async def find(self, id: NamespaceId, operation: str) -> DescribedNamespace:
        """Returns the namespace; the database if a catalog has the same name.

        Cost: one call, or two concurrent calls if the kind is not cached, or three if the cached kind is outdated.
        """
        if (kind := self.kind(id)) is not None:
            try:
                return await self._look(id, kind, operation)
            except err.NamespaceNotFoundError:
                self.note(id, None)
        namespace = await self._either(id, operation)
        self.note(id, namespace.kind)
        return namespace

    async def children(self, parent: NamespaceId) -> list[str]:
        """Returns the names of the catalogs directly below another; empty if the server has no catalogs."""
        if self._supports_catalogs is False:
            return []
        try:
            above = (await self.id_arguments(parent)).get("CatalogId")
            catalogs = await self._below(above, parent)
        except err.UnsupportedOperationError:
            if parent:
                raise
            return []
        return [name for name, _ in catalogs]

    async def _id(self, id: NamespaceId) -> str:
        missing = error_about(err.NamespaceNotFoundError, id, "no catalog can have this name")
        if self._supports_catalogs is False or not wire.can_be_catalog(id):
            raise missing
        if self._root is not None:
            return wire.catalog_id(self._root, id)
        try:
            first = await self._first(id[0].lower())
        except err.UnsupportedOperationError as e:
            if self._supports_catalogs:
                raise
            raise missing from e
        if first is None:
            raise error_about(err.NamespaceNotFoundError, id, "the account has no catalogs")
        return wire.catalog_id(first, id[1:])

    async def _first(self, name: str) -> str | None:
        """Returns the id of a catalog directly below the root, spelled as in Glue's listing.

        Returns:
            The id; None if the account has no catalogs.
        """

        def cached_id() -> str | None:
            return self._ids.get(name) or (wire.catalog_id(self._account, [name]) if self._account else None)

        id = cached_id()
        if id is None:
            await self._learning.outcome(lambda: True if cached_id() else None)
            id = cached_id()
        return id

    async def _learn(self) -> bool:
        await self._below(None, NamespaceId())
        return True

    async def _below(self, above: str | None, subject: NamespaceId) -> list[tuple[str, str]]:
        """Returns names and ids of the catalogs directly below the catalog with the id `above`.

        Args:
            above: The id of the parent catalog; None for the caller's root.
        """
        which = {"ParentCatalogId": above} if above else {"IncludeRoot": True}
        fetch = self._aws.page_fetcher(
            "get_catalogs",
            {**which, "Recursive": False},
            subject=subject,
            operation="list_catalogs",
            decode=wire.catalogs,
            optional=self._supports_catalogs is None,
        )

        async def read() -> list[tuple[str, str]]:
            async with aclosing(walk(fetch)) as pages:
                return [entry async for _, page in pages for entry in page.items]

        catalogs = await self._detect_support(read)
        below = [(name, id) for name, id in catalogs if wire.is_child(id, above)]
        if above is None:
            self._ids = {name.lower(): id for name, id in below}
            # If the listing includes the root's own id, that is the shortest one.
            self._account = wire.account(min((id for _, id in catalogs), key=len, default="")) or None
        return below

    async def _either(self, id: NamespaceId, operation: str) -> DescribedNamespace:
        async def outcome(kind: NamespaceKind) -> DescribedNamespace | err.LanceNamespaceError:
            try:
                return await self._look(id, kind, operation)
            except err.LanceNamespaceError as e:
                return e

        async with asyncio.TaskGroup() as both:
            other = both.create_task(outcome("catalog"))
            database = await outcome("database")
            if not isinstance(database, err.LanceNamespaceError):
                # The database takes precedence, so the other response is not needed.
                other.cancel()
        return _choose(database, None if other.cancelled() else other.result())

    async def _look(self, id: NamespaceId, kind: NamespaceKind, operation: str) -> DescribedNamespace:
        if kind == "database":
            named = {**await self.parent_arguments(id), "Name": id.name.lower()}
            return await self._aws.call(
                "get_database", named, subject=id, operation=operation, decode=partial(_decode_database, id)
            )
        named = await self.id_arguments(id)

        async def read() -> DescribedNamespace:
            return await self._aws.call(
                "get_catalog",
                named,
                subject=id,
                operation=operation,
                decode=_decode_catalog,
                optional=self._supports_catalogs is None,
            )

        return await self._detect_support(read)

    async def _detect_support(self, read: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of a read about catalogs; records whether the server supports such operations."""
        try:
            answer = await read()
        except err.UnsupportedOperationError:
            self._server.learn(has_catalogs=bool(self._supports_catalogs))
            raise
        except err.NamespaceNotFoundError:
            self._server.learn(has_catalogs=True)
            raise
        except err.PermissionDeniedError as e:
            raise err.PermissionDeniedError(f"{e}; without catalogs, set the property catalogs to off") from e
        self._server.learn(has_catalogs=True)
        return answer


def _decode_database(id: NamespaceId, answer: Any) -> DescribedNamespace:
    check_name(id.name, answer["Database"].get("Name"), "database")
    return DescribedNamespace("database", {"Parameters": wire.parameters(answer["Database"])})


def _decode_catalog(answer: Any) -> DescribedNamespace:
    return DescribedNamespace("catalog", {"Parameters": wire.parameters(answer["Catalog"])})


def _choose(
    database: DescribedNamespace | err.LanceNamespaceError, catalog: DescribedNamespace | err.LanceNamespaceError | None
) -> DescribedNamespace:
    """Returns the namespace from the results of both lookups; else raises the more informative error.

    Args:
        catalog: The result of the catalog lookup; None if it was cancelled, because the database exists.
    """
    if isinstance(database, DescribedNamespace):
        return database
    # Lake Formation denies access to databases that do not exist.
    if isinstance(catalog, DescribedNamespace) and isinstance(
        database, err.NamespaceNotFoundError | err.PermissionDeniedError
    ):
        return catalog
    if isinstance(database, err.NamespaceNotFoundError) and isinstance(catalog, err.LanceNamespaceError):
        missing = isinstance(catalog, err.NamespaceNotFoundError | err.UnsupportedOperationError)
        raise database if missing else catalog
    raise database


def _fold_case(id: NamespaceId) -> NamespaceId:
    return NamespaceId(level.lower() for level in id)

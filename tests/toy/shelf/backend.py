"""The backend for a Shelf: nested namespaces with Lance tables, over JSON and HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import orjson
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.backends.shared.response_checks import ignore, text, texts
from lance_ns_async.calls.caller import Caller
from lance_ns_async.errors import Code
from lance_ns_async.model import Id, NamespaceId, Page, Table, TableId
from lance_ns_async.settings import HttpSettings, LocationSettings
from lance_ns_async.storage.locations import Root, default_location
from lance_ns_async.transports.http.transport import HttpTransport, open_http
from tests.toy.shelf.errors import ERRORS

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class ShelfSettings(LocationSettings, HttpSettings):
    """Properties of a Shelf."""

    backend = "shelf"

    root: Root
    """Base of default table locations, `{root}/{levels}/{table}`."""


class ShelfBackend(Backend):
    """A Shelf."""

    settings = ShelfSettings
    errors = ERRORS
    capabilities = Capabilities(min_depth=1, max_depth=None)

    def __init__(self, http: HttpTransport, settings: ShelfSettings) -> None:
        self._http = http
        self._root = settings.root
        self.unique_locations = settings.unique_locations
        self.allow_aliases = settings.allow_aliases
        self.configured_options = settings.storage_options()

    @classmethod
    def open(cls, settings: ShelfSettings, caller: Caller) -> ShelfBackend:
        return cls(open_http(settings, caller, path="", read_error=read_error), settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._call("GET", "/namespaces", parent, "list_namespaces", decode=names)

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        return await self._call("GET", "/namespace", id, "describe_namespace", decode=texts)

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        return await self._call("POST", "/namespace", id, "create_namespace", dict(properties), decode=texts)

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        await self._call("DELETE", "/namespace", id, "drop_namespace", decode=ignore)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._call("GET", "/tables", parent, "list_tables", decode=names)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        return await self._call("GET", "/table", id, "describe_table", decode=partial(table, id))

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        body = {"location": location or await self._choose_location(id), "properties": dict(properties)}
        return await self._call("POST", "/table", id, "declare_table", body, decode=partial(table, id))

    async def remove_registration(self, id: TableId) -> None:
        await self._call("DELETE", "/table", id, "deregister_table", decode=ignore)

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise UnsupportedOperationError(f"Not supported: rename_table of {id} (a Shelf cannot rename tables)")

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        if len(id.name) > 1000:
            raise InvalidInputError(f"table {id}: a name on a Shelf has at most 1000 characters")

    async def layout_location(self, id: TableId) -> str:
        return default_location(self._root, id)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _call(
        self, method: str, path: str, subject: Id, operation: str, body: Any = None, *, decode: Callable[[Any], T]
    ) -> T:
        query = f"id={quote(orjson.dumps(list(subject)), safe='')}"
        return await self._http.request(
            method, path, query=query, body=body, subject=subject, operation=operation, decode=decode
        )


def names(body: Any) -> Page[str]:
    """Returns the names in a listing."""
    return Page([text(name) for name in body])


def table(id: TableId, body: Any) -> Table:
    """Returns a table in a response."""
    return Table(id, text(body["location"]), texts(body["properties"]))


def read_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns code and message of an error."""
    return (text(body["code"]),), text(body["code"])

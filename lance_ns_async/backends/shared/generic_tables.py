"""Generic tables, as the catalog APIs of Apache Polaris and Lakekeeper have them: bodies, decoders and declarations.

A generic table has a name, a format, a location, an optional text and properties. A Lance table has the format `lance`.
"""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from lance_namespace.errors import InternalError, InvalidInputError, InvalidTableStateError, LanceNamespaceError

from lance_ns_async.backends.base import Backend
from lance_ns_async.backends.shared import registrations
from lance_ns_async.backends.shared.lost_responses import create_or_find
from lance_ns_async.backends.shared.response_checks import check_empty, text
from lance_ns_async.calls.paging import walk
from lance_ns_async.errors import AnotherAnswerError, not_lance
from lance_ns_async.model import NamespaceId, Page, Table, TableId, same_place
from lance_ns_async.storage.locations import check_default
from lance_ns_async.storage.options import merge_options
from lance_ns_async.transports.http.transport import HttpTransport

TYPE_KEY = "table_type"
"""The property that marks a Lance table for other tools."""

T = TypeVar("T")

Vend = Callable[[Mapping[str, Any], str], Mapping[str, str]]
"""Returns the storage options that a load response vends for a location."""


class OtherSpellingError(InvalidInputError):
    """The catalog has a table whose name it takes for equal to the requested one, although the characters differ."""


class GenericTableBackend(Backend):
    """A backend whose Lance tables are generic tables, which the catalog cannot change in place."""

    _http: HttpTransport

    @abstractmethod
    def _decode_table(self, id: TableId, body: Any, *, vend: bool = False) -> Table:
        """Returns the Lance table in a load response."""

    async def _create_table(
        self,
        id: TableId,
        body: Mapping[str, Any],
        *,
        collection: str,
        path: str,
        location: str | None,
        key: str | None = None,
        lookup_headers: Mapping[str, str] | None = None,
        send: Callable[[Callable[[], Awaitable[Table]]], Awaitable[Table]] | None = None,
    ) -> Table:
        """Declares a table, and removes the registration if the catalog has chosen another location.

        Args:
            body: The declaration.
            collection: The path of the tables of the namespace.
            path: The path of the table.
            location: The required location; None for any.
            key: The key by which the server recognizes the declaration; None if it supports none.
            lookup_headers: Headers of the describe after a lost response.
            send: Runs the call that creates the table; None means that it is only awaited.
        """
        request = partial(self._http.request, subject=id, operation="declare_table")
        create = partial(request, "POST", collection, body=body, key=key, decode=partial(self._decode_table, id))
        table: Table = await create_or_find(
            id,
            create if send is None else partial(send, create),
            partial(request, "GET", path, headers=lookup_headers, decode=partial(self._find_declared, id, body)),
        )
        if location is not None and not same_place(table.location, location):
            error = InternalError(
                f"table {id}: the catalog would register it at {table.location}, not at {location}; "
                "give a location that it accepts"
            )
            await self._undo(id, error)
            raise error
        try:
            check_default(table, "the catalog")
        except InvalidTableStateError as e:
            await self._undo(id, e)
            raise
        return table

    async def _delete_table(self, id: TableId, path: str, query: str = "", *, key: str | None = None) -> None:
        await self._http.request(
            "DELETE", path, query=query, subject=id, operation="deregister_table", key=key, decode=check_empty
        )

    async def _list_all(
        self, path: str, query: str, parent: NamespaceId, operation: str, decode: Callable[[Any], Page[T]]
    ) -> Page[T]:
        """Returns all names as one page, which costs one call for each page of the server."""

        async def fetch(token: str | None) -> Page[T]:
            parameters = [query] if query else []
            if token is not None:
                parameters.append(f"pageToken={quote(token, safe='')}")
            return await self._http.request(
                "GET", path, query="&".join(parameters), subject=parent, operation=operation, decode=decode
            )

        names: dict[T, None] = {}
        async with aclosing(walk(fetch)) as pages:
            async for _, page in pages:
                names.update(dict.fromkeys(page.items))
        return Page(list(names))

    def _find_declared(self, id: TableId, body: Mapping[str, Any], response: Any) -> Table | None:
        """Returns the table in a response; None if it differs from the declaration."""
        return self._decode_table(id, response) if is_declared(body, response) else None

    async def _undo(self, id: TableId, error: LanceNamespaceError) -> None:
        """Removes the registration that was just made; if that fails, adds a note to the error."""
        try:
            await self.remove_registration(id)
        except LanceNamespaceError as e:
            error.add_note(f"and it is still registered there, because that could not be undone ({e})")


def lance_table(
    id: TableId, options: Mapping[str, str], body: Any, *, vend: Vend | None = None, folds_names: bool = False
) -> Table:
    """Returns the Lance table in a response.

    Its storage options are `options`, overridden by the table's properties, and those by vended credentials.

    Args:
        vend: Decodes vended credentials; None if none were requested.
        folds_names: Whether the server compares names without regard to case, and to forms of characters as Unicode
            does (ICU level 2). A name that differs in case alone is accepted.
    """
    description = body["table"]
    name = text(description.get("name", id.name))
    if name != id.name and not (folds_names and name.casefold() == id.name.casefold()):
        if folds_names and _plain(name) == _plain(id.name):
            raise OtherSpellingError(
                f"table id {list(id)!a}: the catalog has the table {name!a}, and takes both names for equal, "
                "although their characters differ; use the name of the table"
            )
        # A proxy that rewrites paths may have requested another table.
        raise AnotherAnswerError(f"an answer about the table {name!r}")
    if (format := description.get("format") or "").lower() != "lance":
        raise not_lance(id, f"its format is {format!r}")
    if not (location := description.get("base-location")):
        raise not_lance(id, "it has no base-location")
    stored_properties = present_properties(description)
    properties = registrations.remove_identity(stored_properties)
    storage_options = merge_options(options, properties)
    storage_options.pop(TYPE_KEY, None)
    if vend is not None:
        storage_options = merge_options(storage_options, vend(body, location))
    return Table(
        id, location, properties, storage_options or None, registration=registrations.identity(stored_properties)
    )


def _plain(name: str) -> str:
    """Returns a name without the differences that ICU ignores at level 2, at least approximately."""
    text = unicodedata.normalize("NFKC", name)
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf")).casefold()


def declaration(name: str, location: str | None, properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the body of the request that declares a Lance table; without a location, the server chooses one."""
    body: dict[str, Any] = {
        "name": name,
        "format": "lance",
        "properties": registrations.add_identity({**properties, TYPE_KEY: "lance"}),
    }
    if location is not None:
        body["base-location"] = location
    return body | ({"doc": properties["doc"]} if "doc" in properties else {})


def is_declared(body: Mapping[str, Any], response: Any) -> bool:
    """Returns whether a response describes the table of this declaration, and not another one of its name."""
    description = response["table"]
    keys = ["format", "doc", "properties", *(["base-location"] if "base-location" in body else [])]
    return all(description.get(key) == body.get(key) for key in keys)


def present_properties(description: Mapping[str, Any]) -> dict[str, str]:
    """Returns the properties in a description, without null values, which the result type cannot represent."""
    properties: Mapping[str, Any] = description.get("properties") or {}
    return {key: text(value) for key, value in properties.items() if value is not None}

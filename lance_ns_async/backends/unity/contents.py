"""Contents of a Unity Catalog schema, which determine whether a cascade may drop it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.backends.unity.wire import OBJECT_KINDS, SchemaObject, objects_query, schema_objects
from lance_ns_async.calls.paging import walk
from lance_ns_async.errors import failure_of, shortened, spelled
from lance_ns_async.model import NamespaceId, Page, TableId
from lance_ns_async.transports.http.transport import HttpTransport

_OPERATION = "drop_namespace"

_LIST_LIMIT = 5

_MAX_MESSAGE_LENGTH = 100


@dataclass(slots=True)
class Contents:
    """The Lance tables in a schema, and the other objects in it."""

    tables: list[TableId] = field(default_factory=list)
    others: list[SchemaObject] = field(default_factory=list)


async def list_contents(http: HttpTransport, schema: NamespaceId) -> Contents:
    """Returns all objects that the server lists in a schema.

    Cost: one call for each page of tables, volumes, functions and models.
    """
    result = Contents()
    for kind in OBJECT_KINDS:
        for one in await _list_objects(http, schema, kind):
            if one.is_lance:
                result.tables.append(schema.table(one.name))
            else:
                result.others.append(one)
    return result


def check_only_tables(schema: NamespaceId, others: Sequence[SchemaObject]) -> None:
    """Raises InvalidInputError if a schema contains other objects than Lance tables, which a cascade would delete."""
    if not others:
        return
    # Objects whose data would be lost come first.
    objects = sorted(others, key=lambda one: (not one.has_data, one.kind, one.name))
    more = f" and {len(objects) - _LIST_LIMIT} more" if len(objects) > _LIST_LIMIT else ""
    raise InvalidInputError(
        f"namespace {spelled(schema)}: a cascade drops only Lance tables, and it also contains "
        f"{', '.join(_describe(objects[:_LIST_LIMIT]))}{more}; remove them with Unity Catalog's own tools first"
    )


def _describe(objects: Iterable[SchemaObject]) -> Iterable[str]:
    for one in objects:
        consequence = ", whose data the server would delete" if one.has_data else ""
        yield f"the {one.kind} {shortened(one.name, _MAX_MESSAGE_LENGTH)}{consequence}"


async def _list_objects(http: HttpTransport, schema: NamespaceId, kind: str) -> Sequence[SchemaObject]:
    async def fetch(token: str | None) -> Page[SchemaObject]:
        return await http.request(
            "GET",
            f"/{kind}",
            query=objects_query(schema, kind, token),
            subject=schema,
            operation=_OPERATION,
            decode=partial(schema_objects, kind),
        )

    objects: list[SchemaObject] = []
    try:
        async with aclosing(walk(fetch)) as pages:
            async for _, page in pages:
                objects += page.items
    except LanceNamespaceError as e:
        if kind == "tables" or not _is_unserved(e):
            raise
    return objects


def _is_unserved(error: LanceNamespaceError) -> bool:
    """Returns whether the server has no such path, and so no such objects; such a response has no error code."""
    failure = failure_of(error)
    return failure is not None and failure.codes in ((404,), (501,))

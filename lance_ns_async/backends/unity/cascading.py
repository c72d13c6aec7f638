"""Contents of a Unity Catalog schema, which determine whether a cascade may drop it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.backends.unity import wire
from lance_ns_async.calls.paging import walk
from lance_ns_async.errors import failure_of, shortened, spelled
from lance_ns_async.model import NamespaceId, Page, TableId
from lance_ns_async.transports.http.transport import HttpTransport

_OPERATION = "drop_namespace"
_SHOWN = 5
_LONGEST_NAME = 100


@dataclass(slots=True)
class Contents:
    """The Lance tables in a schema, and the other objects in it."""

    tables: list[TableId] = field(default_factory=list)
    others: list[wire.Held] = field(default_factory=list)


async def contents(http: HttpTransport, schema: NamespaceId) -> Contents:
    """Returns all objects that the server lists in a schema.

    Cost: one call for each page of tables, volumes, functions and models.
    """
    found = Contents()
    for kind in wire.HELD_KINDS:
        for one in await _listed(http, schema, kind):
            if one.is_lance:
                found.tables.append(schema.table(one.name))
            else:
                found.others.append(one)
    return found


def check(schema: NamespaceId, others: Sequence[wire.Held]) -> None:
    """Raises InvalidInputError if a schema contains other objects than Lance tables, which a cascade would delete."""
    if not others:
        return
    # Objects whose data would be lost come first.
    ranked = sorted(others, key=lambda one: (not one.has_data, one.kind, one.name))
    more = f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else ""
    raise InvalidInputError(
        f"namespace {spelled(schema)}: a cascade drops Lance tables alone, and it also holds "
        f"{', '.join(_described(ranked[:_SHOWN]))}{more}; remove them with Unity Catalog's own tools first"
    )


def _described(held: Iterable[wire.Held]) -> Iterable[str]:
    for one in held:
        deleted = ", whose data the server would delete" if one.has_data else ""
        yield f"the {one.kind} {shortened(one.name, _LONGEST_NAME)}{deleted}"


async def _listed(http: HttpTransport, schema: NamespaceId, kind: str) -> Sequence[wire.Held]:
    async def fetch(token: str | None) -> Page[wire.Held]:
        return await http.request(
            "GET",
            f"/{kind}",
            query=wire.held_query(schema, kind, token),
            subject=schema,
            operation=_OPERATION,
            decode=partial(wire.held, kind),
        )

    found: list[wire.Held] = []
    try:
        async with aclosing(walk(fetch)) as pages:
            async for _, page in pages:
                found += page.items
    except LanceNamespaceError as e:
        if kind == "tables" or not _is_unserved(e):
            raise
    return found


def _is_unserved(error: LanceNamespaceError) -> bool:
    """Returns whether the server has no such path, and so no such objects; such a response has no error code."""
    failure = failure_of(error)
    return failure is not None and failure.codes in ((404,), (501,))

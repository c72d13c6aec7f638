"""Suggestions for ids that do not exist."""

from __future__ import annotations

import shlex
from contextlib import suppress
from itertools import islice

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError

from lance_ns_async import Namespace
from lance_ns_async.errors import nearest
from lance_ns_async.model import Id, NamespaceId, TableId

_SIBLINGS = 200  # Maximum number of tables, and of namespaces, that are compared with an id.


def suggest_id(catalog: Namespace, id: Id) -> str | None:
    """Returns what an id that does not exist probably means; None if that is unknown.

    Cost: one listing of the tables beside the id, and one of the namespaces; for each level that does not exist, again.
    """
    # A suggestion must not hide the error itself.
    with suppress(LanceNamespaceError):
        return _suggest(catalog, id)
    return None


def _suggest(catalog: Namespace, id: Id, rest: tuple[str, ...] = ()) -> str | None:
    """Returns the suggestion; `rest` are the names below a namespace that does not exist."""
    if not id:
        return None
    parent = NamespaceId(id[:-1])
    try:
        namespaces = [it.name for it in islice(catalog.iter_namespaces(parent), _SIBLINGS)]
    except NamespaceNotFoundError:
        return _suggest(catalog, parent, (id[-1], *rest))
    if isinstance(id, TableId):
        if not rest and id.name in namespaces:
            return f"it is a namespace: list its tables with lance-ns ls {shlex.quote(str(id))}, or use '{id}.**'"
        names = list(catalog.list_tables({"id": list(parent), "limit": _SIBLINGS}).tables)
    else:
        names = namespaces
    near = nearest(id[-1], names)
    if near is None or near == id[-1]:
        return None
    return f"did you mean {TableId((*parent, near, *rest)) if rest else type(id)((*parent, near))}?"

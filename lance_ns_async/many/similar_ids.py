"""Ids that an id which does not exist probably means."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import lance_namespace as spec
import lance_namespace.errors as err
from anyio import move_on_after

from lance_ns_async.errors import nearest, subject_of
from lance_ns_async.model import Id, NamespaceId, TableId
from lance_ns_async.operations.namespaces import list_namespaces
from lance_ns_async.operations.tables import list_tables
from lance_ns_async.progress import is_interactive
from lance_ns_async.session import Session

_SIBLINGS = 200  # Maximum number of tables, and of namespaces, that are compared with an id.

_PATIENCE = 3.0  # Maximum duration in seconds of the search for a hint.


async def similar_id(session: Session, id: Id, may_see: Callable[[Id], bool] = lambda _: True) -> Id | None:
    """Returns the table or namespace that an id probably means; None if there is none, or after an error.

    A table's id that is the id of a namespace means this namespace.

    Args:
        session: The catalog.
        id: The id, which does not exist.
        may_see: Returns whether the caller may know of an id.

    Cost:
        One listing of the tables beside the id, and one of the namespaces; for each level that does not exist, again.
    """
    if not id:
        return None
    parent = NamespaceId(id[:-1])
    # An error here must not hide the one that is explained.
    with suppress(err.LanceNamespaceError):
        try:
            if isinstance(id, TableId):
                listed = await list_tables(session, spec.ListTablesRequest(id=list(parent), limit=_SIBLINGS))
                tables = [name for name in listed.tables if may_see(parent.table(name))]
                if (near := nearest(id.name, tables)) is not None:
                    return None if near == id.name else parent.table(near)
            request = spec.ListNamespacesRequest(id=list(parent), limit=_SIBLINGS)
            listed_below = (await list_namespaces(session, request)).namespaces
        except err.NamespaceNotFoundError:
            above = await similar_id(session, parent, may_see)
            return None if above is None else type(id)((*above, id[-1]))
        names = [name for name in listed_below if may_see(parent.child(name))]
        if isinstance(id, TableId):
            return parent.child(id.name) if id.name in names else None
        near = nearest(id[-1], names)
        return None if near in (None, id[-1]) else parent.child(near)
    return None


def deserves_hint(error: err.LanceNamespaceError) -> bool:
    """Returns whether `add_hint` looks for a hint: in an interactive interpreter or a notebook, for a missing id.

    Other programs may look for ids that need not exist.
    """
    return is_interactive() and isinstance(error, err.TableNotFoundError | err.NamespaceNotFoundError)


async def add_hint(session: Session, error: err.LanceNamespaceError) -> None:
    """Adds a note with the id that is probably meant to an error, if it deserves one.

    Cost:
        As `similar_id`, for at most 3 seconds.
    """
    if not deserves_hint(error) or (subject := subject_of(error)) is None:
        return
    with move_on_after(_PATIENCE):
        if (near := await similar_id(session, subject)) is not None:
            error.add_note(f"did you mean {near}?" if near != subject else f"{near} is a namespace")

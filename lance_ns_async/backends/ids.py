"""Ids checked against the depth that a catalog can have."""

from __future__ import annotations

from collections.abc import Iterable

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Capabilities
from lance_ns_async.model import NamespaceId, TableId


def table_id(names: Iterable[str] | None, can: Capabilities) -> TableId:
    """The checked id of a table: the message for a wrong depth is the same for every catalog."""
    id = names if isinstance(names, TableId) else TableId(names or ())
    check_depth(id, can)
    return id


def check_depth(id: TableId, can: Capabilities) -> None:
    """Raises InvalidInputError where the catalog can have no table at such a depth."""
    depth = len(id) - 1
    if depth < can.min_depth or (can.max_depth is not None and depth > can.max_depth):
        if can.max_depth is None:
            wanted = f"{can.min_depth} or more"
        elif can.min_depth == can.max_depth:
            wanted = f"exactly {can.min_depth}"
        else:
            wanted = f"{can.min_depth} to {can.max_depth}"
        raise InvalidInputError(
            f"table id {list(id)!r}: this catalog wants {wanted} namespace levels above a table, not {depth}"
        )


def namespace_id(names: Iterable[str] | None, can: Capabilities) -> NamespaceId:
    """The checked id of a namespace; None and no names are the root."""
    id = names if isinstance(names, NamespaceId) else NamespaceId(names or ())
    if can.max_depth is not None and len(id) > can.max_depth:
        raise InvalidInputError(
            f"namespace id {list(id)!r}: this catalog has at most {can.max_depth} namespace levels, not {len(id)}"
        )
    return id

"""Validation of ids against the namespace depth of a catalog."""

from __future__ import annotations

from collections.abc import Iterable

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Capabilities
from lance_ns_async.model import NamespaceId, TableId


def table_id(names: Iterable[str] | None, can: Capabilities) -> TableId:
    """Returns the id of a table, with its depth checked."""
    id = names if isinstance(names, TableId) else TableId(names or ())
    check_depth(id, can)
    return id


def check_depth(id: TableId, can: Capabilities) -> None:
    """Raises InvalidInputError if the catalog cannot have a table at this depth."""
    depth = len(id) - 1
    if depth < can.min_depth or (can.max_depth is not None and depth > can.max_depth):
        if can.max_depth is None:
            depths = f"{can.min_depth} or more"
        elif can.min_depth == can.max_depth:
            depths = f"exactly {can.min_depth}"
        else:
            depths = f"{can.min_depth} to {can.max_depth}"
        raise InvalidInputError(
            f"table id {list(id)!r}: this catalog requires {depths} namespace levels above a table, not {depth}"
        )


def namespace_id(names: Iterable[str] | None, can: Capabilities) -> NamespaceId:
    """Returns the id of a namespace, with its depth checked.

    Args:
        names: The names from the root; None or no names for the root.
    """
    id = names if isinstance(names, NamespaceId) else NamespaceId(names or ())
    if can.max_depth is not None and len(id) > can.max_depth:
        raise InvalidInputError(
            f"namespace id {list(id)!r}: this catalog has at most {can.max_depth} namespace levels, not {len(id)}"
        )
    return id

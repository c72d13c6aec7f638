"""Operations that follow from a backend's duties, and so are the same for every catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from lance_namespace.errors import NamespaceAlreadyExistsError

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import BadLocationError, UnreadableRegistrationError
from lance_ns_async.model import NamespaceId, Table, TableId


async def describe_namespace(backend: Backend, id: NamespaceId) -> Mapping[str, str]:
    """The namespace's properties; the root is always there and has none."""
    return await backend.describe_namespace(id) if id else {}


async def create_namespace(backend: Backend, id: NamespaceId, given: Mapping[str, str]) -> Mapping[str, str]:
    """Makes a namespace; the root is always there."""
    if not id:
        raise NamespaceAlreadyExistsError("Namespace already exists: the catalog (create_namespace: it is the root)")
    return await backend.create_namespace(id, given)


async def deregister(backend: Backend, id: TableId, before: Callable[[Table], Awaitable[None]]) -> Table:
    """Removes the registration of a Lance table; gives what it was.

    Without a location where the catalog has lost that, or where it is a bad one; else `before` is awaited first.
    """
    try:
        table = await backend.describe_table(id)
    except (BadLocationError, UnreadableRegistrationError):
        table = Table(id, "")
    else:
        await before(table)
    await backend.deregister_table(id)
    return table

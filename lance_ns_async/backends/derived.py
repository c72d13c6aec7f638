"""Operations built on the backend interface, the same for every catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from lance_namespace.errors import NamespaceAlreadyExistsError

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import BadLocationError, UnreadableRegistrationError
from lance_ns_async.model import NamespaceId, Table, TableId


async def describe_namespace(backend: Backend, id: NamespaceId) -> Mapping[str, str]:
    """Returns the namespace's properties; the root always exists and has none."""
    return await backend.describe_namespace(id) if id else {}


async def create_namespace(backend: Backend, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Creates a namespace and returns its properties.

    Raises:
        NamespaceAlreadyExistsError: The namespace exists; the root always does.
    """
    if not id:
        raise NamespaceAlreadyExistsError("Namespace already exists: the catalog (create_namespace: it is the root)")
    return await backend.create_namespace(id, properties)


async def deregister(backend: Backend, id: TableId, before: Callable[[Table], Awaitable[None]]) -> Table:
    """Removes the registration of a Lance table and returns it.

    Args:
        before: Awaited with the table before the removal; skipped if the location is unknown.

    Returns:
        The table as it was described. Its location is empty if the registration is unreadable or the location invalid.
    """
    try:
        table = await backend.describe_table(id)
    except (BadLocationError, UnreadableRegistrationError):
        table = Table(id, "")
    else:
        await before(table)
    await backend.deregister_table(id)
    return table

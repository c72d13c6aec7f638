"""Operations that follow from a backend's duties, and so are the same for every catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_ns_async.backends.base import Backend
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.policy import undoing


async def describe_namespace(backend: Backend, id: NamespaceId) -> Mapping[str, str]:
    """The namespace's properties; the root is always there and has none."""
    return await backend.describe_namespace(id) if id else {}


async def create_namespace(backend: Backend, id: NamespaceId, given: Mapping[str, str]) -> Mapping[str, str]:
    """Makes a namespace; the root is always there."""
    if not id:
        raise NamespaceAlreadyExistsError("Namespace already exists: the catalog (create_namespace: it is the root)")
    return await backend.create_namespace(id, given)


async def replace_namespace(backend: Backend, id: NamespaceId, given: Mapping[str, str]) -> Mapping[str, str]:
    """Drops the namespace if it is empty and makes it anew; puts the old one back if that fails."""
    if not id:
        return await create_namespace(backend, id, given)
    try:
        old = await backend.describe_namespace(id)
    except NamespaceNotFoundError:
        return await backend.create_namespace(id, given)
    await backend.drop_namespace(id, cascade=False)
    try:
        return await backend.create_namespace(id, given)
    except LanceNamespaceError as e:
        await _undo(backend.create_namespace(id, old), e, f"namespace {id} had the properties {dict(old)}")
        raise


async def replace_table(backend: Backend, id: TableId, location: str, given: Mapping[str, str]) -> Table:
    """Registers the table in the place of the one that is there; puts the old registration back if that fails."""
    backend.check_declaration(id, location, given)
    try:
        old = await deregister(backend, id)
    except TableNotFoundError:
        return await backend.declare_table(id, location, given)
    try:
        return await backend.declare_table(id, location, given)
    except LanceNamespaceError as e:
        undo = backend.declare_table(id, old.location, old.properties or {}, old.schema)
        await _undo(undo, e, f"table {id} was registered at {old.location}")
        raise


async def _undo(work: Awaitable[object], error: LanceNamespaceError, before: str) -> None:
    """Puts right what failed, whatever time is left; where that fails too, the error says what was before."""
    with undoing():
        try:
            await work
        except LanceNamespaceError as e:
            error.add_note(f"and what was before could not be put back ({e}): {before}")


async def deregister(backend: Backend, id: TableId) -> Table:
    """Removes the registration of a Lance table; gives what it was."""
    table = await backend.describe_table(id)
    await backend.deregister_table(id)
    return table

"""Replacing what a catalog holds: if that fails or is cancelled half way, what was there before is put back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_ns_async.backends import derived
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.policy import rollback
from lance_ns_async.errors import masked
from lance_ns_async.model import NamespaceId, Table, TableId, has

if TYPE_CHECKING:
    import pyarrow as pa


async def namespace(backend: Backend, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Drops the namespace if it is empty and makes it anew; makes one that is not there."""
    if not id:
        return await derived.create_namespace(backend, id, properties)
    try:
        old = await backend.describe_namespace(id)
    except NamespaceNotFoundError:
        return await backend.create_namespace(id, properties)
    async with rollback(partial(_make_again, backend, id, old)):
        await backend.drop_namespace(id, cascade=False)
        return await backend.create_namespace(id, properties)


async def _make_again(backend: Backend, id: NamespaceId, old: Mapping[str, str], error: BaseException) -> None:
    try:
        await backend.describe_namespace(id)
    except NamespaceNotFoundError:
        try:
            await backend.create_namespace(id, old)
        except LanceNamespaceError as e:
            error.add_note(_left(e, f"namespace {id} had the properties {masked(old)}"))
    except LanceNamespaceError as e:
        error.add_note(_left(e, f"namespace {id} had the properties {masked(old)}"))


async def register(backend: Backend, id: TableId, location: str, properties: Mapping[str, str]) -> Table:
    """Registers a table in the place of the one that is there, if any; data stays where it is."""
    backend.check_declaration(id, location, properties)
    try:
        old = await backend.describe_table(id)
    except TableNotFoundError:
        return await backend.declare_table(id, location, properties)
    return await replace(backend, old, location, properties)


async def replace(
    backend: Backend, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
) -> Table:
    """Replaces a registration by another one of the same table id.

    Who looks meanwhile finds the old one or the new one, and so does everybody after a kill: where the catalog has no
    call for it, a note of the new one is there meanwhile.

    Raises:
        TableNotFoundError: Somebody else has removed it meanwhile.
        ConcurrentModificationError: Somebody else has taken its place meanwhile.
        UnsupportedOperationError: The catalog gives a registered table no other location, as Nessie.

    Cost: one or two calls, or seven where the catalog has no call for it.
    """
    return await backend.replace_table(old, location, properties, schema)


async def restore(backend: Backend, old: Table, new: tuple[str, Mapping[str, str]], error: BaseException) -> None:
    """Puts a registration back that `new`, its location and properties, have taken the place of.

    Where somebody else has changed it meanwhile, or removed it, it stays as it is. The error is told what could not be
    put back.
    """
    try:
        there = await _there(backend, old.id)
        if there is None or _same(there, old) or not _is(there, *new):
            return
        if backend.capabilities.replaces and there.registration != old.registration:
            return
        await backend.replace_table(there, old.location, old.properties or {}, old.schema)
    except (TableNotFoundError, ConcurrentModificationError):
        return
    except LanceNamespaceError as e:
        error.add_note(_left(e, f"table {old.id} was registered at {old.location} with {masked(old.properties or {})}"))


async def _there(backend: Backend, id: TableId) -> Table | None:
    try:
        return await backend.describe_table(id)
    except TableNotFoundError:
        return None


def _same(one: Table, other: Table) -> bool:
    if len(one.properties or {}) != len(other.properties or {}) or (one.schema is None) != (other.schema is None):
        return False
    columns = one.schema is None or one.schema.equals(other.schema)
    return columns and _is(one, other.location, other.properties or {})


def _is(table: Table, location: str, properties: Mapping[str, str]) -> bool:
    """Whether it is registered so."""
    return table.location == location and has(table, properties)


def _left(error: LanceNamespaceError, before: str) -> str:
    return f"and what was before could not be put back ({error}): {before}"

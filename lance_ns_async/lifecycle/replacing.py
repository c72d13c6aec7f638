"""Replacement of namespaces and registrations; a failure or cancellation restores the earlier state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import lance_namespace.errors as err

from lance_ns_async.backends import operations
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.errors import PHRASES, spelled
from lance_ns_async.masked import mask
from lance_ns_async.model import NamespaceId, Table, TableId, has

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES = 6  # Maximum number of attempts of a registration that other clients create or remove at the same time.


async def namespace(backend: Backend, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Drops an empty namespace and creates it again; creates a namespace that does not exist."""
    if not id:
        return await operations.create_namespace(backend, id, properties)
    try:
        old = await backend.describe_namespace(id)
    except err.NamespaceNotFoundError:
        return await backend.create_namespace(id, properties)
    async with rollback(partial(_make_again, backend, id, old)):
        await backend.drop_namespace(id, cascade=False)
        return await backend.create_namespace(id, properties)


async def _make_again(backend: Backend, id: NamespaceId, old: Mapping[str, str], error: BaseException) -> None:
    try:
        await backend.describe_namespace(id)
    except err.NamespaceNotFoundError:
        try:
            await backend.create_namespace(id, old)
        except err.LanceNamespaceError as e:
            error.add_note(_left(e, f"namespace {id} had the properties {mask(old)}"))
    except err.LanceNamespaceError as e:
        error.add_note(_left(e, f"namespace {id} had the properties {mask(old)}"))


async def register(backend: Backend, id: TableId, location: str, properties: Mapping[str, str]) -> Table:
    """Registers a table, and replaces an existing registration; no data is moved or deleted.

    If another client creates or removes the registration meanwhile, it is looked up again.
    """
    backend.check_declaration(id, location, properties)
    errors: list[err.LanceNamespaceError] = []
    for _ in range(_TIMES):
        old = await _there(backend, id)
        try:
            if old is None:
                return await backend.register_table(id, location, properties)
            return await backend.replace_table(old, location, properties)
        except (err.TableAlreadyExistsError, err.TableNotFoundError) as e:
            errors.append(e)
    # A table that exists and is never found is one that the catalog does not describe, such as one of another format.
    if all(isinstance(error, err.TableAlreadyExistsError) for error in errors):
        raise errors[-1]
    raise err.ConcurrentModificationError(
        f"{PHRASES[err.ConcurrentModificationError]}: {spelled(id)} (other clients create and remove it at the "
        "same time; try again later)"
    ) from errors[-1]


async def replace(
    backend: Backend, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
) -> Table:
    """Changes a registration.

    If the catalog cannot change it, it is removed and made again. Its name is then missing in between, also after the
    process is killed; a failure restores it.

    Cost: one or two calls.
    """
    if backend.capabilities.replaces:
        return await backend.replace_table(old, location, properties, schema)
    backend.check_declaration(old.id, location, properties)
    removed = False

    async def undo(error: BaseException) -> None:
        if not removed:
            return
        was = f"table {old.id} was registered at {old.location} with {mask(old.properties or {})}"
        try:
            if not isinstance(error, err.TableAlreadyExistsError):
                await backend.register_table(old.id, old.location, old.properties or {}, old.schema)
                return
        except err.LanceNamespaceError as e:
            if not isinstance(e, err.TableAlreadyExistsError):
                error.add_note(_left(e, was))
                return
        error.add_note(f"and the earlier table is no longer registered: {was}")

    async with rollback(undo):
        await backend.deregister_table(old.id, old)
        removed = True
        return await backend.register_table(old.id, location, properties, schema)


async def restore(backend: Backend, old: Table, new: tuple[str, Mapping[str, str]], error: BaseException) -> None:
    """Restores the registration `old`, which was replaced by one with the location and properties of `new`.

    A registration that another client has changed or removed meanwhile stays as it is. If the restoration fails, a note
    on `error` contains the earlier registration.
    """
    try:
        there = await _there(backend, old.id)
        if there is None or _same(there, old) or not _is(there, *new):
            return
        if there.registration != old.registration:
            return
        await backend.replace_table(there, old.location, old.properties or {}, old.schema)
    except (err.TableNotFoundError, err.ConcurrentModificationError):
        return
    except err.LanceNamespaceError as e:
        error.add_note(_left(e, f"table {old.id} was registered at {old.location} with {mask(old.properties or {})}"))


async def _there(backend: Backend, id: TableId) -> Table | None:
    try:
        return await backend.describe_table(id)
    except err.TableNotFoundError:
        return None


def _same(one: Table, other: Table) -> bool:
    if len(one.properties or {}) != len(other.properties or {}) or (one.schema is None) != (other.schema is None):
        return False
    columns = one.schema is None or one.schema.equals(other.schema)
    return columns and _is(one, other.location, other.properties or {})


def _is(table: Table, location: str, properties: Mapping[str, str]) -> bool:
    """Returns whether the table has this location and these properties."""
    return table.location == location and has(table, properties)


def _left(error: err.LanceNamespaceError, before: str) -> str:
    return f"and the earlier state could not be restored ({error}): {before}"

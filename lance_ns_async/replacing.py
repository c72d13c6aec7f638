"""Replacing what a catalog holds: if that fails or is cancelled half way, what was there before is put back."""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async import derived
from lance_ns_async.backends.base import Backend
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.policy import undoing

if TYPE_CHECKING:
    import pyarrow as pa


_SECRET = re.compile("secret|token|password|credential|key|sas", re.IGNORECASE)
"""In the name of a property whose value no error tells."""


async def namespace(backend: Backend, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Drops the namespace if it is empty and makes it anew; makes one that is not there."""
    if not id:
        return await derived.create_namespace(backend, id, properties)
    try:
        old = await backend.describe_namespace(id)
    except NamespaceNotFoundError:
        return await backend.create_namespace(id, properties)
    try:
        await backend.drop_namespace(id, cascade=False)
        return await backend.create_namespace(id, properties)
    except (LanceNamespaceError, CancelledError) as e:
        await _make_again(backend, id, old, e)
        raise


@undoing
async def _make_again(backend: Backend, id: NamespaceId, old: Mapping[str, str], error: BaseException) -> None:
    try:
        await backend.describe_namespace(id)
    except NamespaceNotFoundError:
        try:
            await backend.create_namespace(id, old)
        except LanceNamespaceError as e:
            error.add_note(_left(e, f"namespace {id} had the properties {_shown(old)}"))
    except LanceNamespaceError as e:
        error.add_note(_left(e, f"namespace {id} had the properties {_shown(old)}"))


async def registration(backend: Backend, id: TableId, location: str, properties: Mapping[str, str]) -> Table:
    """Registers a table in the place of the one that is there, if any; data stays where it is."""
    backend.check_declaration(id, location, properties)
    try:
        old = await backend.describe_table(id)
    except TableNotFoundError:
        return await backend.declare_table(id, location, properties)
    return await registered(backend, old, location, properties)


async def registered(
    backend: Backend, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
) -> Table:
    """Takes one registration for another, of the same table id."""
    try:
        await backend.deregister_table(old.id)
        return await backend.declare_table(old.id, location, properties, schema)
    except TableNotFoundError:
        # Somebody else has removed it.
        raise
    except (LanceNamespaceError, CancelledError) as e:
        await put_back(backend, old, e, instead=(location, properties))
        raise


@undoing
async def put_back(
    backend: Backend, old: Table, error: BaseException, *, instead: tuple[str, Mapping[str, str]]
) -> None:
    """Registers a table as it was, unless it is there, or somebody else is in its place by now.

    `instead` is the location and the properties of what we put there, if we did. Where it fails the error says how
    the table was.
    """
    try:
        there = await _there(backend, old.id)
        if there is not None:
            if _same(there, old) or not _is(there, *instead):
                return
            await backend.deregister_table(old.id)
        await backend.declare_table(old.id, old.location, old.properties or {}, old.schema)
    except LanceNamespaceError as e:
        error.add_note(_left(e, f"table {old.id} was registered at {old.location} with {_shown(old.properties or {})}"))


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
    """Whether it is registered so; catalogs keep entries of their own beside what they are given."""
    kept = table.properties or {}
    return table.location == location and all(kept.get(key) == value for key, value in properties.items())


def _left(error: LanceNamespaceError, before: str) -> str:
    return f"and what was before could not be put back ({error}): {before}"


def _shown(properties: Mapping[str, str]) -> Mapping[str, str]:
    return {key: "***" if _SECRET.search(key) else value for key, value in properties.items()}

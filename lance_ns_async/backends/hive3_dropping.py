"""Dropping catalogs of a Hive Metastore, which by itself deletes all that is under their location."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from uuid import uuid4

import anyio
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
)

from lance_ns_async.backends.hive3_calls import Metastore
from lance_ns_async.backends.hive3_wire import Catalog, Database
from lance_ns_async.concurrency import each
from lance_ns_async.model import NamespaceId
from lance_ns_async.policy import anew

_DEFAULT = "default"
_OPERATION = "drop_namespace"
_UNDO_SECONDS = 30.0
"""How long putting right what failed may take, beyond the operation's own time."""


async def drop_catalog(hive: Metastore, id: NamespaceId, *, cascade: bool, at_once: int) -> None:
    """Drops a catalog and with `cascade` the databases in it, so many at once; without, it must have none.

    The database `default`, which every catalog is made with, does not count while it is empty. Costs six calls,
    and one for each database.
    """
    if id.name.lower() == "hive":
        raise InvalidInputError(f"namespace {id}: a metastore cannot do without it; drop the databases in it")
    kept = await hive.catalog(id, _OPERATION)
    names = await hive.databases(id, _OPERATION)
    others = [id.child(name) for name in names if name != _DEFAULT]
    if others and not cascade:
        some = ", ".join(other.name for other in others[:3])
        raise NamespaceNotEmptyError(f"Namespace not empty: {id} ({_OPERATION}: it has {len(others)}, such as {some})")
    await each(partial(hive.drop_database, operation=_OPERATION, cascade=True), others, max_in_flight=at_once)
    default = await hive.database(id.child(_DEFAULT), _OPERATION) if _DEFAULT in names else None
    if default is not None:
        await hive.drop_database(id.child(_DEFAULT), _OPERATION, cascade=cascade)
    try:
        # The server deletes the catalog's location with all that is in it, so it is shown one where nothing is.
        await hive.alter_catalog(id, replace(kept, location=_nowhere(kept.location)), _OPERATION)
        await hive.drop_catalog(id, _OPERATION)
    except (LanceNamespaceError, asyncio.CancelledError) as e:
        with anyio.CancelScope(shield=True), anew(_UNDO_SECONDS):
            dropped = await _put_back(hive, id, kept, default, e)
        if dropped and not isinstance(e, asyncio.CancelledError):
            return
        raise


async def _put_back(
    hive: Metastore, id: NamespaceId, kept: Catalog, default: Database | None, error: BaseException
) -> bool:
    """Makes the catalog what it was; whether it was dropped all the same, and the answer lost."""
    try:
        await hive.catalog(id, _OPERATION)
        await hive.alter_catalog(id, kept, _OPERATION)
        if default is not None:
            await hive.create_database(id.child(_DEFAULT), default, _OPERATION)
    except NamespaceNotFoundError:
        return True
    except LanceNamespaceError as e:
        error.add_note(f"and the catalog could not be made what it was ({e}): {kept}, its database default {default}")
    return False


def _nowhere(location: str) -> str:
    return f"{location.rstrip('/')}/.dropped-{uuid4().hex}"

"""Dropping catalogs of a Hive Metastore, which by itself deletes all that is under their location."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import uuid4

from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
)

from lance_ns_async.backends.hive3.calls import Metastore
from lance_ns_async.backends.hive3.wire import Catalog, Database
from lance_ns_async.backends.settling import removed
from lance_ns_async.calls.concurrency import each
from lance_ns_async.calls.policy import rollback
from lance_ns_async.errors import masked
from lance_ns_async.model import NamespaceId

_DEFAULT = "default"
_OPERATION = "drop_namespace"


async def drop_catalog(hive: Metastore, id: NamespaceId, *, cascade: bool, at_once: int) -> None:
    """Drops a catalog and with `cascade` the databases in it, so many at once; without, it must have none.

    The database `default`, which every catalog is made with, does not count while it is empty. Where it fails or
    is cancelled, the catalog is what it was, without the databases that were dropped by then. Costs seven calls,
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
    await each(partial(drop_database, hive, cascade=True), others, max_in_flight=at_once)
    default = await hive.database(id.child(_DEFAULT), _OPERATION) if _DEFAULT in names else None
    before: Catalog | None = None
    dropped = False

    async def undo(error: BaseException) -> None:
        nonlocal dropped
        dropped = await _put_back(hive, id, before, default, error)

    try:
        async with rollback(undo):
            if default is not None:
                await drop_database(hive, id.child(_DEFAULT), cascade=cascade)
            before = kept
            await _move_away(hive, id, kept)
            await hive.drop_catalog(id, _OPERATION)
    except LanceNamespaceError:
        if not dropped:
            raise


async def _move_away(hive: Metastore, id: NamespaceId, kept: Catalog) -> None:
    """Says that the catalog lies where nothing is: the server deletes its location with all that is in it."""
    await hive.alter_catalog(id, replace(kept, location=_nowhere(kept.location)), _OPERATION)
    # Where several servers are behind one address, some may have it otherwise in a cache.
    if (await hive.catalog(id, _OPERATION)).location == kept.location:
        raise ServiceUnavailableError(
            f"Service unavailable: {id} ({_OPERATION}: the metastore still has it at {kept.location}, where it would "
            "delete all that is there; try again later)"
        )


async def drop_database(hive: Metastore, id: NamespaceId, *, cascade: bool) -> None:
    """Drops a database that must exist, and with `cascade` all registrations in it; all data stays.

    Costs one call, and one more where the answer was lost.
    """
    await removed(partial(hive.drop_database, id, _OPERATION, cascade=cascade), partial(hive.database, id, _OPERATION))


async def _put_back(
    hive: Metastore, id: NamespaceId, before: Catalog | None, default: Database | None, error: BaseException
) -> bool:
    """Makes the catalog what it was `before`, if it was changed; whether it was dropped all the same."""
    try:
        if before is not None:
            await hive.catalog(id, _OPERATION)
            await hive.alter_catalog(id, before, _OPERATION)
        if default is not None:
            with suppress(NamespaceAlreadyExistsError):
                await hive.create_database(id.child(_DEFAULT), default, _OPERATION)
    except NamespaceNotFoundError:
        return before is not None
    except LanceNamespaceError as e:
        shown = default and replace(default, parameters=masked(default.parameters))
        error.add_note(f"and the catalog could not be made what it was ({e}): {before}, its database default {shown}")
    return False


def _nowhere(location: str) -> str:
    return f"{location.rstrip('/')}/.dropped-{uuid4().hex}"

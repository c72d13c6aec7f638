"""Versions of tables: commits in the catalog, and manifests in the storage.

A version is committed in the catalog first; then its manifest is moved to the final name that Lance reads. If the
writer was killed in between, the next request for the version completes the move. A commit that conflicts with another
writer is repeated by the backend, within the limits of `Caller.repeat`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import lance_namespace.errors as err

from lance_ns_async.backends.base import Backend, Version, Versions
from lance_ns_async.calls.rollback import run_cleanup
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import error_about
from lance_ns_async.lifecycle import manifests
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage import cleanups
from lance_ns_async.storage.datasets import MAIN
from lance_ns_async.storage.threads import in_thread

if TYPE_CHECKING:
    import pyarrow as pa


async def commit(backend: Backend, new_versions: Mapping[TableId, Version]) -> Mapping[TableId, Version]:
    """Commits a version of each table, all or none, and moves their manifests to the final names."""
    _must_commit(backend)

    async def prepare(table: Table, version: Version) -> pa.Schema:
        _must_be_managed(table)
        return await manifests.read(table, version)

    results = await backend.commit_versions(new_versions, prepare)
    await each(_publish, results.values(), max_in_flight=len(results))
    return {id: versions.items[0] for id, versions in results.items()}


async def latest(backend: Backend, id: TableId, branch: str | None = None) -> Version | None:
    """Returns the latest version; None if there is none, or none in the catalog that commits the table's versions."""
    versions = await _recorded_versions(backend, id, all=False, branch=branch)
    if not versions.table.managed_versioning:
        return next(iter(await manifests.list_committed(versions.table, branch)), None)
    return await _at_hand(versions.table, versions.items[0]) if versions.items else None


async def one(backend: Backend, id: TableId, number: int | None, branch: str | None = None) -> Version:
    """Returns a version whose manifest exists; the latest if `number` is None."""
    recorded_versions = await _recorded_versions(backend, id, all=False, branch=branch)
    table, versions = recorded_versions.table, recorded_versions.items
    if not table.managed_versioning:
        versions = await manifests.list_committed(table, branch)
    elif number is not None and (table.version is None or number < table.version):
        versions = (await _recorded_versions(backend, id, all=True)).items if versions else []
        if all(version.number != number for version in versions):
            # Some catalogs only record the latest version.
            versions = [*(await manifests.list_stored(table)).values()]
    version = next((version for version in versions if number in (None, version.number)), None)
    if version is None:
        which = "it has no version yet" if number is None else f"version {number}"
        raise error_about(err.TableVersionNotFoundError, id, which)
    return await _at_hand(table, version) if table.managed_versioning else version


async def present(backend: Backend, id: TableId, branch: str | None = None) -> Sequence[Version]:
    """Returns the versions whose manifests exist, oldest first."""
    return await _present(await _recorded_versions(backend, id, all=True, branch=branch), branch)


async def delete(backend: Backend, id: TableId, ranges: Collection[tuple[int, int | None]]) -> int:
    """Removes versions and their manifests; returns their number.

    Args:
        backend: The catalog.
        id: The table.
        ranges: First version, and the version after the last one; None for all up to the latest, which stays.
    """
    versions = await _recorded_versions(backend, id, all=True)
    table = versions.table
    existing = await _present(versions)
    if not existing:
        return 0
    *old, last = existing
    for start, end in ranges:
        if end is not None and start <= last.number < end:
            raise err.InvalidInputError(
                f"ranges: [{start}, {end}) contains the latest version {last.number}, which cannot be deleted"
            )
    obsolete = _within(old, ranges)
    if not obsolete:
        return 0
    announcement = await in_thread(table, lambda: cleanups.Announcement(table), changes=True, kind="versions")
    try:
        references = await manifests.find_references(table)
        for version in obsolete:
            if version.number in references:
                raise error_about(
                    err.InvalidTableStateError,
                    id,
                    f"version {version.number} cannot be deleted: {references[version.number]} refers to it",
                )
        numbers = [version.number for version in obsolete]
        if not table.managed_versioning:
            return await manifests.clean_up(table, numbers)
        await backend.forget_versions(id, numbers)
        await manifests.remove(table, obsolete)
        return len(obsolete)
    finally:
        await run_cleanup(in_thread, table, announcement.withdraw, changes=True, kind="versions")


def _within(versions: Sequence[Version], ranges: Collection[tuple[int, int | None]]) -> Sequence[Version]:
    """Returns the versions in any of the ranges, in one pass over both, because both may be long."""
    matches: list[Version] = []
    following = iter(sorted(ranges, key=lambda it: it[0]))
    upcoming = next(following, None)
    end: float = 0
    for version in sorted(versions, key=lambda it: it.number):
        while upcoming is not None and upcoming[0] <= version.number:
            end = max(end, inf if upcoming[1] is None else upcoming[1])
            upcoming = next(following, None)
        if version.number < end:
            matches.append(version)
    return matches


async def _publish(versions: Versions) -> None:
    """Moves the manifest of a version that was just committed to its final name."""
    table, version = versions.table, versions.items[0]
    try:
        if not await manifests.publish(table, version):
            raise _no_manifest(table, version)
    except err.LanceNamespaceError as e:
        e.add_note(f"version {version.number} of {table.id} is committed; a request for it tries this step again")
        raise


async def _recorded_versions(backend: Backend, id: TableId, *, all: bool, branch: str | None = None) -> Versions:
    if not backend.capabilities.commits_versions:
        return Versions(await locate(backend, id), [])
    versions = await backend.table_versions(id, all=all)
    if versions.table.managed_versioning and branch not in (None, MAIN):
        raise err.UnsupportedOperationError(
            f"Not supported: branch {branch!r} of {id} (its catalog commits only versions of the main branch)"
        )
    return versions


async def _present(versions: Versions, branch: str | None = None) -> Sequence[Version]:
    table = versions.table
    if not table.managed_versioning:
        return [*reversed(await manifests.list_committed(table, branch))]
    if not versions.items:
        return []
    await _at_hand(table, versions.items[0])
    in_catalog = {version.number: version for version in versions.items if version.staging is not None}
    in_storage = await manifests.list_stored(table)
    # Manifests after the latest version were not committed.
    return [
        in_catalog.get(number, in_storage[number])
        for number in sorted(in_storage)
        if number <= versions.items[0].number
    ]


async def _at_hand(table: Table, version: Version) -> Version:
    """Returns the version after moving its manifest to the final name, if necessary."""
    if version.staging is None:
        # The catalog has no record of the manifest's path.
        in_storage = (await manifests.list_stored(table)).get(version.number)
        if in_storage is not None:
            return replace(version, staging=in_storage.staging)
    elif await manifests.find(table, version):
        return version
    raise _no_manifest(table, version)


def _no_manifest(table: Table, version: Version) -> err.LanceNamespaceError:
    if version.number == table.version:
        return error_about(
            err.InvalidTableStateError,
            table.id,
            f"its latest version {version.number} has no manifest at {table.location}",
        )
    return error_about(err.TableVersionNotFoundError, table.id, f"version {version.number}: its manifest was removed")


def _must_commit(backend: Backend) -> None:
    if not backend.capabilities.commits_versions:
        raise err.UnsupportedOperationError(
            "Not supported: this catalog does not commit versions; Lance commits them in the storage"
        )


def _must_be_managed(table: Table) -> None:
    if not table.managed_versioning:
        raise error_about(
            err.UnsupportedOperationError,
            table.id,
            "Lance commits its versions in the storage, because managed_by is not 'impl'",
        )

"""Data in a storage that no table of a catalog claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.fleet.run import Run, failure_row
from lance_ns_async.fleet.walk import Kind, Sight, Walker, walk
from lance_ns_async.model import Table
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.storage.folders import LISTINGS, Folders, place_key

_DATA = frozenset({Kind.TABLE, Kind.UNFINISHED})


async def find_unclaimed(
    namespace: AsyncNamespace, uri: str, storage_options: Mapping[str, str] | None, run: Run
) -> Sequence[tuple[str, str]]:
    """Returns the location of each unclaimed table below a folder or bucket, with what was seen there.

    The storage is walked before the catalog is read, so that a table is not reported which is registered meanwhile. A
    folder that is dropped meanwhile is not reported either, because each one is looked at again. Folders that cannot be
    listed are rows of the run.

    Args:
        namespace: The catalog.
        uri: The folder or bucket.
        storage_options: Options for the storage; None uses those of the catalog's properties, and the environment.
        run: The run.

    Raises:
        InvalidInputError: The folder or bucket does not exist.
        PermissionDeniedError: The storage refuses to list the folder itself.
        LanceNamespaceError: The catalog could not be read completely, so that the claims are unknown.

    Cost:
        The listings of `discover`; a listing and a bulk describe of the whole catalog, and a listing for each unclaimed
        table.
    """
    options = namespace._backend.configured_options if storage_options is None else storage_options
    folders = Folders(uri, options)
    walker = Walker(folders)
    sights: list[Sight] = []

    def on_sight(sight: Sight) -> None:
        if not sight.path and sight.kind is Kind.VANISHED:
            raise InvalidInputError(f"data under {folders.root!r}: there is no such folder, or it is empty")
        if sight.kind in _DATA:
            sights.append(sight)

    def on_error(path: str, error: LanceNamespaceError) -> None:
        if not path or isinstance(error, InvalidInputError):
            raise error
        location = folders.location(path)
        run.add(failure_row(location, error, location))

    async def after_round() -> None:
        """Keeps nothing."""

    await walk(walker, [""], on_sight, on_error, after_round)
    ids = [id async for id in namespace.iter_tables(recursive=True)]
    described = (await namespace.describe_tables(ids)).raise_for_errors()

    def key(table: Table) -> str:
        return place_key(table.location)

    claims = {*await in_slices(key, described.tables.values())}
    unclaimed: list[tuple[str, str]] = []

    async def look_again(sight: Sight) -> None:
        if place_key(folders.location(sight.path)) in claims:
            return
        again = await walker.look(sight.path)
        if again.kind in _DATA:
            seen = "no table has this location" if again.kind is Kind.TABLE else again.reason
            unclaimed.append((folders.location(sight.path), seen))

    await each(look_again, sights, max_in_flight=LISTINGS)
    run.counters["listings"] = folders.listings
    return sorted(unclaimed)

"""Datasets at the locations of tables: opened, inspected and deleted, without calls to the catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err

from lance_ns_async.calls.tasks import each
from lance_ns_async.errors import PHRASES, error_about
from lance_ns_async.model import Table, TableId, local_path
from lance_ns_async.storage import dir_markers, files, lance_layout, locations
from lance_ns_async.storage.threads import THREADS, in_thread

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

MAIN = "main"
"""Lance's name of the default branch."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state of a dataset: a version or a tag, on a branch; all None for the latest version of main."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.version < 1:
            raise err.InvalidInputError(f"version {self.version}: must be at least 1; omit it for the newest")
        if self.tag is not None and (self.version is not None or self.branch is not None):
            raise err.InvalidInputError(f"tag {self.tag!r}: a tag already has a version and a branch; set only the tag")


LATEST = Snapshot()

_READERS = 16  # Threads that read operations of versions: each waits for the storage.


@dataclass(frozen=True, slots=True)
class Totals:
    """What the manifest of an open dataset says about the whole table."""

    rows: int
    size: int  # Bytes of the data files.
    written: datetime

    @classmethod
    def read(cls, dataset: LanceDataset) -> Totals:
        """Returns the totals without a request."""
        version: Any = dataset.get_version()
        totals = version["metadata"]
        # pylance gives local times without a zone.
        return cls(int(totals["total_rows"]), int(totals["total_files_size"]), version["timestamp"].astimezone())


@dataclass(frozen=True, slots=True)
class Details:
    """The properties of an open dataset."""

    version: int
    schema: pa.Schema
    rows: int
    fragments: int
    deleted_rows: int


def read_details(dataset: LanceDataset) -> Details:
    """Returns the details of an open dataset. Blocks: for `in_thread`."""
    stats = dataset.stats.dataset_stats()
    return Details(
        version=dataset.version,
        schema=dataset.schema,
        rows=dataset.count_rows(),
        fragments=stats["num_fragments"],
        deleted_rows=stats["num_deleted_rows"],
    )


async def is_only_declared(table: Table) -> bool:
    """Returns whether nothing was written to the table yet.

    Cost: one open; two during a drop of a table there; none in a local folder.
    """
    if (path := local_path(table.location)) is not None:
        # Without pylance, whose calls can hang in a process that was forked after pylance was used.
        return not await in_thread(table, partial(_has_manifest, path))
    for last in (False, True):
        try:
            await in_thread(table, lambda: open_snapshot(table))
        except err.TableNotFoundError:
            return True
        except err.TableVersionNotFoundError:
            # The version was deleted between the listing and the read.
            if last:
                raise
        else:
            break
    return False


def _has_manifest(path: str) -> bool:
    try:
        return any(name.endswith(".manifest") for name in os.listdir(os.path.join(path, lance_layout.VERSIONS)))
    except (FileNotFoundError, NotADirectoryError):
        return False


async def select_written(tables: Sequence[Table]) -> Sequence[Table]:
    """Returns the tables that have data, in their order. Cost: one open each, concurrently."""
    empty_ids: set[TableId] = set()

    async def check(table: Table) -> None:
        if table.version is None and await is_only_declared(table):
            empty_ids.add(table.id)

    await each(check, tables, max_in_flight=THREADS)
    return [table for table in tables if table.id not in empty_ids]


CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "abfss": ("AZURE_STORAGE_ACCOUNT_NAME",),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME",),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ),
}
"""By URI scheme: environment variables, any one of which is enough for Lance to reach the storage."""


def is_at_hand(table: Table) -> bool:
    """Returns whether the storage can be accessed: it is local, or storage options or the environment have credentials.

    Otherwise, Lance would request credentials from the machine it runs on, which takes seconds if there is no response.
    """
    scheme, remote, _ = table.location.partition("://")
    if table.storage_options or not remote or scheme == "file":
        return True
    return any(os.environ.get(name) for name in CREDENTIALS.get(scheme, ()))


async def check_alone(table: Table) -> Sequence[str]:
    """Checks that a drop deletes only the table, for example not the folder of a namespace.

    Returns:
        The files under the location.

    Cost:
        A listing of the location.
    """
    locations.check_deletable(table)
    paths, others, strange = await in_thread(table, lambda: _neighbours(table))
    if strange:
        raise error_about(
            err.InvalidTableStateError,
            table.id,
            f"drop_table would delete {len(strange)} folders or files under its "
            f"location {table.location} that are not part of a Lance table, such as {strange[0]!r}; deregister it, or "
            "move those first",
        )
    if others:
        raise error_about(
            err.InvalidTableStateError,
            table.id,
            f"drop_table would delete {len(others)} other tables under its "
            f"location {table.location}, such as {others[0]}; deregister it, and move or drop those first",
        )
    return paths


async def tidy(table: Table) -> None:
    """Removes what a declaration leaves at a location to which nothing was written."""
    await in_thread(table, lambda: dir_markers.remove(table.location, table.storage_options), changes=True)


async def data_files(table: Table) -> Sequence[str]:
    """Returns the data files at a table's location, including those of no version. Cost: a listing."""

    def work() -> Sequence[str]:
        session = files.open_files(table.location, table.storage_options)
        return [path for path in session.list() if path.startswith(f"{lance_layout.DATA}/")]

    return await in_thread(table, work)


async def remove_files(table: Table, paths: Sequence[str]) -> None:
    """Deletes files at a table's location that belong to no version."""

    def work() -> None:
        session = files.open_files(table.location, table.storage_options)
        for path in paths:
            files.delete(session, path)

    if paths:
        await in_thread(table, work, changes=True)


_OWN = (lance_layout.DATA, lance_layout.BRANCHES, "metadata")
"""The names in a table's folder, except those that begin with a dot or an underscore; `metadata` is the catalog's."""


def _neighbours(table: Table) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Returns the files under a location, the other datasets there, and the names that are not part of a Lance table.

    The names are empty if the location itself has no dataset, because a drop then does not delete these files. Blocks:
    for `in_thread`.
    """
    paths: Sequence[str] = files.open_files(table.location, table.storage_options).list()
    tops = {path.partition("/")[0] for path in paths}
    strange = {
        name
        for name in tops
        if name not in _OWN and not name.startswith((".", "_")) and not dir_markers.is_marker(name)
    }
    inner = f"/{lance_layout.VERSIONS}/"
    others = {path.partition(inner)[0] for path in paths if inner in path}
    if any(place.startswith(f"{lance_layout.BRANCHES}/") for place in others):
        # Lance stores branches in this folder.
        others -= {f"{lance_layout.BRANCHES}/{branch}" for branch in open_snapshot(table).branches.list()}
    strange -= {place.partition("/")[0] for place in others}
    return paths, sorted(others), sorted(strange) if lance_layout.VERSIONS in tops else []


def options(table: Table) -> dict[str, str] | None:
    """Returns the storage options for Lance; None if there are none."""
    return dict(table.storage_options or {}) or None


def open_snapshot(table: Table, snapshot: Snapshot = LATEST, **how: Any) -> LanceDataset:
    """Opens a snapshot of the dataset. Blocks: for `in_thread`.

    A missing version, tag, branch and dataset cause different errors.

    Args:
        table: The table.
        snapshot: The state to open.
        **how: Arguments for pylance instead of location and storage options, for example for shared caches.
    """
    import lance

    if not how:
        how = {"uri": table.location, "storage_options": options(table)}
    if snapshot.branch in (None, MAIN):
        return lance.dataset(version=snapshot.tag if snapshot.tag is not None else snapshot.version, **how)
    dataset = lance.dataset(**how)
    try:
        return dataset.checkout_version((snapshot.branch, snapshot.version))
    except (OSError, ValueError) as e:
        # If the branch does not exist, Lance reports a missing version.
        check_branch(table, dataset, snapshot.branch, cause=e)
        raise


def check_branch(table: Table, dataset: LanceDataset, branch: str | None, *, cause: Exception | None = None) -> None:
    """Checks that the dataset has a branch.

    Cost:
        A listing of its branches.
    """
    if branch in (None, MAIN):
        return
    branches = dataset.branches.list()
    if branch not in branches:
        message = f"{table.id} (no branch {branch!r}; there are {', '.join([MAIN, *sorted(branches)])})"
        raise err.TableBranchNotFoundError(f"{PHRASES[err.TableBranchNotFoundError]}: {message}") from cause


def missing_files(table: Table, dataset: LanceDataset) -> Sequence[str]:
    """Returns the files of rows that a version names, and that do not exist, relative to the table's location.

    Cost: a listing of the data files, and one of the deletion files if there are any.
    """
    named = {*files_of_rows(dataset), *_deletion_files(dataset)}
    session = files.open_files(table.location, table.storage_options)
    folders = {path.partition("/")[0] for path in named}
    return sorted(named.difference(*(session.list(folder) for folder in folders)))


def files_of_rows(dataset: LanceDataset) -> dict[str, int | None]:
    """Returns the paths and sizes of the data files of a version, without those of a shallow clone's original."""
    return {
        f"{lance_layout.DATA}/{file.path}": file.file_size_bytes
        for fragment in dataset.get_fragments()
        for file in fragment.metadata.files
        if file.base_id is None
    }


def _deletion_files(dataset: LanceDataset) -> Iterator[str]:
    for fragment in dataset.get_fragments():
        deletion = fragment.metadata.deletion_file
        if deletion is not None and deletion.base_id is None:
            yield deletion.path(fragment.fragment_id)


def operation_names(dataset: LanceDataset, numbers: Sequence[int]) -> Sequence[str | None]:
    """Returns the name of the operation that made each version; None where the version has no transaction.

    Cost: two requests a version, 16 versions at once.
    """

    def read(number: int) -> str | None:
        # One dataset reads one transaction at a time.
        transaction = dataset.checkout_version(number).read_transaction(number)
        name = None if transaction is None else type(transaction.operation).__name__
        # pylance has no class for operations that change no rows, e.g. of settings.
        return "Other" if name == "BaseOperation" else name

    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(read, numbers))

"""Manifests in a table's storage: reads, moves to their final names, listings and deletes.

A writer stores the manifest of a version as `_versions/{name}.manifest-{random}`. After the catalog has committed the
version, the manifest is moved to `_versions/{name}.manifest`. Any process that finds a pending move may complete it:
all of them move the same bytes, and only those that the catalog committed.
"""

from __future__ import annotations

import filecmp
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import lance_namespace.errors as err

from lance_ns_async.backends.base import Version
from lance_ns_async.errors import error_about
from lance_ns_async.model import Table, TableId, local_path
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.lance_layout import BRANCHES, VERSIONS
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.threads import in_thread

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_MAX_NUMBER = 2**64 - 1
_FINAL = re.compile(r"(\d+)\.manifest")


def names(number: int) -> tuple[str, str]:
    """Returns the possible names of a version's manifest: in scheme V2, where new versions sort first, and in V1."""
    return f"{_MAX_NUMBER - number:020}.manifest", f"{number}.manifest"


def number_of(name: str) -> int:
    """Returns the version of a manifest by its file name; -1 if it is not that of a committed version."""
    if (match := _FINAL.fullmatch(name)) is None:
        return -1
    # Only names in scheme V2 have twenty digits.
    return int(match[1]) if len(match[1]) < 20 else _MAX_NUMBER - int(match[1])


def directory(table: Table) -> str:
    """Returns the directory of the table's manifests in object-store form: no scheme, bucket or leading slash."""
    local = local_path(table.location)
    root = unquote(urlsplit(table.location).path) if local is None else local
    return f"{root.strip('/')}/{VERSIONS}"


async def read(table: Table, version: Version) -> pa.Schema:
    """Returns the schema in the manifest of a version that is not committed yet."""
    folder = (version.staging or "").rpartition("/")[0]
    # Object stores encode special characters in different ways.
    if directory(table) not in (folder.strip("/"), unquote(folder).strip("/")):
        raise _unfit(version, f"the file is not in {directory(table)}")

    def work() -> pa.Schema:
        store = _Store(table)
        if store.has(_name(version.manifest)):
            raise error_about(
                err.ConcurrentModificationError, table.id, f"version {version.number}: its manifest already exists"
            )
        return store.schema(version)

    return await in_thread(table, work, kind="versions")


async def publish(table: Table, version: Version) -> bool:
    """Moves a committed version's manifest to its final name; returns whether the manifest exists there now."""
    staging, final = _name(version.staging), _name(version.manifest)
    return await in_thread(table, lambda: _Store(table).move(staging, final), kind="versions")


async def find(table: Table, version: Version) -> bool:
    """Returns whether a version's manifest exists at its final name, after a pending move is completed."""
    staging, final = _name(version.staging), _name(version.manifest)

    def work() -> bool:
        store = _Store(table)
        return store.has(final) or (staging != final and store.move(staging, final))

    return await in_thread(table, work, kind="versions")


async def list_stored(table: Table) -> Mapping[int, Version]:
    """Returns the versions that have a manifest in the storage, keyed by number. Cost: one listing."""
    return await in_thread(table, lambda: _Store(table).versions(), kind="versions")


async def find_latest(tables: Sequence[Table]) -> Mapping[TableId, int | err.LanceNamespaceError | None]:
    """Returns the latest version of each table, whose storage commits it; None if there is none.

    All tables are read in one thread, one after another. Cost: one listing for each.
    """

    def latest(table: Table) -> int | err.LanceNamespaceError | None:
        try:
            with translate_errors(table):
                if (path := local_path(table.location)) is None:
                    return max(_Store(table).versions(), default=None)
                with suppress(FileNotFoundError, NotADirectoryError):
                    return max(filter(_is_version, map(number_of, os.listdir(Path(path, VERSIONS)))), default=None)
                return None
        except err.LanceNamespaceError as e:
            return e

    return await in_thread(tables[0], lambda: {table.id: latest(table) for table in tables}, kind="versions")


def _is_version(number: int) -> bool:
    return number >= 0


async def list_committed(table: Table, branch: str | None = None) -> Sequence[Version]:
    """Returns the versions of a table whose storage commits them, newest first.

    Args:
        table: The table.
        branch: The branch; None for main.

    Cost: a listing, and a read of each version.
    """
    below = VERSIONS if branch in (None, datasets.MAIN) else f"{BRANCHES}/{branch}/{VERSIONS}"

    def work() -> list[Version]:
        dataset = datasets.open_snapshot(table, datasets.Snapshot(branch=branch))
        present = _Store(table).versions(below)
        return [
            Version(
                record["version"],
                present[record["version"]].staging,
                timestamp_millis=int(record["timestamp"].timestamp() * 1000),
                metadata=record["metadata"],
            )
            for record in cast(Any, dataset).versions()
            if record["version"] in present
        ]

    try:
        return sorted(await in_thread(table, work, kind="versions"), key=lambda version: -version.number)
    except err.TableNotFoundError:
        # The table is declared, and nothing was written to it yet.
        return []


async def find_references(table: Table) -> Mapping[int, str]:
    """Returns the versions that must be kept, each with the tag or child branch that needs it. Cost: one open."""
    return await in_thread(table, lambda: references(datasets.open_snapshot(table)), kind="versions")


def references(dataset: LanceDataset) -> dict[int, str]:
    """Returns the versions of main that must be kept, each with the tag or child branch that needs it. Blocks."""
    branches, tags = dataset.branches.list().items(), dataset.tags.list().items()
    return {
        **{it["parent_version"]: f"branch {name!r}" for name, it in branches if it["parent_branch"] is None},
        **{it["version"]: f"tag {name!r}" for name, it in tags if it["branch"] is None},
    }


async def clean_up(table: Table, numbers: Sequence[int]) -> int:
    """Removes versions that the storage committed, and the files that only they use; returns their number."""

    def work() -> int:
        count: int = datasets.open_snapshot(table).cleanup_old_versions(versions=[*numbers]).old_versions
        return count

    return await in_thread(table, work, changes=True, kind="versions")


async def remove(table: Table, versions: Iterable[Version]) -> None:
    """Deletes the manifests of versions; a missing manifest is not an error."""

    def work() -> None:
        store = _Store(table)
        for version in versions:
            store.delete(_name(version.manifest))

    await in_thread(table, work, changes=True, kind="versions")


class _Store:
    """The files in a table's `_versions`, accessed through pylance. Blocks: for `in_thread`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._session = files.open_files(table.location, table.storage_options)
        local = local_path(table.location)
        self._folder = None if local is None else Path(local, VERSIONS)

    def has(self, name: str) -> bool:
        exists: bool = self._session.contains(f"{VERSIONS}/{name}")
        return exists

    def versions(self, below: str = VERSIONS) -> dict[int, Version]:
        versions: dict[int, Version] = {}
        root = directory(self._table).removesuffix(VERSIONS)
        for path in self._session.list(below):
            name = _name(path)
            if (number := number_of(name)) >= 0:
                versions[number] = Version(number, f"{root}{below}/{name}")
        return versions

    def schema(self, version: Version) -> pa.Schema:
        import lance

        with tempfile.TemporaryDirectory() as folder:
            # A dataset that contains only this manifest has the version and the schema.
            copy = os.path.join(folder, VERSIONS, _name(version.manifest))
            os.mkdir(os.path.dirname(copy))
            if not self._fetch(_name(version.staging), copy):
                raise _unfit(version, "the file does not exist")
            if version.size not in (None, size := os.path.getsize(copy)):
                raise _unfit(version, f"its size is {size} bytes, not {version.size}")
            try:
                dataset = lance.dataset(folder)
            except (OSError, ValueError) as e:
                raise _unfit(version, f"the file cannot be read: {e}") from e
            if dataset.version != version.number:
                raise _unfit(version, f"the file is the manifest of version {dataset.version}")
            schema: pa.Schema = dataset.schema
            return schema

    def move(self, staging: str, final: str) -> bool:
        """Moves a manifest to its final name; returns False if neither file exists."""
        if self._folder is not None:
            return self._move_here(self._folder / staging, self._folder / final)
        with tempfile.TemporaryDirectory() as folder:
            copy, present = os.path.join(folder, staging), os.path.join(folder, final)
            if not self._fetch(staging, copy):
                return self.has(final)
            if not self.has(final):
                self._session.upload_file(copy, f"{VERSIONS}/{final}")
            elif self._fetch(final, present):
                self._check_same(copy, present)
        self.delete(staging)
        return True

    def delete(self, name: str) -> None:
        files.delete(self._session, f"{VERSIONS}/{name}")

    def _fetch(self, name: str, path: str) -> bool:
        return files.download(self._session, f"{VERSIONS}/{name}", path)

    def _move_here(self, staging: Path, final: Path) -> bool:
        try:
            # Unlike a rename, a hard link never replaces an existing file.
            os.link(staging, final)
        except FileNotFoundError:
            return final.exists()
        except FileExistsError:
            with suppress(FileNotFoundError):
                self._check_same(staging, final)
        except OSError:
            # The file system does not support hard links.
            with suppress(FileNotFoundError):
                if final.exists():
                    self._check_same(staging, final)
                staging.rename(final)
            return final.exists()
        staging.unlink(missing_ok=True)
        return True

    def _check_same(self, staging: str | Path, final: str | Path) -> None:
        if not filecmp.cmp(staging, final, shallow=False):
            raise error_about(
                err.InvalidTableStateError,
                self._table.id,
                f"{os.path.basename(final)} differs from the "
                "manifest that the catalog committed, "
                f"{os.path.basename(staging)}: another client committed a version without the catalog",
            )


def _name(path: str | None) -> str:
    assert path is not None
    return path.rpartition("/")[2]


def _unfit(version: Version, why: str) -> err.InvalidInputError:
    return err.InvalidInputError(
        f"manifest_path {version.staging!r}: not a manifest of version {version.number}: {why}"
    )

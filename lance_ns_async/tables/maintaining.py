"""Maintenance of one dataset: its state, compaction in separate tasks, refresh of indexes, and clean-up.

All functions block: for `in_thread`, or for a task of another process. The state and the commits need the dataset as
the namespace opens it; a compaction task only needs a dataset of the version that it was planned for.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lance import LanceDataset

_SYSTEM_INDEX = "__lance"
"""The beginning of the names of indexes that Lance keeps for itself."""

TARGET_ROWS = 1024 * 1024
"""Lance's default for the number of rows of a compacted fragment."""


@dataclass(frozen=True, slots=True)
class CleanupLimits:
    """The versions that a clean-up removes: those beyond both limits. Tagged ones and the newest always stay."""

    older_than: timedelta | None
    """Minimum age; None for any age."""
    retain_versions: int | None
    """Number of newest versions that stay; None for no such limit."""
    delete_unverified: bool = False
    """Whether files of no version are deleted at any age; otherwise only after seven days."""

    def for_pylance(self) -> dict[str, Any]:
        """Returns the arguments of `cleanup_old_versions`."""
        return {
            # Without any limit, Lance would use its own of two weeks.
            "older_than": timedelta(0) if self.older_than is None and self.retain_versions is None else self.older_than,
            "retain_versions": self.retain_versions,
            "delete_unverified": self.delete_unverified,
            "error_if_tagged_old_versions": False,
        }


@dataclass(frozen=True, slots=True)
class DatasetState:
    """What one look at a dataset has seen."""

    version: int
    rows: int
    size: int
    """Bytes of the data files of this version, as far as the manifest records them."""
    fragments: int
    small_fragments: int
    """Fragments with fewer rows than the target."""
    deleted_rows: int
    unindexed_rows: int
    """The largest number of rows that one of the indexes lacks."""
    stale_indexes: tuple[str, ...]
    """The indexes that lack rows."""
    versions: int
    """Number of stored versions; 0 if clean-up was not examined."""
    old_versions: int
    """Number of versions that a clean-up would remove."""
    removable_bytes: int
    """Bytes that a clean-up would remove, with those of old files that no version refers to."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One task of a compaction, which a single process executes."""

    content: bytes
    """The task for `execute`, packed."""
    fragments: int
    size: int
    """Bytes of the fragments to read."""
    deleted_rows: int


def read_state(
    dataset: LanceDataset,
    *,
    target_rows: int = TARGET_ROWS,
    indexes: bool = True,
    cleanup: CleanupLimits | None = None,
) -> DatasetState:
    """Returns the state of an open dataset.

    Args:
        dataset: The newest version.
        target_rows: Fragments with fewer rows are small.
        indexes: Whether indexes are examined.
        cleanup: The limits of a clean-up; None for no look at versions and unused files.

    Cost: with `cleanup`, a listing of the table's files and a read of each version, as a clean-up itself.
    """
    fragments = [(it.fragment_id, it.metadata, it.num_deletions) for it in dataset.get_fragments()]
    live = {id: metadata.physical_rows - deletions for id, metadata, deletions in fragments}
    stale = _stale_rows(dataset, live) if indexes else {}
    versions, old, removable = (0, 0, 0)
    if cleanup is not None:
        versions = len(dataset.versions())
        stats: Any = cast(Any, dataset).explain_cleanup_old_versions(**cleanup.for_pylance()).stats
        old, removable = stats.old_versions, stats.bytes_removed
    return DatasetState(
        version=dataset.version,
        rows=sum(live.values()),
        size=sum(file.file_size_bytes or 0 for _, metadata, _ in fragments for file in metadata.files),
        fragments=len(fragments),
        small_fragments=sum(rows < target_rows for rows in live.values()),
        deleted_rows=sum(deletions for _, _, deletions in fragments),
        unindexed_rows=max(stale.values(), default=0),
        stale_indexes=tuple(sorted(stale)),
        versions=versions,
        old_versions=old,
        removable_bytes=removable,
    )


def plan_tasks(dataset: LanceDataset, options: Mapping[str, Any], *, min_fragments: int = 1) -> Sequence[RewriteTask]:
    """Returns the tasks of a compaction; none if there is nothing to compact.

    Args:
        dataset: The newest version.
        options: The options of the compaction, as pylance has them.
        min_fragments: Tasks that only merge are omitted if they merge fewer fragments than this in total.
    """
    from lance.optimize import Compaction

    tasks = []
    plan: Any = Compaction.plan(dataset, cast(Any, dict(options)))
    for task in plan.tasks:
        size = sum(file.file_size_bytes or 0 for fragment in task.fragments for file in fragment.files)
        deleted = sum(fragment.num_deletions for fragment in task.fragments)
        tasks.append(RewriteTask(_pack(task.json()), len(task.fragments), size, deleted))
    if sum(task.fragments for task in tasks) < min_fragments and not any(task.deleted_rows for task in tasks):
        return []
    return tasks


def execute(dataset: LanceDataset, content: bytes) -> bytes:
    """Writes the fragments of one task, and returns what `commit` needs. No version contains the fragments yet.

    Args:
        dataset: The version that the task was planned for.
        content: The content of a `RewriteTask`.
    """
    from lance.optimize import CompactionTask

    task: Any = cast(Any, CompactionTask).from_json(_unpack(content))
    return _pack(task.execute(dataset).json())


def commit(dataset: LanceDataset, results: Sequence[bytes], options: Mapping[str, Any]) -> int:
    """Commits the results of all tasks as one version, and returns it; Lance rebases it on concurrent appends.

    If Lance fails, a look at the newest version decides whether the commit has succeeded nevertheless.

    Raises:
        Exception: The errors of pylance, for `translate_errors`. After a conflict, nothing was committed.
    """
    from lance.optimize import Compaction, RewriteResult

    rewrites = [cast(Any, RewriteResult).from_json(_unpack(it)) for it in results]
    try:
        Compaction.commit(dataset, rewrites, cast(Any, dict(options)))
    except Exception:
        # The commit may have succeeded, and only its response may be lost.
        if not _has_files(dataset, new_files(results)):
            raise
    version: int = dataset.version
    return version


def new_files(results: Iterable[bytes]) -> Sequence[str]:
    """Returns the data files that tasks have written, relative to the table's location."""
    rewrites = (json.loads(_unpack(it)) for it in results)
    return [
        f"data/{file['path']}"
        for rewrite in rewrites
        for fragment in rewrite["new_fragments"]
        for file in fragment["files"]
    ]


def refresh_indexes(dataset: LanceDataset, names: Sequence[str], options: Mapping[str, Any]) -> int:
    """Adds unindexed rows to indexes, and returns the version."""
    dataset.optimize.optimize_indices(index_names=[*names], **options)
    cast(Any, dataset).checkout_latest()
    version: int = dataset.version
    return version


def clean_up(dataset: LanceDataset, limits: CleanupLimits) -> tuple[int, int]:
    """Removes old versions and unused files; returns the number of versions, and of bytes."""
    stats: Any = cast(Any, dataset).cleanup_old_versions(**limits.for_pylance())
    return stats.old_versions, stats.bytes_removed


def _stale_rows(dataset: LanceDataset, live: Mapping[int, int]) -> dict[str, int]:
    """Returns the number of rows that each index lacks, if any."""
    rows: dict[str, int] = {}
    for index in dataset.describe_indices():
        if index.name.startswith(_SYSTEM_INDEX):
            continue
        fragments_with_index = {id for segment in index.segments for id in segment.fragment_ids}
        lacking = sum(count for id, count in live.items() if id not in fragments_with_index)
        if lacking:
            rows[index.name] = lacking
    return rows


def _files(dataset: LanceDataset) -> set[str]:
    return {f"data/{file.path}" for fragment in dataset.get_fragments() for file in fragment.metadata.files}


def _has_files(dataset: LanceDataset, paths: Iterable[str]) -> bool:
    """Returns whether the newest version has all these files; False if it cannot be read."""
    try:
        cast(Any, dataset).checkout_latest()
        return set(paths) <= _files(dataset)
    except Exception:  # the error of the commit says more
        return False


def _pack(text: str) -> bytes:
    return zlib.compress(text.encode(), 3)


def _unpack(content: bytes) -> str:
    return zlib.decompress(content).decode()

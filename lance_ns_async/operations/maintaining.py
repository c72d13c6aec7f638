"""Maintenance of one dataset: its state, compaction in separate tasks, refresh of indexes, and clean-up.

All functions block: for `in_thread`, or for a task of another process, which gets and returns text. Commits need the
dataset as the namespace opens it; a compaction task only needs a dataset of the version that it was planned for.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from lance_ns_async.model import Table
from lance_ns_async.operations import tiers
from lance_ns_async.storage import cleanups
from lance_ns_async.storage.lance_layout import DATA

if TYPE_CHECKING:
    from lance import LanceDataset

_SYSTEM_INDEX = "__lance"  # The beginning of the names of indexes that Lance keeps for itself.

Kind: TypeAlias = Literal["examine", "rewrite", "clean up"]
"""The kinds of tasks that need no catalog."""

_DELETED_SHARE = 0.1  # Lance's default for the share of deleted rows above which a fragment is rewritten.

TARGET_ROWS = 1024 * 1024
"""Lance's default for the number of rows of a compacted fragment."""


@dataclass(frozen=True, slots=True)
class CleanupLimits:
    """The versions that a clean-up removes: those beyond both limits. Tagged ones and the newest always stay."""

    older_than: float | None
    """Minimum age in seconds; None for any age."""
    retain_versions: int | None
    """Number of newest versions that stay; None for no such limit."""
    delete_unverified: bool = False
    """Whether files of no version are deleted at any age; otherwise only after seven days."""

    def for_pylance(self) -> dict[str, Any]:
        """Returns the arguments of `cleanup_old_versions`."""
        age = self.older_than
        return {
            # Without any limit, Lance would use its own of two weeks.
            "older_than": None if age is None and self.retain_versions is not None else timedelta(seconds=age or 0),
            "retain_versions": self.retain_versions,
            "delete_unverified": self.delete_unverified,
            "error_if_tagged_old_versions": False,
        }

    def encoded(self) -> str:
        """Returns the content of a "clean up" task."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Examination:
    """What there is to find out about a dataset."""

    target_rows: int = TARGET_ROWS
    """Fragments with fewer rows are small."""
    indexes: bool = True
    """Whether indexes are examined."""
    cleanup: CleanupLimits | None = None
    """The limits of a clean-up; None for no look at versions and unused files."""
    compaction: Mapping[str, Any] | None = None
    """The options of the compaction to plan, as pylance has them; None for no plan."""
    max_small_fragments: int = tiers.MAX_SMALL_FRAGMENTS
    """Maximum number of small fragments that stay at the end of the dataset."""

    def encoded(self) -> str:
        """Returns the content of an "examine" task."""
        return json.dumps(asdict(self))


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

    content: str
    """The content of a "rewrite" task."""
    fragments: int
    size: int
    """Bytes of the fragments to read."""
    written: int
    """Bytes to write, estimated by the share of the rows that stay."""
    new_fragments: int


def examine(dataset: LanceDataset, what: Examination) -> tuple[DatasetState, Sequence[RewriteTask]]:
    """Returns the state of the newest version, and the tasks of its compaction; none if there is nothing to compact.

    Cost: with `cleanup`, a listing of the table's files and a read of each version, as a clean-up itself.
    """
    state = read_state(dataset, what)
    return state, () if what.compaction is None else _plan_tasks(dataset, what.compaction, what)


def read_state(dataset: LanceDataset, what: Examination) -> DatasetState:
    """Returns the state of the newest version. Cost: as `examine`."""
    fragments = [(it.fragment_id, it.metadata, it.num_deletions) for it in dataset.get_fragments()]
    live = {id: metadata.physical_rows - deletions for id, metadata, deletions in fragments}
    stale = _stale_rows(dataset, live) if what.indexes else {}
    versions, old, removable = (0, 0, 0)
    if what.cleanup is not None:
        versions = len(dataset.versions())
        stats: Any = cast(Any, dataset).explain_cleanup_old_versions(**what.cleanup.for_pylance()).stats
        old, removable = stats.old_versions, stats.bytes_removed
    return DatasetState(
        version=dataset.version,
        rows=sum(live.values()),
        size=sum(file.file_size_bytes or 0 for _, metadata, _ in fragments for file in metadata.files),
        fragments=len(fragments),
        small_fragments=sum(rows < what.target_rows for rows in live.values()),
        deleted_rows=sum(deletions for _, _, deletions in fragments),
        unindexed_rows=max(stale.values(), default=0),
        stale_indexes=tuple(sorted(stale)),
        versions=versions,
        old_versions=old,
        removable_bytes=removable,
    )


def _plan_tasks(dataset: LanceDataset, options: Mapping[str, Any], what: Examination) -> Sequence[RewriteTask]:
    from lance.optimize import Compaction

    fragments = [(it.fragment_id, it.metadata.physical_rows, it.num_deletions) for it in dataset.get_fragments()]
    live = [rows - deletions for _, rows, deletions in fragments]
    groups = tiers.fragments_to_merge(live, what.target_rows, what.max_small_fragments)
    merged = {fragments[position][0] for group in groups for position in group}
    most_deleted = options.get("materialize_deletions_threshold", _DELETED_SHARE)
    if not options.get("materialize_deletions", True):
        most_deleted = 1.0
    left = [id for id, rows, deletions in fragments if id not in merged and deletions <= most_deleted * rows]
    tasks = []
    plan: Any = Compaction.plan(dataset, cast(Any, {**options, "excluded_fragment_ids": left}))
    for task in plan.tasks:
        size = sum(file.file_size_bytes or 0 for fragment in task.fragments for file in fragment.files)
        stored = sum(fragment.physical_rows for fragment in task.fragments)
        rows = stored - sum(fragment.num_deletions for fragment in task.fragments)
        written = size * rows // stored if stored else 0
        new = ceil(rows / what.target_rows)
        tasks.append(RewriteTask(_pack(task.json()), len(task.fragments), size, written, new))
    return tasks


def execute(table: Table, dataset: LanceDataset, kind: Kind, content: str) -> str:
    """Executes a task, and returns its result as text.

    Args:
        table: The table, with the storage options for the storage.
        dataset: The newest version; for "rewrite" the version that the task was planned for.
        kind: "examine", whose result is for `parse_examination`; "rewrite", which writes fragments that no version
            contains yet, and whose result is for `commit`; or "clean up", whose result is for `parse_removed`.
        content: Of an `Examination`, a `RewriteTask`, or `CleanupLimits`.
    """
    return _EXECUTE[kind](table, dataset, content)


def _execute_examination(_table: Table, dataset: LanceDataset, content: str) -> str:
    fields = json.loads(content)
    if fields["cleanup"] is not None:
        fields["cleanup"] = CleanupLimits(**fields["cleanup"])
    state, tasks = examine(dataset, Examination(**fields))
    return json.dumps([asdict(state), [asdict(task) for task in tasks]])


def parse_examination(result: str) -> tuple[DatasetState, Sequence[RewriteTask]]:
    """Returns what an "examine" task has found out."""
    state, tasks = json.loads(result)
    state["stale_indexes"] = tuple(state["stale_indexes"])
    return DatasetState(**state), [RewriteTask(**task) for task in tasks]


def _execute_rewrite(_table: Table, dataset: LanceDataset, content: str) -> str:
    from lance.optimize import CompactionTask

    task: Any = cast(Any, CompactionTask).from_json(_unpack(content))
    return _pack(task.execute(dataset).json())


def parse_removed(result: str) -> tuple[int, int]:
    """Returns what a "clean up" task has removed; see `clean_up`."""
    versions, size = json.loads(result)
    return versions, size


def _execute_cleanup(table: Table, dataset: LanceDataset, content: str) -> str:
    return json.dumps(clean_up(table, dataset, CleanupLimits(**json.loads(content))))


_EXECUTE: Mapping[Kind, Callable[[Table, LanceDataset, str], str]] = {
    "examine": _execute_examination,
    "rewrite": _execute_rewrite,
    "clean up": _execute_cleanup,
}


def commit(dataset: LanceDataset, results: Sequence[str], options: Mapping[str, Any]) -> int:
    """Commits the results of all tasks as one version, and returns it; Lance rebases it on concurrent appends.

    If Lance fails, a look at the newest version decides whether the commit has succeeded nevertheless.
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


def new_files(results: Iterable[str]) -> Sequence[str]:
    """Returns the data files that tasks have written, relative to the table's location."""
    rewrites = (json.loads(_unpack(it)) for it in results)
    return [
        f"{DATA}/{file['path']}"
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


def clean_up(table: Table, dataset: LanceDataset, limits: CleanupLimits) -> tuple[int, int]:
    """Removes old versions and unused files; returns the number of versions, and of bytes."""
    with cleanups.announced(table):
        stats: Any = cast(Any, dataset).cleanup_old_versions(**limits.for_pylance())
    return stats.old_versions, stats.bytes_removed


def _stale_rows(dataset: LanceDataset, live: Mapping[int, int]) -> dict[str, int]:
    """Returns the number of rows that each index lacks, if any and if a refresh can add them."""
    rows: dict[str, int] = {}
    for index in dataset.describe_indices():
        if index.name.startswith(_SYSTEM_INDEX):
            continue
        fragments_with_index = {id for segment in index.segments for id in segment.fragment_ids}
        lacking = sum(count for id, count in live.items() if id not in fragments_with_index)
        if lacking and (fragments_with_index or sum(live.values()) >= _least_rows(index)):
            rows[index.name] = lacking
    return rows


def _least_rows(index: Any) -> int:
    """Returns the number of rows that Lance needs to train an index; with fewer, it creates one without rows."""
    compression = (getattr(index, "details", None) or {}).get("compression", {})
    return 1 << compression["num_bits"] if compression.get("type") == "pq" else 0


def _files(dataset: LanceDataset) -> set[str]:
    return {f"{DATA}/{file.path}" for fragment in dataset.get_fragments() for file in fragment.metadata.files}


def _has_files(dataset: LanceDataset, paths: Iterable[str]) -> bool:
    """Returns whether the newest version has all these files; False if it cannot be read."""
    try:
        cast(Any, dataset).checkout_latest()
        return set(paths) <= _files(dataset)
    except Exception:  # the error of the commit says more
        return False


def _pack(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 3)).decode()


def _unpack(content: str) -> str:
    return zlib.decompress(base64.b64decode(content)).decode()

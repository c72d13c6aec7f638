"""Maintenance of one dataset: its state, compaction in separate tasks, refresh of indexes, and clean-up.

All functions block: for `in_thread`, or for a task of another process, which gets and returns text. Commits need the
dataset as the namespace opens it; a compaction task only needs a dataset of the version that it was planned for.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from lance_ns_async.model import Table
from lance_ns_async.operations import index_parts, tiers
from lance_ns_async.operations.index_parts import StaleIndex
from lance_ns_async.storage import cleanups
from lance_ns_async.storage.lance_layout import DATA

if TYPE_CHECKING:
    from lance import FragmentMetadata, LanceDataset

Kind: TypeAlias = Literal["examine", "rewrite", "clean up"]
"""The kinds of tasks that need no catalog."""

_DELETED_SHARE = 0.1  # Lance's default for the share of deleted rows above which a fragment is rewritten.

TARGET_ROWS = 1024 * 1024
"""Lance's default for the number of rows of a compacted fragment."""


MIN_AGE = 600.0
"""Seconds for which versions stay, whatever the limits, unless nobody else writes.

A commit looks for the newest version, and then creates the next one, unless it exists. If others had created it
meanwhile, and a clean-up had removed it, the commit would succeed with an old number, and its rows would be lost.
"""


@dataclass(frozen=True, slots=True)
class CleanupLimits:
    """The versions that a clean-up removes: those beyond both limits. Tagged ones and the newest always stay."""

    older_than: float | None
    """Minimum age in seconds; None for any age."""
    retain_versions: int | None
    """Number of newest versions that stay; None for no such limit."""
    delete_unverified: bool = False
    """Whether files of no version are deleted at any age; otherwise only after seven days."""

    @property
    def min_age(self) -> float:
        """The minimum age in seconds; `MIN_AGE` if files of no version have one, because others may write then."""
        return max(self.older_than or 0.0, 0.0 if self.delete_unverified else MIN_AGE)

    def for_pylance(self) -> dict[str, Any]:
        """Returns the arguments of `cleanup_old_versions`."""
        age = self.min_age
        return {
            # Without any limit, Lance would use its own of two weeks.
            "older_than": None if not age and self.retain_versions is not None else timedelta(seconds=age),
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
    is_before_refresh: bool = False
    """Whether stale indexes are refreshed after this, so that the compaction is estimated, and planned later."""
    merges_parts: bool = True
    """Whether a refresh of indexes chooses the parts to merge; otherwise, only indexes that lack rows are stale."""

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
    stale_indexes: Mapping[str, int]
    """The indexes to refresh, and the number of their last parts to merge with the rows that they lack."""
    index_rows: int
    """The largest number of rows that the refresh of one of them reads."""
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
    fragments = {it.fragment_id: it.metadata for it in dataset.get_fragments()}
    state = _state(dataset, what, fragments)
    if what.compaction is None:
        return state, ()
    # Lance plans no merges across the parts of indexes, which a refresh is about to merge.
    is_estimate = bool(what.is_before_refresh and state.stale_indexes)
    return state, _plan_tasks(dataset, fragments, what.compaction, what, is_estimate=is_estimate)


def read_state(dataset: LanceDataset, what: Examination) -> DatasetState:
    """Returns the state of the newest version. Cost: as `examine`."""
    return _state(dataset, what, {it.fragment_id: it.metadata for it in dataset.get_fragments()})


def _state(dataset: LanceDataset, what: Examination, fragments: Mapping[int, FragmentMetadata]) -> DatasetState:
    live = {id: _live_rows(it) for id, it in fragments.items()}
    stale: Mapping[str, StaleIndex] = {}
    if what.indexes:
        small = what.max_small_fragments if what.compaction is not None else len(live)
        rows, rewritten = _for_tiers(fragments, what)
        end = tiers.first_to_merge_at_end(rows, what.target_rows, small, rewritten)
        stale = index_parts.stale_indexes(dataset, live, {*[*live][end:]}, merges_parts=what.merges_parts)
    versions, old, removable = (0, 0, 0)
    if what.cleanup is not None:
        versions = len(dataset.versions())
        stats = cleanup_numbers(dataset, what.cleanup)
        old, removable = stats.old_versions, stats.bytes_removed
    return DatasetState(
        version=dataset.version,
        rows=sum(live.values()),
        size=sum(map(_size, fragments.values())),
        fragments=len(fragments),
        small_fragments=sum(not _is_full(it, what) for it in fragments.values()),
        deleted_rows=sum(it.num_deletions for it in fragments.values()),
        unindexed_rows=max((it.lacking_rows for it in stale.values()), default=0),
        stale_indexes={name: it.merged_parts for name, it in sorted(stale.items())},
        index_rows=max((it.rows for it in stale.values()), default=0),
        versions=versions,
        old_versions=old,
        removable_bytes=removable,
    )


def cleanup_numbers(dataset: LanceDataset, limits: CleanupLimits) -> Any:
    """Returns pylance's numbers of what a clean-up would remove. Cost: as a clean-up, without the deletes."""
    return cast(Any, dataset).explain_cleanup_old_versions(**limits.for_pylance()).stats


def _plan_tasks(
    dataset: LanceDataset,
    fragments: Mapping[int, FragmentMetadata],
    options: Mapping[str, Any],
    what: Examination,
    *,
    is_estimate: bool,
) -> Sequence[RewriteTask]:
    """Returns the tasks of a compaction; an estimate is that after a refresh of indexes, and has no contents."""
    from lance.optimize import Compaction

    ids = [*fragments]
    rows, rewritten = _for_tiers(fragments, what)
    groups = tiers.fragments_to_merge(rows, what.target_rows, what.max_small_fragments, rewritten)
    merged = {id for group in groups for id in ids[group.start : group.stop]}
    left = [id for place, id in enumerate(ids) if id not in merged and place not in rewritten]
    plan: Any = Compaction.plan(dataset, cast(Any, {**options, "excluded_fragment_ids": left}))
    contents = [task.json() for task in plan.tasks]
    # The attribute `fragments` of a task would copy them all.
    tasks = [(text, [it["id"] for it in json.loads(text)["task"]["fragments"]]) for text in contents]
    if is_estimate:
        joined = [("", ids[group.start : group.stop]) for group in groups]
        tasks = [*joined, *(("", own) for _, own in tasks if merged.isdisjoint(own))]
    return [_task(text, [fragments[id] for id in own], what.target_rows) for text, own in tasks]


def _for_tiers(fragments: Mapping[int, FragmentMetadata], what: Examination) -> tuple[Sequence[int], Set[int]]:
    """Returns the rows of the fragments, and the positions of those that are rewritten for their deleted rows."""
    options = {"materialize_deletions": False} if what.compaction is None else what.compaction
    most_deleted = options.get("materialize_deletions_threshold", _DELETED_SHARE)
    if not options.get("materialize_deletions", True):
        most_deleted = 1.0
    places = enumerate(fragments.values())
    return (
        [it.physical_rows if _is_full(it, what) else _live_rows(it) for it in fragments.values()],
        {place for place, it in places if it.num_deletions > most_deleted * it.physical_rows},
    )


def _is_full(fragment: FragmentMetadata, what: Examination) -> bool:
    """Returns whether a fragment does not count as small, to Lance, which counts deleted rows, too."""
    full: bool = fragment.physical_rows >= what.target_rows
    return full


def _live_rows(fragment: FragmentMetadata) -> int:
    rows: int = fragment.physical_rows - fragment.num_deletions
    return rows


def _size(fragment: FragmentMetadata) -> int:
    return sum(file.file_size_bytes or 0 for file in fragment.files)


def _task(text: str, fragments: Sequence[FragmentMetadata], target_rows: int) -> RewriteTask:
    size, stored = sum(map(_size, fragments)), sum(it.physical_rows for it in fragments)
    rows = sum(map(_live_rows, fragments))
    written = size * rows // stored if stored else 0
    # Lance splits the rows of a task so that each new fragment has at least the target.
    return RewriteTask(_pack(text), len(fragments), size, written, max(1, rows // target_rows) if rows else 0)


def execute(table: Table, dataset: LanceDataset, kind: Kind, content: str, renew: Callable[[Table], Table]) -> str:
    """Executes a task, and returns its result as text.

    Args:
        table: The table, with the storage options for the storage.
        dataset: The newest version; for "rewrite" the version that the task was planned for.
        kind: "examine", whose result is for `parse_examination`; "rewrite", which writes fragments that no version
            contains yet, and whose result is for `commit`; or "clean up", whose result is for `parse_removed`.
        content: Of an `Examination`, a `RewriteTask`, or `CleanupLimits`.
        renew: Returns the table with credentials that do not end soon.
    """
    if kind == "clean up":
        return json.dumps(clean_up(table, dataset, CleanupLimits(**json.loads(content)), renew))
    return _execute_examination(dataset, content) if kind == "examine" else _execute_rewrite(dataset, content)


def _execute_examination(dataset: LanceDataset, content: str) -> str:
    fields = json.loads(content)
    if fields["cleanup"] is not None:
        fields["cleanup"] = CleanupLimits(**fields["cleanup"])
    state, tasks = examine(dataset, Examination(**fields))
    return json.dumps([asdict(state), [asdict(task) for task in tasks]])


def parse_examination(result: str) -> tuple[DatasetState, Sequence[RewriteTask]]:
    """Returns what an "examine" task has found out."""
    state, tasks = json.loads(result)
    return DatasetState(**state), [RewriteTask(**task) for task in tasks]


def _execute_rewrite(dataset: LanceDataset, content: str) -> str:
    from lance.optimize import CompactionTask

    task: Any = cast(Any, CompactionTask).from_json(_unpack(content))
    return _pack(task.execute(dataset).json())


def parse_removed(result: str) -> tuple[int, int]:
    """Returns what a "clean up" task has removed; see `clean_up`."""
    versions, size = json.loads(result)
    return versions, size


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


def refresh_indexes(dataset: LanceDataset, indexes: Mapping[str, int], options: Mapping[str, Any]) -> int:
    """Adds unindexed rows to indexes, and returns the version.

    Args:
        dataset: The newest version.
        indexes: The names of the indexes, and the number of their last parts to merge.
        options: Options of pylance; if there are some, these numbers are not used.
    """
    for number in sorted({*indexes.values()}):
        names = [name for name, merged in indexes.items() if merged == number]
        dataset.optimize.optimize_indices(index_names=names, **(options or {"num_indices_to_merge": number}))
    cast(Any, dataset).checkout_latest()
    version: int = dataset.version
    return version


def clean_up(
    table: Table, dataset: LanceDataset, limits: CleanupLimits, renew: Callable[[Table], Table]
) -> tuple[int, int]:
    """Removes old versions and unused files; returns the number of versions, and of bytes."""
    with cleanups.announced(table, renew):
        stats: Any = cast(Any, dataset).cleanup_old_versions(**limits.for_pylance())
    return stats.old_versions, stats.bytes_removed


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

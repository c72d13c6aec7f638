"""Options and plans of maintenance: what is compacted, indexed and cleaned up, and how much there is to do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from math import inf
from typing import Any

from lance_namespace.errors import InvalidInputError

from lance_ns_async.fleet.table_search import parse_age
from lance_ns_async.model import TableId
from lance_ns_async.operations.maintaining import TARGET_ROWS, CleanupLimits, DatasetState, Examination
from lance_ns_async.operations.tiers import MAX_SMALL_FRAGMENTS
from lance_ns_async.rendering import counted, duration, size_text
from lance_ns_async.tabular import Row, Tabular

_FRAGMENT_BYTES = 1 << 20  # The bytes that can be read in the time that it takes to open a fragment.

_REQUEST_BYTES = 5 << 20  # The bytes that Lance reads or writes in one request, if there are many.

_EXCLUDED = frozenset({"target_rows_per_fragment", "excluded_fragment_ids"})
"""Options of pylance's compactions that another field has, or that apply to one table only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """What is compacted: small fragments are merged, and deleted rows are removed.

    Raises:
        InvalidInputError: A number is below 1, or pylance has no such option.
    """

    target_rows: int | None = None
    """Rows of a compacted fragment; None for the setting of the table, or else Lance's default of 1,048,576."""
    max_small_fragments: int = MAX_SMALL_FRAGMENTS
    """Maximum number of small fragments that stay at the end of a table, where appends add them; 1 merges all. If there
    are more, the last ones of about the same size are merged, so that few rows are written again and again."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of pylance's `CompactionOptions`, such as `max_source_bytes`."""

    def __post_init__(self) -> None:
        for name, value in (("target_rows", self.target_rows), ("max_small_fragments", self.max_small_fragments)):
            if value is not None and value < 1:
                raise InvalidInputError(f"{name} {value}: must be at least 1")
        if self.options:
            from lance.optimize import CompactionOptions

            names = CompactionOptions.__annotations__.keys() - _EXCLUDED
            if unknown := [name for name in self.options if name not in names]:
                raise InvalidInputError(f"options {unknown[0]!r}: use one of {', '.join(sorted(names))}")

    def for_pylance(self) -> dict[str, Any]:
        """Returns the options as pylance has them."""
        return {**self.options, **({"target_rows_per_fragment": self.target_rows} if self.target_rows else {})}

    @property
    def small_below(self) -> int:
        """The number of rows below which a fragment counts as small."""
        return self.target_rows or TARGET_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """How indexes that lack rows are refreshed."""

    retrain: bool = False
    """Whether indexes that lack rows are trained again on all rows, which may be expensive."""
    num_indices_to_merge: int | None = None
    """Number of last parts of an index to merge with the rows that it lacks. None merges parts of about the same size
    if there are more than 12, and those that divide fragments to compact."""

    def for_pylance(self) -> dict[str, Any]:
        """Returns the options as pylance has them."""
        merge = {} if self.num_indices_to_merge is None else {"num_indices_to_merge": self.num_indices_to_merge}
        return {**merge, **({"retrain": True} if self.retrain else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupOptions:
    """Which versions are removed: those beyond both limits. Tagged versions and the newest one always stay.

    Raises:
        InvalidInputError: The age or the number is invalid.
    """

    older_than: timedelta | str | None = "14d"
    """Minimum age of a version, such as "14d" or "12h"; None for any age. Versions of the last ten minutes stay in any
    case, unless `delete_unverified` says that nobody else writes: a commit in progress could be lost."""
    retain_versions: int | None = None
    """Number of newest versions that stay; None for no such limit."""
    delete_unverified: bool = False
    """Whether files of no version, such as those of a killed run, are deleted at any age; otherwise only after seven
    days. Only safe while nobody else writes to the tables."""

    def __post_init__(self) -> None:
        self.limits()

    def limits(self) -> CleanupLimits:
        """Returns the limits for one table."""
        older_than = self.older_than
        if isinstance(older_than, str):
            older_than = parse_age("older_than", older_than)
        if older_than is not None and older_than < timedelta(0):
            raise InvalidInputError(f"older_than {older_than}: must not be negative")
        if self.retain_versions is not None and self.retain_versions < 1:
            raise InvalidInputError(f"retain_versions {self.retain_versions}: must be at least 1")
        seconds = None if older_than is None else older_than.total_seconds()
        return CleanupLimits(seconds, self.retain_versions, self.delete_unverified)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """The steps of maintenance; None for a step that is not taken."""

    compact: CompactOptions | None
    index: IndexOptions | None
    cleanup: CleanupOptions | None

    @classmethod
    def of(
        cls,
        compact: bool | CompactOptions = True,
        index: bool | IndexOptions = True,
        cleanup: bool | CleanupOptions = True,
    ) -> MaintenanceOptions:
        """Returns the options of the arguments of `maintain`; True means the defaults of a step."""
        if compact is False and index is False and cleanup is False:
            raise InvalidInputError("compact, index, cleanup: all are False, so that nothing would be done")
        return cls(
            compact=(CompactOptions() if compact is True else compact) or None,
            index=(IndexOptions() if index is True else index) or None,
            cleanup=(CleanupOptions() if cleanup is True else cleanup) or None,
        )

    def cleanup_limits(self) -> CleanupLimits | None:
        """Returns the limits of the clean-up of a table; None if there is none."""
        return None if self.cleanup is None else self.cleanup.limits()

    def examination(self) -> Examination:
        """Returns what there is to find out about each table."""
        compact = self.compact or CompactOptions()
        return Examination(
            compact.small_below,
            self.index is not None,
            merges_parts=self.index is not None and not self.index.for_pylance(),
            cleanup=self.cleanup_limits(),
            compaction=None if self.compact is None else compact.for_pylance(),
            max_small_fragments=compact.max_small_fragments,
            is_before_refresh=self.index is not None,
        )


COMPACT = "compact"
INDEX = "index"
CLEAN_UP = "clean up"

LEFT = "left"
"""The outcome of a table whose compaction and indexes are left for a later run."""

_PLAN = "plan"
_UP_TO_DATE = "up to date"


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The state of one table, and what there is to do. It contains no storage options."""

    id: TableId
    location: str
    state: DatasetState
    tasks: int = 0
    """Number of compaction tasks; 0 if there is nothing to compact."""
    task_fragments: int = 0
    """Number of fragments that these tasks replace."""
    new_fragments: int = 0
    """Number of fragments that replace them."""
    task_bytes: int = 0
    """Bytes of the data files of the replaced fragments, which are read."""
    written_bytes: int = 0
    """Bytes of the data files of the new fragments; an estimate."""
    cleans_up: bool = False
    """Whether there are versions or files to remove."""
    priority: int = 0
    """Tables with a higher one are maintained first."""
    is_left: bool = False
    """Whether the compaction and the refresh of indexes are left for a later run, because of the limits of this one."""

    @property
    def cost(self) -> int:
        """The bytes to read and to write; indexes read rows that they lack, and those of parts that are merged."""
        return self.task_bytes + self.written_bytes + self._bytes_of(self.state.index_rows)

    @property
    def gain(self) -> int:
        """The bytes that a scan of the table reads less, if opening a fragment takes as long as reading 1 MiB."""
        fewer_fragments = self.task_fragments - self.new_fragments
        unindexed = self._bytes_of(self.state.unindexed_rows)
        return fewer_fragments * _FRAGMENT_BYTES + self.task_bytes - self.written_bytes + unindexed

    @property
    def requests(self) -> int:
        """The requests to an object store that the steps make: an estimate, from measurements with small tables."""
        requests = 0
        if self.tasks and not self.is_left:
            requests += 10 + self.task_fragments + self.new_fragments
            requests += (self.task_bytes + self.written_bytes) // _REQUEST_BYTES
        if self.state.stale_indexes and not self.is_left:
            requests += 20 * len(self.state.stale_indexes) + self._bytes_of(self.state.index_rows) // _REQUEST_BYTES
        # Of each version, a manifest, a transaction and often a data file are looked at and deleted.
        return requests + (20 + 6 * self.state.old_versions if self.cleans_up else 0)

    def _bytes_of(self, rows: int) -> int:
        return self.state.size * rows // self.state.rows if self.state.rows else 0

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that there is something to do for: "compact", "index", "clean up"."""
        steps = ((COMPACT, self.tasks), (INDEX, self.state.stale_indexes), (CLEAN_UP, self.cleans_up))
        return tuple(step for step, needed in steps if needed)

    def describe(self) -> str:
        """Returns what there is to do, in words; empty if there is nothing."""
        state, words = self.state, []
        if self.tasks:
            tasks = counted(self.tasks, "tasks")
            deleted = f", {state.deleted_rows} deleted rows" if state.deleted_rows else ""
            words.append(
                f"compact {self.task_fragments} of {state.fragments} fragments into {self.new_fragments} "
                f"(reads {size_text(self.task_bytes)}, writes {size_text(self.written_bytes)} in {tasks}{deleted})"
            )
        if state.stale_indexes:
            words.append(f"index {state.unindexed_rows} rows ({', '.join(state.stale_indexes)})")
        if self.cleans_up:
            size = size_text(state.removable_bytes)
            words.append(f"clean up {state.old_versions} of {state.versions} versions ({size})")
        return "; ".join(words)

    def row(self) -> Row:
        """Returns the plan as a row of a result."""
        outcome = LEFT if self.is_left else _PLAN if self.steps else _UP_TO_DATE
        return Row(self.id, outcome, self.describe(), self.location, fields=self._numbers())

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as a dict of JSON's types."""
        return {"id": str(self.id), "names": list(self.id), "location": self.location, **self._numbers()}

    def _numbers(self) -> dict[str, Any]:
        return {
            "steps": list(self.steps),
            "tasks": self.tasks,
            "task_fragments": self.task_fragments,
            "new_fragments": self.new_fragments,
            "task_bytes": self.task_bytes,
            "written_bytes": self.written_bytes,
            "cost": self.cost,
            "gain": self.gain,
            "requests": self.requests,
            "is_left": self.is_left,
            **asdict(self.state),
        }


@dataclass(frozen=True, slots=True, repr=False)
class MaintenancePlan(Tabular):
    """What maintenance would do with each table. Its representation is a short table."""

    tables: Sequence[TablePlan]
    """The examined tables, those with the most bytes to rewrite first."""
    problems: Sequence[Row] = ()
    """Tables and namespaces that could not be examined."""
    without_data: Sequence[Row] = ()
    """Tables without any version: nothing was written yet, or the data was removed."""
    seconds: float = 0.0
    """Duration of the examination in seconds."""
    calls: int = 0
    """Number of remote calls to the catalog, including retries."""

    @property
    def pending(self) -> Sequence[TablePlan]:
        """The tables for which there is something to do, and whose compaction and indexes are not left."""
        return [table for table in self.tables if table.steps and not table.is_left]

    def line(self) -> str:
        """Returns a summary of the plan in one line."""
        pending = self.pending
        fragments = counted(sum(it.task_fragments for it in pending), "fragments")
        rows = counted(sum(it.state.unindexed_rows for it in pending), "rows")
        # Those that are left are cleaned up, too.
        cleaned = [it for it in self.tables if it.cleans_up]
        versions = counted(sum(it.state.old_versions for it in cleaned), "versions")
        cost = size_text(sum(it.cost for it in pending))
        requests = counted(sum(it.requests for it in self.tables), "requests")
        parts = [
            f"compact {_count(pending, COMPACT)} ({fragments} into {sum(it.new_fragments for it in pending):,})",
            f"index {_count(pending, INDEX)} ({rows})",
            f"clean up {counted(len(cleaned), 'tables')} ({versions})",
        ]
        total = counted(len(self.tables), "tables")
        left = sum(table.is_left for table in self.tables)
        empty = f"; {left} left for a later run" if left else ""
        empty += f"; {len(self.without_data)} without data" if self.without_data else ""
        problems = f"; {len(self.problems)} could not be examined" if self.problems else ""
        return (
            f"maintain (plan): {len(pending)} of {total}: {', '.join(parts)}; cost {cost}, about {requests}"
            f"{empty}{problems}; examined in {duration(self.seconds)} ({counted(self.calls, 'calls')})"
        )

    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each table: what there is to do, or why it was not examined."""
        return [*map(TablePlan.row, self.tables), *self.problems, *self.without_data]

    @property
    def shown_outcomes(self) -> frozenset[str]:
        """The outcomes of all tables but those with nothing to do."""
        return frozenset({_PLAN, LEFT, *(row.outcome for row in self.without_data)})

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as a dict of JSON's types."""
        return {
            "operation": "maintain",
            "dry_run": True,
            "tables": [table.to_dict() for table in self.tables],
            "problems": [row.to_dict() for row in self.problems],
            "without_data": [row.to_dict() for row in self.without_data],
            "seconds": self.seconds,
            "calls": self.calls,
        }

    def to_json(self) -> str:
        """Returns the plan as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


def _count(tables: Sequence[TablePlan], step: str) -> str:
    return counted(sum(step in table.steps for table in tables), "tables")


def tables_to_leave(tables: Sequence[TablePlan], budget: int) -> set[TableId]:
    """Returns the tables that are left for a later run: those beyond a budget, by their gain for each byte of cost.

    Args:
        tables: The plans.
        budget: Maximum sum of the costs, in bytes.
    """
    left: set[TableId] = set()
    for table in by_worth(tables):
        if table.cost <= budget:
            budget -= table.cost
        else:
            left.add(table.id)
    return left


def by_worth(tables: Iterable[TablePlan]) -> Sequence[TablePlan]:
    """Returns the tables in the order of their maintenance: by priority, then by their gain for each byte of cost."""
    return sorted(tables, key=lambda it: (-it.priority, -it.gain / it.cost if it.cost else -inf, it.id))

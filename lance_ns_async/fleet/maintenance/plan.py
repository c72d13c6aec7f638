"""Plans of maintenance: what would be done with each table, and how much there is to read and write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lance_ns_async.model import TableId
from lance_ns_async.operations.maintaining import DatasetState
from lance_ns_async.rendering import counted, duration, size_text
from lance_ns_async.tabular import Row, Tabular

COMPACT = "compact"
INDEX = "index"
CLEAN_UP = "clean up"

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
    task_bytes: int = 0
    """Bytes of the data files of these fragments."""
    cleans_up: bool = False
    """Whether there are versions or files to remove."""

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
                f"compact {self.task_fragments} of {state.fragments} fragments "
                f"({size_text(self.task_bytes)} in {tasks}{deleted})"
            )
        if state.stale_indexes:
            words.append(f"index {state.unindexed_rows} rows ({', '.join(state.stale_indexes)})")
        if self.cleans_up:
            size = size_text(state.removable_bytes)
            words.append(f"clean up {state.old_versions} of {state.versions} versions ({size})")
        return "; ".join(words)

    def row(self) -> Row:
        """Returns the plan as a row of a result."""
        outcome = _PLAN if self.steps else _UP_TO_DATE
        return Row(self.id, outcome, self.describe(), self.location, fields=self._numbers())

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as a dict of JSON's types."""
        return {"id": str(self.id), "names": list(self.id), "location": self.location, **self._numbers()}

    def _numbers(self) -> dict[str, Any]:
        return {
            "steps": list(self.steps),
            "tasks": self.tasks,
            "task_fragments": self.task_fragments,
            "task_bytes": self.task_bytes,
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
        """The tables for which there is something to do."""
        return [table for table in self.tables if table.steps]

    def line(self) -> str:
        """Returns a summary of the plan in one line."""
        pending = self.pending
        fragments = counted(sum(it.task_fragments for it in pending), "fragments")
        tasks = counted(sum(it.tasks for it in pending), "tasks")
        rows = counted(sum(it.state.unindexed_rows for it in pending), "rows")
        versions = counted(sum(it.state.old_versions for it in pending), "versions")
        size = size_text(sum(it.task_bytes for it in pending))
        parts = [
            f"compact {_count(pending, COMPACT)} ({fragments}, {size}, {tasks})",
            f"index {_count(pending, INDEX)} ({rows})",
            f"clean up {_count(pending, CLEAN_UP)} ({versions})",
        ]
        total = counted(len(self.tables), "tables")
        empty = f"; {len(self.without_data)} without data" if self.without_data else ""
        problems = f"; {len(self.problems)} could not be examined" if self.problems else ""
        return (
            f"maintain (plan): {len(pending)} of {total}: {', '.join(parts)}{empty}{problems}; "
            f"examined in {duration(self.seconds)} ({counted(self.calls, 'calls')})"
        )

    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each table: what there is to do, or why it was not examined."""
        return [*map(TablePlan.row, self.tables), *self.problems, *self.without_data]

    @property
    def shown_outcomes(self) -> frozenset[str]:
        """The outcomes of all tables but those with nothing to do."""
        return frozenset({_PLAN, *(row.outcome for row in self.without_data)})

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

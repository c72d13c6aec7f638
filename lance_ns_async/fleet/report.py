"""Reports about operations on whole lakes: one row for each item, and the cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lance_namespace.errors import InvalidTableStateError

from lance_ns_async.rendering import counted, duration
from lance_ns_async.tabular import ERRORS, Row, Subject, Tabular

WOULD: Mapping[str, str] = {
    "changed": "would change",
    "created": "would create",
    "deregistered": "would deregister",
    "registered": "would register",
}
"""How outcomes of a dry run are shown."""

_NOTHING = {"audit": "no findings", "find": "no matches"}  # What a report without rows says, by its operation.


@dataclass(frozen=True, slots=True, repr=False)
class Report(Tabular):
    """The rows and the cost of an operation. Its representation is a short table."""

    operation: str
    """The name of the operation, such as "discover"."""
    rows: Sequence[Row]
    """The outcome of each item, in the order of completion."""
    problem_outcomes: frozenset[str] = ERRORS
    """The outcomes that need attention, which the text and HTML forms list row by row."""
    seconds: float = 0.0
    """Duration of this run in seconds."""
    calls: int = 0
    """Number of remote calls to the catalogs, including retries."""
    p50: float | None = None
    """Median duration of a remote call in seconds; None if there was no call."""
    p95: float | None = None
    """95th percentile of the duration of a remote call in seconds; None if there was no call."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Further costs and sizes of this operation by name, such as the requests to the storage."""
    resumed: int = 0
    """Number of rows that come from the journal of a stopped run."""
    dry_run: bool = False
    """Whether nothing was changed, and the outcomes are those of a real run."""
    shown_outcomes: frozenset[str] = frozenset()
    """The outcomes whose rows a representation shows besides the problems."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of rows by outcome, the most frequent first."""
        return dict(Counter(row.outcome for row in self.rows).most_common())

    @property
    def problems(self) -> Sequence[Row]:
        """The rows that need attention."""
        return [row for row in self.rows if row.outcome in self.problem_outcomes]

    @property
    def failed(self) -> Sequence[Subject]:
        """The items of the rows with errors, for a repetition of the operation."""
        return [row.id for row in self.rows if row.outcome in ERRORS]

    def having(self, outcome: str) -> Sequence[Row]:
        """Returns the rows with an outcome.

        Args:
            outcome: The outcome, such as `registered` or `failed`; `counts` has all that occur.
        """
        return [row for row in self.rows if row.outcome == outcome]

    def line(self) -> str:
        """Returns a summary of the report in one line."""
        would = WOULD if self.dry_run else {}
        counts = ", ".join(f"{count} {would.get(outcome, outcome)}" for outcome, count in self.counts.items())
        counts = counts or _NOTHING.get(self.operation, "nothing")
        mode = " (dry run)" if self.dry_run else ""
        costs = [counted(self.calls, "calls")]
        if self.p50 is not None and self.p95 is not None:
            costs[0] += f", p50 {duration(self.p50)}, p95 {duration(self.p95)}"
        costs += (counted(count, name) for name, count in self.counters.items())
        line = f"{self.operation}{mode}: {counts} in {duration(self.seconds)} ({'; '.join(costs)})"
        return f"{line}; {self.resumed} from the journal" if self.resumed else line

    def table_rows(self) -> Sequence[Row]:
        """Returns the rows."""
        return self.rows

    def raise_for_errors(self) -> Report:
        """Returns itself if no item is missing, denied or failed.

        Raises:
            InvalidTableStateError: There are such items; the message has the first reasons.
        """
        if errors := [row for row in self.rows if row.outcome in ERRORS]:
            reasons = "; ".join(row.reason for row in errors[:3])
            more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
            raise InvalidTableStateError(f"{self.operation}: {len(errors)} of {len(self.rows)} failed: {reasons}{more}")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict of JSON's types."""
        return {
            "operation": self.operation,
            "dry_run": self.dry_run,
            "counts": self.counts,
            "seconds": self.seconds,
            "calls": self.calls,
            "p50": self.p50,
            "p95": self.p95,
            "counters": dict(self.counters),
            "resumed": self.resumed,
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_json(self) -> str:
        """Returns the report as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

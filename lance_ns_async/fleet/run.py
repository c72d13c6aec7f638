"""A run of an operation: its rows, its counters, its progress, and the calls that it makes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from lance_namespace.errors import InvalidInputError, InvalidTableStateError, LanceNamespaceError

from lance_ns_async.calls.observers import Call
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import with_notes
from lance_ns_async.progress import ProgressCallback, show_progress
from lance_ns_async.rendering import attempts_of, counted, duration, error_kind, quantile
from lance_ns_async.sync import Namespace
from lance_ns_async.tabular import ERRORS, Row, Subject, Tabular

P = ParamSpec("P")
T = TypeVar("T")


class Run:
    """Collects the results of a run; create it with `start`."""

    def __init__(self, operation: str, progress: ProgressCallback) -> None:
        self.operation = operation
        self.rows: list[Row] = []
        self.counters: Counter[str] = Counter()
        self.resumed: int = 0
        self._progress = progress
        self._total = 0
        self._finished_items = 0
        self._started_at = monotonic()
        self._durations: list[float] = []

    def expect(self, items: int) -> None:
        """Adds to the total of the progress; the total of a walk grows with it."""
        self._total += items

    def advance(self, items: int = 1) -> None:
        """Reports finished items to the progress callback."""
        self._finished_items += items
        self._progress(self._finished_items, max(self._total, self._finished_items))

    def add(self, row: Row, *, resumed: bool = False) -> Row:
        """Adds a row, and returns it; `resumed` if it comes from the journal."""
        self.rows.append(row)
        self.resumed += resumed
        return row

    def finish(self, row: Row, *, resumed: bool = False) -> None:
        """Adds the row of one finished item of the progress."""
        self.add(row, resumed=resumed)
        self.advance()

    def report(
        self,
        problem_outcomes: frozenset[str] = frozenset(),
        *,
        dry_run: bool = False,
        shown_outcomes: frozenset[str] = frozenset(),
    ) -> Report:
        """Returns the report; the outcomes of errors are problems in any case."""
        durations = sorted(self._durations)
        return Report(
            self.operation,
            self.rows,
            ERRORS | problem_outcomes,
            monotonic() - self._started_at,
            len(durations),
            quantile(durations, 0.50),
            quantile(durations, 0.95),
            dict(self.counters),
            self.resumed,
            dry_run,
            shown_outcomes,
        )

    def note(self, call: Call) -> None:
        """Receives a remote call."""
        self._durations.append(call.seconds)


def for_async(operation: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Makes an operation raise for a sync namespace at the call, where a missing `await` does not hide the error."""

    @wraps(operation)
    def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        if any(isinstance(it, Namespace) for it in (*args, *kwargs.values())):
            name = operation.__name__
            raise InvalidInputError(
                f"{name}: for a Namespace, use `from lance_ns_async.fleet import sync as fleet; fleet.{name}(ns, ...)`"
            )
        return operation(*args, **kwargs)

    return call


@contextmanager
def start(
    operation: str, *namespaces: AsyncNamespace | Namespace, progress: bool | ProgressCallback = False
) -> Iterator[Run]:
    """Provides a run that observes the calls of the namespaces; for `progress` see `show_progress`."""
    with ExitStack() as stack:
        run = Run(operation, stack.enter_context(show_progress(progress, operation)))
        # The span of the first catalog contains the calls to all.
        for first in namespaces[:1]:
            if isinstance(first, AsyncNamespace):
                stack.enter_context(first.session.caller.observers.operation(operation))
        for namespace in {id(namespace): namespace for namespace in namespaces}.values():
            stack.enter_context(namespace.observe(run.note))
        yield run


def failure_row(id: Subject, error: LanceNamespaceError, location: str | None = None, **fields: Any) -> Row:
    """Returns the row of an item that failed: "missing", "denied" or "failed", with the error's message."""
    return Row(id, error_kind(error), with_notes(error), location, attempts_of(error), fields)


WOULD: Mapping[str, str] = {
    "changed": "would change",
    "created": "would create",
    "deregistered": "would deregister",
    "namespaces created": "namespaces to create",
    "purged": "would purge",
    "registered": "would register",
}
"""How outcomes and counters of a dry run are shown."""

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
        costs += (counted(count, would.get(name, name)) for name, count in self.counters.items())
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

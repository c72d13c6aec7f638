"""A run of an operation: its rows, its counters, its progress, and the calls that it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.observers import Call
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import with_notes
from lance_ns_async.fleet.report import Report
from lance_ns_async.progress import ProgressCallback, show_progress
from lance_ns_async.rendering import attempts_of, error_kind, quantile
from lance_ns_async.sync import Namespace
from lance_ns_async.tabular import ERRORS, Row, Subject


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


@contextmanager
def start(
    operation: str, *namespaces: AsyncNamespace | Namespace, progress: bool | ProgressCallback = False
) -> Iterator[Run]:
    """Provides a run that observes the calls of the namespaces.

    Args:
        operation: The name of the operation, for the report.
        namespaces: The catalogs of the operation.
        progress: A callback, or whether a line is shown on a terminal; see `show_progress`.
    """
    with ExitStack() as stack:
        run = Run(operation, stack.enter_context(show_progress(progress, operation)))
        for namespace in {id(namespace): namespace for namespace in namespaces}.values():
            stack.enter_context(namespace.observe(run.note))
        yield run


def failure_row(id: Subject, error: LanceNamespaceError, location: str | None = None, **fields: Any) -> Row:
    """Returns the row of an item that failed: "missing", "denied" or "failed", with the error's message."""
    return Row(id, error_kind(error), with_notes(error), location, attempts_of(error), fields)

"""Reports about a prefetch of many tables and about a write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.model import TableId
from lance_ns_async.rendering import DENIED, FAILED, MISSING, attempts_of, duration, error_kind, quantile
from lance_ns_async.tabular import Row, Subject, Tabular


@dataclass(frozen=True, slots=True)
class Problem:
    """A requested item that was not found or could not be read."""

    subject: Subject
    """The table, namespace or pattern; valid as an argument of another `prefetch`."""
    reason: str
    """The message of the error."""
    attempts: int = 1
    """Number of times the failed call was sent."""


@dataclass(frozen=True, slots=True, repr=False)
class PrefetchReport(Tabular):
    """The results and the cost of a prefetch. Its representation is a short table."""

    found: int
    """Number of resolved tables."""
    missing: tuple[Problem, ...] = ()
    """Tables and namespaces that do not exist, and patterns without a match."""
    denied: tuple[Problem, ...] = ()
    """Items that the credentials do not allow, or for which authentication failed."""
    failed: tuple[Problem, ...] = ()
    """Items that failed for any other reason."""
    seconds: float = 0.0
    """Duration of the whole run in seconds."""
    calls: int = 0
    """Number of remote calls, including retries; opening a dataset does not count."""
    p50: float | None = None
    """Median duration of a remote call in seconds; None if there was no call."""
    p95: float | None = None
    """95th percentile of the duration of a remote call in seconds; None if there was no call."""
    remembered: int = 0
    """Number of resolved tables that came from the resolver's cache."""

    @property
    def problems(self) -> Sequence[Problem]:
        """All items that were not resolved."""
        return [*self.missing, *self.denied, *self.failed]

    def line(self) -> str:
        """Returns a summary of the report in one line."""
        total = self.found + len(self.problems)
        line = f"resolved {self.found}/{total} in {duration(self.seconds)}"
        if self.p50 is not None and self.p95 is not None:
            line += f" (p50 {duration(self.p50)}, p95 {duration(self.p95)})"
        if self.remembered:
            line += f"; {self.remembered} from the cache"
        counts = [f"{len(problems)} {kind}" for kind, problems in self._kinds()]
        return f"{line}; {', '.join(counts)}" if counts else line

    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each problem; the resolved tables are in the `Locations`."""
        return [
            Row(problem.subject, kind, problem.reason, attempts=problem.attempts)
            for kind, problems in self._kinds()
            for problem in problems
        ]

    def _kinds(self) -> Iterator[tuple[str, Sequence[Problem]]]:
        for kind, problems in ((MISSING, self.missing), (DENIED, self.denied), (FAILED, self.failed)):
            if problems:
                yield kind, problems


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The result of a write."""

    id: TableId
    location: str
    """A URI or a path, as `lance.dataset` accepts it."""
    version: int | None
    """The committed version; without a commit, the existing version, or None if there is none."""
    rows: int
    """Number of written rows."""
    fragments: int
    """Number of written fragments."""


def report(
    count: int,
    errors: Iterable[tuple[Subject, LanceNamespaceError]],
    *,
    seconds: float,
    calls: Sequence[float],
    from_cache: int = 0,
) -> PrefetchReport:
    """Returns the report of a run with `count` resolved tables and the durations of its remote calls.

    Errors are no mapping, because a table and a namespace with the same names are equal keys.
    """
    problems: dict[str, list[Problem]] = {MISSING: [], DENIED: [], FAILED: []}
    for subject, error in errors:
        problems[error_kind(error)].append(Problem(subject, str(error), attempts_of(error)))
    durations = sorted(calls)
    return PrefetchReport(
        count,
        tuple(problems[MISSING]),
        tuple(problems[DENIED]),
        tuple(problems[FAILED]),
        seconds,
        len(durations),
        quantile(durations, 0.50),
        quantile(durations, 0.95),
        from_cache,
    )


def one_error(errors: Sequence[LanceNamespaceError], *, of: int) -> LanceNamespaceError:
    """Returns one error for all, of the class of the first, with the messages of the first five; `of` is the total."""
    few = errors[:5]
    messages = "; ".join(map(str, few))
    more = f"; and {len(errors) - len(few)} more" if len(errors) > len(few) else ""
    error = type(few[0])(f"{len(errors)} of {of} could not be resolved: {messages}{more}")
    error.__cause__ = few[0]
    return error

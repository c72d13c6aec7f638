"""Reports about a prefetch of many tables and about a write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
    UnauthenticatedError,
)

from lance_ns_async.errors import failure_of
from lance_ns_async.model import NamespaceId, TableId

Subject: TypeAlias = TableId | NamespaceId | str
"""The subject of a problem: a table, a namespace to search, or a pattern without a match."""

PROBLEM_LIMIT = 20
"""Maximum number of printed problems of each kind."""


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
class Report:
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
        line = f"resolved {self.found}/{total} in {_time(self.seconds)}"
        if self.p50 is not None and self.p95 is not None:
            line += f" (p50 {_time(self.p50)}, p95 {_time(self.p95)})"
        if self.remembered:
            line += f"; {self.remembered} from the cache"
        counts = [f"{len(problems)} {kind}" for kind, problems in self._kinds()]
        return f"{line}; {', '.join(counts)}" if counts else line

    def __repr__(self) -> str:
        lines = [self.line()]
        for kind, problems in self._kinds():
            excerpt = problems[:PROBLEM_LIMIT]
            width = min(max(len(str(problem.subject)) for problem in excerpt), 40)
            lines += (f"  {kind:7}  {printable(str(p.subject)):{width}}  {printable(p.reason)}" for p in excerpt)
            lines += _more(problems, f"  {kind:7}  ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows: list[str] = []
        for kind, problems in self._kinds():
            for p in problems[:PROBLEM_LIMIT]:
                cells = (kind, printable(str(p.subject)), printable(p.reason), str(p.attempts))
                rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
            rows += (f"<tr><td></td><td colspan='3'>{more}</td></tr>" for more in _more(problems, ""))
        if not rows:
            return f"<p>{escape(self.line())}</p>"
        head = "<tr><th></th><th>what</th><th>reason</th><th>attempts</th></tr>"
        return f"<p>{escape(self.line())}</p><table>{head}{''.join(rows)}</table>"

    def _kinds(self) -> Iterator[tuple[str, Sequence[Problem]]]:
        for kind, problems in (("missing", self.missing), ("denied", self.denied), ("failed", self.failed)):
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
) -> Report:
    """Returns the report of a run.

    Args:
        count: Number of resolved tables.
        errors: Pairs of subject and error. They are no mapping, because a table and a namespace with the same names
            are equal keys.
        seconds: Duration of the run.
        calls: Duration of each remote call in seconds.
        from_cache: Number of resolved tables that came from the cache.
    """
    missing: list[Problem] = []
    denials: list[Problem] = []
    failures: list[Problem] = []
    for subject, error in errors:
        problem = Problem(subject, str(error), _attempts(error))
        match error:
            case TableNotFoundError() | NamespaceNotFoundError():
                missing.append(problem)
            case PermissionDeniedError() | UnauthenticatedError():
                denials.append(problem)
            case _:
                failures.append(problem)
    durations = sorted(calls)
    p50, p95 = _quantile(durations, 0.50), _quantile(durations, 0.95)
    return Report(count, tuple(missing), tuple(denials), tuple(failures), seconds, len(durations), p50, p95, from_cache)


def one_error(errors: Sequence[LanceNamespaceError], *, of: int) -> LanceNamespaceError:
    """Returns one error for all, of the class of the first, with the messages of the first five; `of` is the total."""
    few = errors[:5]
    messages = "; ".join(map(str, few))
    more = f"; and {len(errors) - len(few)} more" if len(errors) > len(few) else ""
    error = type(few[0])(f"{len(errors)} of {of} could not be resolved: {messages}{more}")
    error.__cause__ = few[0]
    return error


def printable(text: str) -> str:
    """Returns the text with a replacement character in place of each unprintable character."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _attempts(error: LanceNamespaceError) -> int:
    failure = failure_of(error)
    return 1 if failure is None else failure.attempts


def _quantile(durations: Sequence[float], share: float) -> float | None:
    return durations[min(int(len(durations) * share), len(durations) - 1)] if durations else None


def _more(problems: Sequence[Problem], indent: str) -> Iterable[str]:
    return [f"{indent}... and {len(problems) - PROBLEM_LIMIT} more"] if len(problems) > PROBLEM_LIMIT else []


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1e3:.0f} ms"

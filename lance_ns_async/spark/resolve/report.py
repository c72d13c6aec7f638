"""What became of a request for many tables, or of a write, in numbers and in words."""

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
"""What failed: a table, a namespace that was to be searched, or a pattern that matched nothing."""

SHOWN = 20
"""How many problems of each kind are printed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something asked for that was not found or could not be read."""

    subject: Subject
    """May be asked for again as it is."""
    reason: str
    attempts: int = 1
    """How often the call was sent before it was given up."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a prefetch found and what it did not, and what it cost. Prints as a short table."""

    found: int
    """How many tables were resolved."""
    missing: tuple[Problem, ...] = ()
    """Tables and namespaces that do not exist, and patterns that matched no table."""
    denied: tuple[Problem, ...] = ()
    """What the credentials do not suffice for."""
    failed: tuple[Problem, ...] = ()
    """What went wrong for any other reason."""
    seconds: float = 0.0
    """From start to end."""
    calls: int = 0
    """Remote calls made, repetitions included; opening a dataset is none."""
    p50: float | None = None
    """Seconds the median remote call took; None where there was none."""
    p95: float | None = None
    remembered: int = 0
    """How many of those found the catalog was not asked about, because the resolver remembered them."""

    @property
    def problems(self) -> Sequence[Problem]:
        """All that was not resolved."""
        return [*self.missing, *self.denied, *self.failed]

    def line(self) -> str:
        """The report in one line."""
        asked = self.found + len(self.problems)
        line = f"resolved {self.found}/{asked} in {_time(self.seconds)}"
        if self.p50 is not None and self.p95 is not None:
            line += f" (p50 {_time(self.p50)}, p95 {_time(self.p95)})"
        if self.remembered:
            line += f"; {self.remembered} from memory"
        counts = [f"{len(problems)} {kind}" for kind, problems in self._kinds()]
        return f"{line}; {', '.join(counts)}" if counts else line

    def __repr__(self) -> str:
        lines = [self.line()]
        for kind, problems in self._kinds():
            shown = problems[:SHOWN]
            width = min(max(len(str(problem.subject)) for problem in shown), 40)
            lines += (f"  {kind:7}  {printable(str(p.subject)):{width}}  {printable(p.reason)}" for p in shown)
            lines += _more(problems, f"  {kind:7}  ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows: list[str] = []
        for kind, problems in self._kinds():
            for p in problems[:SHOWN]:
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
    """What a write has made."""

    id: TableId
    location: str
    """A URI or a path, as `lance.dataset` takes it."""
    version: int | None
    """The version that was committed; where nothing was, the one that is there, and None where there is none."""
    rows: int
    """How many were written."""
    fragments: int
    """In how many."""


def report(
    found: int,
    errors: Iterable[tuple[Subject, LanceNamespaceError]],
    *,
    seconds: float,
    calls: Sequence[float],
    remembered: int = 0,
) -> Report:
    """The report of a run: its errors sorted by class, its calls told by how many seconds each took.

    Errors are pairs: as keys, a table and a namespace of the same names would be one.
    """
    missing: list[Problem] = []
    denied: list[Problem] = []
    failed: list[Problem] = []
    for subject, error in errors:
        problem = Problem(subject, str(error), _attempts(error))
        match error:
            case TableNotFoundError() | NamespaceNotFoundError():
                missing.append(problem)
            case PermissionDeniedError() | UnauthenticatedError():
                denied.append(problem)
            case _:
                failed.append(problem)
    ranked = sorted(calls)
    p50, p95 = _quantile(ranked, 0.50), _quantile(ranked, 0.95)
    return Report(found, tuple(missing), tuple(denied), tuple(failed), seconds, len(ranked), p50, p95, remembered)


def one_error(errors: Sequence[LanceNamespaceError], *, of: int) -> LanceNamespaceError:
    """One error that stands for all, of the class of the first, and tells the first few."""
    few = errors[:5]
    told = "; ".join(map(str, few))
    more = f"; and {len(errors) - len(few)} more" if len(errors) > len(few) else ""
    raised = type(few[0])(f"{len(errors)} of {of} could not be resolved: {told}{more}")
    raised.__cause__ = few[0]
    return raised


def printable(text: str) -> str:
    """The text with a replacement character for each that would move a terminal's cursor or break a line."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _attempts(error: LanceNamespaceError) -> int:
    failure = failure_of(error)
    return 1 if failure is None else failure.attempts


def _quantile(ranked: Sequence[float], share: float) -> float | None:
    return ranked[min(int(len(ranked) * share), len(ranked) - 1)] if ranked else None


def _more(problems: Sequence[Problem], indent: str) -> Iterable[str]:
    return [f"{indent}... and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1e3:.0f} ms"

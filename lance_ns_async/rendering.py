"""Classification of errors for reports, and rendering of reports as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
    UnauthenticatedError,
)

from lance_ns_async.errors import failure_of

EXCERPT = 20
"""Maximum number of rendered rows of each section."""

MISSING: Final = "missing"
DENIED: Final = "denied"
FAILED: Final = "failed"
"""The kinds of errors; see `error_kind`."""

_LABEL_WIDTH = 7
_SUBJECT_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Section:
    """Rows of a report that have one label."""

    label: str
    rows: Sequence[Sequence[str]]
    """The cells of each row; the text form has only the first two, the subject and the reason."""


def counted(count: int, things: str) -> str:
    """Returns a number and what it counts: `things` begins with a plural, from which one has no `s`."""
    first, space, rest = things.partition(" ")
    return f"{count:,} {first.removesuffix('s') if count == 1 else first}{space}{rest}"


def size_text(size: int) -> str:
    """Returns a number of bytes for people."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def error_kind(error: LanceNamespaceError) -> str:
    """Returns the kind of an error in reports: "missing", "denied" (also for failed sign-ins), or "failed"."""
    match error:
        case TableNotFoundError() | NamespaceNotFoundError():
            return MISSING
        case PermissionDeniedError() | UnauthenticatedError():
            return DENIED
        case _:
            return FAILED


def attempts_of(error: LanceNamespaceError) -> int:
    """Returns how many times the failed call was sent."""
    failure = failure_of(error)
    return 1 if failure is None else failure.attempts


def as_text(line: str, sections: Iterable[Section]) -> str:
    """Returns the line, and below it an excerpt of each section."""
    lines = [line]
    for section in sections:
        excerpt = section.rows[:EXCERPT]
        width = min(max((len(row[0]) for row in excerpt), default=0), _SUBJECT_WIDTH)
        label = f"  {section.label:{_LABEL_WIDTH}}  "
        lines += (f"{label}{printable(row[0]):{width}}  {printable(row[1])}".rstrip() for row in excerpt)
        if more := _more(section):
            lines.append(f"{label}{more}")
    return "\n".join(lines)


def as_html(line: str, head: Sequence[str], sections: Iterable[Section]) -> str:
    """Returns the line as a paragraph, and a table with an excerpt of each section; `head` names the cells."""
    rows: list[str] = []
    for section in sections:
        for row in section.rows[:EXCERPT]:
            cells = (section.label, *map(printable, row))
            rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
        if more := _more(section):
            rows.append(f"<tr><td></td><td colspan='{len(head)}'>{more}</td></tr>")
    if not rows:
        return f"<p>{escape(line)}</p>"
    names = "".join(f"<th>{escape(name)}</th>" for name in ("", *head))
    return f"<p>{escape(line)}</p><table><tr>{names}</tr>{''.join(rows)}</table>"


def printable(text: str) -> str:
    """Returns the text with a replacement character in place of each unprintable character."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def duration(seconds: float) -> str:
    """Returns a duration as text, in seconds or milliseconds."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1e3:.0f} ms"


def quantile(durations: Sequence[float], share: float) -> float | None:
    """Returns a quantile of sorted durations; None if there are none."""
    return durations[min(int(len(durations) * share), len(durations) - 1)] if durations else None


def _more(section: Section) -> str:
    more = len(section.rows) - EXCERPT
    return f"... and {more} more" if more > 0 else ""

"""Results with a row for each item: short text, tables for notebooks, and conversions to Arrow and pandas."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from lance_ns_async.errors import one_line, shortened
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import DENIED, FAILED, MISSING, printable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pydantic import BaseModel

Subject: TypeAlias = TableId | NamespaceId | str
"""The item of a row: a table, a namespace, or a location without a name in the catalog."""

ERRORS = frozenset({MISSING, DENIED, FAILED})
"""The outcomes of errors, in the results of all operations."""

EXCERPT = 20
"""Maximum number of rows of each outcome in a representation."""

_LABEL_WIDTH = 7
_SUBJECT_WIDTH = 40

_OWN = ("kind", "id", "outcome", "reason", "location", "attempts")
_FACTS = ("rows", "size", "versions", "last_write")  # Fields that a representation shows of a row without a reason.

_KINDS: Mapping[str, type[TableId | NamespaceId]] = {"table": TableId, "namespace": NamespaceId}

_HEAD = ("id", "details", "location", "attempts")
"""The columns of tables in notebooks, of which those without any text are left out."""

MAX_CELL = 200
"""Maximum number of characters of a value in a notebook."""

_STYLE = """<style>
.lance-ns{font:13px/1.5 system-ui,sans-serif}
.lance-ns p{margin:0 0 .5em}
.lance-ns div{overflow:auto;max-height:32em}
.lance-ns table{border-collapse:collapse;font:inherit;margin:0}
.lance-ns th,.lance-ns td{border:0;border-bottom:1px solid rgba(128,128,128,.25);padding:.3em .8em;
text-align:left!important;vertical-align:top;background:none;max-width:32em;overflow-wrap:break-word}
.lance-ns th{font-weight:500;opacity:.65}
.lance-ns td+td:not([colspan]):nth-child(2){white-space:nowrap;max-width:24em;overflow:hidden;text-overflow:ellipsis}
.lance-ns span{border-radius:1em;padding:.1em .7em;margin-right:.4em;white-space:nowrap;
background:rgba(40,160,110,.16)}
.lance-ns span.bad{background:rgba(225,70,60,.18)}
</style>"""
"""The style of tables in notebooks. All colours are transparent, so that it fits light and dark ones.

The alignment is important, because the selectors of Jupyter's own rule for it are more specific."""


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome for one item."""

    id: Subject
    """The table, the namespace, or a location without a name in the catalog."""
    outcome: str
    """A word that the operation defines; for errors "missing", "denied" or "failed"."""
    reason: str = ""
    """The message of the error, or an explanation of the outcome; empty if the outcome needs none."""
    location: str | None = None
    """A URI or a path; None if there is none."""
    attempts: int = 1
    """Number of times the failed call was sent."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of this operation, of types that JSON has."""

    def __post_init__(self) -> None:
        if conflicts := [name for name in (*_OWN, "names") if name in self.fields]:
            raise ValueError(f"fields {conflicts}: these names belong to the row")

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as a dict of JSON's types, with further fields beside the others."""
        names = list(self.id) if isinstance(self.id, TableId | NamespaceId) else None
        kind = "location" if isinstance(self.id, str) else self.id.kind
        own = (kind, str(self.id), self.outcome, self.reason, self.location, self.attempts)
        return {**dict(zip(_OWN, own, strict=True)), "names": names, **self.fields}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Row:
        """Returns the row that `to_dict` has written.

        Args:
            values: The dict.
        """
        rest = dict(values)
        kind, text, outcome, reason, location, attempts = (rest.pop(name) for name in _OWN)
        names = rest.pop("names")
        subject = text if names is None else _KINDS[kind](names)
        return cls(subject, outcome, reason, location, attempts, rest)

    def explanation(self) -> str:
        """Returns the reason, or facts about the item."""
        return self.reason or ", ".join(f"{name} {self.fields[name]}" for name in _FACTS if name in self.fields)


class Tabular(ABC):
    """A result of many items. Its text is a summary and the problems; notebooks show a table of all outcomes."""

    __slots__ = ()

    @abstractmethod
    def line(self) -> str:
        """Returns a summary in one line."""

    @abstractmethod
    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each item."""

    @property
    def problem_outcomes(self) -> frozenset[str]:
        """The outcomes that need attention, which a representation shows first."""
        return ERRORS

    @property
    def shown_outcomes(self) -> frozenset[str]:
        """The outcomes whose rows the text shows besides the problems; notebooks show all."""
        return frozenset()

    def to_arrow(self) -> pa.Table:
        """Returns the rows as an Arrow table, with a column for each field of any row."""
        import pyarrow as pa

        rows = self.table_rows()
        values = [row.to_dict() for row in rows]
        types = {"attempts": pa.int64(), "names": pa.list_(pa.string())}
        # What one looks at comes first.
        first, last = ("id", "outcome", "reason", "location"), ("kind", "names", "attempts")
        own = {name: pa.array([it[name] for it in values], types.get(name, pa.string())) for name in (*first, *last)}
        names = dict.fromkeys(name for row in rows for name in row.fields)
        extra = {name: _column([it.get(name) for it in values]) for name in names}
        return pa.table({name: own[name] for name in first} | extra | {name: own[name] for name in last})

    def to_pandas(self) -> pd.DataFrame:
        """Returns the rows as a pandas DataFrame, with the columns of `to_arrow`."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        lines = [self.line()]
        in_text = self.problem_outcomes | self.shown_outcomes
        for outcome, rows in self._by_outcome().items():
            if outcome in in_text:
                excerpt = rows[:EXCERPT]
                width = min(max(len(str(row.id)) for row in excerpt), _SUBJECT_WIDTH)
                label = f"  {outcome:{_LABEL_WIDTH}}  "
                texts = [(printable(str(row.id)), printable(row.explanation())) for row in excerpt]
                lines += (f"{label}{subject:{width}}  {explanation}".rstrip() for subject, explanation in texts)
                lines += (f"{label}{more}" for more in _more(rows))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        groups = self._by_outcome()
        if not groups:
            return f"<p>{escape(self.line())}</p>"
        cells = {outcome: [_cells(row) for row in rows[:EXCERPT]] for outcome, rows in groups.items()}
        columns = [at for at in range(len(_HEAD)) if any(texts[at] for rows in cells.values() for texts in rows)]
        counts: list[str] = []
        lines = [f"<tr>{_cell('', 'th')}{''.join(_cell(_HEAD[at], 'th') for at in columns)}</tr>"]
        for outcome, rows in groups.items():
            style = " class='bad'" if outcome in self.problem_outcomes else ""
            counts.append(f"<span{style}>{len(rows):,} {escape(outcome)}</span>")
            for texts in cells[outcome]:
                data = "".join(_cell(texts[at]) for at in columns)
                lines.append(f"<tr><td><span{style}>{escape(outcome)}</span></td>{data}</tr>")
            lines += (f"<tr><td></td><td colspan='{len(columns)}'>{more}</td></tr>" for more in _more(rows))
        return (
            f"<div class='lance-ns'>{_STYLE}<p>{escape(self.line())}</p><p>{''.join(counts)}</p>"
            f"<div><table>{''.join(lines)}</table></div></div>"
        )

    def _by_outcome(self) -> Mapping[str, Sequence[Row]]:
        """Returns the rows of each outcome, the problems first."""
        groups: dict[str, list[Row]] = {}
        for row in self.table_rows():
            groups.setdefault(row.outcome, []).append(row)
        return dict(sorted(groups.items(), key=lambda it: (it[0] not in self.problem_outcomes, -len(it[1]))))


def html_table(line: str, head: Sequence[str], rows: Iterable[Sequence[str]], more: int) -> str:
    """Returns a table for notebooks.

    Args:
        line: A summary.
        head: The names of the columns.
        rows: The texts of the first rows.
        more: The number of further rows.
    """
    names = "".join(_cell(name, "th") for name in head)
    lines = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    rest = f"<p>... and {more:,} more</p>" if more > 0 else ""
    table = f"<table><tr>{names}</tr>{''.join(lines)}</table>"
    return f"<div class='lance-ns'>{_STYLE}<p>{escape(line)}</p><div>{table}</div>{rest}</div>"


def html_rows(line: str, rows: pa.Table) -> str:
    """Returns the first rows of an Arrow table as a table for notebooks.

    Args:
        line: A summary.
        rows: The rows.
    """
    columns = [[_value(it) for it in column] for column in rows.slice(0, EXCERPT).itercolumns()]
    return html_table(line, rows.column_names, zip(*columns, strict=True), rows.num_rows - EXCERPT)


def html_models(line: str, items: Sequence[BaseModel]) -> str:
    """Returns models as a table for notebooks, with a column for each field that any of the shown ones has."""
    dumped = [item.model_dump(exclude_none=True) for item in items[:EXCERPT]]
    head = list(dict.fromkeys(name for item in dumped for name in item))
    rows = [[shortened(str(item.get(name, "")), MAX_CELL) for name in head] for item in dumped]
    return html_table(line, head, rows, len(items) - EXCERPT)


def _value(value: pa.Scalar) -> str:
    """Returns a short text of a value."""
    import pyarrow as pa

    if not value.is_valid:
        return "NULL"
    if pa.types.is_string(value.type) or pa.types.is_struct(value.type):
        return shortened(one_line(str(value)), MAX_CELL)
    # Unlike `as_py`, this needs no pandas for nanoseconds, and leaves out the middle of vectors.
    return shortened(pa.array([value], value.type).to_string(indent=0, skip_new_lines=True)[1:-1], MAX_CELL)


def _cell(text: str, tag: str = "td") -> str:
    return f"<{tag}>{escape(printable(text))}</{tag}>"


def _cells(row: Row) -> Sequence[str]:
    """Returns the texts of a row, in the order of `_HEAD`."""
    return str(row.id), row.explanation(), row.location or "", str(row.attempts) if row.attempts > 1 else ""


def _more(rows: Sequence[Row]) -> Iterator[str]:
    if (more := len(rows) - EXCERPT) > 0:
        yield f"... and {more:,} more"


def _column(values: Sequence[Any]) -> pa.Array:
    """Returns the values as an Arrow array; as JSON texts if they have no common type."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())

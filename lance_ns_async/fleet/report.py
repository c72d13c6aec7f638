"""Reports about operations on whole lakes: one row for each item, and the cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import DENIED, FAILED, MISSING, Section, as_html, as_text, counted, duration

if TYPE_CHECKING:
    import pyarrow as pa

Subject: TypeAlias = TableId | NamespaceId | str
"""The item of a row: a table, a namespace, or a location without a name in the catalog."""

ERRORS = frozenset({MISSING, DENIED, FAILED})
"""The outcomes of errors, in the reports of all operations."""

WOULD: Mapping[str, str] = {
    "changed": "would change",
    "created": "would create",
    "deregistered": "would deregister",
    "registered": "would register",
}
"""How outcomes of a dry run are shown."""

_OWN = ("kind", "id", "outcome", "reason", "location", "attempts")
_FACTS = ("rows", "size", "versions", "last_write")
"""Fields that a representation shows of a row without a reason."""

_KINDS: Mapping[str, type[TableId | NamespaceId]] = {"table": TableId, "namespace": NamespaceId}


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
        """Returns the row that `to_dict` has written."""
        rest = dict(values)
        kind, text, outcome, reason, location, attempts = (rest.pop(name) for name in _OWN)
        names = rest.pop("names")
        subject = text if names is None else _KINDS[kind](names)
        return cls(subject, outcome, reason, location, attempts, rest)


_NOTHING = {"audit": "no findings", "find": "no matches"}
"""What a report without rows says, by its operation."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
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
        """Returns the rows with an outcome."""
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

    def __repr__(self) -> str:
        return as_text(self.line(), self._sections())

    def _repr_html_(self) -> str:
        return as_html(self.line(), ("what", "reason", "location", "attempts"), self._sections())

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

    def to_arrow(self) -> pa.Table:
        """Returns the rows as an Arrow table, with a column for each field of any row."""
        import pyarrow as pa

        rows = [row.to_dict() for row in self.rows]
        extra = dict.fromkeys(name for row in self.rows for name in row.fields)
        types = {name: pa.int64() if name == "attempts" else pa.string() for name in _OWN}
        types["names"] = pa.list_(pa.string())
        columns = {name: pa.array([row[name] for row in rows], type_) for name, type_ in types.items()}
        columns |= {name: _column([row.get(name) for row in rows]) for name in extra}
        return pa.table(columns)

    def _sections(self) -> Iterator[Section]:
        for outcome in self.counts:
            if outcome in self.problem_outcomes | self.shown_outcomes:
                yield Section(outcome, [_cells(row) for row in self.having(outcome)])


def _cells(row: Row) -> Sequence[str]:
    facts = (f"{name} {row.fields[name]}" for name in _FACTS if name in row.fields)
    return str(row.id), row.reason or ", ".join(facts), row.location or "", str(row.attempts)


def _column(values: Sequence[Any]) -> pa.Array:
    """Returns the values as an Arrow array; as JSON texts if they have no common type."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())

"""The tables of faults in the documentation, from the outcomes that the tests expect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tests.documentation.pages import Page
from tests.faults.catalogs import CATALOGS, HTTP
from tests.faults.faults import PLACES, Expected, Fault
from tests.faults.operations import GROUPS
from tests.support.operations import NAMES

PAGE = "faults.md"

Row = tuple[str, Mapping[str, str]]
"""The name of a fault, and its outcome by catalog."""

_COLUMNS = (tuple(HTTP), ("glue",), ("hive3",))
_BLOCK = re.compile(r"(<!-- faults -->\n).*(<!-- /faults -->)", re.DOTALL)
_THEN = {
    "again": "retry",
    "reads": "retry of reads",
    "never": "no retry",
    "doubt": "no retry, in doubt",
    "void": "no retry",
}


def render() -> str:
    """Returns the page with current tables."""
    return _BLOCK.sub(lambda result: f"{result[1]}\n{tables()}\n{result[2]}", Page(PAGE).text)


def tables() -> str:
    """Returns a table for each group of faults."""
    groups = [("No connection", list(_places())), *((name, list(_rows(faults))) for name, faults in GROUPS)]
    return "\n\n".join(_table(name, rows) for name, rows in groups)


def _places() -> Iterator[Row]:
    for name, unreachable in PLACES.items():
        yield name, {impl: _outcome(unreachable.expected(impl)) for impl in CATALOGS}


def _rows(faults: Sequence[Fault]) -> Iterator[Row]:
    for fault in faults:
        yield fault.name, {impl: _outcome(expected) for impl, expected in (fault.expected or {}).items()}


def _table(name: str, rows: Sequence[Row]) -> str:
    columns = [column for column in _COLUMNS if any(impl in outcomes for _, outcomes in rows for impl in column)]
    heads = (", ".join(NAMES[impl] for impl in column) for column in columns)
    lines = [f"## {name}", "", f"| fault | {' | '.join(heads)} |", f"|{'---|' * (len(columns) + 1)}"]
    for what, outcomes in rows:
        cells = (_cell({impl: outcomes[impl] for impl in column if impl in outcomes}) for column in columns)
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(outcomes: Mapping[str, str]) -> str:
    """Returns the outcome of the first catalog, and of those with another outcome."""
    if not outcomes:
        return ""
    usual, *_ = outcomes.values()
    others = (f"; {NAMES[impl]}: {outcome}" for impl, outcome in outcomes.items() if outcome != usual)
    return usual + "".join(others)


def _outcome(expected: Expected | None) -> str:
    if expected is None:
        return "success"
    name = expected.error.__name__.removesuffix("Error")
    return f"**{name}**, {_THEN[expected.then]}: {expected.message.strip(' :')}"

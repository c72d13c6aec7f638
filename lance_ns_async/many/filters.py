"""Filters in Lance's SQL for the rows of many tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import nearest, one_line, shortened, without_source
from lance_ns_async.storage.sql_bounds import Texts, tokens

_VARIABLE = frozenset(  # Functions whose value differs from scan to scan.
    "current_date current_time current_timestamp localtime localtimestamp now rand random today uuid".split()
)

_SYSTEM = frozenset("_rowid _rowaddr _rowoffset _row_created_at_version _row_last_updated_at_version".split())
"""Columns that Lance adds to every table; their values differ from table to table and are no data."""

_NO_COLUMN = "__lance_ns_no_column"
_MOST_NAMES = 20
_LONGEST_FILTER = 200
_LONGEST_REASON = 500

_UNKNOWN = re.compile(r"No field named (?:\"(?P<quoted>[^\"]+)\"|(?P<plain>[^\s.]+))")


class Filter:
    """A filter in Lance's SQL."""

    def __init__(self, sql: str) -> None:
        if not isinstance(sql, str):
            raise InvalidInputError(f"filter {sql!r}: must be a string with a condition in SQL")
        Texts({"filter": sql}).check()
        self.sql = sql
        parts = [(kind, text) for kind, text in tokens(sql) if kind not in ("space", "comment")]
        if not parts:
            raise InvalidInputError(f"filter {sql!r}: must not be empty; omit it for all rows")
        if ("other", ";") in parts:
            raise InvalidInputError(f"{self}: must be one condition, without ';'")
        self._names = {text.casefold() for kind, text in parts if kind in ("word", "quoted")}

    def __str__(self) -> str:
        return f"filter {shortened(self.sql, _LONGEST_FILTER)!r}"

    def may_use(self, column: str) -> bool:
        """Returns whether the text contains the name of the column."""
        return column.casefold() in self._names

    def columns(self, candidates: pa.Schema) -> Sequence[str]:
        """Returns those of the columns that the filter uses."""
        # Lance ignores the case of a name if no column has exactly that name.
        without = {
            name: [it for it in candidates if it.name.casefold() != name.casefold()] for name in candidates.names
        }
        return [name for name, others in without.items() if self._problem(pa.schema(others)) is not None]

    def check(self, types: pa.Schema, names: Collection[str], table_column: str | None, advice: str) -> None:
        """Checks that Lance accepts the filter for the columns that it may use.

        Args:
            types: The columns that it may use.
            names: The names of all columns, for the message.
            table_column: The column for the id of the table, which no filter may use; None if there is none.
            advice: How to select tables instead.
        """
        existing = {name.casefold() for name in names}
        system = sorted((self._names & _SYSTEM) - existing)
        if system:
            raise InvalidInputError(f"{self}: {system[0]} is not supported, because it is not a column")
        variable = sorted((self._names & _VARIABLE) - existing)
        if variable:
            raise InvalidInputError(f"{self}: {variable[0]} has another value in each task; use a literal instead")
        problem = self._problem(types)
        if problem is None:
            return
        if (unknown := _UNKNOWN.search(problem)) is None:
            raise InvalidInputError(f"{self}: {problem}")
        name = unknown["quoted"] or unknown["plain"]
        if table_column is not None and name.casefold() == table_column.casefold():
            raise InvalidInputError(f"{self}: {name!r} is not a column of the tables; {advice}")
        near = nearest(name, names)
        suggestion = "" if near is None else f"did you mean {near!r}? "
        raise InvalidInputError(f"{self}: no column {name!r}; {suggestion}The columns are {list_names(names)}")

    def _problem(self, types: pa.Schema) -> str | None:
        """Returns the reason why Lance rejects the filter for these columns; None if it accepts it."""
        import lance

        if not types.names:
            types = pa.schema([(_NO_COLUMN, pa.bool_())])  # Lance needs one
        try:
            dataset: Any = lance.write_dataset(pa.Table.from_batches([], types), "memory://")
            dataset.scanner(columns=[], filter=self.sql, with_row_id=True).explain_plan()
        except (OSError, ValueError, RuntimeError, NotImplementedError) as e:
            reason = without_source(one_line(str(e))).removeprefix("Invalid user input: ")
            return shortened(reason, _LONGEST_REASON)
        return None


def list_names(names: Collection[str]) -> str:
    """Returns the first names for an error message."""
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, list(names)[:_MOST_NAMES])) + more

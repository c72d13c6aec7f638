"""Output of the commands `audit`, `find` and `copy`: the columns of their reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from lance_ns_async.cli import output
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.output import Format
from lance_ns_async.fleet.conditions import Conditions
from lance_ns_async.fleet.report import Report, Row

AUDIT_COLUMNS = ("id", "outcome", "severity", "reason", "fix", "location")
COPY_COLUMNS = ("id", "target", "outcome", "reason")
FIND_COLUMNS = ("id", "outcome", "rows", "size", "versions", "last_write", "location", "reason")


def conditions(
    *,
    columns: Sequence[str] | None,
    index: Sequence[str] | None,
    no_index: Sequence[str] | None,
    stale_index: Sequence[str] | None,
    properties: Sequence[str] | None,
    **bounds: int | str | None,
) -> Conditions:
    """Returns the conditions of the options; raises `Misuse` if a property is not KEY=VALUE."""
    pairs: dict[str, str] = {}
    for text in properties or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Misuse(f"--property {text!r}: must be KEY=VALUE")
        pairs[key] = value
    return Conditions(
        columns=columns or (),
        index=index or (),
        no_index=no_index or (),
        stale_index=stale_index or (),
        properties=pairs,
        **bounds,  # type: ignore[arg-type]
    )


def write(report: Report, columns: Sequence[str], format: Format) -> None:
    """Writes the rows of a report to standard output, and its summary to standard error."""
    output.write((_texts(row, columns, format) for row in report.rows), columns, format, sys.stdout)
    print(report.line(), file=sys.stderr)


def _texts(row: Row, columns: Sequence[str], format: Format) -> Mapping[str, object]:
    values = row.to_dict()
    if format is Format.JSON:
        return values
    return {column: _text(values.get(column)) for column in columns}


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)

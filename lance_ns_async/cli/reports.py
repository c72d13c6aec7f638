"""Output of the reports of several commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lance_ns_async.cli import output
from lance_ns_async.cli.output import Format

if TYPE_CHECKING:
    from lance_ns_async.fleet import Report, Row


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

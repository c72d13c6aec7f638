"""Output of the reports of several commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lance_ns_async.cli import output
from lance_ns_async.cli.output import Format

if TYPE_CHECKING:
    from lance_ns_async.fleet import MaintenancePlan, Report


def write(report: Report, columns: Sequence[str], format: Format) -> None:
    """Writes the rows of a report to standard output, and its summary to standard error."""
    output.write((row.to_dict() for row in report.rows), columns, format, sys.stdout)
    print(report.line(), file=sys.stderr)


def write_file(
    result: Report | MaintenancePlan,
    rows: Iterable[Mapping[str, object]],
    columns: Sequence[str],
    format: Format,
    file: Path | None,
) -> None:
    """Writes the rows, or all of the result as JSON or Parquet; to standard output if `file` is None."""
    if format is Format.PARQUET:
        output.write_parquet(result.to_arrow(), file)
        return
    with output.open_text(file) as stream:
        if format is Format.JSON:
            stream.write(result.to_json() + "\n")
        else:
            output.write(({name: row.get(name) for name in columns} for row in rows), columns, format, stream)

"""Execution and output of the command `discover`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lance_ns_async.cli import output
from lance_ns_async.cli.catalog import Catalog
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.progress import progress
from lance_ns_async.model import NamespaceId

if TYPE_CHECKING:
    from lance_ns_async.fleet import Report


def parse_options(values: Sequence[str]) -> dict[str, str] | None:
    """Returns storage options from `KEY=VALUE` arguments; None if there are none.

    Raises:
        Misuse: An argument has no key or no `=`.
    """
    options = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not key or not equals:
            # The message does not contain the text, because it may be a secret without its key.
            raise Misuse("--storage-option: must be KEY=VALUE, but one has no key or no '='")
        options[key] = value
    return options or None


def discover(
    catalog: Catalog,
    uri: str,
    *,
    into: str,
    include: Sequence[str],
    exclude: Sequence[str],
    options: dict[str, str] | None,
    whole_catalog: bool,
    dry_run: bool,
    journal: Path | None,
) -> Report:
    """Runs the discovery with a progress bar, and returns its report."""
    from lance_ns_async.fleet import sync

    with catalog.open() as namespace, progress("discovering tables") as bar:
        return sync.discover(
            namespace,
            uri,
            into=NamespaceId.parse(into),
            include=include,
            exclude=exclude,
            storage_options=options,
            whole_catalog=whole_catalog,
            dry_run=dry_run,
            journal=journal,
            progress=bar.reach,
        )


def write(report: Report, format: Format, file: Path | None) -> None:
    """Writes the rows of a report to the file, or to standard output if `file` is None."""
    if format is Format.PARQUET:
        output.write_parquet(report.to_arrow(), file)
        return
    with output.open_text(file) as stream:
        if format is Format.JSON:
            stream.write(report.to_json() + "\n")
            return
        rows = [row.to_dict() for row in report.rows]
        columns = ["id", "outcome", "location", "reason"]
        if format is Format.PLAIN:
            columns = ["id", "outcome"]
        output.write([{name: row[name] for name in columns} for row in rows], columns, format, stream)


def print_summary(report: Report) -> None:
    """Writes the summary and the problems to standard error."""
    print(report, file=sys.stderr)

"""Execution and output of the command `discover`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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
    """Returns storage options from `KEY=VALUE` and `@FILE` arguments; None if there are none.

    A file has a `KEY=VALUE` on each line; empty lines and lines that start with `#` are skipped.

    Raises:
        Misuse: An argument or a line has no key or no `=`, or a file cannot be read.
    """
    options = {}
    for text in _expand(values):
        key, equals, value = text.partition("=")
        key = key.strip()
        if not key or not equals:
            # The message does not contain the text, because it may be a secret without its key.
            raise Misuse("--storage-option: must be KEY=VALUE, but one has no key or no '='")
        options[key] = value.strip()
    return options or None


def _expand(values: Sequence[str]) -> Iterator[str]:
    """Yields the arguments, with those of files in place of `@FILE`."""
    for text in values:
        if not text.startswith("@"):
            yield text
            continue
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as e:
            raise Misuse(f"--storage-option {text}: the file cannot be read ({e})") from e
        yield from (line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))


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
            progress=bar,
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

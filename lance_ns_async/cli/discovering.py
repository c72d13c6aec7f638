"""The command `discover`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.catalog import Config, Impl, Profile, Properties, require_catalog
from lance_ns_async.cli.options import (
    FormatOrSuffix,
    Journal,
    Out,
    StorageOptions,
    exit_after,
    parse_storage_options,
)
from lance_ns_async.cli.output import Format, format_for

if TYPE_CHECKING:
    from lance_ns_async.fleet import Report


def discover(
    uri: Annotated[str, typer.Argument(help="Folder or bucket, e.g. s3://bucket/data.", show_default=False)],
    into: Annotated[str, typer.Option("--into", help="Namespace for the tables; created if missing.")] = "",
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Only tables whose path matches; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="GLOB", help="Skip folders whose path matches; may be repeated."),
    ] = None,
    storage_option: StorageOptions = None,
    whole_catalog: Annotated[
        bool, typer.Option("--whole-catalog", help="Also compare with tables outside --into.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Register nothing; show what would be done.")] = False,
    journal: Journal = None,
    format: FormatOrSuffix = None,
    out: Out = None,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Find the Lance tables below a folder or bucket, and register those that the catalog does not have."""
    from lance_ns_async.fleet import sync
    from lance_ns_async.model import NamespaceId

    with require_catalog(impl, properties, profile, config).open() as namespace:
        report = sync.discover(
            namespace,
            uri,
            into=NamespaceId.parse(into),
            include=include or (),
            exclude=exclude or (),
            storage_options=parse_storage_options(storage_option),
            whole_catalog=whole_catalog,
            dry_run=dry_run,
            journal=journal,
            progress=True,
        )
    _write(report, format_for(format, out), out)
    print(report, file=sys.stderr)
    exit_after(report.problems)


def _write(report: Report, format: Format, file: Path | None) -> None:
    """Writes the rows of a report to the file, or to standard output if `file` is None."""
    if format is Format.PARQUET:
        output.write_parquet(report.to_arrow(), file)
        return
    with output.open_text(file) as stream:
        if format is Format.JSON:
            stream.write(report.to_json() + "\n")
            return
        rows = [row.to_dict() for row in report.rows]
        columns = ["id", "outcome"] if format is Format.PLAIN else ["id", "outcome", "location", "reason"]
        output.write([{name: row[name] for name in columns} for row in rows], columns, format, stream)

"""The command `audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.common import (
    CommonOptions,
    FormatOrSuffix,
    Journal,
    Out,
    OutputFormat,
    StorageOptions,
    What,
    exit_after,
    require_tables,
    with_common_options,
)
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.parsing import parse_storage_options
from lance_ns_async.cli.selecting import hint_at_missing

FIXABLE = ("location-missing", "declared-only", "columns-differ", "unprotected", "not-external")
"""The kinds with a fix; the import of `audit_checks.KINDS` would take half a second."""
COLUMNS = ("id", "outcome", "severity", "reason", "fix", "location")


@with_common_options
def audit(
    on: CommonOptions,
    what: What,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix", metavar="KIND", help=f"Repair findings of this kind: {', '.join(FIXABLE)}. May be repeated."
        ),
    ] = None,
    data_under: Annotated[
        str | None,
        typer.Option("--data-under", metavar="URI", help="Also find tables below this folder that no table claims."),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also look for the files of each newest version, and read the ends of some.")
    ] = False,
    storage_option: StorageOptions = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Compare the catalog with the storage; never deletes data, and changes nothing without --fix.

    Reads only the manifests of tables; use --deep to find missing or damaged data files.
    """
    from lance_ns_async.fleet import sync

    with on.require().open() as catalog:
        report = sync.audit(
            catalog,
            what,
            fix=fix or (),
            data_under=data_under,
            deep=deep,
            storage_options=parse_storage_options(storage_option),
            progress=errors.shows_progress(),
        )
        hint_at_missing(catalog, what, report.problems)
    output.write_report(report, COLUMNS, format)
    require_tables(report.rows, report.counters.get("tables", 0), what)
    exit_after(report.problems)


@with_common_options
def discover(
    on: CommonOptions,
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
) -> None:
    """Find the Lance tables below a folder or bucket, and register those that the catalog does not have."""
    from lance_ns_async.fleet import sync
    from lance_ns_async.model import NamespaceId

    with on.require().open() as namespace:
        report = sync.discover(
            namespace,
            uri,
            into=NamespaceId(into),
            include=include or (),
            exclude=exclude or (),
            storage_options=parse_storage_options(storage_option),
            whole_catalog=whole_catalog,
            dry_run=dry_run,
            journal=journal,
            progress=errors.shows_progress(),
        )
    format = format_for(format, out)
    columns = ("id", "outcome") if format is Format.PLAIN else ("id", "outcome", "location", "reason")
    try:
        output.write_result(report, output.report_rows(report, format), columns, format, out)
    finally:
        errors.summarize(report, problems=report.problems)
    exit_after(report.problems)

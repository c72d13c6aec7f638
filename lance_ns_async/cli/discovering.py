"""The command `discover`."""

from __future__ import annotations

from typing import Annotated

import typer

from lance_ns_async.cli import messages, output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.options import FormatOrSuffix, Journal, Out, StorageOptions, exit_after
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.parsing import parse_storage_options


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
            progress=messages.shows_progress(),
        )
    format = format_for(format, out)
    columns = ("id", "outcome") if format is Format.PLAIN else ("id", "outcome", "location", "reason")
    try:
        output.write_result(report, output.report_rows(report, format), columns, format, out)
    finally:
        messages.summarize(report, problems=report.problems)
    exit_after(report.problems)

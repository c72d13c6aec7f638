"""The command `find`."""

from __future__ import annotations

from typing import Annotated

import typer

from lance_ns_async.cli import messages, output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.options import OutputFormat, What, exit_after, require_tables
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.parsing import parse_pair
from lance_ns_async.cli.selecting import hint_at_missing

COLUMNS = ("id", "outcome", "rows", "size", "versions", "last_write", "location", "reason")


@with_common_options
def find(
    on: CommonOptions,
    what: What,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="With this column: name, name:type or :type, e.g. 'vec:vector[768]'."),
    ] = None,
    min_rows: Annotated[int | None, typer.Option("--min-rows", help="Minimum number of rows.")] = None,
    max_rows: Annotated[int | None, typer.Option("--max-rows", help="Maximum number of rows.")] = None,
    min_size: Annotated[str | None, typer.Option("--min-size", help="Minimum size, e.g. 10GB.")] = None,
    max_size: Annotated[str | None, typer.Option("--max-size", help="Maximum size, e.g. 10GB.")] = None,
    min_versions: Annotated[int | None, typer.Option("--min-versions", help="Minimum number of versions.")] = None,
    older_than: Annotated[str | None, typer.Option("--older-than", help="Last write before, e.g. 30d.")] = None,
    newer_than: Annotated[str | None, typer.Option("--newer-than", help="Last write within, e.g. 12h.")] = None,
    index: Annotated[list[str] | None, typer.Option("--index", help="With an index of this column.")] = None,
    no_index: Annotated[list[str] | None, typer.Option("--no-index", help="Without an index of this column.")] = None,
    stale_index: Annotated[
        list[str] | None,
        typer.Option("--stale-index", help="With rows that an index of this column lacks; '*' is any column."),
    ] = None,
    property: Annotated[
        list[str] | None,
        typer.Option("--with-property", metavar="KEY=VALUE", help="With this property in the catalog."),
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", help="id, rows, size, versions, version or last_write; with - for descending.")
    ] = "id",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of tables.")] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Find tables by columns, rows, size, age, indexes and properties; opens each dataset once."""
    from lance_ns_async.fleet import Conditions, sync

    where = Conditions(
        columns=column or (),
        index=index or (),
        no_index=no_index or (),
        stale_index=stale_index or (),
        properties=dict(parse_pair("--with-property", text) for text in property or ()),
        min_rows=min_rows,
        max_rows=max_rows,
        min_size=min_size,
        max_size=max_size,
        min_versions=min_versions,
        older_than=older_than,
        newer_than=newer_than,
    )
    with on.require().open() as catalog:
        report = sync.find(catalog, what, where, sort=sort, limit=limit, progress=messages.shows_progress())
        hint_at_missing(catalog, what, report.problems)
    output.write_report(report, COLUMNS, format)
    require_tables(report.rows, report.counters.get("tables", 0), what)
    exit_after(report.problems)

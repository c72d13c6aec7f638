"""The command `search`."""

from __future__ import annotations

from typing import Annotated

import typer

from lance_ns_async.cli import messages, output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.options import FormatOrSuffix, Out, What, exit_after, require_tables
from lance_ns_async.cli.output import format_for
from lance_ns_async.cli.reading import Columns, Filter, Nearest, column_names, parse_vector
from lance_ns_async.cli.selecting import hint_at_missing


@with_common_options
def search(
    on: CommonOptions,
    what: What,
    vector: Nearest = None,
    full_text: Annotated[str | None, typer.Option("--text", help="The rows that match this text best.")] = None,
    column: Annotated[
        str | None, typer.Option("--on", metavar="COLUMN", help="Column of --nearest, if there are several.")
    ] = None,
    k: Annotated[int, typer.Option("--limit", "-n", min=1, help="Number of rows.")] = 10,
    filter: Filter = None,
    columns: Columns = None,
    timeout: Annotated[
        float | None, typer.Option("--within", metavar="SECONDS", help="Show what is found in this time.")
    ] = None,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Show the best rows of many tables, by vector, by text or by both."""
    if vector is None and full_text is None:
        raise Misuse("--nearest or --text: required; pass one of them, or both")
    with on.require().open() as catalog:
        ranked = catalog.search_many(
            what,
            vector=None if vector is None else parse_vector(vector),
            column=column,
            full_text=full_text,
            k=k,
            filter=filter,
            columns=column_names(columns),
            timeout=timeout,
            progress=messages.shows_progress(),
        )
        problems = [row for row in ranked.table_rows() if row.outcome in ranked.problem_outcomes]
        hint_at_missing(catalog, what, problems)
    require_tables(problems, len(ranked.searched), what)
    output.write_rows(ranked.rows, format_for(format, out), out)
    messages.summarize(ranked, problems=problems)
    exit_after(problems)

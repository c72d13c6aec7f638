"""Options that several commands have, and the exit codes that follow from their results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from lance_ns_async.cli.completing import complete_namespace, complete_table
from lance_ns_async.cli.errors import Code, say
from lance_ns_async.cli.output import Format

What = Annotated[
    list[str],
    typer.Argument(
        help="Ids and patterns of tables, e.g. 'prod.**'.", show_default=False, autocompletion=complete_table
    ),
]
NamespaceName = Annotated[
    str,
    typer.Argument(help="Id of the namespace, e.g. prod.sales.", show_default=False, autocompletion=complete_namespace),
]
TableName = Annotated[
    str,
    typer.Argument(
        help="Id of the table, e.g. prod.sales.orders, or a pattern that matches one.",
        show_default=False,
        autocompletion=complete_table,
    ),
]
NewTable = Annotated[str, typer.Argument(help="Id of the new table, e.g. prod.sales.orders.", show_default=False)]
TableNames = Annotated[
    list[str],
    typer.Argument(
        help="Ids and patterns of tables, e.g. prod.sales.orders or 'prod.sales.*'.",
        show_default=False,
        autocompletion=complete_table,
    ),
]
Version = Annotated[str | None, typer.Option("--version", help="Number of a version, or a tag; the latest by default.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")]
OutputFormat = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
ChangeFormat = Annotated[Format | None, typer.Option("--output", "-o", help="Output format; by default a sentence.")]
FormatOrSuffix = Annotated[
    Format | None, typer.Option("--output", "-o", help="Output format; by default that of the suffix of --out.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")]
Journal = Annotated[
    Path | None, typer.Option("--journal", metavar="FILE", help="Continue with this file if the run is stopped.")
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE|@FILE",
        help="Option of the storage, or a file of options; by default those of the catalog. May be repeated.",
    ),
]
Secrets = Annotated[bool, typer.Option("--show-secrets", help="Show storage options, including all secrets.")]


def exit_after(problems: object) -> None:
    """Ends the command with the exit code of a failure if there are problems."""
    if problems:
        raise typer.Exit(Code.FAILURE)


def require_tables(rows: object, tables: int, what: Iterable[str]) -> None:
    """Ends the command if ids and patterns have matched nothing, because a report without rows looks like success."""
    if not rows and not tables:
        say(f"no table matches {' '.join(map(repr, what))}; '**' also matches the tables of child namespaces")
        raise typer.Exit(Code.NOT_FOUND)

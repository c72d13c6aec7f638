"""The command `resolve`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.common import CommonOptions, FormatOrSuffix, Out, Secrets, exit_after, with_common_options
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.parsing import read_text

if TYPE_CHECKING:
    from lance_ns_async.model import TableId
    from lance_ns_async.spark import Locations


@with_common_options
def resolve(
    on: CommonOptions,
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Ids and patterns of tables, e.g. prod.sales.* or prod.**.", show_default=False),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", "-f", metavar="FILE", help="Read ids and patterns from a file, one per line; - is stdin."
        ),
    ] = None,
    format: FormatOrSuffix = None,
    out: Out = None,
    pin: Annotated[
        bool, typer.Option("--pin/--no-pin", help="Add versions and row counts; opens each dataset once.")
    ] = True,
    on_error: Annotated[
        Literal["report", "raise"],
        typer.Option("--on-error", help="Report tables that fail, or stop at the first one."),
    ] = "report",
    show_secrets: Secrets = False,
) -> None:
    """Resolve many tables concurrently to their locations and versions."""
    from lance_ns_async.spark import LocationResolver

    targets = _read_targets(what or (), from_file)
    catalog = on.require()
    with LocationResolver.connect(catalog.impl, catalog.properties) as resolver:
        locations = resolver.prefetch(targets, pin_versions=pin, on_error=on_error)
    _write(locations, format_for(format, out), out, secrets=show_secrets)
    errors.summarize(locations.report, problems=locations.report.problems)
    exit_after(locations.report.problems)


def _read_targets(arguments: Sequence[str], file: Path | None) -> Sequence[str | TableId]:
    """Returns the ids and patterns in the arguments and in the file; the file `-` is standard input."""
    from lance_ns_async.model import TableId, is_pattern

    texts = list(arguments)
    if file is not None:
        content = sys.stdin.read() if str(file) == "-" else read_text(file, str(file))
        texts += (line for line in map(str.strip, content.splitlines()) if line and not line.startswith("#"))
    elif not texts:
        raise Misuse("no ids: pass ids or patterns, or --from-file")
    return [text if is_pattern(text) else TableId(text) for text in texts]


def _write(locations: Locations, format: Format, file: Path | None, *, secrets: bool) -> None:
    """Writes the locations to the file, or to standard output if `file` is None."""
    if format is Format.PARQUET:
        output.write_parquet(locations.to_arrow(secrets=secrets), file)
        return
    with output.open_text(file) as stream:
        if format is Format.JSON:
            # `Locations.from_json` can read this form, for a Spark job that starts later.
            stream.write(locations.to_json(secrets=secrets) + "\n")
            return
        table = locations.to_arrow(secrets=secrets)
        match format:
            case Format.PLAIN:
                columns = ["id", "location"]
            case Format.TABLE:
                # In this form, duplicate columns and columns without any value are omitted.
                columns = [
                    name for name in table.column_names if name != "names" and table[name].null_count < len(table)
                ]
            case _:
                columns = table.column_names
        output.write(table.to_pylist(maps_as_pydicts="strict"), columns, format, stream)

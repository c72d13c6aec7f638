"""The commands `head`, `count` and `query`: rows of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.options import FormatOrSuffix, Out, TableName, Version, parse_version, read_text
from lance_ns_async.cli.output import format_for
from lance_ns_async.cli.selecting import open_table

Columns = Annotated[
    str | None, typer.Option("--columns", "-c", metavar="NAME,...", help="Only these columns.", show_default=False)
]
Filter = Annotated[
    str | None, typer.Option("--filter", "-f", metavar="SQL", help="Only rows that match, e.g. 'price > 10'.")
]


@with_common_options
def head(
    on: CommonOptions,
    table: TableName,
    number: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 10,
    columns: Columns = None,
    version: Version = None,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Show the first rows of a table."""
    names = _names(columns)
    with open_table(on, table) as (catalog, id):
        dataset = catalog.open(id, version=parse_version(version))
        missing = [name for name in names or () if name not in dataset.schema.names]
        if missing:
            raise Misuse(f"--columns {missing[0]}: no such column; the table has {', '.join(dataset.schema.names)}")
        rows = dataset.to_table(columns=names, limit=number)
    output.write_rows(rows, format_for(format, out), out)


@with_common_options
def count(on: CommonOptions, table: TableName, filter: Filter = None) -> None:
    """Count the rows of a table, or those that match a filter."""
    with open_table(on, table) as (catalog, id):
        print(catalog.count_table_rows({"id": list(id), "predicate": filter}).count)


@with_common_options
def query(
    on: CommonOptions,
    table: TableName,
    filter: Filter = None,
    nearest: Annotated[
        str | None,
        typer.Option("--nearest", metavar="NUMBER,...|@FILE", help="The rows nearest to this vector; a file has JSON."),
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="The rows that match this text best.")] = None,
    on_column: Annotated[
        str | None, typer.Option("--on", metavar="COLUMN", help="Column of --nearest or --text, if there are several.")
    ] = None,
    columns: Columns = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 10,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Show rows of a table: the first that match a filter, or the best of a search by vector or text."""
    import pyarrow as pa

    if nearest is not None and text is not None:
        raise Misuse("--nearest and --text: use one of them")
    request: dict[str, Any] = {
        "k": limit,
        "vector": {"single_vector": _vector(nearest)},
        "filter": filter,
        "prefilter": True,
    }
    if (names := _names(columns)) is not None:
        request["columns"] = {"column_names": names}
    if nearest is not None:
        request["vector_column"] = on_column
    if text is not None:
        request["full_text_query"] = {"string_query": {"query": text, "columns": [on_column] if on_column else None}}
    with open_table(on, table) as (catalog, id):
        answer = catalog.query_table({"id": list(id), **request}).data
    output.write_rows(pa.ipc.open_file(answer).read_all(), format_for(format, out), out)


def _names(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",")]


def _vector(text: str | None) -> list[float]:
    """Returns the vector in an option; none for no option."""
    if text is None:
        return []
    content = read_text(Path(text[1:]), f"--nearest {text}") if text.startswith("@") else f"[{text}]"
    try:
        return [float(it) for it in json.loads(content)]
    except (ValueError, TypeError) as error:
        raise Misuse("--nearest: must be numbers with commas between them, or a file with a JSON list") from error

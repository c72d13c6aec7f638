"""The commands `head`, `count`, `query` and `search`: rows of a table, or of many."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import lance_namespace.errors as err
from typer import Option

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.errors import Misuse, hint
from lance_ns_async.cli.options import (
    Branch,
    CommonOptions,
    FormatOrSuffix,
    Out,
    TableName,
    Version,
    What,
    exit_after,
    require_tables,
)
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.parsing import read_text
from lance_ns_async.cli.selecting import find_version, hint_at_missing, open_table

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_ns_async import Namespace


_SHOWN, _ALL = 10, 2**31 - 1  # Maximum number of rows on a terminal, and in a file.

Columns = Annotated[str | None, Option("--columns", "-c", metavar="NAME,...", help="Only these columns.")]
Filter = Annotated[str | None, Option("--filter", "-f", metavar="SQL", help="Only rows that match, e.g. 'price > 10'.")]

Nearest = Annotated[
    str | None,
    Option("--nearest", metavar="NUMBER,...|@FILE", help="The rows nearest to this vector; a file has JSON."),
]
Text = Annotated[str | None, Option("--text", help="The rows that match this text best.")]


def head(
    on: CommonOptions,
    table: TableName,
    number: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 10,
    columns: Columns = None,
    version: Version = None,
    branch: Branch = None,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Show the first rows of a table."""
    names = _column_names(columns)
    with open_table(on.require(), table) as (catalog, id):
        rows = _query(catalog, find_version(catalog, id, version, branch), number, names)
    output.write_table(rows, format_for(format, out), out)


def count(
    on: CommonOptions,
    table: TableName,
    filter: Filter = None,
    version: Version = None,
    branch: Branch = None,
    format: Annotated[
        Format | None, Option("--output", "-o", help="Output format; by default only the number.")
    ] = None,
) -> None:
    """Count the rows of a table, or those that match a filter."""
    with open_table(on.require(), table) as (catalog, id), _advising(filter):
        request = find_version(catalog, id, version, branch)
        rows = catalog.count_table_rows({**request, "predicate": filter}).count
    if format is None:
        print(rows)
    else:
        output.write([{"id": str(id), "names": list(id), "rows": rows}], ("id", "rows"), format)


def query(
    on: CommonOptions,
    table: TableName,
    filter: Filter = None,
    nearest: Nearest = None,
    text: Text = None,
    vector_column: Annotated[
        str | None, Option("--on", metavar="COLUMN", help="Column of --nearest or --text, if there are several.")
    ] = None,
    columns: Columns = None,
    limit: Annotated[
        int | None, Option("--limit", "-n", min=1, help="Maximum number of rows; by default 10, or with --out all.")
    ] = None,
    version: Version = None,
    branch: Branch = None,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Show rows of a table: the first that match a filter, or the best of a search by vector or text."""
    if nearest is not None and text is not None:
        raise Misuse("--nearest and --text: use one of them, or both with lance-ns search")
    request: dict[str, Any] = {
        "vector": {"single_vector": [] if nearest is None else _parse_vector(nearest)},
        "filter": filter,
        "prefilter": True,
    }
    if nearest is not None:
        request["vector_column"] = vector_column
    if text is not None:
        request["full_text_query"] = {
            "string_query": {"query": text, "columns": [vector_column] if vector_column else None}
        }
    is_search = nearest is not None or text is not None
    is_cut = limit is None and out is None and not is_search
    # One more row shows that there are more.
    most = limit or (_SHOWN + is_cut if out is None or is_search else _ALL)
    with open_table(on.require(), table) as (catalog, id), _advising(filter):
        place = find_version(catalog, id, version, branch)
        rows = _query(catalog, place, most, _column_names(columns), **request)
    output.write_table(rows.slice(0, most - is_cut), format_for(format, out), out)
    if is_cut and rows.num_rows > _SHOWN:
        hint(f"the first {_SHOWN} rows; --limit shows more")


def _query(
    catalog: Namespace, place: Mapping[str, Any], limit: int, columns: list[str] | None, **request: Any
) -> pa.Table:
    import pyarrow as pa

    selection = {} if columns is None else {"columns": {"column_names": columns}}
    fields = {**place, "k": limit, "vector": {"single_vector": []}, **selection, **request}
    try:
        answer = catalog.query_table(fields)
    except err.TableColumnNotFoundError:
        there = catalog.open(place["id"], version=place["version"], branch=place["branch"]).schema.names
        if missing := [name for name in columns or () if name not in there]:
            raise Misuse(f"--columns {missing[0]}: no such column; the table has {', '.join(there)}") from None
        raise
    return pa.ipc.open_file(answer.data).read_all()


@contextmanager
def _advising(filter: str | None) -> Iterator[None]:
    """Adds advice about quotes to the error of an unknown column in a filter."""
    try:
        yield
    except err.TableColumnNotFoundError as error:
        if filter is not None and "Did you mean" not in str(error):
            error.add_note("text in a filter needs single quotes, such as \"name = 'ann'\"")
        raise


def _column_names(columns: str | None) -> list[str] | None:
    """Returns the names in the option `--columns`."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def _parse_vector(text: str) -> list[float]:
    """Returns the vector in the option `--nearest`."""
    try:
        if not text.startswith("@"):
            return [float(it) for it in text.strip("[] ").split(",")]
        return [float(it) for it in json.loads(read_text(Path(text[1:]), f"--nearest {text}"))]
    except (ValueError, TypeError) as error:
        raise Misuse("--nearest: must be numbers with commas between them, or a file with a JSON list") from error


def search(
    on: CommonOptions,
    what: What,
    vector: Nearest = None,
    full_text: Text = None,
    column: Annotated[
        str | None, Option("--on", metavar="COLUMN", help="Column of --nearest, if there are several.")
    ] = None,
    k: Annotated[int, Option("--limit", "-n", min=1, help="Number of rows.")] = 10,
    filter: Filter = None,
    columns: Columns = None,
    timeout: Annotated[
        float | None, Option("--within", metavar="SECONDS", help="Show what is found in this time.")
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
            vector=None if vector is None else _parse_vector(vector),
            column=column,
            full_text=full_text,
            k=k,
            filter=filter,
            columns=_column_names(columns),
            timeout=timeout,
            progress=errors.shows_progress(),
        )
        problems = [row for row in ranked.table_rows() if row.outcome in ranked.problem_outcomes]
        hint_at_missing(catalog, what, problems)
    require_tables(problems, len(ranked.searched), what)
    output.write_table(ranked.rows, format_for(format, out), out)
    errors.summarize(ranked, problems=problems)
    exit_after(problems)

"""The commands `ls` and `describe`: ids as the catalog returns them, locations, and single tables."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.common import (
    CommonOptions,
    OutputFormat,
    Secrets,
    TableName,
    Version,
    What,
    exit_after,
    require_tables,
    with_common_options,
)
from lance_ns_async.cli.completing import complete_namespace
from lance_ns_async.cli.errors import counted, hint, say
from lance_ns_async.cli.output import Format, OutputRow
from lance_ns_async.cli.parsing import parse_pair
from lance_ns_async.cli.selecting import find_version, hint_at_missing, match_namespaces, match_tables, open_table

if TYPE_CHECKING:
    from lance_namespace.errors import LanceNamespaceError

    from lance_ns_async import Namespace
    from lance_ns_async.model import NamespaceId, TableId


_GROUP = 5_000  # Number of tables that are located together: enough for concurrency, but few enough for early output.

MASK = "***"
"""The value that replaces storage options, which may be secrets."""


@with_common_options
def ls(
    on: CommonOptions,
    namespace: Annotated[
        str,
        typer.Argument(
            help="Namespace or pattern to list, e.g. prod.sales or 'prod.*.orders'; the root by default.",
            show_default=False,
            autocompletion=complete_namespace,
        ),
    ] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Include all child namespaces.")] = False,
    namespaces: Annotated[bool, typer.Option("--namespaces", "-n", help="List namespaces instead of tables.")] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show the locations.")] = False,
    format: OutputFormat = Format.PLAIN,
) -> None:
    """List the tables or namespaces in a namespace, or those that match a pattern, one per line, as they arrive."""
    write_listing(on, namespace, recursive=recursive, namespaces=namespaces, long=long, format=format)


def write_listing(
    on: CommonOptions, where: str, *, recursive: bool, namespaces: bool, long: bool, format: Format
) -> None:
    """Writes the tables or namespaces in a namespace, or those that match a pattern; see `ls`."""
    from lance_ns_async.model import NamespaceId, is_pattern

    pattern = is_pattern(where)
    start = NamespaceId() if pattern else NamespaceId(where)
    kind = "namespace" if namespaces else "table"
    failures: list[LanceNamespaceError] = []
    chosen = on.require()
    with chosen.open(start) as catalog:
        ids = _ids(catalog, start, where if pattern else None, recursive=recursive, namespaces=namespaces)
        long = long and not namespaces
        rows = _located(catalog, ids, failures) if long else ({"id": str(id), "names": list(id)} for id in ids)
        # The listing is closed explicitly, because a partly read one would outlive its catalog.
        with closing(rows):
            count = output.write(counted(rows, f"{kind}s"), ("id", "location") if long else ("id",), format, sys.stdout)
        if not count:
            chosen.check_root()
        if not count and pattern:
            hint(f"no {kind} matches {where!r}")
        elif not count and recursive and not namespaces:
            hint(f"no tables in {where or 'the root'} and the namespaces below it")
        elif not (count or namespaces):
            page = catalog.list_namespaces({"id": list(start), "limit": 1})
            more = "; use -r to include child namespaces, -n to list namespaces"
            hint(f"no tables in {where or 'the root'}{more if page.namespaces else ', and no namespaces'}")
    exit_after(failures)


def _ids(
    catalog: Namespace, start: NamespaceId, pattern: str | None, *, recursive: bool, namespaces: bool
) -> Iterator[Any]:
    if pattern is not None:
        return match_namespaces(catalog, pattern) if namespaces else iter(match_tables(catalog, pattern))
    if namespaces:
        return catalog.iter_namespaces(start, recursive=recursive)
    return catalog.iter_tables(start, recursive=recursive)


def _located(
    catalog: Namespace, ids: Iterator[TableId], failures: list[LanceNamespaceError]
) -> Generator[OutputRow, None, None]:
    """Yields a row for each table, as soon as it is located; adds tables without location to `failures`."""
    while group := list(islice(ids, _GROUP)):
        result = catalog.describe_tables(group)
        for id in group:
            if id in result.tables:
                yield {"id": str(id), "names": list(id), "location": result.tables[id].location}
        for error in result.errors.values():
            say(str(error))
            failures.append(error)


@with_common_options
def describe(
    on: CommonOptions,
    table: TableName,
    version: Annotated[int | None, typer.Option("--version", help="Describe this version; opens the dataset.")] = None,
    details: Annotated[
        bool, typer.Option("--details", "-d", help="Show schema and statistics; opens the dataset.")
    ] = False,
    show_secrets: Secrets = False,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Describe a table: its location, properties and storage options."""
    from lance_namespace import DescribeTableRequest

    with open_table(on, table) as (catalog, id):
        request = DescribeTableRequest(
            id=list(id), version=version, with_table_uri=True, load_detailed_metadata=details
        )
        description = catalog.describe_table(request).model_dump(by_alias=True, exclude_none=True)
    options = description.get("storage_options")
    if options and not show_secrets:
        # Only the storage defines which options are secret, so all values are hidden; the names show which are set.
        description["storage_options"] = dict.fromkeys(options, MASK)
    fields = {key: value for key, value in description.items() if value not in ({}, [])}
    output.write_object({"id": str(id), "names": list(id), **fields}, format)


@with_common_options
def schema(on: CommonOptions, table: TableName, version: Version = None, format: OutputFormat = Format.TABLE) -> None:
    """Show the columns of a table and their types; opens the dataset."""
    with open_table(on, table) as (catalog, id):
        fields = list(catalog.open(id, version=find_version(catalog, id, version)).schema)
    rows = [{"column": it.name, "type": str(it.type), "nullable": it.nullable} for it in fields]
    output.write(rows, ("column", "type", "nullable"), format, sys.stdout)


@with_common_options
def versions(
    on: CommonOptions,
    table: TableName,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of versions.")] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """List the versions of a table, the newest first."""
    with open_table(on, table) as (catalog, id):
        response = catalog.list_table_versions({"id": list(id), "limit": limit, "descending": True})
    rows = [{"version": it.version, "created": _time(it.timestamp_millis)} for it in response.versions]
    output.write(rows, ("version", "created"), format, sys.stdout)


@with_common_options
def tags(on: CommonOptions, table: TableName, format: OutputFormat = Format.TABLE) -> None:
    """List the tags of a table."""
    with open_table(on, table) as (catalog, id):
        response = catalog.list_table_tags({"id": list(id)})
    rows = [{"tag": name, "version": it.version, "branch": it.branch} for name, it in response.tags.items()]
    output.write(rows, ("tag", "version", "branch"), format, sys.stdout)


@with_common_options
def indices(on: CommonOptions, table: TableName, format: OutputFormat = Format.TABLE) -> None:
    """List the indexes of a table, and how many rows they cover."""
    with open_table(on, table) as (catalog, id):
        response = catalog.list_table_indices({"id": list(id)})
    rows = [
        {
            "index": it.index_name,
            "type": it.index_type,
            "columns": ", ".join(it.columns),
            "rows": it.num_indexed_rows,
            "rows without": it.num_unindexed_rows,
        }
        for it in response.indexes
    ]
    output.write(rows, ("index", "type", "columns", "rows", "rows without"), format, sys.stdout)


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "seconds")


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
        report = sync.find(catalog, what, where, sort=sort, limit=limit, progress=errors.shows_progress())
        hint_at_missing(catalog, what, report.problems)
    output.write_report(report, COLUMNS, format)
    require_tables(report.rows, report.counters.get("tables", 0), what)
    exit_after(report.problems)

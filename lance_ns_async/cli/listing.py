"""The commands `ls` and `describe`: ids as the catalog returns them, locations, and single tables."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.completing import complete_namespace
from lance_ns_async.cli.messages import counted, hint, say
from lance_ns_async.cli.options import OutputFormat, Secrets, TableName, exit_after
from lance_ns_async.cli.output import Format, OutputRow
from lance_ns_async.cli.selecting import match_namespaces, match_tables, open_table

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

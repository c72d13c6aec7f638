"""The commands `ls` and `describe`: ids as the catalog returns them, locations, and single tables."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.completing import complete_namespace
from lance_ns_async.cli.messages import hint, say
from lance_ns_async.cli.options import OutputFormat, Secrets, TableName, exit_after
from lance_ns_async.cli.output import Format, OutputRow

if TYPE_CHECKING:
    from lance_namespace.errors import LanceNamespaceError

    from lance_ns_async import Namespace
    from lance_ns_async.model import NamespaceId

_GROUP = 5_000
"""Number of tables that are located together: enough for concurrency, but few enough for early output."""

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
    """List the tables or namespaces in a namespace, one per line, as they arrive."""
    from lance_ns_async.model import NamespaceId

    columns = ("id", "location") if long and not namespaces else ("id",)
    failures: list[LanceNamespaceError] = []
    start = NamespaceId.parse(namespace)
    chosen = on.require()
    with chosen.open(start) as catalog:
        # The listing is closed explicitly, because a partly read one would outlive its catalog.
        with closing(_rows(catalog, start, recursive, namespaces, long, failures)) as rows:
            count = output.write(rows, columns, format, sys.stdout)
        if not count:
            chosen.check_root()
        if not count and not (recursive or namespaces):
            page = catalog.list_namespaces({"id": list(start), "limit": 1})
            more = "; use -r to include child namespaces, -n to list namespaces"
            hint(f"no tables in {namespace or 'the root'}{more if page.namespaces else ', and no namespaces'}")
    exit_after(failures)


def _rows(
    catalog: Namespace,
    start: NamespaceId,
    recursive: bool,
    namespaces: bool,
    long: bool,
    failures: list[LanceNamespaceError],
) -> Generator[OutputRow, None, None]:
    """Yields a row for each namespace or table, as soon as it is known; adds tables without location to `failures`."""
    if namespaces:
        yield from ({"id": str(id)} for id in catalog.iter_namespaces(start, recursive=recursive))
        return
    tables = catalog.iter_tables(start, recursive=recursive)
    if not long:
        yield from ({"id": str(id)} for id in tables)
        return
    while group := list(islice(tables, _GROUP)):
        result = catalog.describe_tables(group)
        yield from ({"id": str(id), "location": result.tables[id].location} for id in group if id in result.tables)
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

    from lance_ns_async.model import TableId

    id = TableId.parse(table)
    request = DescribeTableRequest(id=list(id), version=version, with_table_uri=True, load_detailed_metadata=details)
    with on.require().open(id) as catalog:
        description = catalog.describe_table(request).model_dump(by_alias=True, exclude_none=True)
    options = description.get("storage_options")
    if options and not show_secrets:
        # Only the storage defines which options are secret, so all values are hidden; the names show which are set.
        description["storage_options"] = dict.fromkeys(options, MASK)
    fields = {key: value for key, value in description.items() if value not in ({}, [])}
    output.write_object({"id": str(id), **fields}, format)

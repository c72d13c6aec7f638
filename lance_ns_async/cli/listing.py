"""The commands that list and describe tables and namespaces: ids as the catalog returns them, locations, and parts."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import lance_namespace.errors as err
from typer import Argument, Option

from lance_ns_async.cli import output
from lance_ns_async.cli.errors import hint, say, show_count
from lance_ns_async.cli.options import (
    Branch,
    CommonOptions,
    NamespaceName,
    OutputFormat,
    Secrets,
    TableName,
    Version,
    exit_after,
)
from lance_ns_async.cli.output import Format, OutputRow
from lance_ns_async.cli.selecting import complete_namespace, find_version, match_namespaces, match_tables, open_table
from lance_ns_async.model import NamespaceId, is_pattern

if TYPE_CHECKING:
    from lance import LanceDataset

    from lance_ns_async import Namespace
    from lance_ns_async.model import TableId


_GROUP = 5_000  # Number of tables that are located together: enough for concurrency, but few enough for early output.

_DETAILS = ("schema", "stats", "metadata", "is_only_declared")  # Fields of a description with details.

MASK = "***"
"""The value that replaces storage options, which may be secrets."""


def ls(
    on: CommonOptions,
    namespace: Annotated[
        str,
        Argument(
            help="Namespace or pattern to list, e.g. prod.sales or 'prod.*.orders'; the root by default.",
            autocompletion=complete_namespace,
        ),
    ] = "",
    recursive: Annotated[bool, Option("--recursive", "-r", help="Include all child namespaces.")] = False,
    namespaces: Annotated[bool, Option("--namespaces", "-n", help="List namespaces instead of tables.")] = False,
    long: Annotated[bool, Option("--long", "-l", help="Show the locations.")] = False,
    format: OutputFormat = Format.PLAIN,
) -> None:
    """List the tables or namespaces in a namespace, or those that match a pattern, one per line, as they arrive."""
    _write_listing(on, namespace, recursive=recursive, namespaces=namespaces, long=long, format=format)


def list_namespaces(
    on: CommonOptions,
    namespace: Annotated[
        str, Argument(help="Namespace or pattern to list; the root by default.", autocompletion=complete_namespace)
    ] = "",
    recursive: Annotated[bool, Option("--recursive", "-r", help="Include all namespaces below.")] = False,
    format: OutputFormat = Format.PLAIN,
) -> None:
    """List namespaces, one per line, as they arrive."""
    _write_listing(on, namespace, recursive=recursive, namespaces=True, long=False, format=format)


def _write_listing(
    on: CommonOptions, where: str, *, recursive: bool, namespaces: bool, long: bool, format: Format
) -> None:
    pattern = where if is_pattern(where) else None
    start = NamespaceId() if pattern else NamespaceId(where)
    kind = "namespace" if namespaces else "table"
    failures: list[err.LanceNamespaceError] = []
    chosen = on.require()
    with chosen.open(start) as catalog:
        ids = _ids(catalog, start, pattern, recursive=recursive, namespaces=namespaces)
        long = long and not namespaces
        rows = _located(catalog, ids, failures) if long else ({"id": str(id), "names": list(id)} for id in ids)
        # The listing is closed explicitly, because a partly read one would outlive its catalog.
        with closing(rows):
            count = output.write(show_count(rows, f"{kind}s"), ("id", "location") if long else ("id",), format)
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
    catalog: Namespace, ids: Iterator[TableId], failures: list[err.LanceNamespaceError]
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


def describe(
    on: CommonOptions,
    table: TableName,
    version: Version = None,
    branch: Branch = None,
    details: Annotated[bool, Option("--details", "-d", help="Show also the schema and statistics.")] = False,
    show_secrets: Secrets = False,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Describe a table: its version, rows, size in bytes, columns, location, properties and storage options."""
    with open_table(on.require(), table) as (catalog, id):
        request = find_version(catalog, id, version, branch)
        response = catalog.describe_table({**request, "load_detailed_metadata": details})
        description = response.model_dump(by_alias=True, exclude_none=True)
        facts = _read_facts(catalog, request)
    options = description.get("storage_options")
    if options and not show_secrets:
        # Only the storage defines which options are secret, so all values are hidden; the names show which are set.
        description["storage_options"] = dict.fromkeys(options, MASK)
    # A description of a version or a branch has all details.
    hidden = ("table", "namespace", *(_DETAILS if (version or branch) and not details else ()))
    fields = {key: it for key, it in description.items() if it not in ({}, []) and key not in hidden}
    output.write_object({"id": str(id), "names": list(id), **facts, **fields}, format)


def _read_facts(catalog: Namespace, place: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the data of a table says about it; nothing, after a hint, if it cannot be read. Cost: one open."""
    from lance_ns_async.storage.datasets import Snapshot, Totals

    def read(dataset: LanceDataset, _: object) -> dict[str, Any]:
        totals = Totals.read(dataset)
        return {"version": dataset.version, "rows": totals.rows, "size": totals.size, "columns": dataset.schema.names}

    snapshot = Snapshot(place["version"], branch=place["branch"])
    try:
        return catalog.run(lambda client: client.session.read(place["id"], read, snapshot))
    except err.LanceNamespaceError as error:
        hint(f"its rows are unknown: {error}")
        return {}


def describe_namespace(on: CommonOptions, namespace: NamespaceName, format: OutputFormat = Format.TABLE) -> None:
    """Show the properties of a namespace."""
    id = NamespaceId(namespace)
    with on.require().open(id) as catalog:
        properties = catalog.describe_namespace({"id": list(id)}).properties
    output.write_object({"id": str(id), "names": list(id), "properties": properties or {}}, format)


def schema(
    on: CommonOptions,
    table: TableName,
    version: Version = None,
    branch: Branch = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Show the columns of a table and their types; opens the dataset."""
    with open_table(on.require(), table) as (catalog, id):
        place = find_version(catalog, id, version, branch)
        fields = list(catalog.open(id, version=place["version"], branch=place["branch"]).schema)
    rows = [{"column": it.name, "type": str(it.type), "nullable": it.nullable} for it in fields]
    output.write(rows, ("column", "type", "nullable"), format)


def partitions(
    on: CommonOptions,
    where: Annotated[str | None, Argument(help="Condition in Lance's SQL, e.g. \"region = 'EU'\".")] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """List the partitions of a directory that may have rows which match a condition."""
    with on.require().open(NamespaceId()) as catalog:
        rows = [
            {"values": dict(it.values), "spec": it.spec_version, "id": str(it.id), "location": it.location}
            for it in catalog.list_partitions(where)
        ]
    if not output.write(show_count(iter(rows), "partitions"), ("values", "spec", "id"), format):
        hint("no partition may have such rows" if where else "no partitions yet")

"""The commands `schema`, `versions`, `tags` and `indices`: what a table consists of."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.options import OutputFormat, TableName, Version
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.selecting import find_version, open_table


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

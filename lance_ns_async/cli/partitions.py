"""The command `partitions`: the partitions of a directory, and those that a condition leaves."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.messages import counted, hint
from lance_ns_async.cli.options import OutputFormat
from lance_ns_async.cli.output import Format
from lance_ns_async.model import NamespaceId


@with_common_options
def partitions(
    on: CommonOptions,
    where: Annotated[
        str | None, typer.Argument(help="Condition in Lance's SQL, e.g. \"region = 'EU'\".", show_default=False)
    ] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """List the partitions of a directory that may have rows which match a condition."""
    chosen = on.require()
    with chosen.open(NamespaceId()) as catalog:
        rows = [
            {"values": dict(it.values), "spec": it.spec_version, "id": str(it.id), "location": it.location}
            for it in catalog.list_partitions(where)
        ]
    if not output.write(counted(iter(rows), "partitions"), ("values", "spec", "id"), format, sys.stdout):
        hint("no partition may have such rows" if where else "no partitions yet")

"""The commands below `ns`: namespaces."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.changing import ask
from lance_ns_async.cli.common import ChangeFormat, CommonOptions, NamespaceName, OutputFormat, Yes, with_common_options
from lance_ns_async.cli.completing import complete_namespace
from lance_ns_async.cli.errors import counted, hint
from lance_ns_async.cli.groups import Command, Group
from lance_ns_async.cli.listing import write_listing
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.parsing import parse_pair
from lance_ns_async.model import NamespaceId

ns: typer.Typer = typer.Typer(
    cls=Group, help="List, describe, create and drop namespaces.", rich_markup_mode=None, no_args_is_help=True
)


@ns.command("ls", cls=Command)
@with_common_options
def ls(
    on: CommonOptions,
    namespace: Annotated[
        str,
        typer.Argument(
            help="Namespace or pattern to list; the root by default.",
            show_default=False,
            autocompletion=complete_namespace,
        ),
    ] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Include all namespaces below.")] = False,
    format: OutputFormat = Format.PLAIN,
) -> None:
    """List namespaces, one per line, as they arrive."""
    write_listing(on, namespace, recursive=recursive, namespaces=True, long=False, format=format)


@ns.command(cls=Command)
@with_common_options
def describe(on: CommonOptions, namespace: NamespaceName, format: OutputFormat = Format.TABLE) -> None:
    """Show the properties of a namespace."""
    from lance_ns_async.model import NamespaceId

    id = NamespaceId(namespace)
    with on.require().open(id) as catalog:
        properties = catalog.describe_namespace({"id": list(id)}).properties
    output.write_object({"id": str(id), "names": list(id), "properties": properties or {}}, format)


@ns.command(cls=Command)
@with_common_options
def create(
    on: CommonOptions,
    namespace: NamespaceName,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Succeed if the namespace exists.")] = False,
    set_property: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Property of the namespace; may be repeated.")
    ] = None,
    format: ChangeFormat = None,
) -> None:
    """Create a namespace."""
    from lance_ns_async.model import NamespaceId

    id = NamespaceId(namespace)
    properties = dict(parse_pair("--set", text) for text in set_property or ())
    mode = "ExistOk" if exist_ok else "Create"
    with on.require().open() as catalog, output.tell_changes(format) as tell:
        catalog.create_namespace({"id": list(id), "mode": mode, "properties": properties or None})
        tell(f"created {id}", id, "created")


@ns.command(cls=Command)
@with_common_options
def drop(
    on: CommonOptions,
    namespace: NamespaceName,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Remove also the registrations in it, after a question; data stays.")
    ] = False,
    yes: Yes = False,
    format: ChangeFormat = None,
) -> None:
    """Drop an empty namespace."""
    from lance_ns_async.model import NamespaceId

    id = NamespaceId(namespace)
    if cascade:
        ask(f"Drop {id}, and remove all registrations in it?", yes, look_first=f"lance-ns ls -r {shlex.quote(str(id))}")
    with on.require().open(id) as catalog, output.tell_changes(format) as tell:
        catalog.drop_namespace({"id": list(id), "behavior": "Cascade" if cascade else "Restrict"})
        tell(f"dropped {id}", id, "dropped")


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

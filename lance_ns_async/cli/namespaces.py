"""The commands below `ns`: namespaces."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.catalog import CatalogOptions, with_catalog
from lance_ns_async.cli.changing import ask
from lance_ns_async.cli.options import OutputFormat, Yes, parse_pair
from lance_ns_async.cli.output import Format

ns: typer.Typer = typer.Typer(help="List, describe, create and drop namespaces.", no_args_is_help=True)

NamespaceName = Annotated[str, typer.Argument(help="Id of the namespace, e.g. prod.sales.", show_default=False)]


@ns.command("ls")
@with_catalog
def ls(
    on: CatalogOptions,
    namespace: Annotated[str, typer.Argument(help="Namespace to list; the root by default.", show_default=False)] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Include all namespaces below.")] = False,
    format: OutputFormat = Format.PLAIN,
) -> None:
    """List namespaces, one per line, as they arrive."""
    from lance_ns_async.model import NamespaceId

    start = NamespaceId.parse(namespace)
    chosen = on.require()
    with chosen.open(start) as catalog:
        rows = ({"id": str(id)} for id in catalog.iter_namespaces(start, recursive=recursive))
        if not output.write(rows, ("id",), format, sys.stdout):
            chosen.check_root()


@ns.command()
@with_catalog
def describe(on: CatalogOptions, namespace: NamespaceName, format: output.ObjectFormat = "table") -> None:
    """Show the properties of a namespace."""
    from lance_ns_async.model import NamespaceId

    id = NamespaceId.parse(namespace)
    with on.require().open(id) as catalog:
        properties = catalog.describe_namespace({"id": list(id)}).properties
    output.write_object({"id": str(id), "properties": properties or {}}, format)


@ns.command()
@with_catalog
def create(
    on: CatalogOptions,
    namespace: NamespaceName,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Succeed if the namespace exists.")] = False,
    set_property: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Property of the namespace; may be repeated.")
    ] = None,
) -> None:
    """Create a namespace."""
    from lance_ns_async.model import NamespaceId

    id = NamespaceId.parse(namespace)
    properties = dict(parse_pair("--set", text) for text in set_property or ())
    mode = "ExistOk" if exist_ok else "Create"
    with on.require().open() as catalog:
        catalog.create_namespace({"id": list(id), "mode": mode, "properties": properties or None})
    output.tell(f"created {id}")


@ns.command()
@with_catalog
def drop(
    on: CatalogOptions,
    namespace: NamespaceName,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Remove also the registrations in it, after a question; data stays.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Drop an empty namespace."""
    from lance_ns_async.model import NamespaceId

    id = NamespaceId.parse(namespace)
    if cascade:
        ask(f"Drop {id}, and remove all registrations in it?", yes, look_first=f"lance-ns ls -r {shlex.quote(str(id))}")
    with on.require().open(id) as catalog:
        catalog.drop_namespace({"id": list(id), "behavior": "Cascade" if cascade else "Restrict"})
    output.tell(f"dropped {id}")

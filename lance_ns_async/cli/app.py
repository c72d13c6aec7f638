"""The application `lance-ns`: its commands, which have a module each, and the options of all of them."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from lance_ns_async.cli import (
    auditing,
    changing,
    copying,
    discovering,
    doctor,
    finding,
    inspecting,
    listing,
    maintaining,
    namespaces,
    reading,
    resolving,
    serving,
)
from lance_ns_async.cli.catalog import CatalogOptions, with_catalog
from lance_ns_async.cli.errors import Code, ScriptGroup

app: typer.Typer = typer.Typer(
    cls=ScriptGroup,
    help="List, read, change, resolve, discover, copy, maintain and serve the Lance tables of a catalog.",
    epilog="Exit codes: 0 success, 1 some items failed, 2 usage, 3 not found, 4 denied, 5 "
    "unavailable, 70 internal error, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        print(version("lance-ns-async"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
@with_catalog
def common(
    on: CatalogOptions,
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print tracebacks of errors, and a line for each remote call.")
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Applies the options of all commands."""
    context.obj = on
    if debug:
        logging.basicConfig(format="%(relativeCreated)7.0f ms %(message)s", stream=sys.stderr)
        logging.getLogger("lance_ns_async").setLevel(logging.DEBUG)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Code.USAGE)


app.command("ls")(listing.ls)
app.command()(listing.describe)
app.command()(inspecting.schema)
app.command()(inspecting.versions)
app.command()(inspecting.tags)
app.command()(inspecting.indices)
app.command()(reading.head)
app.command()(reading.count)
app.command()(reading.query)
app.command()(changing.create)
app.command()(changing.register)
app.command()(changing.rename)
app.command()(changing.deregister)
app.command()(changing.drop)
app.add_typer(namespaces.ns, name="ns")
app.command()(resolving.resolve)
app.command()(auditing.audit)
app.command()(finding.find)
app.command()(discovering.discover)
app.command()(copying.copy)
app.command()(maintaining.maintain)
app.command()(serving.serve)
app.command()(doctor.doctor)

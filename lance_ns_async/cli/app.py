"""The commands of `lance-ns`: what they take, and nothing of how it is done."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from lance_ns_async.cli import ids, output
from lance_ns_async.cli.catalog import Config, Impl, Profile, Properties, chosen
from lance_ns_async.cli.errors import Code, ScriptGroup, say
from lance_ns_async.cli.output import Format, ObjectFormat

app = typer.Typer(
    cls=ScriptGroup,
    help="Lists, describes and resolves the Lance tables of a catalog.",
    epilog="Exit codes: 0 fine, 1 some failed, 2 usage, 3 not found, 4 denied, 5 unavailable, 70 internal, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Secrets = Annotated[bool, typer.Option("--show-secrets", help="Storage options too, with all secrets in them.")]


def _show_version(asked: bool) -> None:
    if asked:
        print(version("lance-ns-async"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks of errors, and a line a remote call.")] = False,
    show_version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """What holds for all commands."""
    if debug:
        logging.basicConfig(format="%(relativeCreated)7.0f ms %(message)s", stream=sys.stderr)
        logging.getLogger("lance_ns_async").setLevel(logging.DEBUG)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Code.USAGE)


@app.command("ls")
def list_(
    namespace: Annotated[str, typer.Argument(help="Where to look; the root if left out.", show_default=False)] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below, too.")] = False,
    namespaces: Annotated[bool, typer.Option("--namespaces", "-n", help="Namespaces instead of tables.")] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="With locations.")] = False,
    format: Annotated[Format, typer.Option("--output", "-o")] = Format.PLAIN,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Lists tables or namespaces, one a line, as they come."""
    from lance_ns_async.cli.listing import Listing

    with chosen(impl, properties, profile, config).open() as catalog:
        listing = Listing(catalog, namespace, recursive=recursive, namespaces=namespaces, long=long)
        count = output.write(listing.rows(), listing.columns, format, sys.stdout)
    if not count and not (recursive or namespaces):
        say(f"no tables in {ids.namespace(namespace)}; -r looks below it, -n lists its namespaces")
    if listing.failed:
        raise typer.Exit(Code.FAILED)


@app.command()
def describe(
    table: Annotated[str, typer.Argument(help="Its id, e.g. prod.sales.orders.", show_default=False)],
    version: Annotated[int | None, typer.Option("--version", help="As of that version; opens the dataset.")] = None,
    details: Annotated[bool, typer.Option("--details", "-d", help="Schema and statistics; opens the dataset.")] = False,
    show_secrets: Secrets = False,
    format: Annotated[ObjectFormat, typer.Option("--output", "-o")] = ObjectFormat.TABLE,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Tells where a table is and how to read it."""
    from lance_ns_async.cli.describing import describe

    with chosen(impl, properties, profile, config).open() as catalog:
        found = describe(catalog, table, version=version, details=details, show_secrets=show_secrets)
    output.write_object(found, format)

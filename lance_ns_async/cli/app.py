"""The application `lance-ns`: its commands, which have a module each, and the options of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from lance_ns_async.cli import (
    auditing,
    changing,
    conformance,
    copying,
    doctor,
    listing,
    maintaining,
    namespaces,
    profile_commands,
    reading,
    resolving,
    serving,
    token_commands,
    watching,
)
from lance_ns_async.cli.common import CommonOptions, with_common_options
from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.groups import SETTINGS, Command, ScriptGroup

app: typer.Typer = typer.Typer(
    cls=ScriptGroup,
    help="List, read, change, resolve, discover, copy, maintain and serve the Lance tables of a catalog.",
    epilog="Ids are names joined by '.', or by '$' in single quotes. Exit codes: 0 success, 1 some items failed, "
    "2 usage, 3 not found, 4 denied, 5 unavailable, 70 internal error, 130 Ctrl-C.",
    context_settings=dict(SETTINGS),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(version("lance-ns-async"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
@with_common_options
def common(
    on: CommonOptions,
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Applies the options of all commands."""
    context.obj = on
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Code.USAGE)


_COMMANDS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Look": {
        "ls": listing.ls,
        "describe": listing.describe,
        "schema": listing.schema,
        "head": reading.head,
        "count": reading.count,
        "query": reading.query,
        "versions": listing.versions,
        "tags": listing.tags,
        "indices": listing.indices,
    },
    "Change": {
        "create": changing.create,
        "register": changing.register,
        "rename": changing.rename,
        "deregister": changing.deregister,
        "drop": changing.drop,
    },
    "Whole catalogs": {
        "resolve": resolving.resolve,
        "find": listing.find,
        "search": reading.search,
        "partitions": namespaces.partitions,
        "watch": watching.watch,
        "audit": auditing.audit,
        "discover": auditing.discover,
        "copy": copying.copy,
        "maintain": maintaining.maintain,
        "serve": serving.serve,
    },
    "Set up": {"doctor": doctor.doctor, "conformance": conformance.conformance},
}

for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, cls=Command, rich_help_panel=_panel)(_command)
app.command("status", cls=Command, hidden=True, help="The same as doctor.")(doctor.doctor)
app.add_typer(namespaces.ns, name="ns", rich_help_panel="Change")
app.add_typer(profile_commands.profile, name="profile", rich_help_panel="Set up")
app.add_typer(token_commands.token, name="token", rich_help_panel="Set up")

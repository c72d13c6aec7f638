"""The application `lance-ns`: its commands, the options of all of them, their help, and their exit codes."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from shutil import get_terminal_size
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from lance_ns_async.cli import (
    changing,
    conformance,
    doctor,
    dropped_tables,
    errors,
    listing,
    maintaining,
    parts,
    profiles,
    reading,
    serving,
    sql,
    whole_catalogs,
)
from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.options import CommonOptions, with_common_options

_BRACES = str.maketrans("", "", "{}")
_FRAMES = 4  # Calls in the traceback of an error that is not an internal one.
_WIDEST = 110  # Maximum width of the help, in characters.


class _WithPlainHelp:
    """The help of commands and groups: sections without frames, for any width. typer has panels only in frames."""

    def get_help(self, ctx: Any) -> str:
        ctx.terminal_width = min(get_terminal_size().columns, _WIDEST)
        return str(super().get_help(ctx))  # type: ignore[misc]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        rows = ((it, it.get_help_record(ctx)) for it in self.get_params(ctx))  # type: ignore[attr-defined]
        _write_sections((_help_row(it, *record) for it, record in rows if record is not None), formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands with the first sentences of their help."""
        commands: Mapping[str, Any] = getattr(self, "commands", {})
        visible = [(name, it) for name, it in commands.items() if not it.hidden]
        rows = ((_panel(it, "Commands"), name, " ".join(it.help.split("\n\n")[0].split())) for name, it in visible)
        _write_sections(rows, formatter)


class Command(_WithPlainHelp, TyperCommand):
    """A command with a plain help."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the parts of the usage, without the braces around required arguments."""
        return [piece.translate(_BRACES) for piece in super().collect_usage_pieces(ctx)]


class Group(_WithPlainHelp, TyperGroup):
    """A group of commands with a plain help."""


class ScriptGroup(Group):
    """The group of all commands, with exit codes and error messages for scripts."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Runs the command line; a usage error is also written as one line."""
        standalone = options.get("standalone_mode", True)
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except errors.USAGE_ERROR as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                print(error)
            else:
                errors.say(_describe_usage(error))
            code = Code.USAGE
        except typer.Abort:
            code = Code.INTERRUPT
        if standalone:
            sys.exit(code or Code.OK)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Runs the command and converts its error to an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except errors.FOR_TYPER:
            raise
        except BaseException as raised:  # includes exception groups and Ctrl-C; errors without a code are raised again
            error = errors.root_cause(raised)
            code = errors.exit_code(error)
            if code is None:
                raise
            if ctx.meta.get(errors.DEBUG):
                _print_traceback(error, None if code is Code.INTERNAL else _FRAMES)
            errors.close(code, error)
            raise typer.Exit(code) from raised
        return result


_OTHER_NAMES = {"vector": "nearest", "full-text": "text", "k": "limit", "where": "filter", "predicate": "filter"}
"""Names of options by those that Python and the spec use for the same."""


def _describe_usage(error: Any) -> str:
    """Returns a message with the right name of an option, or an example where an argument is missing."""
    advice, kind = "", type(error).__name__
    if kind == "NoSuchOption":
        typed = error.option_name.strip("-").replace("_", "-")
        right = _OTHER_NAMES.get(typed, typed)
        if any(f"--{right}" in it.opts for it in error.ctx.command.params):
            advice = f"; use --{right}"
        elif any(right == it.name and it.param_type_name == "argument" for it in error.ctx.command.params):
            advice = f"; the {right} is an argument, without an option before it"
            error.possibilities = ()
    elif kind == "MissingParameter" and error.ctx and error.ctx.command.epilog:
        advice = f" {error.ctx.command.epilog}"
    hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
    # Some versions of typer pass on the beginning of the messages of pydantic.
    message = error.format_message().replace(": Value error, ", ": ", 1)
    return f"{message}{advice}{hint}"


def _print_traceback(error: BaseException, frames: int | None) -> None:
    """Writes the last calls of an error's traceback, all if `frames` is None, and a line for each of its causes."""
    traceback.print_exception(error, limit=frames and -frames, chain=False)
    cause = error.__cause__ or error.__context__
    while cause is not None:
        errors.say(f"caused by {traceback.format_exception_only(cause)[-1]}")
        cause = cause.__cause__ or cause.__context__


def _help_row(parameter: Any, name: str, text: str) -> tuple[str, str, str]:
    """Returns the panel, the name and the help of a parameter, with a short name of its type."""
    if parameter.param_type_name == "argument":
        # The type is always text.
        return "Arguments", name.partition(" ")[0], text
    for long, short in (("<str>", "TEXT"), ("<list[str]>", "TEXT"), ("<path>", "FILE")):
        name = name.replace(long, short)
    return _panel(parameter, "Options"), re.sub(r"<(int|float)( range)?>", "N", name), text


def _write_sections(rows: Iterable[tuple[str, str, str]], formatter: Any) -> None:
    """Writes names and their help below the titles of their panels, which are in the order of their first rows."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for panel, name, text in rows:
        panels.setdefault(panel, []).append((name, text))
    for panel, its_rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(its_rows, col_max=min(30, formatter.width // 3))


def _panel(thing: Any, usual: str) -> str:
    panel = getattr(thing, "rich_help_panel", None)
    return panel if isinstance(panel, str) else usual


app: typer.Typer = typer.Typer(
    cls=ScriptGroup,
    help="List, read, change, resolve, discover, copy, maintain and serve the Lance tables of a catalog.",
    epilog="Ids are names joined by '.', or by '$' in single quotes. Exit codes: 0 success, 1 some items failed, "
    "2 usage, 3 not found, 4 denied, 5 unavailable, 70 internal error, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
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
        bool, Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Applies the options of all commands."""
    context.obj = on
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Code.USAGE)


_Commands = Mapping[str, Callable[..., None]]

_COMMANDS: Mapping[str, _Commands] = {
    "Look": {
        "ls": listing.ls,
        "describe": listing.describe,
        "schema": listing.schema,
        "head": reading.head,
        "count": reading.count,
        "query": reading.query,
        "sql": sql.sql,
        "versions": parts.versions,
    },
    "Change": {
        "create": changing.create,
        "register": changing.register,
        "update": changing.update,
        "delete": changing.delete,
        "restore": parts.restore,
        "rename": changing.rename,
        "deregister": changing.deregister,
        "drop": changing.drop,
        "undrop": dropped_tables.undrop,
    },
    "Whole catalogs": {
        "resolve": whole_catalogs.resolve,
        "find": whole_catalogs.find,
        "search": reading.search,
        "partitions": listing.partitions,
        "watch": whole_catalogs.watch,
        "audit": whole_catalogs.audit,
        "discover": whole_catalogs.discover,
        "dropped": dropped_tables.dropped,
        "purge": dropped_tables.purge,
        "copy": whole_catalogs.copy,
        "maintain": maintaining.maintain,
        "serve": serving.serve,
    },
    "Set up": {"doctor": doctor.doctor, "conformance": conformance.conformance},
}
"""The commands by their panels."""

_NAMESPACE_COMMANDS: _Commands = {
    "ls": listing.list_namespaces,
    "describe": listing.describe_namespace,
    "create": changing.create_namespace,
    "drop": changing.drop_namespace,
}
_TAG_COMMANDS: _Commands = {
    "list": parts.list_tags,
    "create": parts.create_tag,
    "move": parts.move_tag,
    "delete": parts.delete_tag,
}
_BRANCH_COMMANDS: _Commands = {
    "list": parts.list_branches,
    "create": parts.create_branch,
    "delete": parts.delete_branch,
}
_INDEX_COMMANDS: _Commands = {"list": parts.list_indexes, "create": parts.create_index, "drop": parts.drop_index}
_PROFILE_COMMANDS: _Commands = {
    "add": profiles.add,
    "properties": profiles.list_properties,
    "list": profiles.list_profiles,
    "show": profiles.show,
    "test": profiles.test,
    "use": profiles.use,
    "remove": profiles.remove,
}
_TOKEN_COMMANDS: _Commands = {
    "add": serving.add_token,
    "list": serving.list_tokens,
    "rotate": serving.rotate_token,
    "remove": serving.remove_token,
}


_EXAMPLES: Mapping[str, str] = {
    "ls": "sales --long",
    "describe": "sales.orders",
    "schema": "sales.orders",
    "head": "sales.orders --limit 5",
    "count": "sales.orders --filter 'price > 10'",
    "query": "sales.orders --filter 'price > 10' --columns id,price",
    "sql": "\"select count(*) from 'sales.*'\"",
    "versions": "sales.orders --limit 5",
    "create": "sales.orders orders.parquet",
    "register": "sales.orders s3://bucket/orders.lance",
    "update": "sales.orders 'price=price * 2' --where 'id = 7'",
    "delete": "sales.orders 'price > 10' --dry-run",
    "restore": "sales.orders 3",
    "rename": "sales.orders purchases",
    "deregister": "'sales.*' --dry-run",
    "drop": "sales.orders --keep 7d",
    "undrop": "sales.orders",
    "resolve": "'sales.**' --out tables.json",
    "find": "'sales.**' --min-rows 1000",
    "search": "'sales.**' --text bike --limit 5",
    "partitions": "\"region = 'EU'\"",
    "watch": "'sales.**'",
    "audit": "'sales.**'",
    "discover": "s3://bucket/data --into sales --dry-run",
    "dropped": "--under s3://bucket/data",
    "purge": "--dry-run",
    "copy": "'sales.**' --to-profile test --dry-run",
    "maintain": "'sales.**' --dry-run",
    "serve": "--port 2333",
    "doctor": "sales.orders",
    "conformance": "--impl dir -p root=lake",
    "ns ls": "sales",
    "ns describe": "sales",
    "ns create": "sales --set owner=ann",
    "ns drop": "sales",
    "index list": "sales.orders",
    "index create": "sales.orders id --type BTREE",
    "index drop": "sales.orders id_idx",
    "tag list": "sales.orders",
    "tag create": "sales.orders checked --version 3",
    "tag move": "sales.orders checked --version 4",
    "tag delete": "sales.orders checked",
    "branch list": "sales.orders",
    "branch create": "sales.orders trial --version 3",
    "branch delete": "sales.orders trial",
    "profile add": "lake -i dir -p root=lake",
    "profile properties": "iceberg",
    "profile list": "",
    "profile show": "lake",
    "profile test": "lake",
    "profile use": "lake",
    "profile remove": "lake",
    "token add": "ann --tokens tokens.toml",
    "token list": "--tokens tokens.toml",
    "token rotate": "ann --tokens tokens.toml",
    "token remove": "ann --tokens tokens.toml",
}
"""The arguments of the example in the help of each command."""


def _add_commands(group: typer.Typer, commands: _Commands, prefix: str = "", **options: Any) -> None:
    for name, command in commands.items():
        arguments = _EXAMPLES.get(f"{prefix}{name}")
        example = None if arguments is None else f"Example: lance-ns {prefix}{name} {arguments}".rstrip()
        group.command(name, cls=Command, epilog=example, **options)(with_common_options(command))


def _add_group(name: str, panel: str, help: str, commands: _Commands) -> None:
    group = typer.Typer(cls=Group, help=help, rich_markup_mode=None, no_args_is_help=True)
    _add_commands(group, commands, f"{name} ")
    app.add_typer(group, name=name, rich_help_panel=panel)


for _panel_name, _commands in _COMMANDS.items():
    _add_commands(app, _commands, rich_help_panel=_panel_name)
_add_commands(app, {"status": doctor.doctor}, hidden=True, help="The same as doctor.")
_add_commands(app, {"tags": parts.list_tags}, hidden=True, help="The same as tag list.")
_add_commands(app, {"indices": parts.list_indexes}, hidden=True, help="The same as index list.")
_add_group("index", "Change", "List, create and drop indexes of a table.", _INDEX_COMMANDS)
_add_group("tag", "Change", "List, create, move and delete tags, which are names of versions.", _TAG_COMMANDS)
_add_group("branch", "Change", "List, create and delete branches of a table.", _BRANCH_COMMANDS)
_add_group("ns", "Change", "List, describe, create and drop namespaces.", _NAMESPACE_COMMANDS)
_add_group(
    "profile", "Set up", "Profiles, which are catalogs with a name: add, list, test and remove them.", _PROFILE_COMMANDS
)
_add_group(
    "token", "Set up", "Tokens for the clients of lance-ns serve: add, list, rotate and remove them.", _TOKEN_COMMANDS
)

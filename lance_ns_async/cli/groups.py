"""Groups and commands: their exit codes, their errors and their help."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from shutil import get_terminal_size
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from lance_ns_async.cli.errors import (
    DEBUG,
    FOR_TYPER,
    USAGE_ERROR,
    Code,
    close,
    describe_usage,
    exit_code,
    root_cause,
    say,
)

SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
"""Settings of all commands."""

_BRACES = str.maketrans("", "", "{}")
_WIDEST = 110  # Maximum width of the help, in characters.


class Command(TyperCommand):
    """A command whose help is in sections, for any width."""

    def get_help(self, ctx: Any) -> str:
        """Returns the help for the width of the terminal."""
        _fit(ctx)
        return super().get_help(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the parts of the usage, without the braces around required arguments."""
        return [piece.translate(_BRACES) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and options, in their panels."""
        _write_options(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands whose help is in sections, for any width."""

    def get_help(self, ctx: Any) -> str:
        """Returns the help for the width of the terminal."""
        _fit(ctx)
        return super().get_help(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands and then the options, in their panels."""
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands with the first sentence of their help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        visible = [(name, it) for name, it in commands if it is not None and not it.hidden]
        rows = ((_panel(it, "Commands"), (name, _first_paragraph(it.help or ""))) for name, it in visible)
        _write_sections(rows, formatter)


class ScriptGroup(Group):
    """The group of all commands, with exit codes and error messages for scripts."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Runs the command line; a usage error is also written as one line."""
        standalone = options.get("standalone_mode", True)
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except USAGE_ERROR as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                print(error)
            else:
                say(describe_usage(error))
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
        except FOR_TYPER:
            raise
        except BaseException as raised:  # includes exception groups and Ctrl-C; errors without a code are raised again
            error = root_cause(raised)
            code = exit_code(error)
            if code is None:
                raise
            if ctx.meta.get(DEBUG):
                _print_traceback(error)
            close(code, error)
            raise typer.Exit(code) from raised
        return result


def _print_traceback(error: BaseException) -> None:
    """Writes the traceback of an error, and a line for each of its causes."""
    traceback.print_exception(error, chain=False)
    cause = error.__cause__ or error.__context__
    while cause is not None:
        say(f"caused by {traceback.format_exception_only(cause)[-1]}")
        cause = cause.__cause__ or cause.__context__


def _fit(ctx: Any) -> None:
    ctx.terminal_width = min(get_terminal_size().columns, _WIDEST)


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    def rows() -> Iterable[tuple[str, tuple[str, str]]]:
        for parameter in command.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                name, text = record
                # Without the type, which is always text.
                yield "Arguments", (name.partition(" ")[0], text)
            else:
                yield _panel(parameter, "Options"), (_plain_type(record[0]), record[1])

    _write_sections(rows(), formatter)


def _write_sections(rows: Iterable[tuple[str, tuple[str, str]]], formatter: Any) -> None:
    """Writes rows below the titles of their panels, which are in the order of their first rows."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for panel, row in rows:
        panels.setdefault(panel, []).append(row)
    for panel, its_rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(its_rows, col_max=min(30, formatter.width // 3))


def _plain_type(option: str) -> str:
    """Returns the text of an option with a short name of its type."""
    return re.sub(
        r"<(int|float)( range)?>",
        "N",
        option.replace("<str>", "TEXT").replace("<list[str]>", "TEXT").replace("<path>", "FILE"),
    )


def _panel(thing: Any, usual: str) -> str:
    panel = getattr(thing, "rich_help_panel", None)
    return panel if isinstance(panel, str) else usual


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())

"""Conversion of all errors to one line on standard error and an exit code."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, cast

import typer
from typer.core import TyperGroup

_QUOTES = "'"


class Code(IntEnum):
    """Exit codes of the command."""

    OK = 0
    FAILURE = 1
    """Some of the requested items were not found or failed, or the catalog rejected a change."""
    USAGE = 2
    """The command, its input or this installation does not support the request."""
    NOT_FOUND = 3
    NO_ACCESS = 4
    UNAVAILABLE = 5
    """The catalog did not respond, or was too busy; the same command may succeed later."""
    INTERNAL = 70
    INTERRUPT = 130
    BROKEN_PIPE = 141
    """The reader of the output has ended; shells use the same number."""


class Misuse(Exception):
    """The request cannot be executed as specified; the message contains the reason."""


# Classes are referenced by name, because the import of their package takes half a second, too long for `--help`.
CODES: Mapping[str, Code] = {
    "Misuse": Code.USAGE,
    "ImportError": Code.USAGE,
    "JavaNotFoundError": Code.USAGE,
    "OSError": Code.FAILURE,
    "BrokenPipeError": Code.BROKEN_PIPE,
    "KeyboardInterrupt": Code.INTERRUPT,
    "LanceNamespaceError": Code.FAILURE,
    "InvalidInputError": Code.USAGE,
    "UnsupportedOperationError": Code.USAGE,
    "TableColumnNotFoundError": Code.USAGE,
    "NamespaceNotFoundError": Code.NOT_FOUND,
    "TableNotFoundError": Code.NOT_FOUND,
    "TableBranchNotFoundError": Code.NOT_FOUND,
    "TableTagNotFoundError": Code.NOT_FOUND,
    "TableVersionNotFoundError": Code.NOT_FOUND,
    "PermissionDeniedError": Code.NO_ACCESS,
    "UnauthenticatedError": Code.NO_ACCESS,
    "ServiceUnavailableError": Code.UNAVAILABLE,
    "ThrottlingError": Code.UNAVAILABLE,
    "InternalError": Code.INTERNAL,
    "Exception": Code.INTERNAL,
}
"""Exit codes by names of errors; an error has the code of its nearest base class in this table."""

# Newer versions of typer contain a copy of click, so this class has no import path that works in all versions.
USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__base__)
_FOR_TYPER = (USAGE_ERROR, typer.Abort, typer.Exit)


def exit_code(error: BaseException) -> Code | None:
    """Returns the exit code of an error; None for exceptions that only stop the interpreter."""
    return next((CODES[base.__name__] for base in type(error).__mro__ if base.__name__ in CODES), None)


def say(message: str) -> None:
    """Writes the message as one line to standard error."""
    line = " ".join(message.split())
    if not line.isprintable():
        # Imported here, because most runs write no such message and should not wait for the import.
        from lance_ns_async.rendering import printable

        line = printable(line)
    print("lance-ns:", line, file=sys.stderr)


def describe_error(error: BaseException) -> str:
    """Returns the message of an error; an unexpected one is marked as an internal error."""
    notes: list[str] = getattr(error, "__notes__", [])
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if CODES.get(type(error).__name__) is None and exit_code(error) is Code.INTERNAL:
        return f"internal error: {type(error).__name__}: {error}; use --debug before the command for the traceback"
    return "; ".join([str(error), *notes])


def use_options(message: str, options: Mapping[str, str], *, is_usage: bool) -> str:
    """Returns a message of the Python API with the options of the command instead of the arguments of a function.

    Args:
        message: The message.
        options: The names of options by those of arguments.
        is_usage: Whether the message is about an argument, whose name is then its first word. Other messages may
            contain names of tables that only look like arguments.
    """

    def replace(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        is_argument = value is not None or (is_usage and (not match.start() or "_" in name))
        if name not in options or not is_argument:
            return match[0]
        return options[name] if value in (None, "True") else f"{options[name]} {value.strip(_QUOTES)}"

    return re.sub(r"\b([a-z_]+)\b(?:=('[^']*'|\w+))?(?!\w)", replace, message)


class ScriptGroup(TyperGroup):
    """The group of all commands, with exit codes and error messages for scripts."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Runs the command line; a usage error is also written as one line."""
        standalone = options.get("standalone_mode", True)
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except USAGE_ERROR as error:
            say(_usage(error))
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
        except _FOR_TYPER:
            raise
        except BaseException as raised:  # includes exception groups and Ctrl-C; errors without a code are raised again
            error = _root(raised)
            code = exit_code(error)
            if code is None:
                raise
            if ctx.params.get("debug"):
                traceback.print_exc()
            _close(code, error, self._options(ctx))
            raise typer.Exit(code) from raised
        return result

    def _options(self, ctx: Any) -> Mapping[str, str]:
        """Returns the long options of the command that runs, by the names of its arguments."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        long = ((it.name, opt) for it in getattr(command, "params", ()) for opt in it.opts if opt.startswith("--"))
        return {str(name): option for name, option in long}


def _root(error: BaseException) -> BaseException:
    """Returns the cause of an error: the interrupt that led to it, or the first error of a group."""
    if isinstance(error, BaseExceptionGroup):
        return _root(error.exceptions[0])
    before = error.__context__
    while before is not None:
        # Interrupted work may raise a different error.
        if isinstance(before, KeyboardInterrupt):
            return before
        before = before.__context__
    return error


def _close(code: Code, error: BaseException, options: Mapping[str, str]) -> None:
    if code is Code.BROKEN_PIPE:
        # The interpreter flushes standard output again at its end, and would report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif code is not Code.INTERRUPT:
        say(use_options(describe_error(error), options, is_usage=code is Code.USAGE))


def _usage(error: Any) -> str:
    context = error.ctx
    hint = f" (see {context.command_path} --help)" if context else ""
    return f"{error.format_message()}{hint}"

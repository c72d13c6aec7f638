"""The outermost place: whatever goes wrong becomes one line on standard error and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, cast

import typer
from typer.core import TyperGroup


class Code(IntEnum):
    """What the command answers a script with."""

    OK = 0
    FAILED = 1
    """Some of what was asked for was not found or failed, or the catalog refused a change."""
    USAGE = 2
    """The command, its input or this installation is not fit for what was asked."""
    NOT_FOUND = 3
    DENIED = 4
    UNAVAILABLE = 5
    """The catalog did not answer, or was too busy: the same command may succeed later."""
    INTERNAL = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """Nobody reads what is written; the shell's own number for it."""


class Misuse(Exception):
    """What was asked cannot be done as it was asked; the message says why."""


# By name: the classes live in a package that takes half a second to import, which `--help` should not.
CODES: Mapping[str, Code] = {
    "Misuse": Code.USAGE,
    "ImportError": Code.USAGE,
    "JavaNotFoundError": Code.USAGE,
    "OSError": Code.FAILED,
    "BrokenPipeError": Code.BROKEN_PIPE,
    "KeyboardInterrupt": Code.INTERRUPTED,
    "LanceNamespaceError": Code.FAILED,
    "InvalidInputError": Code.USAGE,
    "UnsupportedOperationError": Code.USAGE,
    "NamespaceNotFoundError": Code.NOT_FOUND,
    "TableNotFoundError": Code.NOT_FOUND,
    "TableBranchNotFoundError": Code.NOT_FOUND,
    "TableTagNotFoundError": Code.NOT_FOUND,
    "TableVersionNotFoundError": Code.NOT_FOUND,
    "PermissionDeniedError": Code.DENIED,
    "UnauthenticatedError": Code.DENIED,
    "ServiceUnavailableError": Code.UNAVAILABLE,
    "ThrottlingError": Code.UNAVAILABLE,
    "InternalError": Code.INTERNAL,
    "Exception": Code.INTERNAL,
}
"""Names of errors and the codes they become; an error counts as the nearest of its bases that is here."""

# typer carries its own copy of click in newer versions, so this class has no importable name in all of them.
USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__base__)
_FOR_TYPER = (USAGE_ERROR, typer.Abort, typer.Exit)


def exit_code(error: BaseException) -> Code | None:
    """The code an error becomes; None for what only asks the interpreter to stop."""
    return next((CODES[base.__name__] for base in type(error).__mro__ if base.__name__ in CODES), None)


def say(message: str) -> None:
    """Writes one line to standard error, whatever the message looks like."""
    line = " ".join(message.split())
    if not line.isprintable():
        # Here, because most runs have nothing to say and should not wait for it.
        from lance_ns_async.spark.resolve.report import printable

        line = printable(line)
    print("lance-ns:", line, file=sys.stderr)


def told(error: BaseException) -> str:
    """An error in words; one that nobody foresaw is named as such."""
    notes: list[str] = getattr(error, "__notes__", [])
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if CODES.get(type(error).__name__) is None and exit_code(error) is Code.INTERNAL:
        return f"internal error: {type(error).__name__}: {error}; --debug before the command tells where"
    return "; ".join([str(error), *notes])


class ScriptGroup(TyperGroup):
    """The commands together, made fit for scripts."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Runs the command line; a usage error is one line as well."""
        standalone = options.get("standalone_mode", True)
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except USAGE_ERROR as error:
            say(_usage(error))
            code = Code.USAGE
        except typer.Abort:
            code = Code.INTERRUPTED
        if standalone:
            sys.exit(code or Code.OK)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Runs the command and puts an exit code in the place of its error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except _FOR_TYPER:
            raise
        except BaseException as raised:  # groups of errors and Ctrl-C are no Exceptions; what has no code is raised on
            error = _root(raised)
            code = exit_code(error)
            if code is None:
                raise
            if ctx.params.get("debug"):
                traceback.print_exc()
            _close(code, error)
            raise typer.Exit(code) from raised
        return result


def _root(error: BaseException) -> BaseException:
    """What an error comes down to: an interrupt that it came of, or the first of a group."""
    if isinstance(error, BaseExceptionGroup):
        return _root(error.exceptions[0])
    before = error.__context__
    while before is not None:
        # Whatever is cut short may fail in its own way.
        if isinstance(before, KeyboardInterrupt):
            return before
        before = before.__context__
    return error


def _close(code: Code, error: BaseException) -> None:
    if code is Code.BROKEN_PIPE:
        # The interpreter flushes once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif code is not Code.INTERRUPTED:
        say(told(error))


def _usage(error: Any) -> str:
    context = error.ctx
    hint = f" (see {context.command_path} --help)" if context else ""
    return f"{error.format_message()}{hint}"

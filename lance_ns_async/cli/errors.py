"""Conversion of all errors to one line on standard error and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TypeVar, cast

import typer

from lance_ns_async.cli import LIBRARIES
from lance_ns_async.rendering import printable

T = TypeVar("T")

DEBUG = "lance_ns_async.debug"
"""Name in the `meta` of a context: whether errors are shown with their traceback."""


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
    "TableIndexNotFoundError": Code.NOT_FOUND,
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
FOR_TYPER = (USAGE_ERROR, typer.Abort, typer.Exit)
"""Exceptions that typer handles."""


def exit_code(error: BaseException) -> Code | None:
    """Returns the exit code of an error; None for exceptions that only stop the interpreter."""
    return next((CODES[base.__name__] for base in type(error).__mro__ if base.__name__ in CODES), None)


def describe_error(error: BaseException) -> str:
    """Returns the message of an error; an unexpected one is marked as an internal error."""
    notes: list[str] = getattr(error, "__notes__", [])
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in LIBRARIES:
        return f"{error}; it needs: pip install 'lance-ns-async[cli]'"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if CODES.get(type(error).__name__) is None and exit_code(error) is Code.INTERNAL:
        return f"internal error: {type(error).__name__}: {error}; use --debug for the traceback"
    return "; ".join([str(error), *notes])


def root_cause(error: BaseException) -> BaseException:
    """Returns the cause of an error: the interrupt that led to it, or the first error of a group."""
    if isinstance(error, BaseExceptionGroup):
        return root_cause(error.exceptions[0])
    before = error.__context__
    while before is not None:
        # Interrupted work may raise a different error.
        if isinstance(before, KeyboardInterrupt):
            return before
        before = before.__context__
    return error


def close(code: Code, error: BaseException) -> None:
    """Writes the message of an error."""
    if code is Code.BROKEN_PIPE:
        # The interpreter flushes standard output again at its end, and would report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif code is not Code.INTERRUPT:
        say(use_options(describe_error(error), is_usage=code is Code.USAGE))


_EACH = 100  # Number of rows between two numbers that a terminal shows.
_QUOTES = "'"
_quiet = False
_options: Mapping[str, str] = {}
_ARGUMENT = re.compile(r"(?P<tick>`?)\b(?P<name>[a-z_]+)\b(?:=(?P<value>'[^']*'|\w+))?(?P=tick)(?!\w)")


_COMMANDS = {"create_table_scalar_index(..., index_type='FTS')": "lance-ns index create TABLE COLUMN --type FTS"}
"""Commands by the calls of the Python API that messages advise."""


def set_up(*, quiet: bool, options: Mapping[str, str]) -> None:
    """Sets whether only results and errors are written, and the options of the command by their parameters' names."""
    global _quiet, _options
    _quiet, _options = quiet, options


def use_options(message: str, *, is_usage: bool = False) -> str:
    """Returns a message of the Python API with the options of the command instead of the arguments of a function.

    Args:
        is_usage: Whether the message is about an argument, whose name is then its first word. Other messages may
            contain names of tables that only look like arguments.
    """

    def replace(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        is_argument = value is not None or match["tick"] or (is_usage and (not match.start() or "_" in name))
        if name not in _options or not is_argument:
            return match[0]
        return _options[name] if value in (None, "True") else f"{_options[name]} {value.strip(_QUOTES)}"

    for call, command in _COMMANDS.items():
        message = message.replace(call, command)
    return _ARGUMENT.sub(replace, message)


def shows_progress() -> bool:
    """Returns whether long work shows its progress; it does so only on a terminal."""
    return not _quiet


def say(message: str) -> None:
    """Writes an error or a warning as one line to standard error."""
    print("lance-ns:", printable(" ".join(message.split())), file=sys.stderr)


def hint(message: str) -> None:
    """Writes a hint as one line to standard error, unless the user wants none."""
    if not _quiet:
        say(message)


def summarize(summary: object, *, problems: object) -> None:
    """Writes the summary of a report to standard error; if there are no problems, only to users who want to know."""
    if problems or not _quiet:
        print(use_options(str(summary)), file=sys.stderr)


def show_count(rows: Iterator[T], what: str) -> Iterator[T]:
    """Yields the rows; meanwhile, a terminal that does not get them shows their number."""
    if _quiet or sys.stdout.isatty() or not sys.stderr.isatty():
        yield from rows
        return
    try:
        for number, row in enumerate(rows, 1):
            yield row
            if number % _EACH == 0:
                print(f"\r{number:,} {what}", end="", file=sys.stderr, flush=True)
    finally:
        # The line is erased, so that later output starts on an empty line.
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def tell(message: str) -> None:
    """Writes what was done to standard output, unless the user does not want to know."""
    if not _quiet:
        print(printable(message))

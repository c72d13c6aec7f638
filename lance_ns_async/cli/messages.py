"""Messages to the user: results of changes on standard output, everything else on standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")

_EACH = 100  # Number of rows between two numbers that a terminal shows.
_QUOTES = "'"
_quiet = False
_options: Mapping[str, str] = {}
_ARGUMENT = re.compile(r"(?P<tick>`?)\b(?P<name>[a-z_]+)\b(?:=(?P<value>'[^']*'|\w+))?(?P=tick)(?!\w)")


def set_up(*, quiet: bool, options: Mapping[str, str]) -> None:
    """Sets how the command that runs writes its messages.

    Args:
        quiet: Whether only results, errors and warnings are written.
        options: The options of the command by the names of its arguments.
    """
    global _quiet, _options
    _quiet, _options = quiet, options


def use_options(message: str, *, is_usage: bool = False) -> str:
    """Returns a message of the Python API with the options of the command instead of the arguments of a function.

    Args:
        message: The message.
        is_usage: Whether the message is about an argument, whose name is then its first word. Other messages may
            contain names of tables that only look like arguments.
    """

    def replace(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        is_argument = value is not None or match["tick"] or (is_usage and (not match.start() or "_" in name))
        if name not in _options or not is_argument:
            return match[0]
        return _options[name] if value in (None, "True") else f"{_options[name]} {value.strip(_QUOTES)}"

    return _ARGUMENT.sub(replace, message)


def shows_progress() -> bool:
    """Returns whether long work shows its progress; it does so only on a terminal."""
    return not _quiet


def say(message: str) -> None:
    """Writes an error or a warning as one line to standard error."""
    line = " ".join(message.split())
    if not line.isprintable():
        # Imported here, because most runs write no such message and should not wait for the import.
        from lance_ns_async.rendering import printable

        line = printable(line)
    print("lance-ns:", line, file=sys.stderr)


def hint(message: str) -> None:
    """Writes a hint as one line to standard error, unless the user wants none."""
    if not _quiet:
        say(message)


def summarize(summary: object, *, problems: object) -> None:
    """Writes the summary of a report to standard error; if there are no problems, only to users who want to know."""
    if problems or not _quiet:
        print(summary, file=sys.stderr)


def counted(rows: Iterator[T], what: str) -> Iterator[T]:
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
    from lance_ns_async.rendering import printable

    if not _quiet:
        print(printable(message))

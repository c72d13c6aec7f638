"""Messages to the user: results of changes on standard output, everything else on standard error."""

from __future__ import annotations

import sys

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Sets whether only results, errors and warnings are written."""
    global _quiet
    _quiet = quiet


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


def tell(message: str) -> None:
    """Writes what was done to standard output, unless the user does not want to know."""
    from lance_ns_async.rendering import printable

    if not _quiet:
        print(printable(message))

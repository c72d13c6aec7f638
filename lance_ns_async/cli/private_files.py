"""Changes of files that only their owner may read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from lance_ns_async.cli.errors import Misuse

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_WAIT = 10.0  # Seconds that a change waits for another one of the same file; each takes milliseconds.


@contextmanager
def lock(file: Path, wait: float) -> Iterator[None]:
    """Keeps other commands from a file while the context is open; the end of the process, too, ends the lock.

    Args:
        file: The file. Beside it, an empty file `.NAME.lock` stays: removed, it would lock out only those who had
            opened it before.
        wait: Seconds to wait for another command.
    """
    with closing(_lock(file, wait)):
        yield


def _lock(file: Path, wait: float) -> sqlite3.Connection:
    """Returns a connection that holds the lock; SQLite's exist on every platform, and end with the process."""
    target = file.resolve()
    path = target.with_name(f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Who may read the file of the lock may hold it.
        path.touch(0o600)
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror}") from error
    try:
        connection = sqlite3.connect(path, timeout=wait, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise Misuse(f"{file}: its lock {path} cannot be used ({error})") from error
        raise Misuse(f"{file}: in use by another lance-ns; try again when that has ended") from None
    return connection


@contextmanager
def edit(file: Path, check: Callable[[Path], object]) -> Iterator[TOMLDocument]:
    """Provides the content of a file to change, empty if there is no file; then writes it, for its owner only.

    Comments stay. Other changes of the file wait. A reader sees the old content or the new one, and an error leaves
    the old one.

    Args:
        file: The file.
        check: Raises an error if an existing file is malformed.
    """
    import tomlkit

    with lock(file, _WAIT):
        document = tomlkit.document()
        if file.is_file():
            check(file)
            document = tomlkit.parse(file.read_text(encoding="utf-8"))
        yield document
        write(file, tomlkit.dumps(document))


def write(file: Path, text: str) -> None:
    """Replaces the content of a file, for its owner only. A reader sees the old content or the new one."""
    # A link to a file, such as one in a repository of settings, stays a link.
    target = file.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The new file has mode 600 before it has a content.
        handle, temporary = mkstemp(dir=target.parent, prefix=target.name)
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(temporary, target)
        except BaseException:  # an interrupt, too, must not leave the file, which may contain secrets
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror}") from error

"""Secrets outside of the properties, and files that only their owner may read.

The properties `KEY_command` and `KEY_keyring` say where the value of KEY is.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from shlex import quote
from tempfile import mkstemp
from types import ModuleType
from typing import TYPE_CHECKING

from lance_ns_async.cli.errors import Misuse, say
from lance_ns_async.masked import IS_SECRET

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

SERVICE = "lance-ns"
"""The service in the keyring below which secrets are stored."""

_COMMAND, _KEYRING = "command", "keyring"


def split(key: str) -> tuple[str, str | None]:
    """Returns the name of a property, and where its value is: `command`, `keyring`, or None for the value itself."""
    name, separator, source = key.rpartition("_")
    if name.rpartition(".")[2] == "auth":
        # The property `auth_command`: the catalog's client runs it for each token.
        return key, None
    return (name, source) if separator and source in (_COMMAND, _KEYRING) else (key, None)


def resolve(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties with the values of all secrets."""
    values: dict[str, str] = {}
    for key, value in properties.items():
        name, source = split(key)
        if source == _COMMAND:
            values[name] = _run(key, value)
        elif source == _KEYRING:
            values[name] = _read(key, value)
        else:
            values[key] = value
    return values


def check(key: str) -> None:
    """Checks that a secret can be stored; raises `Misuse` if not."""
    with _keyring(key) as keyring:
        keyring.get_password(SERVICE, key)


def store(user: str, value: str) -> None:
    """Stores a secret in the keyring."""
    with _keyring(user) as keyring:
        keyring.set_password(SERVICE, user, value)


def delete(user: str) -> None:
    """Removes a secret from the keyring, which may have been removed already."""
    with _keyring(user) as keyring:
        if keyring.get_password(SERVICE, user) is not None:
            keyring.delete_password(SERVICE, user)


def _run(key: str, command: str) -> str:
    # The command is the user's own, from the user's own file. It may ask on the terminal, but must not read the input
    # of this program.
    done = subprocess.run(  # noqa: S602
        command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise Misuse(f"{key}: the command ended with exit code {done.returncode}")
    value = done.stdout.removesuffix("\n").removesuffix("\r")
    if not value:
        raise Misuse(f"{key}: the command wrote nothing")
    return value


def _read(key: str, user: str) -> str:
    with _keyring(key) as keyring:
        value: str | None = keyring.get_password(SERVICE, user)
    if value is None:
        raise Misuse(f"{key}: the keyring has no {user!r} of {SERVICE}; set it with keyring set {SERVICE} {user}")
    return value


@contextmanager
def _keyring(what: str) -> Iterator[ModuleType]:
    """Provides the library; its errors become `Misuse`."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ModuleNotFoundError as error:
        raise Misuse(f"{what}: requires pip install 'lance-ns-async[keyring]'") from error
    try:
        yield keyring
    except KeyringError as error:
        # Some messages go on with advice about packages.
        reason = str(error).partition(". ")[0].rstrip(".")
        advice = f"name a command that prints the secret instead, with -p {what.rpartition('.')[2]}_command=COMMAND"
        raise Misuse(f"{what}: the keyring cannot be used ({reason}); {advice}") from error


def secrets_among(properties: Iterable[str]) -> list[str]:
    """Returns the names of properties whose values are secrets; those that say where a secret is have none."""
    return [name for name in properties if IS_SECRET.search(name) and split(name)[1] is None]


def warn_if_exposed(file: Path, what: str) -> None:
    """Warns on standard error if others can read or change a file with a secret; not of pipes and devices.

    The file is used nevertheless: containers get their secrets in files that all their users can read.
    """
    if os.name != "posix":
        return
    try:
        status = file.stat()
    except OSError:
        # The file was readable just before, so it was replaced or removed meanwhile.
        return
    access = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if stat.S_ISREG(status.st_mode) and access:
        can = "change" if access & (stat.S_IWGRP | stat.S_IWOTH) else "read"
        reason = f"others on this machine can {can} it (mode {stat.S_IMODE(status.st_mode):04o})"
        say(f"warning: {file} holds {what}, and {reason}: chmod 600 {quote(str(file))}")


_WAIT = 10.0  # Seconds that a change waits for another one of the same file; each takes milliseconds.


@contextmanager
def lock(file: Path, wait: float) -> Iterator[None]:
    """Keeps other commands from a file while the context is open; the end of the process, too, ends the lock.

    Waits `wait` seconds for another command. An empty file `.NAME.lock` stays: removed, it would lock out only those
    who had opened it before.
    """
    target = file.resolve()
    path = target.with_name(f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Who may read the file of the lock may hold it.
        path.touch(0o600)
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror}") from error
    with ExitStack() as stack:
        try:
            # SQLite's locks exist on every platform, and end with the process.
            connection = stack.enter_context(closing(sqlite3.connect(path, timeout=wait, isolation_level=None)))
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise Misuse(f"{file}: its lock {path} cannot be used ({error})") from error
            raise Misuse(f"{file}: in use by another lance-ns; try again when that has ended") from None
        yield


@contextmanager
def edit(file: Path, check: Callable[[Path], object]) -> Iterator[TOMLDocument]:
    """Provides the content of a file to change, empty if there is no file; then writes it, for its owner only.

    Comments stay. Other changes of the file wait. A reader sees the old content or the new one, and an error leaves
    the old one. `check` raises an error if an existing file is malformed.
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

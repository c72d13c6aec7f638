"""Warnings about files with secrets that others on the machine can read or change."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from lance_ns_async.cli.messages import say
from lance_ns_async.cli.secrets import split

_SECRET = re.compile(
    r"^header[._-]|(^|[._-])(credential|password|proxy|(auth[._-]?)?token|secret)$"
    r"|secret|session[._-]?token|sas[._-]?token|account[._-]?key|private[._-]?key|external[._-]?id"
    r"|service[._-]?account[._-]?key|oauth:token-type:",
    re.IGNORECASE,
)
"""Names of properties whose values are secrets; file paths, such as `client_key`, are not included."""


def secrets_among(properties: Iterable[str]) -> list[str]:
    """Returns the names of properties whose values are secrets; those that say where a secret is have none."""
    return [name for name in properties if _SECRET.search(name) and split(name)[1] is None]


def warn_if_exposed(file: Path, what: str) -> None:
    """Warns on standard error if others can read or change a file with a secret.

    The file is used nevertheless: containers get their secrets in files that all their users can read.

    Args:
        file: A file that was read. Pipes and devices cause no warning.
        what: The secret in the file, for the message.
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

"""Files with secrets that others on the machine can read or change."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from lance_ns_async.cli.errors import say

_SECRET = re.compile(
    r"^header[._-]|(^|[._-])(credential|password|proxy|(auth[._-]?)?token|secret)$"
    r"|secret|session[._-]?token|sas[._-]?token|account[._-]?key|private[._-]?key|external[._-]?id"
    r"|service[._-]?account[._-]?key",
    re.IGNORECASE,
)
"""Properties whose values are secrets; paths of files, such as `client_key`, are none."""


def secrets_among(properties: Iterable[str]) -> list[str]:
    """Returns the names of properties whose values are secrets."""
    return [name for name in properties if _SECRET.search(name)]


def warn_if_exposed(file: Path, what: str) -> None:
    """Says on standard error that others can read or change a file that holds a secret, if so.

    It is used all the same: containers are given their secrets in files that all users in them can read.

    Args:
        file: A file that was read. Pipes and devices are nobody else's.
        what: What it holds that is secret.
    """
    if os.name != "posix":
        return
    try:
        found = file.stat()
    except OSError:
        # It was read a moment ago, so that this is another file by now, or none.
        return
    exposed = found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if stat.S_ISREG(found.st_mode) and exposed:
        can = "change" if exposed & (stat.S_IWGRP | stat.S_IWOTH) else "read"
        told = f"others on this machine can {can} it (mode {stat.S_IMODE(found.st_mode):04o})"
        say(f"warning: {file} holds {what}, and {told}: chmod 600 {quote(str(file))}")

"""Announcements of clean-ups, for changes that point to old versions: restores, tags and branches.

A clean-up does not see what points to a version after it chose the versions to remove. Therefore it announces itself
with a file before it chooses, and such a change looks for announcements after its commit. Whichever comes first, the
clean-up sees the change, or the change sees the clean-up: then it waits for its end, and looks whether its version is
still there. All functions block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import Any
from uuid import uuid4

from lance_ns_async.model import Table
from lance_ns_async.storage import files
from lance_ns_async.storage.threads import under_way

_FOLDER = "_refs/cleanups"

MAX_WAIT_SECONDS = 10.0
"""Seconds for which a change waits for clean-ups."""

_INTERVAL = 0.05

_STALE = 24 * 3600.0  # Seconds after which an announcement counts as left by a process that was killed.


@contextmanager
def announced(table: Table) -> Iterator[None]:
    """Announces a clean-up of a table, which chooses its versions within this context. Cost: as of its two steps."""
    announcement = announce(table)
    try:
        yield
    finally:
        withdraw(table, announcement)


def announce(table: Table) -> str:
    """Announces a clean-up, and returns its announcement. Cost: a listing, and a write of an empty file."""
    session = files.open_files(table.location, table.storage_options)
    for path, age in _announcements(session):
        if age > _STALE:
            files.delete(session, path)
    path = f"{_FOLDER}/{int(time())}-{uuid4().hex}"
    with tempfile.NamedTemporaryFile(prefix="lance-cleanup-") as empty:
        session.upload_file(empty.name, path)
    return path


def withdraw(table: Table, announcement: str) -> None:
    """Removes an announcement, because the clean-up is over. Cost: a deletion."""
    files.delete(files.open_files(table.location, table.storage_options), announcement)


def wait_for_end(table: Table) -> str | None:
    """Waits for the clean-ups that are announced now; returns the announcement of one that does not end in time.

    Cost: a listing; more while it waits.
    """
    session = files.open_files(table.location, table.storage_options)
    until = monotonic() + MAX_WAIT_SECONDS
    begun = {path for path, age in _announcements(session) if age <= _STALE}
    while begun and monotonic() < until:
        under_way().given_up.wait(_INTERVAL)
        begun &= {path for path, _ in _announcements(session)}
    return next(iter(begun), None)


def _announcements(session: Any) -> list[tuple[str, float]]:
    """Returns the paths of announcements, and their ages in seconds; not the drafts that pylance is writing."""
    names = [path.rpartition("/")[2] for path in session.list(_FOLDER)]
    announced = [name for name in names if not name.startswith(".")]
    return [(f"{_FOLDER}/{name}", time() - int(name.partition("-")[0])) for name in announced]

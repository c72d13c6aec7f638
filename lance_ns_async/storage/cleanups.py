"""Announcements of clean-ups, for changes that point to old versions: restores, tags and branches.

A clean-up does not see what points to a version after it chose the versions to remove. Therefore it announces itself
with a file before it chooses, and such a change looks for announcements after its commit. Whichever comes first, the
clean-up sees the change, or the change sees the clean-up: then it waits for its end, and looks whether its version is
still there. A clean-up in progress renews its announcement, so that one of a killed process does not count for long.
All functions block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic, time
from typing import Any
from uuid import uuid4

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.model import Table
from lance_ns_async.storage import files
from lance_ns_async.storage.threads import under_way

_FOLDER = "_refs/cleanups"

MAX_WAIT_SECONDS = 10.0
"""Seconds for which a change waits for clean-ups."""

_INTERVAL = 0.05

_RENEWAL = 60.0  # Seconds after which an announcement is renewed.

_STALE = 20 * 60.0
"""Seconds after which an announcement counts as left by a process that was killed. Clocks may differ: S3, for example,
accepts requests if its own does not differ by more than 15 minutes.
"""


def _same(table: Table) -> Table:
    return table


@contextmanager
def announced(table: Table, renew: Callable[[Table], Table] = _same) -> Iterator[None]:
    """Announces a clean-up of a table, which chooses its versions within this context. Cost: as of its two steps."""
    announcement = Announcement(table, renew)
    try:
        yield
    finally:
        announcement.withdraw()


class Announcement:
    """A clean-up that is announced until it is withdrawn. Cost: a listing, and a write of an empty file.

    Args:
        table: The table.
        renew: Returns the table with credentials that do not end soon, for clean-ups that outlast them.
    """

    def __init__(self, table: Table, renew: Callable[[Table], Table] = _same) -> None:
        self._table, self._renew_credentials = table, renew
        session = self._files()
        for path, _, age in _announcements(session):
            if age > _STALE:
                files.delete(session, path)
        self._id = uuid4().hex
        self._paths = [self._write()]
        self._is_over = Event()
        self._renewal = Thread(target=self._renew, name="lance-cleanup", daemon=True)
        self._renewal.start()

    def withdraw(self) -> None:
        """Removes the announcement, because the clean-up is over. Cost: a deletion."""
        self._is_over.set()
        self._renewal.join()
        session = self._files()
        for path in self._paths:
            files.delete(session, path)

    def _files(self) -> Any:
        self._table = self._renew_credentials(self._table)
        return files.open_files(self._table.location, self._table.storage_options)

    def _write(self) -> str:
        path = f"{_FOLDER}/{int(time() * 1_000)}-{self._id}"
        with tempfile.NamedTemporaryFile(prefix="lance-cleanup-") as empty:
            self._files().upload_file(empty.name, path)
        return path

    def _renew(self) -> None:
        while not self._is_over.wait(_RENEWAL):
            # A failure is repeated for as long as the last announcement counts.
            with suppress(OSError, LanceNamespaceError):
                self._paths.append(self._write())
                # The last one stays beside the new one, for listings that have begun.
                if len(self._paths) > 2:
                    files.delete(self._files(), self._paths.pop(0))


def wait_for_end(table: Table) -> str | None:
    """Waits for the clean-ups that are announced now; returns the announcement of one that does not end in time.

    Cost: a listing; more while it waits.
    """
    session = files.open_files(table.location, table.storage_options)
    until = monotonic() + MAX_WAIT_SECONDS
    begun = {id: path for path, id, age in _announcements(session) if age <= _STALE}
    while begun and monotonic() < until:
        under_way().given_up.wait(_INTERVAL)
        begun = {id: path for path, id, _ in _announcements(session) if id in begun}
    return next(iter(begun.values()), None)


def _announcements(session: Any) -> Iterator[tuple[str, str, float]]:
    """Yields the paths of announcements, the ids of their clean-ups, and their ages in seconds."""
    for path in session.list(_FOLDER):
        begin, _, id = path.rpartition("/")[2].partition("-")
        # Others are drafts that pylance is writing.
        if begin.isdecimal():
            yield f"{_FOLDER}/{begin}-{id}", id, time() - int(begin) / 1_000

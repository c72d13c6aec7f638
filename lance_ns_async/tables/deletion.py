"""Deletion of the data of a table whose registration is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lance_namespace.errors import TableNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import UnreadableRegistrationError
from lance_ns_async.model import Table
from lance_ns_async.storage import datasets, locations
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.dir_markers import local_path, same_place
from lance_ns_async.storage.files import delete
from lance_ns_async.storage.threads import in_thread
from lance_ns_async.tables.drop_marks import (
    CATALOGS,
    MANIFEST,
    Files,
    Mark,
    at_work,
    session_of,
    version_of,
    write_mark,
)

DELETES_AT_ONCE = 16
"""Maximum number of files that are deleted or read concurrently."""

_LATE_TIMES = 3
"""Maximum number of rounds that delete versions which others committed during the deletion."""

_NEVER_TWICE = ("data/", "_transactions/", "_deletions/", "_indices/", ".lance-reserved", ".lance-deregistered")
"""Prefixes of files with a unique name for each write, and the files by which directory catalogs hide a table."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """Deletes the data of a table whose registration is gone."""

    table: Table
    before: Files
    """The files from before the registration was removed; later files with unique names may be another table's."""
    mark: Mark | None
    until: float
    """Time limit, in seconds since the Unix epoch."""

    async def run(self, backend: Backend) -> bool:
        """Deletes the data; returns whether no version is left.

        Versions that others committed meanwhile are deleted, too, with the files that they refer to, unless the name is
        registered at this location again or the data was left to another name.

        Cost: a listing before and one after; also a describe if others have committed meanwhile.
        """
        marks, late = await in_thread(self.table, self._delete_listed, changes=True)
        for _ in range(_LATE_TIMES):
            if not late:
                break
            # A client that registers the name after this check finds these versions; an earlier one is found here.
            if not await self._is_unregistered(backend):
                break
            late = await in_thread(self.table, partial(self._delete_late, late), changes=True)
        if marks:
            await in_thread(self.table, partial(self._end, marks), changes=True)
        return not late

    async def _is_unregistered(self, backend: Backend) -> bool:
        """Returns whether the name is certainly not registered at this location again."""
        try:
            return not same_place((await backend.describe_table(self.table.id)).location, self.table.location)
        except UnreadableRegistrationError:
            return False
        except TableNotFoundError:
            return True

    def _delete_listed(self) -> tuple[Sequence[str], Sequence[str]]:
        """Deletes the earlier files, and versions that were committed since. Blocks.

        Returns:
            The marks to remove at the end, and the versions that need another check.
        """
        # Abandoned work continues in its thread, so the drop is registered as running here.
        with self._at_work():
            session = session_of(self.table)
            files = Files(session.list())
            late: Sequence[str] = files.manifests
            if self.mark is not None and late:
                if self.mark.path not in files.paths:
                    # Another client has left the data to another name.
                    return (), late
                # A full disk must not prevent the deletion.
                with suppress(OSError):
                    write_mark(session, replace(self.mark, deregistered=True))
            if self.before.manifests and late:
                deletable = {*self.before.paths, *self._named(session, files.manifests)}
                some = (CATALOGS, *_NEVER_TWICE)
                paths = [path for path in files.paths if path in deletable or not path.startswith(some)]
                late = self._clear(session, [path for path in paths if path not in files.marks], late[-1])
            if not late:
                self._end(files.marks)
                return (), ()
            return files.marks, late

    def _delete_late(self, manifests: Sequence[str]) -> Sequence[str]:
        """Deletes versions that others committed; returns those committed since then. Blocks."""
        with self._at_work():
            session = session_of(self.table)
            if self.mark is not None and not session.contains(self.mark.path):
                # Another client has left the data to another name.
                return manifests
            hints = [path for path in session.list("_versions") if not path.endswith(MANIFEST)]
            return self._clear(session, [*manifests, *hints, *self._named(session, manifests)], manifests[-1])

    def _named(self, session: Any, manifests: Sequence[str]) -> set[str]:
        """Returns the files that these versions refer to and that did not exist before. Blocks."""
        named: set[str] = set()
        for path in manifests:
            if path in self.before.paths:
                continue
            try:
                dataset = datasets.open_snapshot(self.table, Snapshot(version_of(path)))
                transaction = dataset.read_transaction(dataset.version)
            except (OSError, ValueError):
                if session.contains(path):
                    raise
                # Its writer has removed the version, because the table was gone.
                continue
            named |= {f"data/{it.path}" for one in dataset.get_fragments() for it in one.data_files()}
            named |= {it for one in dataset.get_fragments() if (it := one.deletion_file()) is not None}
            if transaction is not None:
                uuids = [
                    transaction.uuid,
                    *(it.uuid for it in getattr(transaction.operation, "new_indices", None) or ()),
                ]
                candidates = [*session.list("_transactions"), *session.list("_indices")]
                named |= {it for it in candidates if any(uuid in it for uuid in uuids)}
        return named.difference(self.before.paths)

    def _clear(self, session: Any, paths: Sequence[str], latest: str) -> Sequence[str]:
        """Deletes the files; returns the versions that others have committed meanwhile. Blocks.

        Files with names that a new table at the same location would use are deleted while the latest manifest still
        prevents its creation, and never after the time limit.
        """
        locations.check_deletable(self.table)
        unique = [path for path in paths if path.startswith(_NEVER_TWICE)]
        reusable = sorted({*paths} - {latest, *unique})
        with ThreadPoolExecutor(DELETES_AT_ONCE) as pool:

            def in_time(path: str) -> None:
                _check_time(self.until)
                delete(session, path)

            for future in [pool.submit(in_time, path) for path in reusable]:
                future.result()
            in_time(latest)
            for future in [pool.submit(delete, session, path) for path in unique]:
                future.result()
        return Files(session.list("_versions")).manifests_after(latest)

    def _end(self, marks: Sequence[str]) -> None:
        """Removes the marks and empty folders. Blocks."""
        session = session_of(self.table)
        for path in marks:
            delete(session, path)
        if (place := local_path(self.table.location)) is not None:
            _remove_empty(place)

    def _at_work(self) -> AbstractContextManager[None]:
        return at_work(self.mark.token if self.mark is not None else "")


def _check_time(until: float) -> None:
    if time.time() > until:
        raise TimeoutError("operation timed out: the data was not deleted within the operation's time")


def _remove_empty(folder: str) -> None:
    """Removes the empty folders in a folder, and the folder itself if it is empty."""
    for path, _, _ in os.walk(folder, topdown=False):
        # Other clients may be writing there.
        with suppress(OSError):
            os.rmdir(path)

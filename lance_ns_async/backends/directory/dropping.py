"""Dropping of tables in a directory catalog; a drop whose process is killed is finished by a later call.

The first step is a commit to the manifest that marks the table's entry. This commit decides between concurrent drops
and deregistrations. From then on the name is not found. With a local root, the folder is renamed to a tombstone, and
the files, the entry and the tombstone are deleted in this order. Object stores cannot rename, so the files are deleted,
the latest version first, and then the entry.

A table at a local root is its folder and needs no entry. A drop renames the folder and then creates in it the same file
by which a deregistration hides a table. The client that creates this file wins.

The next call that declares or drops a table in the catalog finishes interrupted drops. It changes nothing else: only
drops create tombstones and marks, and a marked or renamed table is never read again. All functions block.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError, TableNotFoundError

from lance_ns_async.backends.directory.places import (
    OF_LANCE,
    TOMBSTONE,
    OutsideError,
    Places,
    RootNames,
    inside,
    is_file_of,
    is_within,
    masked_uri,
    place_of,
    tombstone,
)
from lance_ns_async.errors import Failure, shortened, without_source, without_user
from lance_ns_async.model import DELIMITER
from lance_ns_async.storage import dir_markers
from lance_ns_async.transports.directory import Change, Directory, Entries, Entry
from lance_ns_async.transports.lance import code_of

log = logging.getLogger(__name__)

DROPPING = "lance_ns.dropping"
"""The metadata key that marks the entry of a table being dropped; its value is the start in Unix seconds."""

_HIDING = "lance_ns.deregistering"
"""The metadata key that marks a table at an object-store root being deregistered; its value is in Unix seconds."""

_FRESH_SECONDS = 600
"""Time for which a drop of another name is left to its process, because it is unknown whether that is alive."""

_GONE_MESSAGE = "it was dropped, deregistered or registered elsewhere meanwhile"

_FULL = re.compile(rf"os error ({errno.ENOSPC}|{errno.EDQUOT}|{errno.EFBIG})\b")
"""Messages of pylance when there is no space for another file."""

_RENAMES = 3
"""Maximum number of attempts to rename a folder while the tombstone of an earlier drop is in the way."""

_WALKS = 5
"""Maximum number of attempts to empty a tombstone while writers still add files."""

_LONGEST = 400
"""Maximum number of characters of a storage error in a message."""

_DATA = re.compile(r"data/(\.tmp.*|[^/]*\.lance|\.[^/]*#\d+|[^/]*\.lance#\d+)")
"""Data files, including unfinished ones."""


class Dropping:
    """Drops tables, and finishes interrupted drops of other processes."""

    def __init__(self, directory: Directory, places: Places) -> None:
        self._directory = directory
        self._places = places
        self._warned_locations: set[str] = set()
        """Locations for which a warning about remaining files was logged."""

    def is_dropped(self, entry: Entry, place: str, names: RootNames | None = None) -> bool:
        """Returns whether a drop of the table has begun; such a table counts as missing."""
        if DROPPING in entry.metadata:
            return True
        if self._places.local is None:
            return False
        if names is not None:
            return bool(names.tombstones) and tombstone(entry.object_id, place) in names.tombstones
        return os.path.lexists(self._places.path(tombstone(entry.object_id, place)))

    def check_alone(self, entries: Entries, object_id: str, place: str) -> None:
        """Raises InvalidTableStateError if a drop at the location would delete files of another table."""
        names = self._places.read_names()
        if (real := self._places.real(place, names)) != place:
            raise InvalidTableStateError(
                f"its location leads through a symbolic link to {real}; deregister it, and delete what is there by hand"
            )
        going = {entry.object_id for entry in entries.with_metadata(DROPPING)}
        for other, location in entries.locations():
            # A table at the root is defined by its folder, not by its entry. A table being dropped needs no protection.
            if other == object_id or DELIMITER not in other or other in going:
                continue
            with suppress(OutsideError):
                there = self._places.real(self._places.normalize(location, names), names)
                if is_within(there, place) or is_file_of(place, there):
                    raise InvalidTableStateError(
                        f"files at its location {place} also belong to {other}, which is registered at {location}; "
                        "deregister one of them first"
                    )
        for link in names.links:
            there = self._places.real(link, names)
            if is_within(there, place) or is_file_of(place, there):
                raise InvalidTableStateError(
                    f"its files at {place} can also be reached by the symbolic link {link}; remove the link first"
                )
        if (above := self.table_around(place)) is not None:
            raise InvalidTableStateError(
                f"its location {place} is among the files of the table at {above}; deregister the one at {place}"
            )

    def table_around(self, place: str) -> str | None:
        """Returns the relative location of a dataset, registered or not, whose files include a location; else None."""
        above = place
        while "/" in above:
            above = above.rpartition("/")[0]
            if is_file_of(place, above) and self._is_dataset(above):
                return above
        return None

    def drop(self, object_id: str, place: str) -> None:
        """Removes the files, and the entry if there is one.

        Raises:
            TableNotFoundError: Another client has dropped the table, deregistered it, or registered it elsewhere.
            InvalidTableStateError: The drop would delete files of another table, or the table is at the root and its
                folder contains files that Lance did not write.
        """
        self.check_alone(self._directory.entries(), object_id, place)
        if self._places.local is None:
            self._mark(object_id, place)
            if self._is_hidden(object_id, place):
                self._remove(object_id, place, _is_marked)
                raise TableNotFoundError("another client has deregistered it")
            with _report_as_dropped(
                f"{self._places.uri(place)}: at once for the same name, for others ten minutes after the drop"
            ):
                ours = self._delete_objects(place)
                self._remove(object_id, place, _is_marked)
            if not ours and DELIMITER not in object_id:
                raise InvalidTableStateError(_not_ours(place))
            return
        if not self._is_ours(place):
            if DELIMITER not in object_id:
                raise InvalidTableStateError(_not_ours(place))
            self._remove(object_id, place, lambda entry: not self.is_dropped(entry, place), must=True)
            return
        left = self._places.path(tombstone(object_id, place))
        if DELIMITER not in object_id:
            if not self._rename(object_id, place) or not self._claim(tombstone(object_id, place), place):
                raise TableNotFoundError("another client has dropped or deregistered it")
        else:
            self._mark_and_rename(object_id, place)
        with _report_as_dropped(left):
            self.collect(object_id, place)

    def collect(self, object_id: str = "", place: str | None = None) -> None:
        """Finishes interrupted drops.

        In an object store, each deletion is a request. Therefore recent drops of other tables are left to the process
        that began them, which may still be running. With a local root, repeating the work is harmless.

        Args:
            object_id: The table for which the call is made. Errors for other tables are logged, and their files stay.
            place: The relative location that this table will have or had; None if it has a new folder of its own.
        """
        if self._places.local is None:
            self._collect_objects(object_id)
            return
        marked_entries = self._directory.entries().with_metadata(DROPPING)
        for entry in marked_entries:
            try:
                self._rename_marked(entry)
            except OSError as e:
                # A process with more permissions can rename it later. Only a call for its own name fails now.
                if entry.object_id == object_id:
                    raise
                self._warn(self._places.path(entry.location or ""), e)
        tombstones = [name for name in self._places.read_names().tombstones if self._claim(name, place_of(name))]
        if not (marked_entries or tombstones):
            return
        # The files are deleted first, because a commit on a full disk fails.
        left = self._each(self._empty, tombstones)

        def edit(entries: Entries) -> Change:
            names = self._places.read_names()
            object_ids = []
            for id, location in entries.locations():
                with suppress(OutsideError):
                    # An entry without a tombstone may be a new table, if another process has finished the drop.
                    if tombstone(id, self._places.normalize(location, names)) in names.tombstones:
                        object_ids.append(id)
            # Some marked tables have no folder, or share it with another table.
            object_ids += [
                it.object_id for it in marked_entries if it.object_id not in object_ids and self._is_over(it, entries)
            ]
            return Change(remove=object_ids)

        self._directory.change(edit)
        left |= self._each(self._delete_tombstone, [name for name in tombstones if name not in left])
        own = None if place is None else tombstone(object_id, place)
        for name, error in left.items():
            if name != own:
                self._warn(self._places.path(name), error)
        if own in left:
            raise left[own]

    def _each(self, work: Callable[[str], None], names: Sequence[str]) -> dict[str, OSError]:
        """Runs `work` for each name; returns the names that failed, with their errors."""
        errors = {}
        for name in names:
            try:
                work(name)
            except OSError as e:
                errors[name] = e
        return errors

    def _warn(self, where: str, error: Exception) -> None:
        """Logs, once for each location, that files of a dropped table cannot be deleted."""
        if where not in self._warned_locations:
            self._warned_locations.add(where)
            log.warning("a dropped table's files at %s cannot be deleted (%s)", masked_uri(where), _reason(error))

    def hide(self, object_id: str, place: str) -> None:
        """Deregisters a table at a local root, and removes its folder if the table has no data.

        Raises:
            TableNotFoundError: The table does not exist, or another client has deregistered or dropped it.
        """
        path, name = self._places.path(place), tombstone(object_id, place)
        try:
            # pylance is not used here: it would create the folder again if a drop removed it at this moment.
            os.close(os.open(os.path.join(path, dir_markers.HIDDEN_MARK), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except (FileExistsError, FileNotFoundError) as e:
            raise TableNotFoundError(f"no table is at {place}, or it is deregistered") from e
        # A hidden folder that remains is harmless: the next declaration of the name removes it.
        with suppress(OSError):
            if os.path.islink(path) or not dir_markers.is_only_declared(path):
                return
            os.rename(path, self._places.path(name))
            if dir_markers.is_only_declared(self._places.path(name)):
                self._delete_tombstone(name)
            else:
                # Another process has written data in the meantime.
                os.rename(self._places.path(name), path)

    @contextmanager
    def hiding(self, object_id: str, place: str) -> Iterator[None]:
        """Blocks drops while a table at the root of an object store is deregistered.

        Raises:
            TableNotFoundError: Another client has begun to drop the table, or the name is now that of a namespace.

        Cost: two commits to the manifest.
        """

        def begin(entries: Entries) -> Change:
            entry = entries.get(object_id) or Entry(object_id, "table", place)
            if entry.kind != "table":
                raise TableNotFoundError("the name now belongs to a namespace")
            if DROPPING in entry.metadata:
                raise TableNotFoundError("another client has dropped it")
            return Change(put=[replace(entry, metadata={**entry.metadata, _HIDING: str(_now())})])

        def end(entries: Entries) -> Change:
            # Other tools also add an entry for a table that they declare. It would keep the name in use.
            entry = entries.get(object_id)
            return Change(remove=[object_id] if entry is not None and _HIDING in entry.metadata else [])

        self._directory.change(begin)
        try:
            yield
        finally:
            self._directory.change(end)

    def _is_hidden(self, object_id: str, place: str) -> bool:
        """Returns whether a table at the root of an object store was deregistered; then its data must stay."""
        if DELIMITER in object_id:
            return False
        return bool(self._directory.files(self._places.uri(place)).contains(dir_markers.HIDDEN_MARK))

    def _collect_objects(self, object_id: str) -> None:
        for entry in self._directory.entries().with_metadata(DROPPING):
            if entry.object_id != object_id and _is_fresh(entry.metadata[DROPPING]):
                continue
            if (place := self._take_over(entry)) is None:
                continue
            try:
                if not self._is_hidden(entry.object_id, place):
                    self._delete_objects(place)
            except (OSError, ValueError, RuntimeError) as e:
                if entry.object_id == object_id:
                    raise
                self._warn(self._places.uri(place), e)
                continue
            self._remove(entry.object_id, place, _is_marked)

    def _take_over(self, entry: Entry) -> str | None:
        """Renews the mark of a table in an object store, so that no other process continues its drop.

        Returns:
            The relative location of the files to delete; None if another process was first or the files belong to
            another table.
        """
        place: str | None = None

        def edit(entries: Entries) -> Change:
            nonlocal place
            place = None
            if entries.get(entry.object_id) != entry:
                return Change()
            try:
                there = self._places.normalize(entry.location or "")
                self.check_alone(entries, entry.object_id, there)
            except (OutsideError, InvalidTableStateError):
                return Change(remove=[entry.object_id])
            place = there
            start = entry.metadata[DROPPING]
            # The new value always differs from the old one, even within the same second.
            now = max(_now(), int(start) + 1) if start.isdigit() else _now()
            return Change(put=[replace(entry, metadata={**entry.metadata, DROPPING: str(now)})])

        self._directory.change(edit)
        return place

    def _mark_and_rename(self, object_id: str, place: str) -> None:
        try:
            self._mark(object_id, place)
        except OSError as e:
            # The disk is full, and only a drop can free space, so the folder is renamed without a mark. A concurrent
            # deregistration may then also succeed, although the data is deleted. But it would need the disk space for
            # a commit, which was missing here. To refuse the drop would be worse.
            if not _FULL.search(str(e)) or not self._rename(object_id, place):
                raise
            return
        try:
            self._rename_marked(Entry(object_id, "table", place))
        except OSError:
            # Without permission to rename the folder, the table must remain usable.
            self._unmark(object_id, place)
            raise

    def _rename_marked(self, entry: Entry) -> None:
        """Renames a marked table's folder to its tombstone, unless it contains files of other tables."""
        # An entry whose location now leads out of the root was changed by another client.
        with suppress(OutsideError, InvalidTableStateError):
            place = self._places.normalize(entry.location or "")
            if self._is_ours(place):
                self._rename(entry.object_id, place, is_marked=True)

    def _is_over(self, entry: Entry, entries: Entries) -> bool:
        """Returns whether only the entry of a marked table remains to be removed."""
        if entries.get(entry.object_id) != entry:
            return False
        try:
            place = self._places.normalize(entry.location or "")
            self.check_alone(entries, entry.object_id, place)
        except (OutsideError, InvalidTableStateError):
            return True
        return not os.path.lexists(self._places.path(place)) or not self._is_ours(place)

    def _rename(self, object_id: str, place: str, *, is_marked: bool = False) -> bool:
        """Renames a table's folder to its tombstone; returns False if the folder no longer exists."""
        path, name = self._places.path(place), tombstone(object_id, place)
        for left in reversed(range(_RENAMES)):
            try:
                os.rename(path, self._places.path(name))
                break
            except FileNotFoundError:
                return False
            except OSError:
                if not left or not os.path.lexists(self._places.path(name)):
                    raise
                # The tombstone of an earlier table at this location is in the way.
                if self._claim(name, place_of(name)):
                    self._delete_tombstone(name)
        try:
            # Another table may have been registered in the meantime.
            self.check_alone(entries := self._directory.entries(), object_id, place)
            entry = entries.get(object_id)
            if is_marked and entry is not None and DROPPING not in entry.metadata and self._is_at(entry, place):
                raise InvalidTableStateError("it was dropped meanwhile, and registered again at the same location")
        except InvalidTableStateError:
            os.rename(self._places.path(name), path)
            raise
        return True

    def _claim(self, name: str, place: str | None) -> bool:
        """Returns whether a tombstone may be deleted; after an earlier deregistration, it renames the folder back.

        Args:
            place: The original relative location of a table at the root; None for other tables, where the mark in the
                entry has already decided.
        """
        if place is None:
            return True
        path, back = self._places.path(name), self._places.path(place)
        try:
            # A symbolic link needs no disk space, and differs from the file that a deregistration creates. It has no
            # valid target, so that programs that walk the root ignore it.
            os.symlink(TOMBSTONE, os.path.join(path, dir_markers.HIDDEN_MARK))
            return True
        except OSError:
            # The name exists, or another process has renamed the folder back or deleted it, or the disk is full.
            if not any(os.path.isfile(os.path.join(folder, dir_markers.HIDDEN_MARK)) for folder in (path, back)):
                return True
        # If another table is there now, the tombstone stays, and no data is lost.
        with suppress(OSError):
            os.rename(path, back)
        return False

    def _delete_tombstone(self, name: str) -> None:
        self._empty(name)
        path = self._places.path(name)
        # This file is removed last, because it prevents a deregistration from creating it.
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(path, dir_markers.HIDDEN_MARK))
        with suppress(FileNotFoundError):
            os.rmdir(path)

    def _empty(self, name: str) -> None:
        """Deletes the content of a tombstone, except the file that claims it."""
        for left in reversed(range(_WALKS)):
            try:
                self._delete_walked(name)
                return
            except OSError as e:
                # A writer that opened the folder before the rename may still add files.
                if e.errno != errno.ENOTEMPTY or not left:
                    raise

    def _delete_walked(self, name: str) -> None:
        top = self._places.path(name)
        for folder, folders, files in os.walk(top, topdown=False, onerror=_raise_unless_gone):
            # Another process may delete the same files at the same time.
            for file in files:
                if folder != top or file != dir_markers.HIDDEN_MARK:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(folder, file))
            for below in folders:
                path = os.path.join(folder, below)
                with suppress(FileNotFoundError):
                    (os.unlink if os.path.islink(path) else os.rmdir)(path)

    def _mark(self, object_id: str, place: str) -> None:
        """Marks a table's entry as being dropped; a table at the root without an entry gets one."""

        def edit(entries: Entries) -> Change:
            entry = entries.get(object_id)
            if DELIMITER not in object_id and (entry is None or entry.location == place):
                entry = entry or Entry(object_id, "table", place)
                if _is_fresh(entry.metadata.get(_HIDING, "")):
                    raise ConcurrentModificationError("another client is deregistering it")
            # `is_dropped` also finds a tombstone without a mark, which a drop on a full disk leaves.
            if entry is None or self.is_dropped(entry, place) or not self._is_at(entry, place):
                raise TableNotFoundError(_GONE_MESSAGE)
            self.check_alone(entries, object_id, place)
            return Change(put=[replace(entry, metadata={**entry.metadata, DROPPING: str(_now())})])

        self._directory.change(edit)

    def _unmark(self, object_id: str, place: str) -> None:
        def edit(entries: Entries) -> Change:
            entry = entries.get(object_id)
            if entry is None or DROPPING not in entry.metadata or not self._is_at(entry, place):
                return Change()
            metadata = {key: value for key, value in entry.metadata.items() if key != DROPPING}
            return Change(put=[replace(entry, metadata=metadata)])

        self._directory.change(edit)

    def _remove(
        self, object_id: str, place: str, when: Callable[[Entry], bool] | None = None, *, must: bool = False
    ) -> None:
        """Removes the entry of a table if it has this location and `when` returns True for it.

        Args:
            when: The condition; None for no condition.
            must: Whether to raise TableNotFoundError if the entry is not removed.
        """

        def edit(entries: Entries) -> Change:
            entry = entries.get(object_id)
            if entry is not None and self._is_at(entry, place) and (when is None or when(entry)):
                return Change(remove=[object_id])
            if must:
                raise TableNotFoundError(_GONE_MESSAGE)
            return Change()

        self._directory.change(edit)

    def _is_at(self, entry: Entry, place: str) -> bool:
        try:
            return entry.kind == "table" and inside(entry.location or "") == place
        except OutsideError:
            return False

    def _is_ours(self, place: str) -> bool:
        """Returns whether Lance wrote all files at a location; True if the location does not exist."""
        path = self._places.path(place)
        if not os.path.isdir(path):
            return not os.path.lexists(path)
        files = [
            os.path.relpath(os.path.join(folder, file), path) for folder, _, names in os.walk(path) for file in names
        ]
        return _are_ours(files)

    def _is_dataset(self, place: str) -> bool:
        if self._places.local is not None:
            return os.path.isdir(os.path.join(self._places.path(place), "_versions"))
        return any(path.startswith("_versions/") for path in self._directory.files(self._places.uri(place)).list())

    def _delete_objects(self, place: str) -> bool:
        """Deletes the files at a location if Lance wrote all of them; returns whether it did."""
        files = self._directory.files(self._places.uri(place))
        if not _are_ours(paths := files.list()):
            return False
        for path in sorted(paths, key=_order):
            files.delete_file(path)
        return True


@contextmanager
def _report_as_dropped(left: str) -> Iterator[None]:
    """Raises errors of the block as failures that say that the table is dropped and where files may remain."""
    try:
        yield
    except BaseException as e:  # a panic of Lance is no Exception, and its class cannot be imported
        if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
            raise
        message = f"{_reason(e)}; it is dropped, and later drops and declarations delete files that remain at {left}"
        raise Failure(code_of(e), message=message, delivered=True) from e


def _reason(e: BaseException) -> str:
    return shortened(" ".join(without_user(without_source(str(e))).split()), _LONGEST)


def _raise_unless_gone(e: OSError) -> None:
    # Another process may delete the same files at the same time.
    if not isinstance(e, FileNotFoundError):
        raise e


def _not_ours(place: str) -> str:
    return f"there are files at {place} that Lance did not write; deregister it"


def _is_marked(entry: Entry) -> bool:
    return DROPPING in entry.metadata


def _are_ours(files: Sequence[str]) -> bool:
    """Returns whether the files are those of a dataset, or of a dataset that was never committed."""
    if any(file.startswith("_versions/") for file in files):
        return True
    return all(
        dir_markers.is_marker(file)
        or (file.partition("/")[0] in OF_LANCE and (not file.startswith("data/") or _DATA.fullmatch(file)))
        for file in files
    )


def _order(path: str) -> tuple[int, int]:
    """Returns the sort key for deletion: the latest version first, then earlier versions, then all other files."""
    folder, _, name = path.rpartition("/")
    if folder != "_versions" and not folder.endswith("/_versions"):
        return 2, 0
    number = name.partition(".")[0]
    if not number.isdigit():
        return 0, 0
    # In names of twenty digits, a lower number is a later version.
    return 1, int(number) if len(number) == 20 else -int(number)


def _is_fresh(start: str) -> bool:
    return start.isdigit() and _now() - int(start) <= _FRESH_SECONDS


def _now() -> int:
    return int(time.time())

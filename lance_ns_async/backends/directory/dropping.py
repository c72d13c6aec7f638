"""Dropping tables of a directory catalog, so that a process that is killed half way leaves nothing that stays.

The first step decides who wins, also against a deregister: a commit to the manifest that marks the entry of the table.
From then on its name is not found. Local root: the folder is renamed to a tombstone, the files are deleted, then the
entry, then the tombstone. Object stores cannot rename: the files are deleted, the latest version first, then the entry.

A table at a local root is its folder, and needs no entry. A drop renames the folder, and then makes the same file in it
by which a deregister hides a table: whoever makes that file wins.

The next call that declares or drops a table in the catalog finishes what it finds begun. It touches nothing else: only
a drop makes tombstones and marks, and none that is one is ever read again. Everything here blocks.
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
    Seen,
    inside,
    is_file_of,
    is_within,
    place_of,
    shown,
    tombstone,
)
from lance_ns_async.errors import Failure, shortened, without_source, without_user
from lance_ns_async.model import DELIMITER
from lance_ns_async.storage import dir_markers
from lance_ns_async.transports.directory import Change, Directory, Entries, Entry
from lance_ns_async.transports.lance import code_of

log = logging.getLogger(__name__)

DROPPING = "lance_ns.dropping"
"""The key in an entry's metadata that marks a table whose files are about to be deleted; its value is when, in s."""

_HIDING = "lance_ns.deregistering"
"""The key in the entry of a table at the root of an object store that is being deregistered; its value is when."""

_FRESH_SECONDS = 600
"""For so long a drop of another name is left to the process that began it, where nothing tells if that is alive."""

_GONE = "it was dropped, deregistered or registered elsewhere meanwhile"

_FULL = re.compile(rf"os error ({errno.ENOSPC}|{errno.EDQUOT}|{errno.EFBIG})\b")
"""What pylance says where there is no space for another file."""

_RENAMES = 3
"""How often a folder is renamed again after what was left of an earlier drop was in the way."""

_WALKS = 5
"""How often a tombstone is walked while writers still add files."""

_LONGEST = 400
"""How many characters of what the storage says are told."""

_DATA = re.compile(r"data/(\.tmp.*|[^/]*\.lance|\.[^/]*#\d+|[^/]*\.lance#\d+)")
"""Data files, also those that were not finished."""


class Dropping:
    """Drops tables, and finishes drops that others have begun."""

    def __init__(self, directory: Directory, places: Places) -> None:
        self._directory = directory
        self._places = places
        self._warned: set[str] = set()
        """Where files are left, and the log says so."""

    def is_dropped(self, entry: Entry, place: str, seen: Seen | None = None) -> bool:
        """Returns whether a drop of the table has begun, which makes it one that is not there."""
        if DROPPING in entry.metadata:
            return True
        if self._places.local is None:
            return False
        if seen is not None:
            return bool(seen.tombstones) and tombstone(entry.object_id, place) in seen.tombstones
        return os.path.lexists(self._places.path(tombstone(entry.object_id, place)))

    def check_alone(self, entries: Entries, object_id: str, place: str) -> None:
        """Raises InvalidTableStateError where a drop at the place would delete files of another table."""
        seen = self._places.see()
        if (real := self._places.real(place, seen)) != place:
            raise InvalidTableStateError(
                f"its place leads through a symbolic link to {real}; deregister it, and delete what is there by hand"
            )
        going = {entry.object_id for entry in entries.with_metadata(DROPPING)}
        for other, location in entries.locations():
            # What is at the root is there by its folder, whatever its entry says. What is being dropped is not kept.
            if other == object_id or DELIMITER not in other or other in going:
                continue
            with suppress(OutsideError):
                there = self._places.real(self._places.checked(location, seen), seen)
                if is_within(there, place) or is_file_of(place, there):
                    raise InvalidTableStateError(
                        f"files at its place {place} are those of {other} too, which is registered at {location}; "
                        "deregister one of them first"
                    )
        for link in seen.links:
            there = self._places.real(link, seen)
            if is_within(there, place) or is_file_of(place, there):
                raise InvalidTableStateError(
                    f"its files at {place} are reached by the symbolic link {link} too; remove the link first"
                )
        if (above := self.table_around(place)) is not None:
            raise InvalidTableStateError(
                f"its place {place} is among the files of the table at {above}; deregister the one at {place}"
            )

    def table_around(self, place: str) -> str | None:
        """Returns where a dataset is, registered or not, among whose files a place would be; None for no such one."""
        above = place
        while "/" in above:
            above = above.rpartition("/")[0]
            if is_file_of(place, above) and self._is_dataset(above):
                return above
        return None

    def drop(self, object_id: str, place: str) -> None:
        """Removes the entry, if there is one, and the files.

        Raises:
            TableNotFoundError: Somebody else has dropped it first, deregistered it, or registered it elsewhere.
            InvalidTableStateError: Files would be deleted that are another table's, or, at the root, not Lance's.
        """
        self.check_alone(self._directory.entries(), object_id, place)
        if self._places.local is None:
            self._mark(object_id, place)
            if self._is_hidden(object_id, place):
                self._remove(object_id, place, _is_marked)
                raise TableNotFoundError("somebody else has deregistered it")
            with _dropped(
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
            if not self._renamed(object_id, place) or not self._claimed(tombstone(object_id, place), place):
                raise TableNotFoundError("somebody else has dropped or deregistered it")
        else:
            self._mark_and_rename(object_id, place)
        with _dropped(left):
            self.collect(object_id, place)

    def collect(self, object_id: str = "", place: str | None = None) -> None:
        """Finishes the drops that were begun.

        In an object store, where each deletion is a request, those of other tables than that of the id are left for a
        while to the process that began them, which may be alive. On a local root it does no harm to do them twice.

        Args:
            object_id: The table for which it is done; files of others that cannot be deleted are logged, and left.
            place: Where that table is to be, or was; None where it has a folder of its own that nothing else has had.
        """
        if self._places.local is None:
            self._collect_objects(object_id)
            return
        marked = self._directory.entries().with_metadata(DROPPING)
        for entry in marked:
            try:
                self._rename_marked(entry)
            except OSError as e:
                # It stays as it is for those who may rename it; only those who want its name need it.
                if entry.object_id == object_id:
                    raise
                self._warn(self._places.path(entry.location or ""), e)
        tombstones = [name for name in self._places.see().tombstones if self._claimed(name, place_of(name))]
        if not (marked or tombstones):
            return
        # The files first: without space on the disk, nothing can be committed.
        left = self._each(self._empty, tombstones)

        def edit(entries: Entries) -> Change:
            seen = self._places.see()
            gone = []
            for id, location in entries.locations():
                with suppress(OutsideError):
                    # One without a tombstone by now was finished by somebody else, and may be a new table.
                    if tombstone(id, self._places.checked(location, seen)) in seen.tombstones:
                        gone.append(id)
            # Of some there was no folder, or it is that of another table too.
            gone += [it.object_id for it in marked if it.object_id not in gone and self._is_over(it, entries)]
            return Change(remove=gone)

        self._directory.change(edit)
        left |= self._each(self._delete_tombstone, [name for name in tombstones if name not in left])
        own = None if place is None else tombstone(object_id, place)
        for name, error in left.items():
            if name != own:
                self._warn(self._places.path(name), error)
        if own in left:
            raise left[own]

    def _each(self, work: Callable[[str], None], names: Sequence[str]) -> dict[str, OSError]:
        """Does it to each, and returns those where it failed: files that may not be deleted keep no others."""
        failed = {}
        for name in names:
            try:
                work(name)
            except OSError as e:
                failed[name] = e
        return failed

    def _warn(self, where: str, error: Exception) -> None:
        """Logs, once for each place, that files of a dropped table cannot be deleted."""
        if where not in self._warned:
            self._warned.add(where)
            log.warning("a dropped table's files at %s cannot be deleted (%s)", shown(where), _reason(error))

    def hide(self, object_id: str, place: str) -> None:
        """Deregisters a table at a local root, and removes its folder where nothing was written to it.

        Raises:
            TableNotFoundError: There is none, or somebody else has deregistered or dropped it first.
        """
        path, name = self._places.path(place), tombstone(object_id, place)
        try:
            # pylance would make the folder anew, were it dropped in this moment.
            os.close(os.open(os.path.join(path, dir_markers.HIDDEN), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except (FileExistsError, FileNotFoundError) as e:
            raise TableNotFoundError(f"no table is at {place}, or it is deregistered") from e
        # A hidden folder that stays is in nobody's way: the next declaration of the name removes it.
        with suppress(OSError):
            if os.path.islink(path) or not dir_markers.is_only_declared(path):
                return
            os.rename(path, self._places.path(name))
            if dir_markers.is_only_declared(self._places.path(name)):
                self._delete_tombstone(name)
            else:
                # Somebody has written to it meanwhile.
                os.rename(self._places.path(name), path)

    @contextmanager
    def hiding(self, object_id: str, place: str) -> Iterator[None]:
        """Keeps drops away while a table at the root of an object store is deregistered.

        Raises:
            TableNotFoundError: Somebody else has begun to drop it.

        Cost: two commits to the manifest.
        """

        def begin(entries: Entries) -> Change:
            entry = entries.get(object_id) or Entry(object_id, "table", place)
            if entry.kind != "table":
                raise TableNotFoundError("the name is that of a namespace by now")
            if DROPPING in entry.metadata:
                raise TableNotFoundError("somebody else has dropped it")
            return Change(put=[replace(entry, metadata={**entry.metadata, _HIDING: str(_now())})])

        def end(entries: Entries) -> Change:
            # Other tools also make an entry of what they declare, which would keep the name.
            entry = entries.get(object_id)
            return Change(remove=[object_id] if entry is not None and _HIDING in entry.metadata else [])

        self._directory.change(begin)
        try:
            yield
        finally:
            self._directory.change(end)

    def _is_hidden(self, object_id: str, place: str) -> bool:
        """Returns whether a table at the root of an object store was deregistered, so that its data stays."""
        if DELIMITER in object_id:
            return False
        return bool(self._directory.files(self._places.uri(place)).contains(dir_markers.HIDDEN))

    def _collect_objects(self, object_id: str) -> None:
        for entry in self._directory.entries().with_metadata(DROPPING):
            if entry.object_id != object_id and _is_fresh(entry.metadata[DROPPING]):
                continue
            if (place := self._taken_over(entry)) is None:
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

    def _taken_over(self, entry: Entry) -> str | None:
        """Marks a marked table in an object store anew, so that nobody else goes on with its drop.

        Returns where its files are to be deleted; None where somebody else was first, or they are another table's.
        """
        place: str | None = None

        def edit(entries: Entries) -> Change:
            nonlocal place
            place = None
            if entries.get(entry.object_id) != entry:
                return Change()
            try:
                there = self._places.checked(entry.location or "")
                self.check_alone(entries, entry.object_id, there)
            except (OutsideError, InvalidTableStateError):
                return Change(remove=[entry.object_id])
            place = there
            begun = entry.metadata[DROPPING]
            # Never the same again, within one second either.
            now = max(_now(), int(begun) + 1) if begun.isdigit() else _now()
            return Change(put=[replace(entry, metadata={**entry.metadata, DROPPING: str(now)})])

        self._directory.change(edit)
        return place

    def _mark_and_rename(self, object_id: str, place: str) -> None:
        try:
            self._mark(object_id, place)
        except OSError as e:
            # A full disk. Only a drop can free it, so the folder is renamed without a mark. Then a deregister at the
            # same moment may be told that it removed the table too, and its data is gone all the same; but that
            # needs the space for a commit that was missing here. No drop at all would be worse.
            if not _FULL.search(str(e)) or not self._renamed(object_id, place):
                raise
            return
        try:
            self._rename_marked(Entry(object_id, "table", place))
        except OSError:
            # Whoever may not rename it leaves a table that is there.
            self._unmark(object_id, place)
            raise

    def _rename_marked(self, entry: Entry) -> None:
        """Makes a tombstone of a marked table's folder, unless files of others would go with it."""
        # An entry that leads outside by now was changed by somebody else.
        with suppress(OutsideError, InvalidTableStateError):
            place = self._places.checked(entry.location or "")
            if self._is_ours(place):
                self._renamed(entry.object_id, place, marked=True)

    def _is_over(self, marked: Entry, entries: Entries) -> bool:
        """Returns whether nothing is left to delete of a table that was marked, but its entry."""
        if entries.get(marked.object_id) != marked:
            return False
        try:
            place = self._places.checked(marked.location or "")
            self.check_alone(entries, marked.object_id, place)
        except (OutsideError, InvalidTableStateError):
            return True
        return not os.path.lexists(self._places.path(place)) or not self._is_ours(place)

    def _renamed(self, object_id: str, place: str, *, marked: bool = False) -> bool:
        """Makes a tombstone of the table's folder; returns False where there is none any more."""
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
                # That of an earlier table at this place.
                if self._claimed(name, place_of(name)):
                    self._delete_tombstone(name)
        try:
            # One that was registered meanwhile.
            self.check_alone(entries := self._directory.entries(), object_id, place)
            entry = entries.get(object_id)
            if marked and entry is not None and DROPPING not in entry.metadata and self._is_at(entry, place):
                raise InvalidTableStateError("it was dropped meanwhile, and registered again at the same place")
        except InvalidTableStateError:
            os.rename(self._places.path(name), path)
            raise
        return True

    def _claimed(self, name: str, place: str | None) -> bool:
        """Decides whether a tombstone is to be deleted; where a deregister was first, it becomes a folder again.

        `place` is that of a table at the root, and None for others, of which their entry decides.
        """
        if place is None:
            return True
        path, back = self._places.path(name), self._places.path(place)
        try:
            # It takes no space. A deregister makes a file. It leads nowhere, so that those who walk the root ignore it.
            os.symlink(TOMBSTONE, os.path.join(path, dir_markers.HIDDEN))
            return True
        except OSError:
            # There is one, or others have renamed the folder back, or deleted it, or there is no space at all.
            if not any(os.path.isfile(os.path.join(folder, dir_markers.HIDDEN)) for folder in (path, back)):
                return True
        # Another table may be there by now: then it is left, and no data is lost.
        with suppress(OSError):
            os.rename(path, back)
        return False

    def _delete_tombstone(self, name: str) -> None:
        self._empty(name)
        path = self._places.path(name)
        # Until then, no deregister can make it.
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(path, dir_markers.HIDDEN))
        with suppress(FileNotFoundError):
            os.rmdir(path)

    def _empty(self, name: str) -> None:
        """Deletes what is in a tombstone, but for the file that claims it."""
        for left in reversed(range(_WALKS)):
            try:
                self._delete_walked(name)
                return
            except OSError as e:
                # A writer that has opened the folder under its old name may still add files.
                if e.errno != errno.ENOTEMPTY or not left:
                    raise

    def _delete_walked(self, name: str) -> None:
        top = self._places.path(name)
        for folder, folders, files in os.walk(top, topdown=False, onerror=_raise_unless_gone):
            # Others may be about to delete the same.
            for file in files:
                if folder != top or file != dir_markers.HIDDEN:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(folder, file))
            for below in folders:
                path = os.path.join(folder, below)
                with suppress(FileNotFoundError):
                    (os.unlink if os.path.islink(path) else os.rmdir)(path)

    def _mark(self, object_id: str, place: str) -> None:
        """Marks an entry as one that is being dropped; a table at the root gets one for that."""

        def edit(entries: Entries) -> Change:
            entry = entries.get(object_id)
            if DELIMITER not in object_id and (entry is None or entry.location == place):
                entry = entry or Entry(object_id, "table", place)
                if _is_fresh(entry.metadata.get(_HIDING, "")):
                    raise ConcurrentModificationError("somebody else is deregistering it")
            # Where a process could not mark it for lack of space, there is a tombstone.
            if entry is None or self.is_dropped(entry, place) or not self._is_at(entry, place):
                raise TableNotFoundError(_GONE)
            self.check_alone(entries, object_id, place)
            return Change(put=[replace(entry, metadata={**entry.metadata, DROPPING: str(_now())})])

        self._directory.change(edit)

    def _unmark(self, object_id: str, place: str) -> None:
        def edit(entries: Entries) -> Change:
            entry = entries.get(object_id)
            if entry is None or DROPPING not in entry.metadata or not self._is_at(entry, place):
                return Change()
            kept = {key: value for key, value in entry.metadata.items() if key != DROPPING}
            return Change(put=[replace(entry, metadata=kept)])

        self._directory.change(edit)

    def _remove(
        self, object_id: str, place: str, when: Callable[[Entry], bool] | None = None, *, must: bool = False
    ) -> None:
        """Removes the entry of a table, if it is at the place and `when` agrees; `must` raises where it is not."""

        def edit(entries: Entries) -> Change:
            entry = entries.get(object_id)
            if entry is not None and self._is_at(entry, place) and (when is None or when(entry)):
                return Change(remove=[object_id])
            if must:
                raise TableNotFoundError(_GONE)
            return Change()

        self._directory.change(edit)

    def _is_at(self, entry: Entry, place: str) -> bool:
        try:
            return entry.kind == "table" and inside(entry.location or "") == place
        except OutsideError:
            return False

    def _is_ours(self, place: str) -> bool:
        """Returns whether all that is at a place was written by Lance, or nothing is there."""
        path = self._places.path(place)
        if not os.path.isdir(path):
            return not os.path.lexists(path)
        files = [
            os.path.relpath(os.path.join(folder, file), path) for folder, _, found in os.walk(path) for file in found
        ]
        return _are_ours(files)

    def _is_dataset(self, place: str) -> bool:
        if self._places.local is not None:
            return os.path.isdir(os.path.join(self._places.path(place), "_versions"))
        return any(path.startswith("_versions/") for path in self._directory.files(self._places.uri(place)).list())

    def _delete_objects(self, place: str) -> bool:
        """Deletes what is at a place; returns False, and deletes nothing, where Lance did not write all of it."""
        files = self._directory.files(self._places.uri(place))
        if not _are_ours(found := files.list()):
            return False
        for path in sorted(found, key=_order):
            files.delete_file(path)
        return True


@contextmanager
def _dropped(left: str) -> Iterator[None]:
    """Says in what goes wrong that the table is dropped all the same, and where its files may be left."""
    try:
        yield
    except BaseException as e:  # a panic of Lance is no Exception, and of no class to import; all else is raised on
        if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
            raise
        message = f"{_reason(e)}; it is dropped, and later drops and declarations delete what may be left at {left}"
        raise Failure(code_of(e), message=message, delivered=True) from e


def _reason(e: BaseException) -> str:
    return shortened(" ".join(without_user(without_source(str(e))).split()), _LONGEST)


def _raise_unless_gone(e: OSError) -> None:
    # Others may be about to delete the same.
    if not isinstance(e, FileNotFoundError):
        raise e


def _not_ours(place: str) -> str:
    return f"there are files at {place} that Lance did not write; deregister it"


def _is_marked(entry: Entry) -> bool:
    return DROPPING in entry.metadata


def _are_ours(files: Sequence[str]) -> bool:
    """Returns whether files are those of a dataset, or of one that was never committed."""
    if any(file.startswith("_versions/") for file in files):
        return True
    return all(
        file.partition("/")[0] in OF_LANCE and (not file.startswith("data/") or _DATA.fullmatch(file)) for file in files
    )


def _order(path: str) -> tuple[int, int]:
    """Sorts the latest version before those before it, and all of them before the data they consist of."""
    folder, _, name = path.rpartition("/")
    if folder != "_versions" and not folder.endswith("/_versions"):
        return 2, 0
    number = name.partition(".")[0]
    if not number.isdigit():
        return 0, 0
    # Names of twenty digits count down.
    return 1, int(number) if len(number) == 20 else -int(number)


def _is_fresh(begun: str) -> bool:
    return begun.isdigit() and _now() - int(begun) <= _FRESH_SECONDS


def _now() -> int:
    return int(time.time())

"""Drops and deregistrations in a directory catalog: the registration is removed, then the data is deleted.

The first step succeeds for exactly one of several concurrent callers:

- A table in a namespace is an entry of the manifest. One commit removes it.
- A table at a local root is a folder. A drop renames it to a new name, and a deregistration creates pylance's hidden
  marker in it. The drop then creates the same file, so that one of the two fails.
- A table at the root of an object store is hidden by the same marker, which pylance creates only if it does not exist.

If the process is killed afterwards, the remaining data has no registration; `fleet.audit` with `data_under` lists it.

A requested location may be used again while its data is deleted. Therefore nothing is deleted if a table is registered
there again after the commit, and otherwise only files that were listed before it, in the order of `_order`. All
functions block.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from lance_namespace import DeregisterTableRequest
from lance_namespace.errors import (
    InvalidTableStateError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.backends.directory.manifest import Directory, Entries, ManifestChange
from lance_ns_async.backends.directory.places import (
    OF_LANCE,
    OutsideError,
    RootNames,
    TableLocations,
    inside,
    is_file_of,
    is_within,
    masked_uri,
)
from lance_ns_async.backends.directory.transport import code_of
from lance_ns_async.calls.steps import next_step
from lance_ns_async.errors import Failure, shortened, without_source
from lance_ns_async.masked import without_user
from lance_ns_async.model import DELIMITER
from lance_ns_async.storage import dir_markers, files
from lance_ns_async.storage.lance_layout import DATA, UNIQUE_NAMES, VERSIONS, has_manifest, is_data_file

log: logging.Logger = logging.getLogger(__name__)

_FULL = re.compile(rf"os error ({errno.ENOSPC}|{errno.EDQUOT}|{errno.EFBIG})\b")
"""Messages of pylance when there is no space for another file."""

_MAX_MESSAGE_LENGTH = 400  # Maximum number of characters of a storage error in a message.

_MANIFEST = re.compile(rf"{VERSIONS}/(\d+)\.manifest")


class Dropping:
    """Drops and hides tables."""

    def __init__(
        self, directory: Directory, places: TableLocations, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._places = places
        self._storage_options = storage_options

    def check_alone(self, entries: Entries, object_id: str, place: str) -> None:
        """Raises InvalidTableStateError if a drop at the location would delete files of another table."""
        names = self._places.read_names()
        if (real := self._places.real(place, names)) != place:
            raise InvalidTableStateError(
                f"its location leads through a symbolic link to {real}; deregister it, and delete what is there by hand"
            )
        if (found := self._registered_at(entries, place, names, than=object_id)) is not None:
            other, location = found
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

    def _registered_at(
        self, entries: Entries, place: str, names: RootNames, *, than: str | None = None
    ) -> tuple[str, str] | None:
        """Returns another table `than` this one to which files at a location belong, and its location; else None."""
        for other, location in entries.locations():
            # A table at the root is defined by its folder, not by its entry.
            if other == than or DELIMITER not in other:
                continue
            with suppress(OutsideError):
                there = self._places.real(self._places.normalize(location, names), names)
                if is_within(there, place) or is_file_of(place, there):
                    return other, location
        return None

    def table_around(self, place: str) -> str | None:
        """Returns the relative location of a dataset, registered or not, whose files include a location; else None."""
        above = place
        while "/" in above:
            above = above.rpartition("/")[0]
            if is_file_of(place, above) and self._is_dataset(above):
                return above
        return None

    def drop(self, object_id: str, place: str) -> None:
        """Removes the registration, and then the files if Lance wrote all of them."""
        self.check_alone(self._directory.entries(), object_id, place)
        paths = self._list(place)
        if DELIMITER in object_id:
            self._drop_entry(object_id, place, paths or ())
        elif paths is None:
            raise InvalidTableStateError(_not_ours(place))
        elif self._places.local is not None:
            self._drop_folder(object_id, place)
        else:
            self._drop_hidden(object_id, place)

    def _drop_entry(self, object_id: str, place: str, paths: Sequence[str]) -> None:
        try:
            self._remove_entry(object_id, place)
        except OSError as e:
            if self._places.local is None or not paths or not _FULL.search(str(e)):
                raise
        else:
            with _report_as_dropped(self._places.uri(place)):
                next_step("delete", self._places.uri(place))
                # Since the commit, another client may have registered a table there, also this one again.
                owner = self._registered_at(self._directory.entries(), place, self._places.read_names())
                if owner is None:
                    self._delete(place, paths)
                else:
                    message = "table %s was only deregistered, because table %s was registered at %s at the same time"
                    log.warning(message, object_id, owner[0], masked_uri(self._places.uri(place)))
            return
        # The disk is full, and only a drop can free space. Until the next commit, the table exists without data.
        name = self._rename(place)
        with self._rename_back_if_refused(name, place):
            entries = self._directory.entries()
            self._check_entry(entries, object_id, place)
            self.check_alone(entries, object_id, place)
        self._delete_renamed(name)
        self._remove_entry(object_id, place)

    def _remove_entry(self, object_id: str, place: str) -> None:
        def edit(entries: Entries) -> ManifestChange:
            self._check_entry(entries, object_id, place)
            self.check_alone(entries, object_id, place)
            return ManifestChange(remove=[object_id])

        self._directory.change(edit)

    def _check_entry(self, entries: Entries, object_id: str, place: str) -> None:
        with suppress(OutsideError):
            entry = entries.get(object_id)
            if entry is not None and entry.kind == "table" and inside(entry.location or "") == place:
                return
        raise TableNotFoundError("it was dropped, deregistered or registered elsewhere meanwhile")

    def _drop_folder(self, object_id: str, place: str) -> None:
        name = self._rename(place)
        with self._rename_back_if_refused(name, place):
            self.check_alone(self._directory.entries(), object_id, place)
            self._claim(name)
        with _report_as_dropped(self._places.path(name)):
            self._delete_renamed(name)
            self._remove_entry_at_root(object_id)

    def _drop_hidden(self, object_id: str, place: str) -> None:
        self._hide_objects(object_id)
        with _report_as_dropped(self._places.uri(place)):
            # No table can be declared there while it is hidden and has a manifest. Therefore files that were written
            # before it was hidden are listed now.
            self.check_alone(self._directory.entries(), object_id, place)
            if (paths := self._list(place)) is None:
                raise InvalidTableStateError(_not_ours(place))
            self._delete_hidden(place, paths)
            self._remove_entry_at_root(object_id)

    def finish(self, place: str) -> bool:
        """Deletes what a killed drop has left at the root of an object store.

        Only a drop removes the marker of a declared table and the manifests, but not the marker of a hidden table. A
        running drop then has only files with unique names to delete.

        Returns:
            Whether the location is free; False if it has a table, a hidden table or files of others.
        """
        paths = self._list(place) if self._places.local is None else None
        if paths is None or dir_markers.HIDDEN_MARK not in paths or dir_markers.RESERVED_MARK in paths:
            return False
        if has_manifest(paths):
            return False
        self._delete_hidden(place, paths)
        return True

    def hide(self, object_id: str, place: str) -> None:
        """Deregisters a table at the root, and removes its markers if the table has no data."""
        if self._places.local is None:
            self._hide_objects(object_id)
            # If the table has no data, the marker hides nothing and would keep the name in use.
            dir_markers.remove(self._places.uri(place), self._storage_options)
        else:
            self._hide_folder(place)
        self._remove_entry_at_root(object_id)

    def show(self, place: str) -> None:
        """Registers a hidden table at the root again."""
        is_hidden = True
        if self._places.local is None:
            session = self._directory.files(self._places.uri(place))
            if is_hidden := session.contains(dir_markers.HIDDEN_MARK):
                files.delete(session, dir_markers.HIDDEN_MARK)
        else:
            try:
                os.unlink(os.path.join(self._places.path(place), dir_markers.HIDDEN_MARK))
            except FileNotFoundError:
                is_hidden = False
        if not is_hidden:
            raise TableAlreadyExistsError(f"the table at {place} is registered already")

    def _hide_objects(self, name: str) -> None:
        try:
            self._directory.flat.deregister_table(DeregisterTableRequest(id=[name]))
        except (InvalidTableStateError, NamespaceNotFoundError) as e:
            raise TableNotFoundError("another client has dropped or deregistered it") from e

    def _hide_folder(self, place: str) -> None:
        path = self._places.path(place)
        try:
            # pylance is not used here: it would create the folder again if a drop removed it at this moment.
            os.close(os.open(os.path.join(path, dir_markers.HIDDEN_MARK), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except (FileExistsError, FileNotFoundError) as e:
            raise TableNotFoundError(f"no table is at {place}, or it is deregistered") from e
        # A hidden folder that remains is harmless: the next declaration of the name removes it.
        with suppress(OSError):
            if os.path.islink(path) or not dir_markers.is_only_declared(path):
                return
            os.rename(path, renamed := self._places.path(_new_name()))
            if dir_markers.is_only_declared(renamed):
                self._delete_renamed(os.path.basename(renamed))
            else:
                # Another process has written data in the meantime.
                os.rename(renamed, path)

    def _remove_entry_at_root(self, object_id: str) -> None:
        """Removes the entry that other tools add for a table at the root; it would keep the name in use for them."""

        def edit(entries: Entries) -> ManifestChange:
            entry = entries.get(object_id)
            return ManifestChange(remove=[object_id] if entry is not None and entry.kind == "table" else [])

        self._directory.change(edit)

    def _rename(self, place: str) -> str:
        """Renames a table's folder to a new name at the root, and returns that name."""
        name = _new_name()
        try:
            os.rename(self._places.path(place), self._places.path(name))
        except FileNotFoundError as e:
            raise TableNotFoundError("another client has dropped or deregistered it") from e
        return name

    @contextmanager
    def _rename_back_if_refused(self, name: str, place: str) -> Iterator[None]:
        try:
            yield
        except BaseException:  # an interrupt, too, must not leave the data under the other name
            # If another table is there now, the data stays where it is.
            with suppress(OSError):
                os.rename(self._places.path(name), self._places.path(place))
            raise

    def _claim(self, name: str) -> None:
        """Raises TableNotFoundError if the table in a renamed folder was deregistered."""
        mark = os.path.join(self._places.path(name), dir_markers.HIDDEN_MARK)
        try:
            # A symbolic link needs no disk space. It has no valid target, so that programs that walk the root ignore
            # it.
            os.symlink(name, mark)
        except OSError as e:
            # The disk may be full.
            if os.path.lexists(mark):
                raise TableNotFoundError("another client has deregistered it") from e

    def _delete_renamed(self, name: str) -> None:
        self._delete(name, self._walk(self._places.path(name)))

    def _delete_hidden(self, place: str, paths: Sequence[str]) -> None:
        self._delete(place, [path for path in paths if path != dir_markers.HIDDEN_MARK])
        # If another client has declared a table there in the meantime, its markers stay.
        dir_markers.remove(self._places.uri(place), self._storage_options)

    def _delete(self, place: str, paths: Sequence[str]) -> None:
        """Deletes files at a location, and local folders that are empty afterwards."""
        if self._places.local is None:
            session = self._directory.files(self._places.uri(place))
            for path in sorted(paths, key=_order):
                files.delete(session, path)
            return
        top = self._places.path(place)
        for path in sorted(paths, key=_order):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(top, path))
        for folder, _, _ in os.walk(top, topdown=False):
            # Other clients may be writing there.
            with suppress(OSError):
                os.rmdir(folder)

    def _list(self, place: str) -> Sequence[str] | None:
        """Returns the files at a location; None if Lance did not write all of them."""
        if self._places.local is None:
            paths: Sequence[str] = self._directory.files(self._places.uri(place)).list()
        elif os.path.isdir(path := self._places.path(place)):
            paths = self._walk(path)
        else:
            return None if os.path.lexists(path) else ()
        return paths if _are_ours(paths) else None

    def _walk(self, top: str) -> Sequence[str]:
        """Returns the files and symbolic links in a local folder."""
        paths = []
        for folder, folders, names in os.walk(top, onerror=_raise_unless_gone):
            names += [name for name in folders if os.path.islink(os.path.join(folder, name))]
            paths += [os.path.relpath(os.path.join(folder, name), top) for name in names]
        return paths

    def _is_dataset(self, place: str) -> bool:
        if self._places.local is not None:
            return os.path.isdir(os.path.join(self._places.path(place), VERSIONS))
        return has_manifest(self._directory.files(self._places.uri(place)).list())


@contextmanager
def _report_as_dropped(left: str) -> Iterator[None]:
    """Raises errors of the block as failures that say that the table is dropped and where files may remain."""
    try:
        yield
    except BaseException as e:  # a panic of Lance is no Exception, and its class cannot be imported
        if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
            raise
        reason = shortened(" ".join(without_user(without_source(str(e))).split()), _MAX_MESSAGE_LENGTH)
        message = f"{reason}; the table is no longer registered; its remaining data is at {masked_uri(left)}"
        raise Failure(code_of(e), message=message, delivered=True) from e


def _raise_unless_gone(e: OSError) -> None:
    # Another process may delete the same files at the same time.
    if not isinstance(e, FileNotFoundError):
        raise e


def _not_ours(place: str) -> str:
    return f"there are files at {place} that Lance did not write; deregister it"


def _new_name() -> str:
    """Returns a new name for the folder of a dropped table."""
    return f"{dir_markers.DROPPED}{secrets.token_hex(16)}"


def _are_ours(files: Sequence[str]) -> bool:
    """Returns whether the files are those of a dataset, or of a dataset that was never committed."""
    if has_manifest(files):
        return True
    return all(
        dir_markers.is_marker(file)
        or (file.partition("/")[0] in OF_LANCE and (not file.startswith(f"{DATA}/") or is_data_file(file)))
        for file in files
    )


def _order(path: str) -> tuple[int, int]:
    """Returns the sort key for deletion.

    Files whose names a later table could use are deleted first, and the latest manifest last of these. Until then it
    prevents the creation of a table there. Afterwards, no reader finds an older version.
    """
    if path == dir_markers.HIDDEN_MARK:
        return 4, 0
    if path.startswith(UNIQUE_NAMES):
        # By their transactions, an audit recognizes the rest of a table.
        return 3 if path.startswith("_transactions/") else 2, 0
    if (match := _MANIFEST.fullmatch(path)) is None:
        return 0, 0
    # In names of twenty digits, a lower number is a later version.
    number = int(match[1])
    return 1, 2**64 - 1 - number if len(match[1]) == 20 else number

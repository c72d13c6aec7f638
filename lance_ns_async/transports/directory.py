"""The entries of a directory catalog: the rows of its table `__manifest`, read and rewritten through pylance.

Everything here blocks: call it in worker threads.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace import DropNamespaceRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)

from lance_ns_async.model import DELIMITER
from lance_ns_async.storage.dir_markers import local_path
from lance_ns_async.storage.process_end import check_given_up

if TYPE_CHECKING:
    from lance import LanceDataset

MANIFEST = "__manifest"
"""The folder of the table, in the root."""

_COMMITS = 20
"""How often a change is tried again after another process committed first, as pylance does."""

_CONFLICT = re.compile("Incompatible transaction|[Cc]ommit conflict|Too many concurrent writers")
_FLAGS = ("lance.namespace.manifest.reader_feature_flags", "lance.namespace.manifest.writer_feature_flags")
"""Keys in the table's metadata by which later releases of pylance lock out earlier ones."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the manifest."""

    object_id: str
    """The id, its levels joined by `$`."""
    kind: Literal["namespace", "table"]
    location: str | None = None
    """Where the table is, relative to the root."""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to the entries."""

    put: Sequence[Entry] = ()
    """Entries to add, or to take the place of those with the same id."""
    remove: Collection[str] = ()
    """Ids of entries to remove."""


class Entries:
    """All entries in one version of the manifest."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._index = {id: row for row, id in enumerate(rows["object_id"].to_pylist())}

    def get(self, object_id: str) -> Entry | None:
        """Returns the entry of that id, if there is one."""
        row = self._index.get(object_id)
        return None if row is None else next(self._entries([row]))

    def below(self, parent: str) -> Iterator[Entry]:
        """Yields the entries directly below a namespace, sorted by name; "" is the root."""
        prefix = f"{parent}{DELIMITER}" if parent else ""
        found = []
        for id in self._sorted[bisect_left(self._sorted, prefix) :]:
            if not id.startswith(prefix):
                break
            if DELIMITER not in id[len(prefix) :]:
                found.append(self._index[id])
        return self._entries(found)

    def count_below(self, namespace: str) -> int:
        """Returns how many entries are below a namespace, on any level."""
        start, end = f"{namespace}{DELIMITER}", f"{namespace}{chr(ord(DELIMITER) + 1)}"
        return bisect_left(self._sorted, end) - bisect_left(self._sorted, start)

    def locations(self) -> Iterator[tuple[str, str]]:
        """Yields id and location of every table."""
        columns = (self._rows[name].to_pylist() for name in ("object_id", "object_type", "location"))
        for id, kind, location in zip(*columns, strict=True):
            if kind == "table":
                yield id, location or ""

    @cached_property
    def claimed(self) -> Collection[str]:
        """The locations of tables in namespaces; what lies there is no table of the root."""
        return frozenset(location.strip("/") for id, location in self.locations() if DELIMITER in id)

    def with_metadata(self, key: str) -> Sequence[Entry]:
        """Returns the entries whose metadata has a key."""
        column = self._rows["metadata"]
        has_key = pc.fill_null(pc.match_substring(column, key), False)
        # In one chunk: pyarrow 20 ends the process if there is none.
        may = pc.indices_nonzero(has_key.combine_chunks()).to_pylist()
        return [entry for entry in self._entries(may) if key in entry.metadata]

    def changed(self, change: Change) -> pa.Table:
        """Returns the rows as they are after a change."""
        gone = [*change.remove, *(entry.object_id for entry in change.put)]
        kept = self._rows.filter(pc.invert(pc.is_in(self._rows["object_id"], pa.array(gone, pa.string()))))
        # In one piece: Lance writes each chunk for itself, and one for each past change would slow all later ones down.
        return pa.concat_tables(
            [kept, pa.Table.from_pylist([self._row(entry) for entry in change.put], schema=self._rows.schema)]
        ).combine_chunks()

    @cached_property
    def _sorted(self) -> Sequence[str]:
        return sorted(self._index)

    def _entries(self, rows: Sequence[int]) -> Iterator[Entry]:
        found = self._rows.take(pa.array(rows, pa.int64()))
        columns = (found[name].to_pylist() for name in ("object_id", "object_type", "location", "metadata"))
        for id, kind, location, metadata in zip(*columns, strict=True):
            yield Entry(id, kind, location, _metadata(id, metadata))

    def _row(self, entry: Entry) -> Mapping[str, Any]:
        row = self._index.get(entry.object_id)
        # Columns that are none of ours keep what pylance has put there.
        others = {} if row is None else self._rows.slice(row, 1).to_pylist()[0]
        return {
            **others,
            "object_id": entry.object_id,
            "object_type": entry.kind,
            "location": entry.location,
            "metadata": json.dumps(dict(entry.metadata)) if entry.metadata else None,
        }


_SCHEMA = pa.schema([(name, pa.string()) for name in ("object_id", "object_type", "location", "metadata")])
_NONE = Entries(_SCHEMA.empty_table())
"""The entries where there is no manifest yet."""


class Directory:
    """The manifest of one root, and pylance's view of the tables that lie at the root.

    The entries are kept in memory, and read again when the manifest has another version or other files.
    """

    def __init__(self, root: str, storage_options: Mapping[str, str] | None) -> None:
        self._root = root
        self._storage_options = dict(storage_options or {})
        self._known: tuple[object, Entries] | None = None

    @property
    def flat(self) -> Any:
        """pylance's namespace of the tables at the root alone: the folders `<name>.lance`.

        Raises:
            GivenUp: The work that asks for it is given up.
        """
        check_given_up()
        return self._flat

    @cached_property
    def _flat(self) -> Any:
        return self._open(manifest_enabled="false")

    def entries(self) -> Entries:
        """Returns the entries as they are now; none where there is no manifest yet.

        Cost: an open of the manifest, and a scan of it where it has changed since the last call.

        Raises:
            GivenUp: The work that asks for it is given up.
        """
        check_given_up()
        dataset = self._manifest()
        return _NONE if dataset is None else self._read(dataset)

    def change(self, edit: Callable[[Entries], Change]) -> None:
        """Commits what `edit` makes of the entries as they are at the moment of the commit.

        Where another process commits in between, `edit` is called again with the newer entries; it raises what the
        change is refused with. So whatever it checks in the entries holds when the change takes effect.

        Raises:
            ConcurrentModificationError: Others committed first, each time it was tried.
            ServiceUnavailableError: Whether the change was committed cannot be read.
        """
        for _ in range(_COMMITS):
            dataset = self._manifest()
            if dataset is None:
                change = edit(_NONE)
                if not change.put:
                    return
                self._create()
                continue
            entries = self._read(dataset)
            change = edit(entries)
            if not (change.put or change.remove) or self._committed(dataset, entries.changed(change)):
                return
        raise ConcurrentModificationError(f"other processes committed to the manifest first, {_COMMITS} times")

    def files(self, location: str) -> Any:
        """Returns a session that lists and deletes files below a location."""
        from lance.file import LanceFileSession

        make: Callable[..., Any] = LanceFileSession
        return make(location, storage_options=self._storage_options or None)

    def _read(self, dataset: LanceDataset) -> Entries:
        state = _state(dataset)
        known = self._known
        if known is not None and known[0] == state:
            return known[1]
        entries = Entries(dataset.to_table())
        self._known = state, entries
        return entries

    def _committed(self, dataset: LanceDataset, rows: pa.Table) -> bool:
        """Commits the rows as the version after that of `dataset`; returns False where another process has made it."""
        import lance
        from lance.fragment import write_fragments

        transaction: Any = write_fragments(rows, dataset, mode="overwrite", return_transaction=True)
        try:
            # Without retries, Lance takes an overwrite only for the very version it was made from.
            committed = lance.LanceDataset.commit(dataset, transaction, max_retries=0)
        except OSError as e:
            landed = self._landed(dataset, transaction)
            if landed:
                # Only the answer was lost.
                return True
            if not _CONFLICT.search(str(e)):
                raise
            if landed is None:
                # A sending whose answer was lost conflicts with itself, and then its files are those of the manifest.
                raise ServiceUnavailableError(
                    f"version {dataset.version + 1} of the manifest was committed, and cannot be read to see by whom"
                ) from e
            self._discard(transaction)
            return False
        self._known = _state(committed), Entries(rows)
        return True

    def _landed(self, dataset: LanceDataset, transaction: Any) -> bool | None:
        """Returns whether the version after that of `dataset` is the transaction's; None where it cannot be read."""
        try:
            made = dataset.read_transaction(dataset.version + 1)
        except (OSError, ValueError):
            return None
        return made is not None and made.uuid == transaction.uuid

    def _discard(self, transaction: Any) -> None:
        files = self.files(self._uri)
        for fragment in transaction.operation.fragments:
            for file in fragment.files:
                # What cannot be deleted here is never read.
                with suppress(OSError):
                    files.delete_file(f"data/{file.path}")

    def _manifest(self) -> LanceDataset | None:
        import lance

        if (local := local_path(self._root)) is not None:
            # Lance asks for seconds, again and again, where it may not read a folder.
            with suppress(FileNotFoundError), os.scandir(os.path.join(local, MANIFEST, "_versions")):
                pass
        try:
            dataset = lance.LanceDataset(self._uri, **self._reach)
        except ValueError as e:
            if "was not found" in str(e):
                return None
            raise
        metadata: Mapping[str, str] = dataset.metadata or {}
        if any(metadata.get(flag, "0") != "0" for flag in _FLAGS):
            raise UnsupportedOperationError(
                "the manifest was written by a later release of Lance; upgrade pylance and lance-ns-async"
            )
        return dataset

    def _create(self) -> None:
        # pylance has no call for it: it makes the manifest before it looks for what is to be dropped.
        with suppress(NamespaceNotFoundError):
            self._open(manifest_enabled="true").drop_namespace(DropNamespaceRequest(id=[MANIFEST, MANIFEST]))

    @property
    def _uri(self) -> str:
        return f"{self._root}/{MANIFEST}"

    @property
    def _reach(self) -> dict[str, Any]:
        return {"storage_options": self._storage_options or None}

    def _open(self, *, manifest_enabled: str) -> Any:
        from lance.namespace import DirectoryNamespace

        storage = {f"storage.{key}": value for key, value in self._storage_options.items()}
        make: Callable[..., Any] = DirectoryNamespace
        return make(root=self._root, manifest_enabled=manifest_enabled, **storage)


def _state(dataset: LanceDataset) -> object:
    # A manifest that was made anew may have the same version, but never the same files.
    return dataset.version, [fragment.metadata for fragment in dataset.get_fragments()]


def _metadata(object_id: str, text: str | None) -> Mapping[str, str]:
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidTableStateError(f"the metadata of {object_id} in the manifest is no JSON object of texts")
    return found

"""The entries of a directory catalog: the rows of its table `__manifest`, read and rewritten with pylance.

All functions in this module block. Call them in worker threads.
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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import lance_namespace.errors as err
import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace import DropNamespaceRequest

from lance_ns_async.backends.directory.partition_columns import with_partition_values
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy, TryAgainError
from lance_ns_async.errors import COMMON_ERRORS
from lance_ns_async.model import DELIMITER, local_path
from lance_ns_async.storage.lance_layout import DATA, VERSIONS
from lance_ns_async.storage.process_end import check_given_up

if TYPE_CHECKING:
    from lance import LanceDataset

MANIFEST = "__manifest"
"""Name of the table's folder in the root."""

_COMMITS = 20  # Maximum number of attempts to commit a change while other processes commit first, as in pylance.


class RepeatInThread(Protocol):
    """See `Caller.repeat_in_thread`."""

    def __call__(self, work: Callable[[], None], *, attempts: int) -> None: ...


_CONFLICT = re.compile("Incompatible transaction|[Cc]ommit conflict|Too many concurrent writers")
_FLAGS = ("lance.namespace.manifest.reader_feature_flags", "lance.namespace.manifest.writer_feature_flags")
"""Keys in the table's metadata with which newer releases of pylance exclude older ones."""


_EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One row of the manifest."""

    object_id: str
    """The id, with its levels joined by `$`."""
    kind: Literal["namespace", "table"]
    location: str | None = None
    """The table's location, relative to the root; None for a namespace."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    column_values: Mapping[str, Any] = field(default_factory=dict)
    """Values of further columns of the manifest, by their names; other columns keep their values."""


@dataclass(frozen=True, slots=True)
class ManifestChange:
    """The changes to the entries in one commit."""

    put: Sequence[ManifestEntry] = ()
    """Entries to add, or to replace the entries with the same ids."""
    remove: Collection[str] = ()
    """Ids of entries to remove."""
    columns: Sequence[pa.Field] = ()
    """Columns to add to the manifest, unless it has them."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Keys to set in the metadata of the manifest itself, in a commit of their own after that of the entries."""


class Entries:
    """All entries in one version of the manifest."""

    def __init__(self, rows: pa.Table, metadata: Mapping[str, str] = _EMPTY) -> None:
        # Reading single rows of many chunks would cost time in proportion to all rows.
        self._rows = rows.combine_chunks()
        self.metadata = metadata
        """The metadata of the manifest itself."""
        self._index = {id: row for row, id in enumerate(rows["object_id"].to_pylist())}

    @property
    def rows(self) -> pa.Table:
        """All columns of all entries."""
        return self._rows

    def get(self, object_id: str) -> ManifestEntry | None:
        """Returns the entry with this id; None if there is none."""
        row = self._index.get(object_id)
        return None if row is None else next(self._entries([row]))

    def columns_of(self, object_id: str, names: Sequence[str]) -> Mapping[str, Any]:
        """Returns the values of these columns of an entry; without those that the manifest does not have."""
        present = [name for name in names if name in self._rows.schema.names]
        values: Mapping[str, Any] = self._rows.select(present).slice(self._index[object_id], 1).to_pylist()[0]
        return values

    def below(self, parent: str) -> Iterator[ManifestEntry]:
        """Returns the entries directly below a namespace, sorted by name; "" is the root."""
        prefix = f"{parent}{DELIMITER}" if parent else ""
        rows = []
        for position in range(bisect_left(self._sorted_ids, prefix), len(self._sorted_ids)):
            if not (id := self._sorted_ids[position]).startswith(prefix):
                break
            if DELIMITER not in id[len(prefix) :]:
                rows.append(self._index[id])
        return self._entries(rows)

    def count_below(self, namespace: str) -> int:
        """Returns the number of entries below a namespace, on all levels."""
        start, end = f"{namespace}{DELIMITER}", f"{namespace}{chr(ord(DELIMITER) + 1)}"
        return bisect_left(self._sorted_ids, end) - bisect_left(self._sorted_ids, start)

    def locations(self) -> Iterator[tuple[str, str]]:
        """Yields the id and the location of every table."""
        columns = (self._rows[name].to_pylist() for name in ("object_id", "object_type", "location"))
        for id, kind, location in zip(*columns, strict=True):
            if kind == "table":
                yield id, location or ""

    @cached_property
    def nested_locations(self) -> Collection[str]:
        """The locations of tables in namespaces; a folder there is not a table of the root."""
        return frozenset(location.strip("/") for id, location in self.locations() if DELIMITER in id)

    def apply(self, change: ManifestChange) -> pa.Table:
        """Returns the rows after a change."""
        removed_ids = [*change.remove, *(entry.object_id for entry in change.put)]
        rows = self._rows
        for column in change.columns:
            if column.name not in rows.schema.names:
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        rest = rows.filter(pc.invert(pc.is_in(rows["object_id"], pa.array(removed_ids, pa.string()))))
        new = pa.Table.from_pylist([self._row(entry) for entry in change.put], schema=rows.schema)
        # The chunks are combined because Lance writes them one by one, and each change would add one more.
        return pa.concat_tables([rest, new]).combine_chunks()

    @cached_property
    def _sorted_ids(self) -> Sequence[str]:
        return sorted(self._index)

    def _entries(self, rows: Sequence[int]) -> Iterator[ManifestEntry]:
        selection = self._rows.take(pa.array(rows, pa.int64()))
        columns = (selection[name].to_pylist() for name in ("object_id", "object_type", "location", "metadata"))
        for id, kind, location, metadata in zip(*columns, strict=True):
            yield ManifestEntry(id, kind, location, read_metadata(id, metadata))

    def _row(self, entry: ManifestEntry) -> Mapping[str, Any]:
        row = self._index.get(entry.object_id)
        # Other columns keep the values that pylance wrote.
        others = {} if row is None else self._rows.slice(row, 1).to_pylist()[0]
        return {
            **others,
            **entry.column_values,
            "object_id": entry.object_id,
            "object_type": entry.kind,
            "location": entry.location,
            "metadata": json.dumps(dict(entry.metadata)) if entry.metadata else None,
        }


_SCHEMA = pa.schema([(name, pa.string()) for name in ("object_id", "object_type", "location", "metadata")])
# `Schema.empty_table` would import pandas.
_NONE = Entries(pa.Table.from_batches([], _SCHEMA))  # The entries of a root without a manifest.


class Directory:
    """The manifest of one root, and pylance's namespace of the tables at the root.

    The entries are kept in memory, and read again when the manifest has another version or other files.
    """

    def __init__(
        self, root: str, storage_options: Mapping[str, str] | None, repeat: RepeatInThread | None = None
    ) -> None:
        """Creates the object; reads nothing.

        Args:
            repeat: Repeats a commit while other processes commit first; None for the pauses of the default policy.
        """
        self._root = root
        self._repeat = repeat or Caller(Policy(), COMMON_ERRORS).repeat_in_thread
        self._storage_options = dict(storage_options or {})
        self._latest: tuple[object, Entries] | None = None

    @property
    def flat(self) -> Any:
        """The namespace of pylance with only the tables at the root: the folders `<name>.lance`."""
        check_given_up()
        return self._flat

    @cached_property
    def _flat(self) -> Any:
        return self._open(manifest_enabled="false")

    def entries(self) -> Entries:
        """Returns the current entries; none if there is no manifest yet.

        Cost: one open of the manifest, and one scan of it if it has changed since the last call.
        """
        check_given_up()
        dataset = self._manifest()
        return _NONE if dataset is None else self._read(dataset)

    def change(self, edit: Callable[[Entries], ManifestChange]) -> None:
        """Commits the change that `edit` returns for the current entries.

        If another process commits in between, `edit` is called again with the newer entries. Therefore the conditions
        that `edit` checks are still true when the change takes effect.

        Args:
            edit: Returns the change for these entries, or raises an error to refuse it.
        """

        def attempt() -> None:
            dataset = self._manifest()
            if dataset is None:
                if not edit(_NONE).put:
                    return
                self._create()
                dataset = self._manifest()
            if dataset is not None:
                entries = self._read(dataset)
                change = edit(entries)
                rows = entries.apply(change) if change.put or change.remove or change.columns else None
                if rows is None or (dataset := self._commit(dataset, rows)) is not None:
                    if not change.metadata or self._set_metadata(dataset, change.metadata):
                        return
            message = "other processes committed to the manifest first, at each of many attempts"
            raise TryAgainError(err.ConcurrentModificationError(message))

        self._repeat(attempt, attempts=_COMMITS)

    def files(self, location: str) -> Any:
        """Returns a pylance session that lists and deletes files below a location."""
        from lance.file import LanceFileSession

        make: Callable[..., Any] = LanceFileSession
        return make(location, storage_options=self._storage_options or None)

    def _read(self, dataset: LanceDataset) -> Entries:
        state = _state(dataset)
        latest = self._latest
        if latest is not None and latest[0] == state:
            return latest[1]
        metadata: Mapping[str, str] = dataset.metadata or {}
        entries = Entries(with_partition_values(dataset.to_table(), metadata), metadata)
        self._latest = state, entries
        return entries

    def _commit(self, dataset: LanceDataset, rows: pa.Table) -> LanceDataset | None:
        """Commits the rows as the next version after `dataset`; returns None if another process has committed it."""
        import lance
        from lance.fragment import write_fragments

        transaction: Any = write_fragments(rows, dataset, mode="overwrite", return_transaction=True)
        try:
            # Without retries, Lance accepts an overwrite only if its base version is still the latest.
            new_dataset = lance.LanceDataset.commit(dataset, transaction, max_retries=0)
        except OSError as e:
            is_committed = self._is_committed(dataset, transaction)
            if is_committed:
                # The commit succeeded, and only its response was lost.
                return dataset.checkout_version(dataset.version + 1)
            if not _CONFLICT.search(str(e)):
                raise
            if is_committed is None:
                # If a response was lost, the retry conflicts with this very commit: its files must not be deleted.
                raise err.ServiceUnavailableError(
                    f"version {dataset.version + 1} of the manifest cannot be read; its writer is unknown"
                ) from e
            self._discard(transaction)
            return None
        self._latest = _state(new_dataset), Entries(rows, new_dataset.metadata or {})
        return new_dataset

    def _set_metadata(self, dataset: LanceDataset, metadata: Mapping[str, str]) -> bool:
        """Sets keys in the metadata of the manifest; returns False if another process has committed meanwhile."""
        import lance

        update = lance.LanceOperation.UpdateMap(dict(metadata), replace=False)
        operation = lance.LanceOperation.UpdateConfig(table_metadata_updates=update)
        try:
            lance.LanceDataset.commit(dataset, operation, read_version=dataset.version, max_retries=0)
        except OSError as e:
            if not _CONFLICT.search(str(e)):
                raise
            return False
        return True

    def _is_committed(self, dataset: LanceDataset, transaction: Any) -> bool | None:
        """Returns whether the transaction made the next version after `dataset`; None if that cannot be read."""
        try:
            next_transaction = dataset.read_transaction(dataset.version + 1)
        except (OSError, ValueError):
            return None
        return next_transaction is not None and next_transaction.uuid == transaction.uuid

    def _discard(self, transaction: Any) -> None:
        files = self.files(self._uri)
        for fragment in transaction.operation.fragments:
            for file in fragment.files:
                # A file that cannot be deleted is harmless, because nothing refers to it.
                with suppress(OSError):
                    files.delete_file(f"{DATA}/{file.path}")

    def _manifest(self) -> LanceDataset | None:
        import lance

        if (local := local_path(self._root)) is not None:
            # Lance retries for seconds if it may not read a folder; this check fails at once.
            with suppress(FileNotFoundError), os.scandir(os.path.join(local, MANIFEST, VERSIONS)):
                pass
        try:
            dataset = lance.LanceDataset(self._uri, **self._reach)
        except ValueError as e:
            if "was not found" in str(e):
                return None
            raise
        metadata: Mapping[str, str] = dataset.metadata or {}
        if any(metadata.get(flag, "0") != "0" for flag in _FLAGS):
            raise err.UnsupportedOperationError(
                "the manifest was written by a later release of Lance; upgrade pylance and lance-ns-async"
            )
        return dataset

    def _create(self) -> None:
        # pylance has no call that creates the manifest, but a drop creates it before it looks for its target.
        with suppress(err.NamespaceNotFoundError):
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
    # A recreated manifest may have the same version, but never the same files.
    return dataset.version, [fragment.metadata for fragment in dataset.get_fragments()]


def read_metadata(object_id: str, text: str | None) -> Mapping[str, str]:
    """Returns the properties in the metadata of an entry; raises InvalidTableStateError if they are invalid."""
    if not text:
        return {}
    try:
        metadata = json.loads(text)
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise err.InvalidTableStateError(f"the metadata of {object_id} in the manifest is not a JSON object of strings")
    return metadata

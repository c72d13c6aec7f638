"""The first version of a dataset, which nobody else may write at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace.errors import (
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from lance_ns_async import storage
from lance_ns_async.errors import PHRASES
from lance_ns_async.faults import translated
from lance_ns_async.model import Table
from lance_ns_async.storage import Snapshot
from lance_ns_async.tables import arrow
from lance_ns_async.tables.opening import Opener
from lance_ns_async.threads import GivenUp, under_way

if TYPE_CHECKING:
    from lance import LanceDataset


def create(opener: Opener, table: Table, data: Any) -> LanceDataset:
    """The dataset with its first version; TableAlreadyExistsError where it has one. Blocks: for worker threads.

    `lance.write_dataset` lets each of several that create a dataset at once write a version over the others', and
    tells none of them. So the rows are written first, and then committed if they make the first version.
    """
    rows = _staged(opener, table, data)
    try:
        under_way().check()
        commit(opener, table, rows)
    except GivenUp as e:
        discard(opener, table, rows, e)
        raise
    except LanceNamespaceError as e:
        first = _first(opener, table, e)
        committed = None if first is None else first.read_transaction(1)
        if first is not None and committed is not None and committed.uuid == rows.uuid:
            # Only the answer was lost.
            return first
        discard(opener, table, rows, e)
        if first is None:
            raise
        phrase = PHRASES[TableAlreadyExistsError]
        raise TableAlreadyExistsError(f"{phrase}: {table.id} (at {table.location}: somebody has written it)") from e
    return opener.open(table, Snapshot(1))


def _staged(opener: Opener, table: Table, data: Any) -> Any:
    """The transaction that would make a dataset of the data, whose files are written."""
    from lance.fragment import write_fragments

    with translated(table):
        rows: Any = write_fragments(
            arrow.stoppable(data),
            table.location,
            mode="create",
            return_transaction=True,
            storage_options=storage.options(table),
            session=opener.caches(),
            **opener.asking(table),
        )
    return rows


def commit(opener: Opener, table: Table, rows: Any) -> None:
    """Commits a transaction as the first version of a dataset, or not at all."""
    from lance import LanceDataset

    with translated(table):
        LanceDataset.commit(
            table.location,
            rows,
            storage_options=storage.options(table),
            enable_v2_manifest_paths=True,
            # Another try would make a second version.
            max_retries=0,
            namespace_client_managed_versioning=table.managed_versioning,
            **opener.asking(table),
        )


def _first(opener: Opener, table: Table, error: LanceNamespaceError) -> LanceDataset | None:
    """The first version; None where there is none. Raises the error it is asked for where nobody can tell."""
    try:
        return opener.open(table, Snapshot(1))
    except (TableNotFoundError, TableVersionNotFoundError):
        return None
    except LanceNamespaceError:
        raise error from None


def discard(opener: Opener, table: Table, rows: Any, error: BaseException) -> None:
    """Deletes the files of rows that are in no version; the error tells of those that are left."""
    from lance.file import LanceFileSession

    paths = [f"data/{file.path}" for fragment in rows.operation.fragments for file in fragment.files]
    try:
        session = LanceFileSession(table.location, storage_options=storage.options(table))
        for path in paths:
            session.delete_file(path)
    except (OSError, ValueError) as e:
        error.add_note(f"and files that are of no use could not be deleted from {table.location} ({e})")

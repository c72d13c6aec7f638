"""The first version of a dataset, which nobody else may write at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lance_namespace.errors import (
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.process_end import GivenUp
from lance_ns_async.storage.pylance_errors import translated
from lance_ns_async.storage.threads import under_way
from lance_ns_async.tables import arrow
from lance_ns_async.tables.opening import Opener

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True, slots=True)
class First:
    """The first version of a dataset, which was just written."""

    dataset: LanceDataset
    transaction: str
    """The id of the transaction that made it: another table at the same place may have a first version, too."""


def create(opener: Opener, table: Table, data: Any) -> First:
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
    except BaseException as e:  # a panic of Lance or an interrupt leaves as many files behind
        first = _first(opener, table, e)
        committed = None if first is None else first.read_transaction(1)
        if first is not None and committed is not None and committed.uuid == rows.uuid:
            if not isinstance(e, LanceNamespaceError):
                raise
            # Only the answer was lost.
            return First(first, rows.uuid)
        discard(opener, table, rows, e)
        if first is None or not isinstance(e, LanceNamespaceError):
            raise
        phrase = PHRASES[TableAlreadyExistsError]
        raise TableAlreadyExistsError(f"{phrase}: {table.id} (at {table.location}: somebody has written it)") from e
    return First(opener.open(table, Snapshot(1)), rows.uuid)


def _staged(opener: Opener, table: Table, data: Any) -> Any:
    """The transaction that would make a dataset of the data, whose files are written."""
    from lance.fragment import write_fragments

    with translated(table):
        rows: Any = write_fragments(
            arrow.stoppable(data),
            table.location,
            mode="create",
            return_transaction=True,
            storage_options=datasets.options(table),
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
            storage_options=datasets.options(table),
            enable_v2_manifest_paths=True,
            # Another try would make a second version.
            max_retries=0,
            namespace_client_managed_versioning=table.managed_versioning,
            **opener.asking(table),
        )


def _first(opener: Opener, table: Table, error: BaseException) -> LanceDataset | None:
    """The first version; None where there is none. Raises the error it is asked for where nobody can tell."""
    try:
        return opener.open(table, Snapshot(1))
    except (TableNotFoundError, TableVersionNotFoundError):
        return None
    except LanceNamespaceError:
        raise error from None


Fate = Literal["gone", "there", "unknown"]
"""What became of rows that were to be taken back."""


def withdraw(table: Table, transaction: str, *, delete: bool) -> Fate:
    """Takes back the first version of a dataset, unless somebody uses it by now. Blocks: for worker threads.

    Only its manifest is deleted. Its data files stay: a version that others are committing just now may refer to
    them, and without any manifest they are in nobody's way. A drop of a table at that place deletes them.

    Args:
        transaction: The id of the transaction that made the version.
        delete: Whether it may be deleted; else it is only looked at.

    Returns:
        Whether its rows are at the place now. That is unknown where their version is gone and others are there, or
        branches or tags; and where the version does not tell by which transaction it was made.
    """
    session = files.open_session(table.location, table.storage_options)
    before, used = _manifests(session.list())
    if not before:
        return "gone"
    try:
        with translated(table):
            # Without the caches, which may hold the version of a table that was at this place before.
            made = datasets.opened(table, Snapshot(1)).read_transaction(1)
    except (TableNotFoundError, TableVersionNotFoundError):
        return "unknown" if _manifests(session.list())[0] else "gone"
    if made is None:
        return "unknown"
    if made.uuid != transaction:
        return "gone"
    if used or len(before) > 1 or not delete:
        return "there"
    files.delete(session, before[0])
    after, used = _manifests(session.list())
    if before[0] in after:
        # It is that of another table.
        return "gone"
    # A later version may hold the rows or not, and a branch, too; a tag has lost them.
    return "unknown" if after or used else "gone"


def _manifests(paths: Sequence[str]) -> tuple[Sequence[str], bool]:
    """The manifests of the main branch, and whether other branches or tags may refer to one of them."""
    manifests = [path for path in paths if path.startswith("_versions/") and path.endswith(".manifest")]
    return manifests, any(path.startswith(("tree/", "_refs/")) for path in paths)


def discard(opener: Opener, table: Table, rows: Any, error: BaseException) -> None:
    """Deletes the files of rows that are in no version; the error tells of those that are left."""
    paths = [f"data/{file.path}" for fragment in rows.operation.fragments for file in fragment.files]
    try:
        session = files.open_session(table.location, table.storage_options)
        for path in paths:
            files.delete(session, path)
    except (OSError, ValueError) as e:
        error.add_note(f"and files that are of no use could not be deleted from {table.location} ({e})")

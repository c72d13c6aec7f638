"""Creation of the first version of a dataset, which only one of several concurrent writers may commit."""

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
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.threads import under_way
from lance_ns_async.tables import arrow
from lance_ns_async.tables.opening import Opener

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True, slots=True)
class Commit:
    """A version that was just committed, and that its writer must confirm in the catalog."""

    version: int
    transaction: str
    """The id of the transaction that committed it; another table at the location may have the same version."""


@dataclass(frozen=True, slots=True)
class First:
    """The first version of a dataset that was just written."""

    dataset: LanceDataset
    commit: Commit


def create(opener: Opener, table: Table, data: Any) -> First:
    """Writes the first version of a dataset. Blocks: for `in_thread`.

    `lance.write_dataset` does not detect concurrent creations: each one writes a version over the others without an
    error. Therefore the rows are written first, and then committed only as the first version.

    Raises:
        TableAlreadyExistsError: The dataset already has a first version.
    """
    rows = _write_files(opener, table, data)
    try:
        under_way().check()
        commit(opener, table, rows)
    except GivenUp as e:
        discard(opener, table, rows, e)
        raise
    except BaseException as e:  # a panic of Lance or an interrupt leaves as many files behind
        first = _first(opener, table, e)
        transaction = None if first is None else first.read_transaction(1)
        if first is not None and transaction is not None and transaction.uuid == rows.uuid:
            if not isinstance(e, LanceNamespaceError):
                raise
            # The commit succeeded; only its response was lost.
            return First(first, Commit(1, rows.uuid))
        discard(opener, table, rows, e)
        if first is None or not isinstance(e, LanceNamespaceError):
            raise
        phrase = PHRASES[TableAlreadyExistsError]
        raise TableAlreadyExistsError(
            f"{phrase}: {table.id} (at {table.location}: another client wrote its first version)"
        ) from e
    return First(opener.open(table, Snapshot(1)), Commit(1, rows.uuid))


def _write_files(opener: Opener, table: Table, data: Any) -> Any:
    """Writes the data files; returns the transaction that creates a dataset from them."""
    from lance.fragment import write_fragments

    with translate_errors(table):
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
    """Commits a transaction as the first version of a dataset; fails if there is one."""
    from lance import LanceDataset

    with translate_errors(table):
        LanceDataset.commit(
            table.location,
            rows,
            storage_options=datasets.options(table),
            enable_v2_manifest_paths=True,
            # A retry would create a second version.
            max_retries=0,
            namespace_client_managed_versioning=table.managed_versioning,
            **opener.asking(table),
        )


def _first(opener: Opener, table: Table, error: BaseException) -> LanceDataset | None:
    """Returns the first version; None if there is none. Raises `error` if this cannot be determined."""
    try:
        return opener.open(table, Snapshot(1))
    except (TableNotFoundError, TableVersionNotFoundError):
        return None
    except LanceNamespaceError:
        raise error from None


def find_unconfirmed(table: Table, dataset: LanceDataset) -> Commit | None:
    """Returns the second version of a dataset if its first version was withdrawn meanwhile; else None.

    Lance commits a second version even if the first one was deleted after it was opened. The table may then not be
    registered any more, so the second version must be confirmed like a first version. Blocks: for `in_thread`.

    Args:
        table: The table.
        dataset: The version of its main branch that was just committed.

    Cost:
        An open of the first version if the dataset has the second one; else none.
    """
    if dataset.version != 2 or table.managed_versioning:
        return None
    try:
        with translate_errors(table):
            # The caches are not used: they may still contain the deleted version.
            datasets.open_snapshot(table, Snapshot(1))
    except (TableNotFoundError, TableVersionNotFoundError):
        with translate_errors(table):
            record = dataset.read_transaction(2)
        return None if record is None else Commit(2, record.uuid)
    return None


Fate = Literal["gone", "there", "unknown"]
"""Whether rows still exist after `withdraw`."""


def withdraw(table: Table, commit: Commit, *, delete: bool) -> Fate:
    """Removes a version that was just committed, unless others already use it. Blocks: for `in_thread`.

    Only its manifest is deleted. Its data files stay, because a version that is being committed may refer to them;
    without a manifest they do not prevent a new table. A drop of a table at that location deletes them.

    Args:
        commit: The version.
        delete: Whether the version may be deleted; if not, it is only inspected.

    Returns:
        Whether the rows are at the location now. This is unknown if their version is gone and other versions, branches
        or tags exist, and if the version has no record of its transaction.
    """
    session = files.open_session(table.location, table.storage_options)
    before, used = _manifests(session.list())
    if not before:
        return "gone"
    try:
        with translate_errors(table):
            # The caches are not used: they may contain the version of a previous table at this location.
            record = datasets.open_snapshot(table, Snapshot(commit.version)).read_transaction(commit.version)
    except (TableNotFoundError, TableVersionNotFoundError):
        return "unknown" if _manifests(session.list())[0] else "gone"
    if record is None:
        return "unknown"
    if record.uuid != commit.transaction:
        return "gone"
    if used or len(before) > 1 or not delete:
        return "there"
    files.delete(session, before[0])
    after, used = _manifests(session.list())
    if before[0] in after:
        # The manifest belongs to another table.
        return "gone"
    # A later version or a branch may still contain the rows; a tag cannot be read without the manifest.
    return "unknown" if after or used else "gone"


def _manifests(paths: Sequence[str]) -> tuple[Sequence[str], bool]:
    """Returns the manifests of the main branch, and whether other branches or tags may refer to them."""
    manifests = [path for path in paths if path.startswith("_versions/") and path.endswith(".manifest")]
    return manifests, any(path.startswith(("tree/", "_refs/")) for path in paths)


def discard(opener: Opener, table: Table, rows: Any, error: BaseException) -> None:
    """Deletes the files of rows that are in no version; a note on the error says if files are left."""
    paths = [f"data/{file.path}" for fragment in rows.operation.fragments for file in fragment.files]
    try:
        session = files.open_session(table.location, table.storage_options)
        for path in paths:
            files.delete(session, path)
    except (OSError, ValueError) as e:
        error.add_note(f"and unused files could not be deleted from {table.location} ({e})")

"""Creation of the first version of a dataset, which only one of several concurrent writers may commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err

from lance_ns_async.calls.steps import next_step
from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table
from lance_ns_async.storage import arrow, datasets, files
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.lance_layout import DATA
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.process_end import GivenUp
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.threads import under_way

if TYPE_CHECKING:
    from lance import LanceDataset


def create(opener: Opener, table: Table, data: Any) -> LanceDataset:
    """Writes the first version of a dataset, and returns it. Blocks: for `in_thread`.

    `lance.write_dataset` does not detect concurrent creations: each one writes a version over the others without an
    error. Therefore the rows are written first, and then committed only as the first version.
    """
    rows = _write_files(opener, table, data)
    try:
        next_step("commit", table.location)
        under_way().check()
        table = opener.renew(table)
        # It is not opened again, because a read that fails after the commit would look like a failed write.
        return commit(opener, table, rows)
    except GivenUp as e:
        discard(table, rows, e)
        raise
    except BaseException as e:  # a panic of Lance or an interrupt leaves as many files behind
        first = _first(opener, table, e)
        transaction = None if first is None else first.read_transaction(1)
        if first is not None and transaction is not None and transaction.uuid == rows.uuid:
            if not isinstance(e, err.LanceNamespaceError):
                raise
            # The commit succeeded; only its response was lost.
            return first
        discard(table, rows, e)
        if first is None or not isinstance(e, err.LanceNamespaceError):
            raise
        phrase = PHRASES[err.TableAlreadyExistsError]
        raise err.TableAlreadyExistsError(
            f"{phrase}: {table.id} (at {table.location}: another client wrote its first version)"
        ) from e


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


def commit(opener: Opener, table: Table, rows: Any) -> LanceDataset:
    """Commits a transaction as the first version of a dataset, and returns it; fails if there is one."""
    from lance import LanceDataset

    with translate_errors(table):
        return LanceDataset.commit(
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
    except (err.TableNotFoundError, err.TableVersionNotFoundError):
        return None
    except err.LanceNamespaceError:
        raise error from None


def discard(table: Table, rows: Any, error: BaseException) -> None:
    """Deletes the files of rows that are in no version; a note on the error says if files are left."""
    paths = [f"{DATA}/{file.path}" for fragment in rows.operation.fragments for file in fragment.files]
    try:
        session = files.open_files(table.location, table.storage_options)
        for path in paths:
            files.delete(session, path)
    except (OSError, ValueError) as e:
        error.add_note(f"and unused files could not be deleted from {table.location} ({e})")

"""Writes of one version by many processes: find or declare the table, write its files, then commit them.

The processes that write the files need the location and the storage options, but no access to the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.rollback import rollback, run_cleanup
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import error_about
from lance_ns_async.lifecycle import commits, concurrent_changes, creating, first_version, replacing
from lance_ns_async.lifecycle.creating import Content
from lance_ns_async.model import Table, TableId, same_place
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.locations import check_writable
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.threads import in_thread

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata

Fit = Callable[["LanceDataset | None"], pa.Schema]
"""Callback that gets the existing dataset or None; it returns the columns to write, or raises an error."""


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A table during a staged write: files that belong to no version yet are written to it."""

    table: Table
    """The table with the storage options for writes."""
    schema: pa.Schema
    replaces: bool
    """Whether the new version contains only the new files."""
    dataset: LanceDataset | None
    """The version before the new one; None if nothing was written to the table yet."""
    is_new: bool
    """Whether the table was declared for this write."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Writes versions of one catalog's tables; other processes write their files between the calls."""

    backend: Backend
    opener: Opener
    operation: Callable[[], AbstractContextManager[None]]
    """Limits the time of a call, and raises an error if the namespace is closed."""

    async def begin(self, id: TableId, mode: str, fit: Fit) -> StagedWrite:
        """Finds or declares the table.

        Args:
            id: The table.
            mode: `create` requires a new table and `append` an existing one; `overwrite` accepts both.
            fit: Returns the columns to write, or raises an error.
        """
        self.backend.capabilities.check_table(id)
        with self.operation():
            if mode == "create":
                return await self._declare(id, fit)
            try:
                return await self._begin_existing(id, fit, replaces=mode == "overwrite")
            except err.TableNotFoundError:
                if mode == "append":
                    raise
                return await self._declare(id, fit)

    async def begin_existing(self, id: TableId, fit: Fit, *, replaces: bool) -> StagedWrite:
        """Finds the table, like `begin`, but declares none."""
        with self.operation():
            return await self._begin_existing(id, fit, replaces=replaces)

    async def declare_many(
        self,
        tables: Sequence[TableId],
        schema: pa.Schema,
        record: Callable[[TableId, StagedWrite | err.LanceNamespaceError], None],
        *,
        max_in_flight: int,
    ) -> None:
        """Declares tables, in batches where the catalog has them; the failure of a table does not affect the others.

        Args:
            tables: The ids of the tables, without duplicates.
            schema: The columns of each of them.
            record: Receives each table or its error; after a batch, a table again after a check that fails or succeeds.
            max_in_flight: Maximum number of tables at a time.
        """

        def staged(id: TableId, outcome: Table | err.LanceNamespaceError) -> None:
            if isinstance(outcome, Table):
                record(id, StagedWrite(outcome, schema, replaces=True, dataset=None, is_new=True))
            else:
                record(id, outcome)

        content = Content(schema.empty_table())
        await creating.declare_many(self.backend, tables, content, staged, max_in_flight=max_in_flight)

    def check_new(self, id: TableId) -> None:
        """Raises InvalidInputError if the catalog cannot have a table of this id; makes no call."""
        self.backend.capabilities.check_table(id)
        self.backend.check_declaration(id, None, {})

    async def find(self, id: TableId) -> tuple[Table, LanceDataset | None]:
        """Returns the table and its dataset; the dataset is None if nothing was written to the table yet."""
        with self.operation():
            return await self._find(id)

    async def commit(self, staged_write: StagedWrite, fragments: Sequence[FragmentMetadata]) -> LanceDataset:
        """Commits the files as a new version, added to the existing files or in their place; returns its dataset.

        If the version was certainly not committed, the files are deleted, and a declaration for this write is removed.
        If the outcome is unknown, everything stays, and a note on the error says so. An append of no files changes
        nothing.
        """
        with self.operation():
            return await self._commit(staged_write, fragments)

    async def abandon(
        self, staged_write: StagedWrite, fragments: Sequence[FragmentMetadata], error: BaseException
    ) -> None:
        """Deletes files that are in no version, and removes the table if it was declared for them.

        A note on `error` says what is left. The table stays if another client has written to it meanwhile.
        """
        await run_cleanup(self._abandon, staged_write, fragments, error)

    async def _abandon(
        self, staged_write: StagedWrite, fragments: Sequence[FragmentMetadata], error: BaseException
    ) -> None:
        is_gone = False
        try:
            # The earlier credentials may have expired.
            table = await locate(self.backend, staged_write.table.id)
        except err.TableNotFoundError:
            table, is_gone = staged_write.table, True
        except err.LanceNamespaceError as e:
            error.add_note(f"and files written to {staged_write.table.location} were not deleted ({e})")
            return
        # A table at another location is another table; its credentials do not apply to these files.
        table = table if same_place(table.location, staged_write.table.location) else staged_write.table
        if fragments:
            await _discard(table, staged_write, fragments, error)
        if staged_write.is_new and not is_gone:
            mine = replace(staged_write.table, storage_options=table.storage_options)
            await creating.undo_declaration(self.backend, mine, error, clear=True)

    async def _begin_existing(self, id: TableId, fit: Fit, *, replaces: bool) -> StagedWrite:
        table, dataset = await self._find(id)
        # The processes that write the files do not check the location.
        check_writable(table)
        if dataset is not None and table.managed_versioning:
            # The processes that write files read this version from the storage; this publishes its manifest there.
            await commits.one(self.backend, id, dataset.version)
        schema = await anyio.to_thread.run_sync(fit, dataset)
        return StagedWrite(table, schema, replaces, dataset, is_new=False)

    async def _declare(self, id: TableId, fit: Fit) -> StagedWrite:
        schema = await anyio.to_thread.run_sync(fit, None)
        table = await creating.declare(self.backend, id, Content(schema.empty_table()))
        return StagedWrite(table, schema, replaces=True, dataset=None, is_new=True)

    async def _find(self, id: TableId) -> tuple[Table, LanceDataset | None]:
        table = await locate(self.backend, id)
        async with concurrent_changes.explain_conflict(self.backend, table):
            return table, await in_thread(table, lambda: _open_or_none(self.opener, table))

    async def _commit(self, staged_write: StagedWrite, fragments: Sequence[FragmentMetadata]) -> LanceDataset:
        if staged_write.dataset is not None and not staged_write.replaces and not fragments:
            return staged_write.dataset
        replacement: tuple[Table, tuple[str, Mapping[str, str]]] | None = None
        in_doubt = False

        async def undo(error: BaseException) -> None:
            if in_doubt:
                error.add_note(
                    f"and it is unknown whether a version of table {table.id} contains the written "
                    "rows, so nothing was "
                    f"removed from {table.location}: check its versions before you write again"
                )
                return
            if replacement is not None:
                await replacing.restore(self.backend, *replacement, error)
            await self._abandon(staged_write, fragments, error)

        async with rollback(undo):
            table = await self._locate_again(staged_write)
            content = Content(staged_write.schema.empty_table())
            if staged_write.replaces and not staged_write.is_new:
                registration = creating.what_to_register(self.backend, table, content)
                if registration is not None:
                    replacement = table, registration
                    table = await creating.replace_registration(self.backend, table, registration, content.schema)
            in_doubt = True
            try:
                transaction = _transaction(staged_write, fragments)
                work = partial(_commit_files, self.opener, table, staged_write, transaction)
                async with concurrent_changes.explain_conflict(self.backend, table):
                    return await in_thread(table, work, changes=True)
            except _CommitFailure as refused:
                in_doubt = False
                async with concurrent_changes.explain_conflict(self.backend, table):
                    raise refused.error from refused.error.__cause__

    async def _locate_again(self, staged_write: StagedWrite) -> Table:
        """Returns the table with fresh credentials."""
        table = await locate(self.backend, staged_write.table.id)
        if not same_place(table.location, staged_write.table.location):
            raise error_about(
                err.ConcurrentModificationError,
                table.id,
                f"the data was written to {staged_write.table.location}, but the "
                f"table is now at {table.location}; write it again",
            )
        return table


class _CommitFailure(Exception):
    """A commit that certainly had no effect, with the error that explains it."""

    def __init__(self, error: err.LanceNamespaceError) -> None:
        super().__init__(error)
        self.error = error


def _commit_files(opener: Opener, table: Table, staged_write: StagedWrite, transaction: Any) -> LanceDataset:
    try:
        if staged_write.dataset is None:
            return first_version.commit(opener, table, transaction)
        return _append(opener, table, transaction)
    except err.LanceNamespaceError as e:
        try:
            newest = _open_or_none(opener, table)
        except err.LanceNamespaceError:
            raise e from None
        # The commit may have succeeded, and only its response may be lost.
        version = None if newest is None else _version_of(newest, transaction)
        if newest is not None and version is not None:
            return newest if newest.version == version else opener.open(table, Snapshot(version))
        if newest is None or staged_write.dataset is not None:
            raise _CommitFailure(e) from e
        raise _CommitFailure(_outrun(table, is_new=staged_write.is_new)) from e


def _append(opener: Opener, table: Table, transaction: Any) -> LanceDataset:
    from lance import LanceDataset

    dataset = opener.open(table)
    with translate_errors(table):
        # Lance retries after concurrent commits if the transaction does not conflict with them.
        return LanceDataset.commit(dataset, transaction)


def _version_of(newest: LanceDataset, transaction: Any) -> int | None:
    """Returns the version that a transaction committed; None if it committed none."""
    since = newest.version - transaction.read_version
    transactions = newest.get_transactions(since) if since > 0 else []
    uuids = [None if it is None else it.uuid for it in transactions]
    return newest.version - uuids.index(transaction.uuid) if transaction.uuid in uuids else None


def _transaction(staged_write: StagedWrite, fragments: Sequence[FragmentMetadata]) -> Any:
    from lance import LanceOperation, Transaction

    version = 0 if staged_write.dataset is None else staged_write.dataset.version
    if staged_write.dataset is None or staged_write.replaces:
        return Transaction(version, LanceOperation.Overwrite(staged_write.schema, list(fragments)))
    return Transaction(version, LanceOperation.Append(list(fragments)))


def _outrun(table: Table, *, is_new: bool) -> err.LanceNamespaceError:
    message = f"{table.id} (at {table.location}: another client wrote its first version)"
    if is_new:
        return err.TableAlreadyExistsError(f"Table already exists: {message}")
    return err.ConcurrentModificationError(f"Concurrent modification: {message}")


async def _discard(
    table: Table, staged_write: StagedWrite, fragments: Sequence[FragmentMetadata], error: BaseException
) -> None:
    def work() -> None:
        first_version.discard(table, _transaction(staged_write, fragments), error)

    try:
        await in_thread(table, work)
    except err.LanceNamespaceError as e:
        error.add_note(f"and unused files are left at {table.location} ({e})")


def _open_or_none(opener: Opener, table: Table) -> LanceDataset | None:
    try:
        return opener.open(table)
    except err.TableNotFoundError:
        return None

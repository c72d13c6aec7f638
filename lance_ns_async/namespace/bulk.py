"""Operations on many tables at once: concurrent describes, listings and walks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from lance_namespace import RegisterTableRequest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_ns_async.backends import derived
from lance_ns_async.backends.base import Declaration
from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.engine import declare, describe
from lance_ns_async.engine.declare import Outcome, Record, Registered
from lance_ns_async.engine.describe import Described
from lance_ns_async.engine.list import Listed, Lister, TableFilter
from lance_ns_async.errors import raise_first
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.namespace import requests
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.namespace.session import Session
from lance_ns_async.tables.claims import Claims

T = TypeVar("T")


class BulkOperations(Session):
    """Bulk operations, which the spec does not have, for thousands of tables."""

    async def describe_tables(
        self,
        ids: Iterable[Iterable[str]],
        *,
        vend_credentials: bool = False,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: describe.Progress | None = None,
    ) -> Described:
        """Describes many tables concurrently, each id once.

        Args:
            ids: The table ids; each is a sequence of names.
            vend_credentials: Whether the storage options include the credentials that the catalog vends, if it vends
                any. A table for which it refuses them is described without.
            max_in_flight: Maximum number of concurrent calls; None, or more than the policy allows, means the policy's
                limit.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call. Tables that are not
                described in time fail with ServiceUnavailableError.
            progress: Receives the number of ids completed since its last call; runs in the event loop.

        Returns:
            The described tables, and an error for each other id: the failure of one table does not affect the others.

        Raises:
            InvalidInputError: The catalog cannot have an id, or `max_in_flight` or `timeout` is invalid; nothing was
                called.

        Cost:
            One call for each table. If the catalog has batch describes, or listings with locations, they replace most
            of these calls, and each id that they do not contain costs one more call. With vended credentials, they do
            not, and some catalogs need more calls for each table. After a 401, the remaining ids fail without a call.
        """
        with self._within(timeout):
            table_ids = await in_slices(self._table, ids)
            workers = self._workers(max_in_flight)
            return await describe.describe_tables(
                self._backend,
                table_ids,
                max_in_flight=workers,
                locator=self._locator if vend_credentials else None,
                progress=progress,
            )

    async def stream_tables(
        self, ids: Iterable[Iterable[str]], *, max_in_flight: int | None = None
    ) -> AsyncGenerator[tuple[TableId, Table | LanceNamespaceError], None]:
        """Describes any number of tables in bounded memory, in the order of the ids.

        Args:
            ids: The table ids; the iterator may be endless. It is read in groups of 500 ids at first and up to 5,000
                later, each of which is described like in `describe_tables`.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.

        Yields:
            Each id with its table or its error.

        Raises:
            InvalidInputError: The catalog cannot have an id; raised after the results for the ids before it.

        Cost:
            About as many calls as `describe_tables` if the ids are in the order of the catalog's listings, like those
            of `iter_tables`. Otherwise up to one call for each id if the catalog lists tables with their locations,
            because listed tables that belong to other groups are not kept.
        """
        places: describe.Places = {}
        for group in self._id_groups(ids):
            result = await self._describe_group(group, places, max_in_flight=max_in_flight)
            for id in group:
                yield id, result.outcome(id)
            # Otherwise it would stay in memory while the next group is described.
            del result

    def _id_groups(self, ids: Iterable[Iterable[str]]) -> Iterator[Sequence[TableId]]:
        """Yields the ids in the groups that `stream_tables` describes; costs no call."""
        return describe.groups(map(self._table, ids))

    async def _describe_group(
        self, group: Sequence[TableId], places: describe.Places, *, max_in_flight: int | None = None
    ) -> Described:
        """Describes one group of ids.

        Args:
            group: The ids.
            places: The positions in listings after the previous group; updated for the next group.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.

        Returns:
            The described tables, and an error for each other id.

        Raises:
            InvalidInputError: `max_in_flight` is below 1.
        """
        with self._within(None):
            workers = self._workers(max_in_flight)
            return await describe.describe_tables(self._backend, group, max_in_flight=workers, places=places)

    async def list_many(
        self,
        namespaces: Iterable[Iterable[str]],
        *,
        wanted: TableFilter | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
    ) -> Listed:
        """Lists the Lance tables of many namespaces concurrently.

        Args:
            namespaces: The namespace ids; each is a sequence of names.
            wanted: Returns whether a table belongs in the result; None includes all. If the catalog's listings contain
                other formats, a table that does not belong in the result costs no describe.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call.

        Returns:
            The tables by namespace. A namespace that fails is in `errors`, and a table whose format cannot be
                determined is in `doubtful`; neither affects the others.

        Raises:
            InvalidInputError: The catalog cannot have an id, or `max_in_flight` or `timeout` is invalid; nothing was
                called.

        Cost:
            One call for each page, and one for each table if the catalog's listings contain other formats.
        """
        namespace_ids = [self._namespace(id) for id in namespaces]
        with self._within(timeout):
            workers = self._workers(max_in_flight)
            return await Lister(self._backend, max_in_flight=workers, wanted=wanted, tolerant=True).many(namespace_ids)

    async def iter_tables(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[TableId, None]:
        """Walks the Lance tables of a namespace with concurrent listings.

        Holds at most one round of pages in memory. Skips a child namespace that is dropped during the walk.

        Args:
            namespace: The namespace to start at; empty for the root.
            recursive: Whether to include all namespaces below it.

        Yields:
            The table ids, in no particular order between namespaces.

        Raises:
            NamespaceNotFoundError: The start namespace does not exist.
            LanceNamespaceError: The first error of a listing ends the walk.

        Cost:
            One call for each page, and one for each table if the catalog's listings contain other formats.
        """
        async with aclosing(self._table_groups(namespace, recursive=recursive)) as groups:
            async for group in groups:
                for id in group:
                    yield id

    async def register_tables(
        self,
        tables: Iterable[RegisterTableRequest | Fields],
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: describe.Progress | None = None,
    ) -> Registered:
        """Registers many tables concurrently, each like `register_table` in the mode Create.

        Args:
            tables: The requests, with different ids.
            max_in_flight: Maximum number of concurrent calls; None, or more than the policy allows, means the policy's
                limit.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call. Tables that are not
                registered in time fail with ServiceUnavailableError.
            progress: Receives the number of tables completed since its last call; runs in the event loop.

        Returns:
            The registered tables, and an error for each other id: the failure of one table does not affect the others.

        Raises:
            InvalidInputError: An id is invalid or occurs twice, a mode is not Create, or `max_in_flight` or `timeout`
                is invalid; nothing was called.

        Cost:
            One declaration for each table, and the check of its location, as in `register_table`. The directory catalog
            needs one commit for 500 tables. If the process is killed, each of these commits was made completely or not
            at all. After a 401, the remaining tables fail without a call.
        """
        declarations: dict[TableId, Declaration] = {}
        for fields in tables:
            request = requests.parse(RegisterTableRequest, fields)
            id = self._table(request.id)
            if requests.word(request.mode, "mode", ("create", "overwrite")) != "create":
                raise InvalidInputError(f"table {id}: register_tables replaces nothing; use register_table")
            if id in declarations:
                raise InvalidInputError(f"table {id}: it occurs twice")
            declarations[id] = Declaration(id, request.location, request.properties or {})
        result: dict[TableId, Outcome] = {}

        async def record(declaration: Declaration, outcome: Outcome) -> None:
            result[declaration.id] = outcome
            if progress is not None:
                progress(1)

        with self._within(timeout):
            await self._register_each(declarations.values(), record, max_in_flight=self._workers(max_in_flight))
        return Registered(
            {id: outcome for id in declarations if isinstance(outcome := result[id], Table)},
            {id: outcome for id in declarations if isinstance(outcome := result[id], LanceNamespaceError)},
        )

    async def _register_each(self, declarations: Iterable[Declaration], record: Record, *, max_in_flight: int) -> None:
        """Registers each table whose data is at its location, and passes each outcome to `record`."""

        async def finish(declaration: Declaration, outcome: Outcome) -> None:
            self._locator.forget(declaration.id)
            await record(declaration, outcome)

        valid_declarations: list[Declaration] = []
        claims = Claims(self._backend)

        async def check(it: Declaration) -> None:
            try:
                self._backend.check_location(it.id, it.location or "")
                self._backend.check_declaration(it.id, it.location, it.properties)
                await claims.check_unclaimed(it.id, it.location or "")
                valid_declarations.append(it)
            except LanceNamespaceError as e:
                await record(it, e)

        await each(check, declarations, max_in_flight=max_in_flight)
        await declare.declare_tables(self._backend, valid_declarations, finish, max_in_flight=max_in_flight)

    async def protect_tables(
        self, namespace: Iterable[str] = (), *, recursive: bool = True, max_in_flight: int | None = None
    ) -> Sequence[TableId]:
        """Prevents other tools of the catalog from deleting the files of registered tables.

        On Iceberg catalogs, tables get the property `gc.enabled=false`, unless they have that property with any value.
        Without it, Iceberg's orphan removal and `DROP TABLE ... PURGE` delete the files of Lance. In a Hive Metastore,
        tables that other tools registered without `EXTERNAL=TRUE` get it; without it, Hive deletes the files with the
        table. Other catalogs need no change. May be repeated.

        Args:
            namespace: The namespace of the tables; empty for the root.
            recursive: Whether to include all namespaces below it.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.

        Returns:
            The ids of the tables that were changed, sorted.

        Raises:
            LanceNamespaceError: The first error of a table, raised after all other tables were processed.

        Cost:
            A listing, a describe of each table, and a commit for each table that is changed.
        """
        workers = self._workers(max_in_flight)
        changed_ids: list[TableId] = []
        errors: list[LanceNamespaceError] = []
        count = 0

        async def protect(id: TableId) -> None:
            try:
                if await self._backend.protect_table(await self._backend.describe_table(id)):
                    changed_ids.append(id)
            except TableNotFoundError:
                # The table was dropped after it was listed.
                return
            except LanceNamespaceError as e:
                errors.append(e)
            finally:
                self._locator.forget(id)

        async with aclosing(self._table_groups(namespace, recursive=recursive)) as groups:
            async for group in groups:
                count += len(group)
                await each(protect, group, max_in_flight=workers)
        raise_first(errors, count)
        return sorted(changed_ids)

    async def iter_namespaces(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[NamespaceId, None]:
        """Walks the namespaces below a namespace with concurrent listings.

        Args:
            namespace: The namespace to start at; empty for the root.
            recursive: Whether to include all depths; otherwise only direct children.

        Yields:
            The namespace ids, parents before their children.

        Raises:
            NamespaceNotFoundError: The start namespace does not exist.
            LanceNamespaceError: The first error of a listing ends the walk.

        Cost:
            One call for each page.
        """
        async with aclosing(self._namespace_groups(namespace, recursive=recursive)) as groups:
            async for group in groups:
                for id in group:
                    yield id

    def _table_groups(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[Sequence[TableId], None]:
        """Yields the results of `iter_tables` in the groups in which they arrive; see there for the errors."""
        return self._in_loop(self._tree(namespace).tables(recursive=recursive))

    def _namespace_groups(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[Sequence[NamespaceId], None]:
        """Yields the results of `iter_namespaces` in the groups in which they arrive; see there for the errors."""
        return self._in_loop(self._tree(namespace).namespaces(recursive=recursive))

    async def _in_loop(self, groups: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yields the groups after a check that the namespace belongs to the running event loop."""
        self._check_loop()
        async with aclosing(groups):
            async for group in groups:
                yield group

    async def exists(self, id: Iterable[str]) -> bool:
        """Returns whether a Lance table exists, or a namespace if `id` is a NamespaceId.

        Raises:
            NotALanceTableError: The name belongs to a table of another format.

        Cost:
            One call; none for the root namespace.
        """
        with self._operation():
            try:
                if isinstance(id, NamespaceId):
                    await derived.describe_namespace(self._backend, self._namespace(id))
                else:
                    await self._backend.describe_table(self._table(id))
            except (NamespaceNotFoundError, TableNotFoundError):
                return False
        return True

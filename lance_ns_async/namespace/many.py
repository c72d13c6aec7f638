"""Many tables at once: described, listed and walked side by side."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.backends import derived
from lance_ns_async.calls.concurrency import each, in_slices
from lance_ns_async.engine import describe
from lance_ns_async.engine.describe import Described
from lance_ns_async.engine.list import Listed, Lister, Wanted
from lance_ns_async.errors import raise_first
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.namespace.session import Session

T = TypeVar("T")


class ManyTables(Session):
    """The calls that the spec has no word for, and that thousands of tables want."""

    async def describe_tables(
        self,
        ids: Iterable[Iterable[str]],
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: describe.Progress | None = None,
    ) -> Described:
        """Describes many tables side by side, each once; a table that fails is in `errors` and spoils no other.

        At most `max_in_flight` calls are under way, and never more than the policy allows. `timeout` bounds
        the whole in seconds: what is not described by then fails with ServiceUnavailableError. `progress` is
        told how many more ids are settled.
        """
        with self._within(timeout):
            checked = await in_slices(self._table, ids)
            workers = self._workers(max_in_flight)
            return await describe.describe_tables(self._backend, checked, max_in_flight=workers, progress=progress)

    async def stream_tables(
        self, ids: Iterable[Iterable[str]], *, max_in_flight: int | None = None
    ) -> AsyncGenerator[tuple[TableId, Table | LanceNamespaceError], None]:
        """Describes any number of tables in bounded memory; gives each id with what became of it, in their order.

        `ids` may be an endless iterator and is read as it goes on, in groups of at first 500 and later 5,000, each of
        which is described as `describe_tables` does it. An id that cannot be one raises InvalidInputError after the
        answers for those before it.

        Costs about as many calls as `describe_tables` does where ids come in the order of the catalog's listings, as
        those of `iter_tables` do. Otherwise up to a call for each where catalogs list tables with their locations:
        what a listing has of other groups is not kept.
        """
        places: describe.Places = {}
        for group in self.id_groups(ids):
            described = await self.describe_group(group, places, max_in_flight=max_in_flight)
            for id in group:
                yield id, described.outcome(id)
            # Or it would be held while the next group is described.
            del described

    def id_groups(self, ids: Iterable[Iterable[str]]) -> Iterator[Sequence[TableId]]:
        """The ids in the groups that `stream_tables` describes; asks nobody."""
        return describe.groups(map(self._table, ids))

    async def describe_group(
        self, group: Sequence[TableId], places: describe.Places, *, max_in_flight: int | None = None
    ) -> Described:
        """Describes one of them, with listings read on from the `places` where the group before has left them."""
        with self._within(None):
            workers = self._workers(max_in_flight)
            return await describe.describe_tables(self._backend, group, max_in_flight=workers, places=places)

    async def list_many(
        self,
        namespaces: Iterable[Iterable[str]],
        *,
        wanted: Wanted | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
    ) -> Listed:
        """Lists the Lance tables of many namespaces side by side; one that fails is in `errors`.

        With `wanted` only the tables for which it is true, which saves describing the others where a catalog
        mixes other formats in. A table that fails there is in `doubtful`, and spoils no other either.
        """
        checked = [self._namespace(id) for id in namespaces]
        with self._within(timeout):
            workers = self._workers(max_in_flight)
            return await Lister(self._backend, max_in_flight=workers, wanted=wanted, tolerant=True).many(checked)

    async def iter_tables(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[TableId, None]:
        """The Lance tables of a namespace, and with `recursive` of all below it, walked side by side.

        Holds a round of pages at most. In no order between namespaces.
        """
        async with aclosing(self.table_groups(namespace, recursive=recursive)) as groups:
            async for group in groups:
                for id in group:
                    yield id

    async def protect_tables(
        self, namespace: Iterable[str] = (), *, recursive: bool = True, max_in_flight: int | None = None
    ) -> Sequence[TableId]:
        """Keeps other tools of the catalog from deleting the files of tables that are registered already.

        On Iceberg catalogs tables get the property `gc.enabled=false`, unless they have that property with any value.
        Without it, Iceberg's orphan removal and `DROP TABLE ... PURGE` delete the files of Lance. Elsewhere there is
        nothing to do. May be repeated.

        Args:
            namespace: Where the tables are.
            recursive: Whether those of all namespaces below are meant, too.
            max_in_flight: Most calls that are under way at once; None for what the policy allows.

        Returns:
            The tables that were changed.

        Raises:
            LanceNamespaceError: The first error of a table, after all others were seen to.

        Cost: a listing, a describe of each table, and a commit for each one that is changed.
        """
        workers = self._workers(max_in_flight)
        changed: list[TableId] = []
        errors: list[LanceNamespaceError] = []
        seen = 0

        async def protect(id: TableId) -> None:
            try:
                if await self._backend.protect_table(await self._backend.describe_table(id)):
                    changed.append(id)
            except TableNotFoundError:
                # It is gone by now.
                return
            except LanceNamespaceError as e:
                errors.append(e)

        async with aclosing(self.table_groups(namespace, recursive=recursive)) as groups:
            async for group in groups:
                seen += len(group)
                await each(protect, group, max_in_flight=workers)
        raise_first(errors, seen)
        return sorted(changed)

    async def iter_namespaces(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[NamespaceId, None]:
        """The namespaces below one, parents before their children; with `recursive` at every depth."""
        async with aclosing(self.namespace_groups(namespace, recursive=recursive)) as groups:
            async for group in groups:
                for id in group:
                    yield id

    def table_groups(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[Sequence[TableId], None]:
        """What `iter_tables` gives, in the groups it arrives in."""
        return self._in_loop(self._tree(namespace).tables(recursive=recursive))

    def namespace_groups(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[Sequence[NamespaceId], None]:
        """What `iter_namespaces` gives, in the groups it arrives in."""
        return self._in_loop(self._tree(namespace).namespaces(recursive=recursive))

    async def _in_loop(self, groups: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The groups, once it is known that this is the event loop of the namespace."""
        self._check_loop()
        async with aclosing(groups):
            async for group in groups:
                yield group

    async def exists(self, id: Iterable[str]) -> bool:
        """Whether there is a Lance table of that id, or a namespace where `id` is a NamespaceId.

        Raises NotALanceTableError for a table of another format: the name is taken, and no Lance table is there.
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

"""The base of operations on datasets: the catalog locates the table, and a worker thread opens the dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self, TypeVar

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.calls.policy import Caller, Policy
from lance_ns_async.model import Page, Table
from lance_ns_async.namespace.session import Session
from lance_ns_async.settings import TokenFunction, conceal, with_token
from lance_ns_async.storage.datasets import LATEST, Snapshot
from lance_ns_async.storage.threads import aside, in_thread
from lance_ns_async.tables import concurrent_changes
from lance_ns_async.tables.callback import make_connector
from lance_ns_async.tables.opening import Opener
from lance_ns_async.tables.sql_bounds import Texts
from lance_ns_async.tables.staging import Staging

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")


class DatasetOperations(Session):
    """Runs work on a table's dataset: one call locates the table, and a worker thread opens the dataset."""

    def __init__(self, backend: Backend, caller: Caller, namespace_id: str) -> None:
        super().__init__(backend, caller, namespace_id)
        self._opener = Opener()

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str],
        *,
        policy: Policy | None = None,
        token: TokenFunction | None = None,
    ) -> Self:
        """Returns a namespace over a catalog.

        Args:
            impl: The name of the backend, one of `lance_ns_async.registry.BACKENDS`.
            properties: The properties of this backend.
            policy: Replaces all limits in the properties; None keeps them.
            token: For catalogs with bearer tokens, a function that returns a token, or a tuple of a token and its
                expiry: in seconds from now, in seconds since 1970, or as a datetime with a time zone. It is called when
                a token is needed, expires or is rejected; in a worker thread, unless it is a coroutine function. Lance
                may call it in other threads for its own connections.

        Raises:
            InvalidInputError: The backend is unknown, its extra is not installed, or a property is invalid.

        Cost:
            No call: problems with the server are raised by the first operation.
        """
        properties = conceal(properties)
        properties = with_token(properties, token)
        namespace = super().connect(impl, properties, policy=policy)
        namespace._opener = Opener(make_connector(impl, dict(properties), policy))
        return namespace

    async def aclose(self) -> None:
        """Releases connections, threads and caches; may be called twice. Open datasets stay open.

        Also called in another event loop, it closes them in the namespace's own loop while that runs.

        Raises:
            InvalidInputError: The event loop of the namespace has ended or does not run; connections cannot be closed
                in another one.
        """
        await super().aclose()
        self._opener.close()

    async def _check(self, texts: Texts) -> None:
        """Raises InvalidInputError for SQL texts that are too complex for Lance; long texts are checked in a thread."""
        if texts.is_small:
            texts.check()
            return
        with self._operation():
            await aside(texts.check)

    async def _read(
        self, id: Iterable[str] | None, work: Callable[[LanceDataset, Table], T], snapshot: Snapshot = LATEST
    ) -> T:
        """Returns the result of `work` on a snapshot of the dataset."""
        return await self._on_dataset(id, work, snapshot, changes=False)

    async def _change(
        self, id: Iterable[str] | None, work: Callable[[LanceDataset, Table], T], snapshot: Snapshot = LATEST
    ) -> T:
        """Returns the result of `work`, which changes the dataset; it is never run twice."""
        return await self._on_dataset(id, work, snapshot, changes=True)

    async def _on_dataset(
        self,
        id: Iterable[str] | None,
        work: Callable[[LanceDataset, Table], T],
        snapshot: Snapshot,
        *,
        changes: bool,
    ) -> T:
        with self._operation():
            table = await self._locator.locate(self._table(id))
            return await self._open_and_run(table, lambda dataset: work(dataset, table), snapshot, changes=changes)

    async def _open_and_run(
        self, table: Table, work: Callable[[LanceDataset], T], snapshot: Snapshot = LATEST, *, changes: bool = False
    ) -> T:
        """Returns the result of `work` on the dataset of a table that is already located."""
        async with concurrent_changes.explain(self._backend, table):
            return await in_thread(table, lambda: work(self._opener.open(table, snapshot)), changes=changes)


def opener_of(namespace: DatasetOperations) -> Opener:
    """Returns the opener of the namespace's datasets, for example for Spark's driver."""
    return namespace._opener


def staging(namespace: DatasetOperations) -> Staging:
    """Returns the `Staging` with which other processes, for example Spark executors, write files of tables."""
    return Staging(namespace._backend, namespace._opener, namespace._changing)


async def page_of(items: Mapping[str, T], limit: int | None, page_token: str | None) -> tuple[dict[str, T], str | None]:
    """Returns at most `limit` of the items, sorted by name, and the token of the next page."""

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return Page(sorted(items))

    page = await take(fetch, keep_all, limit=limit, page_token=page_token)
    return {name: items[name] for name in page.items}, page.token

"""Operations on a table's dataset: located by the catalog, opened and worked on in a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self, TypeVar

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.calls.policy import Caller, Policy
from lance_ns_async.engine.credentials import SharedCredentials
from lance_ns_async.engine.locate import located
from lance_ns_async.model import Page, Table
from lance_ns_async.namespace.session import Session
from lance_ns_async.storage.datasets import LATEST, Snapshot
from lance_ns_async.storage.threads import aside, in_thread
from lance_ns_async.tables import meanwhile
from lance_ns_async.tables.callback import connecting
from lance_ns_async.tables.filters import Texts
from lance_ns_async.tables.opening import Opener
from lance_ns_async.tables.staging import Staging

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")


class DatasetOperations(Session):
    """What every operation on datasets stands on: a call that locates the table, and a thread that opens it."""

    def __init__(self, backend: Backend, caller: Caller, namespace_id: str) -> None:
        super().__init__(backend, caller, namespace_id)
        self._backend: SharedCredentials = SharedCredentials(backend)
        self._opener = Opener()

    @classmethod
    def connect(cls, impl: str, properties: Mapping[str, str], *, policy: Policy | None = None) -> Self:
        """The namespace of a catalog: `impl` is one of `lance_ns_async.registry.BACKENDS`, `properties` are its own.

        Costs no call: what is wrong with the properties is raised here as InvalidInputError, what is wrong
        with the server by the first operation. `policy` takes the place of all limits in the properties.
        """
        made = super().connect(impl, properties, policy=policy)
        made._opener = Opener(connecting(impl, dict(properties), policy))
        return made

    async def aclose(self) -> None:
        """Gives back connections and threads; may be called twice. Datasets that were opened stay open.

        Raises InvalidInputError in another event loop than the one it was used in, where connections cannot be closed.
        """
        await super().aclose()
        self._opener.close()

    async def _check(self, texts: Texts) -> None:
        """Raises InvalidInputError for SQL texts that Lance could not bear; long ones are read in a thread."""
        if texts.is_small:
            texts.check()
            return
        with self._operation():
            await aside(texts.check)

    async def _read(
        self, id: Iterable[str] | None, work: Callable[[LanceDataset, Table], T], snapshot: Snapshot = LATEST
    ) -> T:
        """What `work` finds in the dataset in that state."""
        return await self._on_dataset(id, work, snapshot, changes=False)

    async def _change(
        self, id: Iterable[str] | None, work: Callable[[LanceDataset, Table], T], snapshot: Snapshot = LATEST
    ) -> T:
        """What `work` gives, which changes the dataset, and is done once or not at all."""
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
            table = await located(self._backend, self._table(id))
            return await self._opened(table, lambda dataset: work(dataset, table), snapshot, changes=changes)

    async def _opened(
        self, table: Table, work: Callable[[LanceDataset], T], snapshot: Snapshot = LATEST, *, changes: bool = False
    ) -> T:
        """What `work` gives on the dataset of a table that is located already."""
        async with meanwhile.explained(self._backend, table):
            return await in_thread(table, lambda: work(self._opener.open(table, snapshot)), changes=changes)


def staging(namespace: DatasetOperations) -> Staging:
    """What lets others write the files of a namespace's tables; Spark's executors do."""
    return Staging(namespace._backend, namespace._opener, namespace._operation)


async def page_of(found: Mapping[str, T], limit: int | None, page_token: str | None) -> tuple[dict[str, T], str | None]:
    """At most `limit` of what was found, by name, and the token to go on with."""

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return Page(sorted(found))

    page = await take(fetch, keep_all, limit=limit, page_token=page_token)
    return {name: found[name] for name in page.items}, page.token

"""An embedded catalog with prefetched tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import lance
import pyarrow as pa
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

from lance_ns_async import Namespace, NamespaceId, Policy, TableId
from lance_ns_async.spark import LocationResolver
from tests.fakes.iceberg import FakeIceberg

ROWS = pa.table({"id": [1, 2, 3], "s": ["a", None, "c"]})


class Lake:
    """An embedded catalog for new tables."""

    def __init__(self, root: Path, storage: Mapping[str, str] | None = None) -> None:
        self.properties = {"root": str(root), **{f"storage.{key}": value for key, value in (storage or {}).items()}}
        self.namespace = Namespace.connect("dir", self.properties)
        self._made: set[NamespaceId] = {NamespaceId()}

    def declare(self, *names: str) -> str:
        self._make(TableId(names).parent)
        location = self.namespace.declare_table(DeclareTableRequest(id=list(names))).location
        assert location is not None
        return location

    def write(self, *names: str, rows: pa.Table = ROWS, rows_per_file: int = 1024) -> str:
        location = self.declare(*names)
        lance.write_dataset(rows, location, mode="overwrite", max_rows_per_file=rows_per_file)
        return location

    def _make(self, id: NamespaceId) -> None:
        if id not in self._made:
            self._make(id.parent)
            self.namespace.create_namespace(CreateNamespaceRequest(id=list(id)))
            self._made.add(id)


@contextmanager
def lake_in(root: Path) -> Iterator[Lake]:
    lake = Lake(root)
    with lake.namespace:
        yield lake


def resolver_of(server: FakeIceberg) -> LocationResolver:
    """Returns a separate resolver for a catalog, whose calls are retried at once."""
    policy = Policy(backoff_initial=0.001, backoff_max=0.001)
    return LocationResolver.connect("iceberg", {"endpoint": server.endpoint}, policy=policy)


def ids(*texts: str) -> list[TableId]:
    return [TableId(text) for text in texts]


async def prefetch_together(
    count: int,
    wait_for: Callable[[int], None],
    release: Callable[[], None],
    resolver: LocationResolver,
    names: list[str],
) -> list[TableId]:
    """Prefetches tables of `db` whose calls are held until a number of them wait."""
    what = [f"db.{name}" for name in names]
    prefetching = asyncio.ensure_future(resolver.aprefetch(what, pin_versions=False, max_in_flight=count))
    await asyncio.to_thread(wait_for, count)
    release()
    return list(await prefetching)

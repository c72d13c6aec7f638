"""pylance on tables whose versions an Iceberg catalog commits: it calls our methods from its own threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest, DropTableRequest, ListTableVersionsRequest, ListTableVersionsResponse

from lance_ns_async import IcebergNamespace
from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.pylance_tables import MORE, ROWS, ids, opened, write

WRITERS = 6
pytestmark = pytest.mark.parametrize("catalog", ["iceberg"], indirect=True)


class Watched(IcebergNamespace):
    """Records the threads from which pylance requested versions."""

    def __init__(self, **properties: str) -> None:
        super().__init__(**properties)
        self.threads: list[threading.Thread] = []

    def list_table_versions(self, request: Any, **fields: Any) -> ListTableVersionsResponse:
        self.threads.append(threading.current_thread())
        return super().list_table_versions(request)


@pytest.fixture
def ns(catalog: Catalog) -> Iterator[Watched]:
    with Watched(**catalog.properties, managed_by="impl") as namespace:
        yield namespace


def test_a_managed_table_lives_and_ends(ns: Watched, home: list[str]) -> None:
    id = [*home, "t"]
    assert write(ns, id).version == 1
    assert ns.describe_table(DescribeTableRequest(id=id)).managed_versioning
    assert write(ns, id, MORE, mode="append").version == 2
    assert write(ns, id, MORE, mode="overwrite").version == 3
    assert [ids(ns, id, version) for version in (None, 1, 2)] == [[4, 5], [1, 2, 3], [1, 2, 3, 4, 5]]
    dataset = opened(ns, id)
    dataset.delete("id = 4")
    dataset.tags.create("first", 1)
    assert ids(ns, id, "first") == [1, 2, 3]
    dataset.checkout_version(1).restore()
    assert opened(ns, id).to_table() == ROWS
    result = ns.list_table_versions(ListTableVersionsRequest(id=id)).versions
    assert sorted(version.version for version in result) == [1, 2, 3, 4, 5]
    ns.drop_table(DropTableRequest(id=id))
    assert not ns.exists(id)


def test_versions_are_requested_from_threads_that_are_not_pythons(ns: Watched, home: list[str]) -> None:
    write(ns, [*home, "t"])
    opened(ns, [*home, "t"])
    assert ns.threads and all(isinstance(thread, threading._DummyThread) for thread in ns.threads)


def test_writers_at_once_all_get_in(ns: Watched, home: list[str]) -> None:
    id = [*home, "t"]
    write(ns, id, ROWS.slice(0, 0))

    def append(number: int) -> None:
        write(ns, id, pa.table({"id": [number], "name": [f"w{number}"]}), mode="append")

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append, range(WRITERS)))
    assert ids(ns, id) == list(range(WRITERS))
    assert opened(ns, id).version == 1 + WRITERS

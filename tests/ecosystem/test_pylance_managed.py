"""pylance on tables whose versions an Iceberg catalog commits: it calls our methods from its own threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from lance_namespace import ListTableVersionsResponse

from lance_ns_async import IcebergNamespace
from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.pylance_tables import opened, write

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


def test_versions_are_requested_from_threads_that_are_not_pythons(ns: Watched, home: list[str]) -> None:
    write(ns, [*home, "t"])
    opened(ns, [*home, "t"])
    assert ns.threads and all(isinstance(thread, threading._DummyThread) for thread in ns.threads)

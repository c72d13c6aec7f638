"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lance_ns_async import IcebergNamespace
from tests.fakes.iceberg import FakeIceberg


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        running.add_table(["db"], "t")
        running.add_table(["db", "inner"], "u")
        yield running


@pytest.fixture
def ns(server: FakeIceberg) -> Iterator[IcebergNamespace]:
    with IcebergNamespace(endpoint=server.endpoint, root="file:///tmp/none") as opened:
        yield opened

"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lance_ns_async import AsyncNamespace, IcebergNamespace
from tests.fakes.iceberg import FakeIceberg
from tests.support.gateway import served


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


@pytest.fixture(params=["local", "remote"])
async def reader(request: pytest.FixtureRequest, ns: AsyncNamespace, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """Provides the catalog of `ns`, whose root is `lake`, read here and by a server."""
    if request.param == "local":
        yield ns
        return
    with served("dir", {"root": str(tmp_path / "lake")}) as gateway:
        async with AsyncNamespace.connect("rest", {**gateway.properties, "data_operations": "remote"}) as remote:
            yield remote

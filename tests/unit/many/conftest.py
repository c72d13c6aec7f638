"""A directory catalog, read here and by a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lance_ns_async import AsyncNamespace
from tests.support.gateway import served


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as opened:
        await opened.create_namespace(["s"])
        yield opened


@pytest.fixture(params=["local", "remote"])
async def reader(request: pytest.FixtureRequest, ns: AsyncNamespace, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """Provides the same catalog, read here and by a server."""
    if request.param == "local":
        yield ns
        return
    with served("dir", {"root": str(tmp_path / "lake")}) as gateway:
        headers = {f"header.{name}": value for name, value in gateway.headers.items()}
        properties = {"uri": gateway.url, "data_operations": "remote", **headers}
        async with AsyncNamespace.connect("rest", properties) as remote:
            yield remote

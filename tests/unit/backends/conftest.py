"""A server for the tests of each folder, and a namespace that is connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lance_ns_async import AsyncNamespace
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.rest import FakeRest
from tests.fakes.unity import FakeUnity
from tests.support.glue import forget_aws

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}


def create_server(impl: str) -> Any:
    """Returns a catalog with one namespace; Polaris needs no token, so that only other requests are recorded."""
    server: Any
    match impl:
        case "iceberg":
            (server := FakeIceberg()).add_namespace(("a",))
        case "lakekeeper":
            (server := FakeLakekeeper()).add_namespace(("n",))
        case "polaris":
            (server := FakePolaris(credential=None)).add_namespace("cat", ("a",))
        case "unity":
            (server := FakeUnity()).add_schema("main", "a")
        case _:
            server = FakeRest()
    return server


def list_properties(impl: str, server: Any) -> dict[str, str]:
    match impl:
        case "hive3":
            return {"uri": server.uri, "root": str(server.warehouse.parent / "root")}
        case "iceberg":
            return {"endpoint": server.endpoint}
        case "rest":
            return {"uri": server.url}
        case "unity":
            return {**server.properties, "root": "s3://b/r"}
        case _:
            return dict(server.properties)


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_aws(monkeypatch, tmp_path)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with create_server(request.path.parent.name) as running:
        yield running


@pytest.fixture
async def ns(request: pytest.FixtureRequest, server: Any) -> AsyncIterator[AsyncNamespace]:
    impl = request.path.parent.name
    async with AsyncNamespace.connect(impl, {**list_properties(impl, server), **QUICK}) as connected:
        yield connected

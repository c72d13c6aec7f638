"""Access to a server for tests of the Polaris backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lance_namespace import DescribeTableRequest, DescribeTableResponse

from lance_ns_async import AsyncNamespace
from tests.fakes.polaris import FakePolaris

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}


@asynccontextmanager
async def connected(server: FakePolaris, **properties: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("polaris", {**server.properties, **QUICK, **properties}) as ns:
        yield ns


def open_server() -> FakePolaris:
    """Returns a server that needs no token, so that only other requests are recorded."""
    return FakePolaris(credential=None)


async def described(ns: AsyncNamespace, *id: str, vend: bool | None = None) -> DescribeTableResponse:
    return await ns.describe_table(DescribeTableRequest(id=list(id), vend_credentials=vend))


def list_requests(server: FakePolaris) -> list[str]:
    """Returns the requests since the last `clear`, without the common prefix of paths."""
    return [str(request).replace(" /api/", " ") for request in server.requests]

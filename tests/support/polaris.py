"""How the tests of the Polaris backend reach a server."""

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
    """A server that wants no token, so that its log holds what was asked and nothing else."""
    return FakePolaris(credential=None)


async def described(ns: AsyncNamespace, *id: str, vend: bool | None = None) -> DescribeTableResponse:
    return await ns.describe_table(DescribeTableRequest(id=list(id), vend_credentials=vend))


def asked(server: FakePolaris) -> list[str]:
    """The requests since the log was cleared, without what all paths begin with, and without those for notes."""
    return [
        str(request).replace(" /api/", " ") for request in server.requests if "lance_ns_replacing_" not in request.path
    ]

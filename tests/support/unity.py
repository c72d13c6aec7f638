"""Access to a server for tests of the Unity backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lance_namespace import DeclareTableRequest, DeclareTableResponse, DescribeTableRequest, DescribeTableResponse

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.unity.backend import UnityBackend, UnitySettings
from lance_ns_async.backends.unity.wire import ERRORS
from lance_ns_async.calls.caller import Caller
from tests.fakes.unity import API, FakeUnity

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}
DIALECTS = ("0.6", "0.4.1", "0.4.0")


@asynccontextmanager
async def connected(server: FakeUnity, **properties: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("unity", {**server.properties, **QUICK, **properties}) as ns:
        yield ns


async def described(ns: AsyncNamespace, *id: str, vend: bool | None = None) -> DescribeTableResponse:
    return await ns.describe_table(DescribeTableRequest(id=list(id), vend_credentials=vend))


async def declared(ns: AsyncNamespace, *id: str, **fields: Any) -> DeclareTableResponse:
    return await ns.declare_table(DeclareTableRequest(id=list(id), **fields))


def list_requests(server: FakeUnity) -> list[str]:
    """Returns the requests so far, without the common prefix of paths."""
    return [str(request).replace(f" {API}/", " ") for request in server.requests]


@asynccontextmanager
async def opened(server: FakeUnity) -> AsyncIterator[UnityBackend]:
    """Provides the backend itself, for values that the spec's messages have in another form."""
    settings = UnitySettings.parse({**server.properties, **QUICK})
    backend = UnityBackend.open(settings, Caller(settings.policy(), ERRORS))
    try:
        yield backend
    finally:
        await backend.aclose()

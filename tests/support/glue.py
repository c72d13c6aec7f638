"""Access to a server for tests of the Glue backend, independent of the AWS settings of the machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeclareTableResponse,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DescribeTableResponse,
    DropNamespaceRequest,
    ListNamespacesRequest,
)

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.glue.backend import GlueBackend, GlueSettings
from lance_ns_async.backends.glue.wire import ERRORS
from lance_ns_async.calls.caller import Caller
from tests.fakes.glue import FakeGlue

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}
CATALOG = {"glue.kind": "catalog"}  # The properties of a namespace that is a catalog


def properties(server: FakeGlue, *without: str, **more: str) -> Mapping[str, str]:
    """Returns the properties of a connection, without some of them."""
    return {key: value for key, value in {**server.properties, **QUICK, **more}.items() if key not in without}


@asynccontextmanager
async def connected(server: FakeGlue, *without: str, **more: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("glue", properties(server, *without, **more)) as ns:
        yield ns


@asynccontextmanager
async def opened(server: FakeGlue, **more: str) -> AsyncIterator[GlueBackend]:
    """Provides the backend itself."""
    settings = GlueSettings.parse(properties(server, **more))
    backend = GlueBackend.open(settings, Caller(settings.policy(), ERRORS))
    try:
        yield backend
    finally:
        await backend.aclose()


async def described(ns: AsyncNamespace, *id: str) -> DescribeTableResponse:
    return await ns.describe_table(DescribeTableRequest(id=list(id)))


async def declared(ns: AsyncNamespace, *id: str, **fields: Any) -> DeclareTableResponse:
    return await ns.declare_table(DeclareTableRequest(id=list(id), **fields))


async def names(ns: AsyncNamespace, *id: str) -> list[str]:
    return (await ns.list_namespaces(ListNamespacesRequest(id=list(id)))).namespaces


async def about(ns: AsyncNamespace, *id: str) -> dict[str, str]:
    return (await ns.describe_namespace(DescribeNamespaceRequest(id=list(id)))).properties or {}


async def made(ns: AsyncNamespace, *id: str, mode: str | None = None, **properties: str) -> dict[str, str]:
    values = {key.replace("_", "."): value for key, value in properties.items()}
    return (
        await ns.create_namespace(CreateNamespaceRequest(id=list(id), mode=mode, properties=values))
    ).properties or {}


async def dropped(ns: AsyncNamespace, *id: str) -> None:
    await ns.drop_namespace(DropNamespaceRequest(id=list(id)))


def plant(server: FakeGlue) -> FakeGlue:
    """Adds databases `db` and `both`, catalogs `both`, `cat` with `inner`, `cat/deep` with `leaf`, two tables `t`."""
    server.reset()
    server.switch(no_catalog_api=False, short_pages=False)
    for path, name in (("", "db"), ("", "both"), ("cat", "inner"), ("cat/deep", "leaf")):
        if path:
            server.add_nested_catalog(path, {"of": path})
        server.add_database(path, name, parameters={"is": name})
    server.add_nested_catalog("both")
    server.add_table("", "db", "t")
    server.add_table("cat/deep", "leaf", "t")
    return server

"""Access to a server for tests of the Glue backend, independent of the AWS settings of the machine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import lance_namespace as spec
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.glue.backend import GlueBackend, GlueSettings
from lance_ns_async.backends.glue.wire import ERRORS
from lance_ns_async.calls.caller import Caller
from tests.fakes.glue import FakeGlue

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}
CATALOG = {"glue.kind": "catalog"}  # The properties of a namespace that is a catalog


def properties(server: FakeGlue, *without: str, **more: str) -> Mapping[str, str]:
    return {key: value for key, value in {**server.properties, **QUICK, **more}.items() if key not in without}


@asynccontextmanager
async def connected(server: FakeGlue, *without: str, **more: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("glue", properties(server, *without, **more)) as ns:
        yield ns


@asynccontextmanager
async def opened(server: FakeGlue, **more: str) -> AsyncIterator[GlueBackend]:
    settings = GlueSettings.parse(properties(server, **more))
    backend = GlueBackend.open(settings, Caller(settings.policy(), ERRORS))
    try:
        yield backend
    finally:
        await backend.aclose()


async def described(ns: AsyncNamespace, *id: str) -> spec.DescribeTableResponse:
    return await ns.describe_table(spec.DescribeTableRequest(id=list(id)))


async def declared(ns: AsyncNamespace, *id: str, **fields: Any) -> spec.DeclareTableResponse:
    return await ns.declare_table(spec.DeclareTableRequest(id=list(id), **fields))


async def names(ns: AsyncNamespace, *id: str) -> list[str]:
    return (await ns.list_namespaces(spec.ListNamespacesRequest(id=list(id)))).namespaces


async def about(ns: AsyncNamespace, *id: str) -> dict[str, str]:
    return (await ns.describe_namespace(spec.DescribeNamespaceRequest(id=list(id)))).properties or {}


async def made(ns: AsyncNamespace, *id: str, mode: str | None = None, **properties: str) -> dict[str, str]:
    values = {key.replace("_", "."): value for key, value in properties.items()}
    return (
        await ns.create_namespace(spec.CreateNamespaceRequest(id=list(id), mode=mode, properties=values))
    ).properties or {}


async def dropped(ns: AsyncNamespace, *id: str) -> None:
    await ns.drop_namespace(spec.DropNamespaceRequest(id=list(id)))


def add_other_table(server: FakeGlue) -> FakeGlue:
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


def forget_aws(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Removes the machine's environment variables and files for AWS, and disables its metadata service."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("AWS_CONFIG_FILE", str(home / "config"))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")

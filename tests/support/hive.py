"""Helpers for tests of the Hive Metastore's client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import lance_namespace as spec

from lance_ns_async import AsyncNamespace
from tests.fakes.hive3 import FakeHive

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}


@asynccontextmanager
async def connected(server: FakeHive, impl: str = "hive3", **properties: str) -> AsyncIterator[AsyncNamespace]:
    """Provides a namespace of the server; tables and catalogs without a location are placed beside its warehouse."""
    root = server.warehouse.parent / "root"
    async with AsyncNamespace.connect(impl, {"uri": server.uri, "root": str(root), **QUICK, **properties}) as ns:
        yield ns


def create(*id: str, mode: str | None = None, **properties: str) -> spec.CreateNamespaceRequest:
    return spec.CreateNamespaceRequest(id=list(id), mode=mode, properties=properties)


def drop(*id: str, cascade: bool = False) -> spec.DropNamespaceRequest:
    return spec.DropNamespaceRequest(id=list(id), behavior="Cascade" if cascade else "Restrict")


def declare(*id: str, location: str | None = None, **properties: str) -> spec.DeclareTableRequest:
    return spec.DeclareTableRequest(id=list(id), location=location, properties=properties)


def rename(*id: str, to: str, below: tuple[str, ...] | None = None) -> spec.RenameTableRequest:
    return spec.RenameTableRequest(id=list(id), new_table_name=to, new_namespace_id=list(below) if below else None)


def describe(*id: str) -> spec.DescribeTableRequest:
    return spec.DescribeTableRequest(id=list(id))


async def kept(ns: AsyncNamespace, *id: str) -> dict[str, str]:
    return (await ns.describe_namespace(spec.DescribeNamespaceRequest(id=list(id)))).properties or {}


async def tables(ns: AsyncNamespace, *id: str) -> list[str]:
    return (await ns.list_tables(spec.ListTablesRequest(id=list(id)))).tables


async def namespaces(ns: AsyncNamespace, *id: str) -> list[str]:
    return (await ns.list_namespaces(spec.ListNamespacesRequest(id=list(id)))).namespaces


def written(location: str | None) -> Path:
    path = Path(urlsplit(location or "").path) / "data" / "0.lance"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"data")
    return path

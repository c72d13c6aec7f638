"""lancedb's connections to our catalogs, and the rows of its tables in the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import lancedb

from tests.ecosystem.catalogs import Catalog

ROWS = [{"id": n, "vector": [float(n), 0.0]} for n in range(10)]


@contextmanager
def connected(catalog: Catalog, *pushdown: str, **properties: str) -> Iterator[Any]:
    """Provides a sync connection, and closes its namespace; lancedb itself closes none."""
    db = lancedb.connect_namespace(
        catalog.class_path, {**catalog.properties, **properties}, namespace_client_pushdown_operations=[*pushdown]
    )
    with db.namespace_client():
        yield db


@asynccontextmanager
async def async_connected(catalog: Catalog, *pushdown: str, **properties: str) -> AsyncIterator[Any]:
    db = lancedb.connect_namespace_async(
        catalog.class_path, {**catalog.properties, **properties}, namespace_client_pushdown_operations=[*pushdown]
    )
    with await db.namespace_client():
        yield db


def ids(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)

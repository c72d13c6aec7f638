"""The demo: creates a catalog of many tables, resolves them, and reads all of them in one Spark job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from lance_ns_async.cli.catalog import Catalog
from lance_ns_async.cli.demo import reading, resolving, tables
from lance_ns_async.cli.demo.summary import Summary
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.progress import progress

if TYPE_CHECKING:
    from lance_ns_async import NamespaceId


def place(catalog: Catalog | None, directory: Path | None) -> Catalog:
    """Returns the chosen catalog, or an embedded one in the directory or in the user's cache."""
    from lance_ns_async.spark.java import user_cache

    if directory is not None and catalog is not None:
        raise Misuse(f"--dir is for the embedded catalog, and a catalog of kind {catalog.impl!r} is set; use only one")
    if catalog is not None:
        return catalog
    root = (directory or user_cache() / "demo") / "catalog"
    return Catalog("dir", {"root": str(root.expanduser())})


def run(catalog: Catalog, parent: NamespaceId, *, count: int, rows: int, fresh: bool, spark: bool) -> Summary:
    """Runs the demo with `count` tables in the namespace `parent`, with `rows` rows each; returns its summary."""
    if spark:
        reading.check_installed()
    ids = tables.table_ids(parent, count)
    if fresh:
        with progress("dropping tables") as bar:
            asyncio.run(tables.drop(catalog, parent, bar))
    with progress("making tables", count) as bar:
        creation = asyncio.run(tables.make(catalog, ids, rows, bar))
    with catalog.open() as namespace:
        resolution = resolving.resolve(namespace, ids)
        where = namespace.namespace_id().removeprefix("lance_ns_async:").rpartition("#")[0]
    read = reading.read(resolution.locations) if spark else None
    return Summary(f"{where}, namespace {parent}", count, rows, creation, resolution, read)

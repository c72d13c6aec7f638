"""The catalogs of these tests: real servers if possible, otherwise fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from lance_ns_async import Namespace
from lance_ns_async.registry import BACKENDS, CLASS_PATHS
from tests.servers.catalogs import CATALOGS
from tests.support.budget import with_usual
from tests.support.gateway import served

TRIED = tuple(impl for impl in BACKENDS if impl in {"dir", "rest", *CATALOGS})
"""The catalogs of these tests, which `tests.servers` can start; `rest` is our gateway to a directory."""

USUAL = ("dir", "iceberg")
"""The catalogs of the usual run: one without a server, and one with a server."""

on_each_kind = pytest.mark.parametrize("catalog", with_usual(TRIED, *USUAL, "unity"), indirect=True)
"""For tests whose results depend on the catalog: the usual run also has one with credentials."""

on_one_catalog = pytest.mark.parametrize("catalog", with_usual(TRIED, "iceberg"), indirect=True)
"""For slow tests whose results do not depend on the catalog: the usual run has one."""

ABOVE = {"hive3": ("lake",), "polaris": ("lake",), "unity": ("lake",)}
"""The namespaces that contain namespaces for tables; the root for catalogs that are not in it."""


@dataclass(frozen=True)
class Catalog:
    """A running catalog, with its settings for other packages."""

    impl: str
    properties: Mapping[str, str]
    above: tuple[str, ...] = ()
    """The names above a namespace for tables."""

    @property
    def class_path(self) -> str:
        """Returns the class path for `lance_namespace.connect`, which works in each process without a registration."""
        return CLASS_PATHS[self.impl]

    def connect(self) -> Namespace:
        return Namespace.connect(self.impl, self.properties)


Start: TypeAlias = Callable[[str], Mapping[str, str]]
"""Starts the server of a catalog, unless it has done so before, and returns its properties."""


@contextmanager
def running(impl: str, directory: Path, start: Start | None = None) -> Iterator[Catalog]:
    """Provides the catalog, with the namespaces above those for tables; without `start`, on a server of its own."""
    if impl == "dir":
        yield Catalog("dir", {"root": str(directory / "catalog")})
        return
    if impl == "rest":
        with served("dir", {"root": str(directory / "catalog")}) as gateway:
            headers = {f"header.{name}": value for name, value in gateway.headers.items()}
            yield Catalog("rest", {"uri": gateway.url, **headers})
        return
    with nullcontext(start(impl)) if start else CATALOGS[impl](directory) as properties:
        # Databases of Glue have no location for tables by default.
        catalog = Catalog(impl, {"root": (directory / "tables").as_uri(), **properties}, ABOVE.get(impl, ()))
        if impl == "hive3":
            with catalog.connect() as namespace:
                namespace.create_namespace({"id": list(catalog.above), "mode": "exist_ok"})
        yield catalog

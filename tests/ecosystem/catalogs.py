"""The catalogs that other packages are tried on: each begun for real, or as real as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lance_ns_async import Namespace
from lance_ns_async.registry import BACKENDS, CLASS_PATHS
from tests.servers.catalogs import CATALOGS
from tests.support.gateway import served

TRIED = tuple(impl for impl in BACKENDS if impl in {"dir", "rest", *CATALOGS})
"""Those that other packages are tried on, which `tests.servers` can start; `rest` is our gateway for a directory."""

ABOVE = {"hive3": ("lake",), "polaris": ("lake",), "unity": ("lake",)}
"""Where namespaces that hold tables are made; everywhere else that is the root."""


@dataclass(frozen=True)
class Catalog:
    """A running catalog, as a user of another package would name it."""

    impl: str
    properties: Mapping[str, str]
    above: tuple[str, ...] = ()
    """The names above a namespace that can hold tables."""

    @property
    def class_path(self) -> str:
        """What `lance_namespace.connect` takes in every process, without a registration."""
        return CLASS_PATHS[self.impl]

    def connect(self) -> Namespace:
        return Namespace.connect(self.impl, self.properties)


@contextmanager
def running(impl: str, directory: Path) -> Iterator[Catalog]:
    """The catalog with all that stands above namespaces which hold tables."""
    if impl == "dir":
        yield Catalog("dir", {"root": str(directory / "catalog")})
        return
    if impl == "rest":
        with served("dir", {"root": str(directory / "catalog")}) as gateway:
            headers = {f"header.{name}": value for name, value in gateway.headers.items()}
            yield Catalog("rest", {"uri": gateway.url, **headers})
        return
    with CATALOGS[impl](directory) as properties:
        # Glue's databases have no place of their own for tables unless told.
        catalog = Catalog(impl, {"root": (directory / "tables").as_uri(), **properties}, ABOVE.get(impl, ()))
        if impl == "hive3":
            with catalog.connect() as namespace:
                namespace.create_namespace({"id": list(catalog.above), "mode": "exist_ok"})
        yield catalog

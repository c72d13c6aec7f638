"""The catalogs of the demo: each is started, with its properties."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.fakes.glue import FakeGlue
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity
from tests.servers.hive import hive
from tests.servers.iceberg_rest import iceberg_rest

Properties = Mapping[str, str]  # The properties of a connection


@contextmanager
def _iceberg(directory: Path) -> Iterator[Properties]:
    with iceberg_rest(directory) as server:
        yield {"endpoint": server.endpoint, "root": (directory / "tables").as_uri()}


@contextmanager
def _hive3(directory: Path) -> Iterator[Properties]:
    with hive(directory) as server:
        yield {"uri": server.uri, "root": (directory / "tables").as_uri()}


@contextmanager
def _glue(directory: Path) -> Iterator[Properties]:
    # Catalog and tables are removed at the end.
    with tempfile.TemporaryDirectory(dir=directory.resolve(), prefix="glue-") as tables, FakeGlue() as server:
        server.add_database("", "demo", location=Path(tables).as_uri())
        yield server.properties


@contextmanager
def _polaris(directory: Path) -> Iterator[Properties]:
    # This fake and the next two store their tables in memory only, so the data is removed with them.
    with tempfile.TemporaryDirectory(dir=directory, prefix="polaris-") as tables, FakePolaris() as server:
        server.add_catalog("lake")
        yield {**server.properties, "root": Path(tables).as_uri()}


@contextmanager
def _unity(directory: Path) -> Iterator[Properties]:
    with tempfile.TemporaryDirectory(dir=directory, prefix="unity-") as tables, FakeUnity(catalog="lake") as server:
        yield {"endpoint": server.endpoint, "catalog": "lake", "root": Path(tables).as_uri()}


@contextmanager
def _lakekeeper(directory: Path) -> Iterator[Properties]:
    with tempfile.TemporaryDirectory(dir=directory, prefix="lakekeeper-") as tables:
        with FakeLakekeeper(base=Path(tables).as_uri(), also=["file://"]) as server:
            yield {**server.properties, "root": Path(tables).as_uri()}


CATALOGS: Mapping[str, Callable[[Path], AbstractContextManager[Properties]]] = {
    "glue": _glue,
    "hive3": _hive3,
    "iceberg": _iceberg,
    "lakekeeper": _lakekeeper,
    "polaris": _polaris,
    "unity": _unity,
}
"""By the name of the backend. Those of Iceberg and Hive store their content in the directory."""

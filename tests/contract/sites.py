"""The catalogs the contract is tested on: a new backend adds a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import httpx
import pytest
from lance_namespace import CreateNamespaceRequest

from lance_ns_async import Namespace, NamespaceId, TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.registry import load
from tests.fakes import hive_raw
from tests.fakes.glue import FakeGlue
from tests.fakes.hive import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity
from tests.fakes.unity_errors import Dialect
from tests.servers.hive import hive
from tests.servers.iceberg_rest import iceberg_rest


@dataclass(frozen=True)
class Site:
    """A catalog to test on."""

    impl: str
    properties: Mapping[str, str]
    plant_other: Callable[[TableId], None] | None = None
    """Puts a table of another format into the catalog; None where it can hold none."""
    renames: bool = False
    above: NamespaceId = field(default_factory=NamespaceId)
    """Where namespaces that hold tables can be made."""
    nests: bool = True
    """Whether those hold namespaces, too."""
    joins: str | None = None
    """What joins the names of a listed namespace; None where the spec's listing gives the last name alone."""

    @property
    def can(self) -> Capabilities:
        """What the backend says it can do."""
        return load(self.impl).capabilities


@contextmanager
def directory(tmp: Path) -> Iterator[Site]:
    yield Site("dir", {"root": str(tmp)})


@contextmanager
def fake_iceberg(tmp: Path) -> Iterator[Site]:
    with FakeIceberg() as server:
        yield _fake_site(server, tmp, {})


@contextmanager
def fake_nessie(tmp: Path) -> Iterator[Site]:
    with FakeIceberg.nessie() as server:
        yield _fake_site(server, tmp, {"warehouse": "warehouse"})


@contextmanager
def fake_polaris(tmp: Path) -> Iterator[Site]:
    with _polaris(tmp) as server:
        # What the list does not tell from a Lance table is listed as one, unless each is asked for.
        properties = {**server.properties, "catalogs": "*"}
        yield Site("polaris", properties, above=NamespaceId(["lake"]), joins=".")


@contextmanager
def fake_polaris_filtered(tmp: Path) -> Iterator[Site]:
    with _polaris(tmp) as server:

        def plant(id: TableId) -> None:
            catalog, *levels = id.parent
            server.add_table(catalog, levels, id.name, format="delta")

        properties = {**server.properties, "catalogs": "lake", "filter_tables": "true", "list_style": "relative"}
        yield Site("polaris", properties, plant, above=NamespaceId(["lake"]))


@contextmanager
def _polaris(tmp: Path) -> Iterator[FakePolaris]:
    with FakePolaris(base=tmp.as_uri()) as server:
        server.add_catalog("lake")
        yield server


@contextmanager
def fake_unity(tmp: Path, dialect: Dialect) -> Iterator[Site]:
    with FakeUnity(dialect=dialect) as server:

        def plant(id: TableId) -> None:
            server.add_table(*id, properties={"table_type": "delta"})

        properties = {"endpoint": server.endpoint, "catalog": "main", "root": tmp.as_uri()}
        yield Site("unity", properties, plant, above=NamespaceId(["main"]), nests=False)


@contextmanager
def fake_glue(tmp: Path, catalog: str = "", *, stock: bool = False) -> Iterator[Site]:
    with FakeGlue(stock=stock) as server:
        if catalog:
            server.add_nested_catalog(catalog)

        def plant(id: TableId) -> None:
            *levels, database = id.parent
            server.add_table("/".join(levels), database, id.name, parameters={"table_type": "ICEBERG"})

        above = NamespaceId(filter(None, catalog.split("/")))
        properties = {**server.properties, "root": tmp.as_uri()}
        yield Site("glue", properties, None if stock else plant, above=above, nests=False)


HiveVersion = Literal["3.1.3", "4.0.1"]


@contextmanager
def fake_hive(tmp: Path, version: HiveVersion) -> Iterator[Site]:
    with FakeHive(tmp / "hive", version=version) as server:
        yield _hive_site(server.uri, tmp)


@contextmanager
def real_hive(tmp: Path, version: HiveVersion) -> Iterator[Site]:
    with hive(tmp / "hive", version) as server:
        yield _hive_site(server.uri, tmp)


def _hive_site(uri: str, tmp: Path) -> Site:
    """A site in a catalog of its own, so that nothing depends on the one that is always there."""
    properties = {"uri": uri, "root": (tmp / "tables").as_uri()}
    with Namespace.connect("hive3", properties) as namespace:
        namespace.create_namespace(CreateNamespaceRequest(id=["lake"]))

    def plant(id: TableId) -> None:
        location = (tmp / "other").as_uri()
        with hive_raw.RawHive(uri) as raw:
            raw.do("create_table", hive_raw.table(*id, location=location, parameters={"EXTERNAL": "TRUE"}))

    return Site("hive3", properties, plant, renames=True, above=NamespaceId(["lake"]), nests=False)


@contextmanager
def real_iceberg(tmp: Path) -> Iterator[Site]:
    with iceberg_rest(tmp) as server:
        properties = {"endpoint": server.endpoint, "root": (tmp / "tables").as_uri()}
        yield Site("iceberg", properties, lambda id: _plant_iceberg(server.endpoint, tmp, id), renames=True)


def _fake_site(server: FakeIceberg, tmp: Path, properties: Mapping[str, str]) -> Site:
    def plant(id: TableId) -> None:
        server.add_table(id.parent, id.name, properties={}, location=(tmp / "other").as_uri())

    return Site("iceberg", {"endpoint": server.endpoint, "root": tmp.as_uri(), **properties}, plant, renames=True)


def _plant_iceberg(endpoint: str, tmp: Path, id: TableId) -> None:
    """An Iceberg table as an Iceberg client would make it."""
    body = {
        "name": id.name,
        "location": (tmp / "other" / "-".join(id)).as_uri(),
        "schema": {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
        },
        "stage-create": False,
    }
    httpx.post(
        f"{endpoint}/v1/namespaces/{'%2E'.join(id.parent)}/tables", json=body, trust_env=False
    ).raise_for_status()


Open = Callable[[Path], AbstractContextManager[Site]]

SITES: Mapping[str, Open] = {
    "dir": directory,
    "iceberg-fake": fake_iceberg,
    "nessie-fake": fake_nessie,
    "iceberg-1.11.0": real_iceberg,
    "hive-fake-3.1.3": partial(fake_hive, version="3.1.3"),
    "hive-fake-4.0.1": partial(fake_hive, version="4.0.1"),
    "hive-3.1.3": partial(real_hive, version="3.1.3"),
    "hive-4.0.1": partial(real_hive, version="4.0.1"),
    "polaris-fake": fake_polaris,
    "polaris-fake-filtered": fake_polaris_filtered,
    "glue-stock-moto": partial(fake_glue, stock=True),
    "glue": fake_glue,
    "glue-in-a-catalog": partial(fake_glue, catalog="outer"),
    "glue-in-a-nested-catalog": partial(fake_glue, catalog="outer/inner"),
    "unity-fake": partial(fake_unity, dialect="0.6"),
    "unity-fake-0.4.0": partial(fake_unity, dialect="0.4.0"),
}

REAL = {"hive-3.1.3", "hive-4.0.1", "iceberg-1.11.0"}
"""Those that start a real server."""

PARAMS = [pytest.param(name, marks=pytest.mark.integration if name in REAL else []) for name in SITES]

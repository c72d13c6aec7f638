"""The catalogs for the contract: a new backend adds a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lance_ns_async import NamespaceId, TableId
from tests.contract.real_sites import HiveVersion, hive_site, real_hive, real_iceberg, real_nessie
from tests.contract.rest_sites import (
    ON_A_GATEWAY,
    ON_A_GATEWAY_TO_DIR,
    rest_on_a_gateway,
    rest_on_gravitino,
    rest_on_pylance,
)
from tests.contract.site import Site
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.http import FakeServer
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity
from tests.fakes.unity.checks import Dialect

VENDS = [{"prefix": "s3://", "config": {"s3.access-key-id": "key", "s3.secret-access-key": "hush"}}]


@contextmanager
def directory(tmp: Path) -> Iterator[Site]:
    yield Site("dir", {"root": str(tmp)})


@contextmanager
def directory_behind_a_gateway(tmp: Path) -> Iterator[Site]:
    yield Site("dir", {"root": str(tmp)}, served=True)


@contextmanager
def fake_iceberg(tmp: Path) -> Iterator[Site]:
    with FakeIceberg(vends=VENDS) as server:
        yield _fake_site(server, tmp, {})


@contextmanager
def fake_iceberg_with_a_cache(tmp: Path) -> Iterator[Site]:
    """Provides a catalog of which a few tables are kept, and confirmed by their ETags."""
    with fake_iceberg(tmp) as site:
        yield replace(site, properties={**site.properties, "rest_table_cache_max_entries": "3"})


@contextmanager
def fake_nessie(tmp: Path) -> Iterator[Site]:
    with FakeIceberg.nessie() as server:
        yield replace(_fake_site(server, tmp, {"warehouse": "warehouse"}), keeps_credentials=True)


@contextmanager
def fake_iceberg_renewing(tmp: Path) -> Iterator[Site]:
    """Provides a catalog that vends credentials at a separate endpoint."""
    with FakeIceberg(renews=VENDS) as server:
        yield _fake_site(server, tmp, {})


@contextmanager
def fake_polaris(tmp: Path) -> Iterator[Site]:
    with _polaris(tmp) as server:
        # If the listing does not distinguish Lance tables, all are listed, unless each is described.
        properties = {**server.properties, "catalogs": "*"}
        throttle = partial(_rate_limited, server)
        yield Site("polaris", properties, above=NamespaceId(["lake"]), joins=".", throttle=throttle)


@contextmanager
def fake_polaris_filtered(tmp: Path) -> Iterator[Site]:
    with _polaris(tmp) as server:

        def add_other_table(id: TableId) -> None:
            catalog, *levels = id.parent
            server.add_table(catalog, levels, id.name, format="delta")

        properties = {**server.properties, "catalogs": "lake", "filter_tables": "true", "list_style": "relative"}
        yield Site("polaris", properties, add_other_table, above=NamespaceId(["lake"]))


@contextmanager
def _polaris(tmp: Path) -> Iterator[FakePolaris]:
    with FakePolaris(base=tmp.as_uri(), vends=VENDS) as server:
        server.add_catalog("lake")
        yield server


SOFT = {
    "test_a_registered_table_is_described_at_its_location": "a deleted table keeps its location",
    "test_a_table_comes_back_under_another_name": "the server restores a table under its former name alone",
    "test_a_table_is_brought_back_under_one_name": "its server tells several callers that they restored a table",
}


@contextmanager
def fake_lakekeeper(tmp: Path, *, soft: bool = False, rooted: bool = False) -> Iterator[Site]:
    with FakeLakekeeper(base=tmp.as_uri(), also=["s3://lake", "file://", ""], soft=soft, vends=VENDS) as server:

        def add_other_table(id: TableId) -> None:
            server.add_table(id.parent, id.name, format="delta")

        yield Site(
            "lakekeeper",
            {**server.properties, **({"root": tmp.as_uri()} if rooted else {})},
            add_other_table,
            overlaps=False,
            frees_locations=not soft,
            exempt=SOFT if soft else {},
            chooses_locations=not rooted,
            throttle=partial(_rate_limited, server),
        )


@contextmanager
def fake_unity(tmp: Path, dialect: Dialect) -> Iterator[Site]:
    key = {"access_key_id": "key", "secret_access_key": "hush", "session_token": "t"}
    with FakeUnity(dialect=dialect, credentials={"aws_temp_credentials": key}) as server:

        def add_other_table(id: TableId) -> None:
            server.add_table(*id, properties={"table_type": "delta"})

        properties = {"endpoint": server.endpoint, "catalog": "main", "root": tmp.as_uri()}
        throttle = partial(_rate_limited, server)
        yield Site("unity", properties, add_other_table, above=NamespaceId(["main"]), nests=False, throttle=throttle)


@contextmanager
def fake_glue(tmp: Path, catalog: str = "", *, stock: bool = False) -> Iterator[Site]:
    with FakeGlue(stock=stock) as server:
        if catalog:
            server.add_nested_catalog(catalog)

        def add_other_table(id: TableId) -> None:
            *levels, database = id.parent
            server.add_table("/".join(levels), database, id.name, parameters={"table_type": "ICEBERG"})

        above = NamespaceId(filter(None, catalog.split("/")))
        properties = {**server.properties, "root": tmp.as_uri()}
        throttle = partial(_throttled, server)
        yield Site("glue", properties, None if stock else add_other_table, above=above, nests=False, throttle=throttle)


@contextmanager
def fake_hive(tmp: Path, version: HiveVersion) -> Iterator[Site]:
    with FakeHive(tmp / "hive", version=version) as server:
        yield hive_site(server.uri, tmp, version)


def _fake_site(server: FakeIceberg, tmp: Path, properties: Mapping[str, str]) -> Site:
    def add_other_table(id: TableId) -> None:
        server.add_table(id.parent, id.name, properties={}, location=(tmp / "other").as_uri())

    properties = {"endpoint": server.endpoint, "root": tmp.as_uri(), **properties}
    return Site("iceberg", properties, add_other_table, throttle=partial(_rate_limited, server))


@contextmanager
def _rate_limited(server: FakeServer) -> Iterator[None]:
    """Limits the rate as Polaris does; the first calls are refused even if they are slow."""
    server.fail(429, times=4)
    server.limit_rate(100, burst=1)
    try:
        yield
    finally:
        server.heal()


@contextmanager
def _throttled(server: FakeGlue) -> Iterator[None]:
    server.fail("ThrottlingException", times=None, every=4)
    try:
        yield
    finally:
        server.heal()


Open = Callable[[Path], AbstractContextManager[Site]]

SITES: Mapping[str, Open] = {
    "dir": directory,
    "dir-behind-a-gateway": directory_behind_a_gateway,
    "iceberg-fake": fake_iceberg,
    "iceberg-fake-renewing": fake_iceberg_renewing,
    "iceberg-fake-with-a-cache": fake_iceberg_with_a_cache,
    "nessie-fake": fake_nessie,
    "iceberg-1.11.0": real_iceberg,
    "hive-fake-2.3.9": partial(fake_hive, version="2.3.9"),
    "hive-fake-3.1.3": partial(fake_hive, version="3.1.3"),
    "hive-fake-4.0.1": partial(fake_hive, version="4.0.1"),
    "hive-2.3.9": partial(real_hive, version="2.3.9"),
    "hive-3.1.3": partial(real_hive, version="3.1.3"),
    "hive-4.0.1": partial(real_hive, version="4.0.1"),
    "nessie-0.99.0": real_nessie,
    "polaris-fake": fake_polaris,
    "polaris-fake-filtered": fake_polaris_filtered,
    "lakekeeper-fake": fake_lakekeeper,
    "lakekeeper-fake-soft-deletion": partial(fake_lakekeeper, soft=True),
    "lakekeeper-fake-with-a-root": partial(fake_lakekeeper, rooted=True),
    "glue-stock-moto": partial(fake_glue, stock=True),
    "glue": fake_glue,
    "glue-in-a-catalog": partial(fake_glue, catalog="outer"),
    "glue-in-a-nested-catalog": partial(fake_glue, catalog="outer/inner"),
    "unity-fake": partial(fake_unity, dialect="0.6"),
    "unity-fake-0.4.0": partial(fake_unity, dialect="0.4.0"),
    "rest-on-pylance": rest_on_pylance,
    "rest-on-gravitino": rest_on_gravitino,
    "rest-on-a-gateway": partial(rest_on_a_gateway, directory, ON_A_GATEWAY_TO_DIR),
    "rest-on-a-gateway-to-iceberg": partial(rest_on_a_gateway, fake_iceberg, ON_A_GATEWAY),
    "rest-on-a-gateway-to-hive": partial(rest_on_a_gateway, partial(fake_hive, version="4.0.1"), ON_A_GATEWAY),
    "rest-on-a-gateway-to-glue": partial(rest_on_a_gateway, fake_glue, ON_A_GATEWAY),
    "rest-on-a-gateway-to-polaris": partial(rest_on_a_gateway, fake_polaris_filtered, ON_A_GATEWAY),
    "rest-on-a-gateway-to-lakekeeper": partial(rest_on_a_gateway, fake_lakekeeper, ON_A_GATEWAY),
    "rest-on-a-gateway-to-unity": partial(rest_on_a_gateway, partial(fake_unity, dialect="0.6"), ON_A_GATEWAY),
}

REAL = {"hive-2.3.9", "hive-3.1.3", "hive-4.0.1", "iceberg-1.11.0", "nessie-0.99.0"}
"""Sites that start a real server."""

ROUND_TRIPS = {f"rest-on-a-gateway-to-{it}" for it in ("hive", "glue", "polaris", "lakekeeper", "unity")}
"""Sites of the thorough run alone, which has the tests with the mark `round_trip` on them.

The gateway does the same before each backend, and each backend has its own site.
"""

VARIANTS: Mapping[str, Set[str]] = {
    "iceberg-fake-renewing": {"test_credentials"},
    "iceberg-fake-with-a-cache": {"test_credentials", "test_registering", "test_replacing_in_place", "test_tables"},
    "nessie-fake": {"test_credentials", "test_namespaces"},
    "nessie-0.99.0": {"test_listing", "test_namespaces", "test_tables"},
    "hive-fake-2.3.9": {"test_namespaces", "test_listing"},
    "hive-fake-4.0.1": {"test_namespaces", "test_listing"},
    "hive-2.3.9": {"test_listing", "test_namespaces", "test_tables"},
    "hive-4.0.1": {"test_listing", "test_namespaces", "test_tables"},
    "polaris-fake-filtered": {"test_bulk", "test_finding", "test_listing"},
    "lakekeeper-fake-soft-deletion": {"test_locations", "test_registering", "test_tables", "test_undrop"},
    "lakekeeper-fake-with-a-root": {"test_default_locations", "test_tables"},
    "glue-stock-moto": {"test_tables"},
    "glue-in-a-catalog": {"test_namespaces", "test_tables"},
    "glue-in-a-nested-catalog": {"test_listing"},
    "unity-fake-0.4.0": {"test_listing", "test_tables"},
    "rest-on-gravitino": {"test_locations", "test_namespaces", "test_tables"},
    "rest-on-a-gateway": {"test_data", "test_tables"},
    "rest-on-a-gateway-to-iceberg": {"test_tables"},
    **{site: set() for site in ROUND_TRIPS},
}
"""Further sites of the same backend, with the modules where they differ: the usual run has these alone.

The sync interface is the same for all sites, so it is not tested on variants.
"""

BEHIND_A_GATEWAY = "dir-behind-a-gateway"
"""A site that differs from `dir` only for the async interface."""

SYNC = {"dir"}
"""The sites where the usual run has the sync interface, too.

It is generated from the async one, and `tests/conformance` has it on a site of each kind.
"""

NIGHTLY_SERVERS = {"hive-2.3.9", "hive-4.0.1", "nessie-0.99.0"}
"""Real servers of the thorough run alone: the usual run has another one of their backends, and fakes of these."""


def is_usual(site: str, module: str) -> bool:
    """Returns whether the usual run has the tests of a module on a site."""
    return site not in NIGHTLY_SERVERS and (site not in VARIANTS or module in VARIANTS[site])


def parametrize_site(metafunc: pytest.Metafunc, sites: Iterable[str]) -> None:
    """Runs a test on sites; one server of each is started."""
    values = [pytest.param(name, marks=[pytest.mark.integration] if name in REAL else []) for name in sites]
    metafunc.parametrize("site", values, indirect=True, scope="session")

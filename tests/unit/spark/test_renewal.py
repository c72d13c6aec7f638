"""Renewal of credentials for tasks: one call for each table and lifetime, and nothing but these tables."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError, UnauthenticatedError

from lance_ns_async import Namespace
from lance_ns_async.many.rows import queries_by_column
from lance_ns_async.spark import LocationResolver, Locations
from lance_ns_async.spark.read import searching
from lance_ns_async.spark.read.reading import Entry, Plan, batches
from lance_ns_async.spark.renewal import Renewal
from tests.fakes.s3 import KeyedS3, RenewingPolaris

ROWS = pa.table({"id": range(6)})
TABLES = 3
SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))


@pytest.fixture
def s3() -> Iterator[KeyedS3]:
    with KeyedS3() as running:
        yield running


@pytest.fixture
def catalog(s3: KeyedS3) -> Iterator[RenewingPolaris]:
    with RenewingPolaris(s3) as running:
        running.write_tables(TABLES, ROWS, max_rows_per_file=2)
        running.lasts = 40.0
        yield running


@pytest.fixture
def resolver(catalog: RenewingPolaris) -> Iterator[LocationResolver]:
    with LocationResolver.connect("polaris", catalog.properties, vend_credentials=True) as resolver:
        yield resolver


@pytest.fixture
def locations(resolver: LocationResolver) -> Locations:
    return resolver.prefetch("shop.db.*", on_error="raise", progress=False)


@pytest.fixture
def renewal(locations: Locations, resolver: LocationResolver) -> Renewal:
    return resolver._renewal(locations.values(), SPARK)


def plan(locations: Locations, renewal: Renewal | None) -> Plan:
    entries = [
        Entry(str(it.id), it.location, it.version or 0, it.rows or 0, it.fragments or 0, it.storage_options)
        for it in locations.values()
    ]
    # As a task gets it.
    return Plan.decode(Plan(entries, 1, None, None, renewal).encode())


def test_tasks_renew_credentials_by_one_call_for_each_table(
    s3: KeyedS3, catalog: RenewingPolaris, locations: Locations, renewal: Renewal
) -> None:
    s3.revoked.update(catalog.issued)
    with pytest.raises(RuntimeError, match="400 Bad Request"):
        list(batches(plan(locations, None), ROWS.schema))
    work = plan(locations, renewal)
    with ThreadPoolExecutor(16) as tasks:
        counts = tasks.map(lambda _: sum(it.num_rows for it in batches(work, ROWS.schema)), range(16))
        assert [*counts] == [TABLES * len(ROWS)] * 16
    assert len(catalog.issued) == 2 * TABLES


def test_searches_of_tasks_renew_credentials(
    s3: KeyedS3, catalog: RenewingPolaris, locations: Locations, renewal: Renewal
) -> None:
    s3.revoked.update(catalog.issued)
    query = queries_by_column([0.0], "id", None, k=1, filter=None, columns=None)
    for how, problem in ((None, "400 Bad Request"), (renewal, "vector")):
        # There is no vector, which only a search that can open the table notices.
        (row,) = searching.execute(searching._encode([*locations.values()][:1], query, 1, how))
        assert row[0] is None and problem in row[2].decode()


def test_the_endpoint_is_for_these_tables_alone(
    catalog: RenewingPolaris, resolver: LocationResolver, locations: Locations, renewal: Renewal
) -> None:
    other = resolver._renewal(locations.select("shop.db.t0000").values(), SPARK)
    assert other.token != renewal.token and renewal.token not in repr(renewal)
    assert resolver._renewal(locations.values(), SPARK) == renewal
    calls = len(catalog.requests)

    def ask(renewal: Renewal, name: str, operation: str = "describe_table") -> Any:
        header = {"header.x-lance-token": renewal.token}
        with Namespace.connect("rest", {"uri": renewal.uri, "max_retries": "0", **header}) as client:
            return getattr(client, operation)({"id": ["shop", "db", name]})

    for wrong in (Renewal(other.uri, renewal.token), Renewal(renewal.uri, "wrong")):
        with pytest.raises(UnauthenticatedError):
            ask(wrong, "t0000")
    for operation in ("describe_table", "drop_table", "deregister_table"):
        with pytest.raises(LanceNamespaceError):
            ask(other, "t0001", operation)
    assert len(catalog.requests) == calls
    assert ask(other, "t0000").storage_options["aws_access_key_id"] == catalog.issued[-1]
    resolver.close()
    with pytest.raises(LanceNamespaceError):
        ask(other, "t0000")


def test_a_table_at_another_location_gets_no_credentials(
    catalog: RenewingPolaris, resolver: LocationResolver, locations: Locations, renewal: Renewal
) -> None:
    namespace = resolver.namespace
    assert isinstance(namespace, Namespace)
    namespace.deregister_table({"id": ["shop", "db", "t0000"]})
    namespace.register_table({"id": ["shop", "db", "t0000"], "location": "s3://lake/shop/elsewhere"})
    s3_only = plan(locations.select("shop.db.t0000"), renewal)
    with pytest.raises(TableNotFoundError, match="another location"):
        list(batches(s3_only, ROWS.schema))
    moved = resolver._renewal([replace(locations["shop.db.t0000"], location="s3://lake/shop/elsewhere")], SPARK)
    assert moved.uri != renewal.uri


def test_renewal_that_is_not_possible_is_refused(
    catalog: RenewingPolaris, locations: Locations, resolver: LocationResolver
) -> None:
    without_resolver = Locations(locations.values(), locations.report)
    with pytest.raises(InvalidInputError, match="dataframe: renew needs the resolver"):
        without_resolver.dataframe(SimpleNamespace(createDataFrame=None), renew=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="Spark Connect"):
        resolver._renewal(locations.values(), SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"spark.driver.host": "127.0.0.1"}, "http://127.0.0.1:"),
        ({"spark.driver.host": "::1"}, "http://[::1]:"),
        ({"spark.driver.host": "localhost", "spark.ssl.rpc.enabled": "true"}, "https://localhost:"),
        ({"spark.driver.host": "::1", "spark.network.crypto.enabled": "true"}, "https://[::1]:"),
    ],
)
def test_executors_of_a_cluster_get_the_address_of_the_driver(
    s3: KeyedS3, catalog: RenewingPolaris, locations: Locations, resolver: LocationResolver, conf: Any, expected: str
) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077"), conf=conf)
    renewal = resolver._renewal(locations.values(), spark)
    assert renewal.uri.startswith(expected)
    s3.revoked.update(catalog.issued)
    assert sum(it.num_rows for it in batches(plan(locations, renewal), ROWS.schema)) == TABLES * len(ROWS)
    if renewal.authority:
        assert "BEGIN" not in repr(renewal)
        s3.revoked.update(catalog.issued)
        with pytest.raises(LanceNamespaceError, match="execute request"):
            list(batches(plan(locations, replace(renewal, authority="")), ROWS.schema))


def test_a_prefetch_renews_credentials_that_end_before_a_dataset_is_opened(
    s3: KeyedS3, catalog: RenewingPolaris, resolver: LocationResolver
) -> None:
    s3.revoked.update(f"KEY{n + 1}" for n in range(TABLES))
    assert [it.rows for it in resolver.prefetch("shop.db.*", on_error="raise").values()] == [len(ROWS)] * TABLES
    assert len(catalog.issued) == 2 * TABLES


def test_a_closed_resolver_or_namespace_cannot_renew(catalog: RenewingPolaris, locations: Locations) -> None:
    with LocationResolver.connect("polaris", catalog.properties, vend_credentials=True) as resolver:
        renewal = resolver._renewal(locations.values(), SPARK)
    # A job that goes on is told why it fails.
    with pytest.raises(LanceNamespaceError, match="keep the resolver open until the job has ended"):
        list(batches(plan(locations, renewal), ROWS.schema))
    with pytest.raises(InvalidInputError, match="renew: the resolver is closed"):
        resolver._renewal(locations.values(), SPARK)
    with Namespace.connect("polaris", catalog.properties) as namespace:
        resolver = LocationResolver(namespace)
    with pytest.raises(InvalidInputError, match="it is closed"):
        resolver._renewal(locations.values(), SPARK)

"""The resolver's cache: hits, lifetime and removal."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace import DropTableRequest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import Table, TableId
from lance_ns_async.many.patterns import Selection
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.resolve.location import LocationCache
from tests.fakes.iceberg import FakeIceberg
from tests.support.spark_lake import ROWS, Lake, lake_in, resolver_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_in(tmp_path) as lake:
        yield lake


@pytest.fixture
def resolver(lake: Lake) -> LocationResolver:
    return LocationResolver(lake.namespace)


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        yield server


@pytest.fixture
def remote(server: FakeIceberg) -> Iterator[LocationResolver]:
    with resolver_of(server) as resolver:
        yield resolver


def paths(server: FakeIceberg) -> list[str]:
    return [f"{r.method} {r.path.partition('?')[0].removeprefix('/v1/')}" for r in server.requests]


def test_only_what_is_unknown_is_requested_again(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 3)
    first = remote.prefetch(["db.t0000", "db.t0001", "db.nix"], pin_versions=False)
    server.clear()
    again = remote.prefetch(["db.t0000", "db.t0001", "db.t0002", "db.nix"], pin_versions=False)
    # Errors are not remembered.
    assert sorted(paths(server)) == ["GET namespaces/db/tables/nix", "GET namespaces/db/tables/t0002"]
    assert again.report.calls == 2
    assert again["db.t0000"] == first["db.t0000"]


def test_what_is_forgotten_is_requested_again(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 3)
    everything = ["db.t0000", "db.t0001", "db.t0002"]
    remote.prefetch(everything, pin_versions=False)
    remote.forget(["db.t0000", "db.*1"])
    assert remote.prefetch(everything, pin_versions=False).report.calls == 2
    remote.forget()
    assert remote.prefetch(everything, pin_versions=False).report.calls == 3


def test_a_pin_is_kept_until_it_is_forgotten(lake: Lake, resolver: LocationResolver) -> None:
    location = lake.write("db", "t")
    assert resolver.prefetch("db.*")["db.t"].version == 1
    lance.write_dataset(ROWS, location, mode="append")
    assert resolver.prefetch("db.*")["db.t"].version == 1
    assert resolver.prefetch("db.*", pin_versions=False)["db.t"].version is None
    resolver.forget("db.t")
    assert resolver.prefetch("db.*")["db.t"].version == 2


def test_a_table_made_anew_elsewhere_is_described_anew(lake: Lake, resolver: LocationResolver) -> None:
    old = lake.write("db", "t")
    resolver.prefetch("db.*")
    lake.namespace.drop_table(DropTableRequest(id=["db", "t"]))
    new = lake.write("db", "t", rows=ROWS.slice(0, 1))
    locations = resolver.prefetch("db.*")["db.t"]
    assert locations.location == new
    assert locations.rows == (1 if new != old else 3)


def test_pins_are_added_to_what_is_known(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "t")
    resolver.prefetch("db.t", pin_versions=False)
    locations = resolver.prefetch("db.t")
    assert (locations["db.t"].version, locations.report.calls) == (1, 0)


@pytest.mark.parametrize(("in_seconds", "calls"), [(30, 1), (600, 0)])
def test_storage_options_about_to_expire_are_requested_again(tmp_path: Path, in_seconds: float, calls: int) -> None:
    expires = str(int((time.time() + in_seconds) * 1000))
    lake = Lake(tmp_path, {"expires_at_millis": expires})
    lake.write("db", "t")
    resolver = LocationResolver(lake.namespace)
    at = resolver.prefetch("db.t", pin_versions=False)["db.t"]
    assert at.expires_at == int(expires) / 1000
    assert resolver.prefetch("db.t", pin_versions=False).report.calls == calls


def test_a_resolver_may_remember_nothing_or_little(lake: Lake) -> None:
    for n in range(4):
        lake.write("db", f"t{n}")
    everything = [f"db.t{n}" for n in range(2)]
    forgetful = LocationResolver(lake.namespace, ttl=0)
    assert forgetful.prefetch(everything, pin_versions=False).report.calls > 0
    assert forgetful.prefetch(everything, pin_versions=False).report.calls > 0
    small = LocationResolver(lake.namespace, remembers=1)
    for one in everything:
        small.prefetch(one, pin_versions=False)
    assert small.prefetch("db.t1", pin_versions=False).report.calls == 0
    assert small.prefetch("db.t0", pin_versions=False).report.calls == 1
    none = LocationResolver(lake.namespace, remembers=0)
    assert [none.prefetch("db.t0").report.calls for _ in range(2)] == [1, 1]


def test_a_memory_is_shared_by_threads() -> None:
    memory = LocationCache(ttl=60, limit=100)
    tables = [Table(TableId(["db", f"t{n}"]), f"/lake/t{n}") for n in range(500)]
    pattern = Selection.read("db.t*")

    def learn(start: int) -> None:
        for n in range(start, start + 2000):
            memory.learn(tables[n % len(tables)])

    def forget(start: int) -> None:
        for n in range(start, start + 2000):
            memory.forget(pattern if n % 100 else None)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, n * 100) for n, work in enumerate((learn, forget, learn, forget))]:
            done.result()
    for table in tables:
        memory.learn(table)
    assert [memory.get(table.id) is None for table in tables] == [True] * 400 + [False] * 100


def test_a_pickled_resolver_remembers_nothing(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 1)
    remote.prefetch("db.t0000", pin_versions=False)
    with pickle.loads(pickle.dumps(remote)) as other:
        assert [other.prefetch("db.t0000", pin_versions=False).report.calls > 0 for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ttl": -1.0}, "ttl -1"), ({"ttl": float("nan")}, "ttl nan"), ({"remembers": -1}, "remembers -1")],
)
def test_a_memory_that_cannot_be_is_refused(lake: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        LocationResolver(lake.namespace, **options)
    if "ttl" in options:
        with pytest.raises(InvalidInputError, match=message):
            LocationResolver.connect("dir", lake.properties, **options)

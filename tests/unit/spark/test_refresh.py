"""Refreshing prefetched locations: the calls, the unchanged values, and the resolver's memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import DeregisterTableRequest

from lance_ns_async import AsyncNamespace, Namespace, Table, TableId
from lance_ns_async.spark import LocationResolver, Locations
from lance_ns_async.spark.resolve.location import LocationCache
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import KeyedS3, RenewingPolaris

ROWS = pa.table({"id": [1, 2, 3]})
QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}
TABLES = [TableId(["cat", "db", f"t000{n}"]) for n in range(3)]
BRIEFLY = 30.0
"""Seconds; credentials with a shorter lifetime are never cached."""


@pytest.fixture
def s3() -> Iterator[KeyedS3]:
    with KeyedS3() as running:
        yield running


@pytest.fixture
def server(s3: KeyedS3) -> Iterator[RenewingPolaris]:
    with RenewingPolaris(s3) as running:
        running.add_lance_tables("cat", ("db",), 3)
        yield running


@pytest.fixture
def resolver(server: RenewingPolaris) -> Iterator[LocationResolver]:
    with LocationResolver.connect("polaris", server.properties | QUICK, vend_credentials=True) as resolver:
        yield resolver


def write(s3: KeyedS3, server: RenewingPolaris, *modes: str) -> None:
    for id in TABLES:
        for mode in modes:
            lance.write_dataset(ROWS, location(server, id), mode=mode, storage_options=s3.options)


def location(server: RenewingPolaris, id: TableId) -> str:
    with Namespace.connect("polaris", server.properties) as ns:
        return ns.describe_tables([id]).tables[id].location


def keys(locations: Locations) -> list[str]:
    return [(at.storage_options or {})["aws_access_key_id"] for at in locations.values()]


def requested_tables(server: RenewingPolaris) -> list[str]:
    return sorted(request.path.rpartition("/")[2] for request in server.requests)


def test_credentials_are_given_out(server: RenewingPolaris, resolver: LocationResolver) -> None:
    with_keys = resolver.prefetch(TABLES, pin_versions=False)
    assert (sorted(keys(with_keys)), with_keys.report.calls) == (["KEY1", "KEY2", "KEY3"], 3)
    assert all(at.expires_at is not None for at in with_keys.values())
    with LocationResolver.connect("polaris", server.properties) as other:
        assert other.prefetch(TABLES, pin_versions=False)["cat.db.t0000"].storage_options is None
    assert len(keys(resolver.prefetch("cat.db.*", pin_versions=False))) == 3


def test_a_catalog_that_gives_out_none_is_asked_without(server: RenewingPolaris, resolver: LocationResolver) -> None:
    server.fail(400, match="t0000", body={"error": {"type": "BadRequestException", "message": "no", "code": 400}})
    assert resolver.prefetch(TABLES, pin_versions=False)["cat.db.t0000"].storage_options is None
    assert requested_tables(server) == ["t0000", "t0000", "t0001", "t0002"]


def test_after_a_401_no_other_table_is_requested(server: RenewingPolaris, resolver: LocationResolver) -> None:
    server.fail(401, times=None)
    report = resolver.prefetch(TABLES, max_in_flight=1).report
    assert (len(report.denied), report.calls, len(server.requests)) == (3, 1, 1)


def test_what_lasts_is_not_requested_and_old_values_stay(server: RenewingPolaris, resolver: LocationResolver) -> None:
    locations = resolver.prefetch(TABLES, pin_versions=False)
    server.clear()
    again = resolver.refresh(locations)
    assert again == locations
    assert (requested_tables(server), again.report.calls, again.report.remembered) == ([], 0, 3)
    assert again.report.line().endswith("; 3 from the cache")
    assert resolver.refresh(locations, lasting=3000).report.remembered == 3
    # The catalog vends none with this lifetime, so shorter ones are accepted.
    again = resolver.refresh(locations, lasting=4000)
    assert (again.report.remembered, len(again)) == (0, 3)
    with pytest.raises(err.InvalidInputError, match="lasting -1"):
        resolver.refresh(locations, lasting=-1)
    before = keys(locations)
    resolver.forget()
    resolver.refresh(locations)
    assert keys(locations) == before
    message = Locations.from_json(resolver.prefetch(TABLES, pin_versions=False).to_json())
    resolver.forget()
    assert len(keys(resolver.refresh(message))) == 3


def test_only_what_would_expire_is_requested(server: RenewingPolaris, resolver: LocationResolver) -> None:
    resolver.prefetch(TABLES[0], pin_versions=False)
    server.lasts = BRIEFLY
    locations = resolver.prefetch(TABLES, pin_versions=False)
    assert locations.report.remembered == 1
    server.lasts = 3600
    server.clear()
    again = resolver.refresh(locations)
    assert requested_tables(server) == ["t0001", "t0002"]
    assert (again.report.calls, again.report.remembered) == (2, 1) and keys(again)[0] == keys(locations)[0]
    assert set(keys(again)[1:]).isdisjoint(keys(locations)) and list(again) == list(locations)
    # The new credentials are cached, too.
    assert resolver.refresh(again) == again


def test_what_was_remembered_for_long_is_requested(server: RenewingPolaris) -> None:
    with LocationResolver.connect("polaris", server.properties | QUICK, ttl=0, vend_credentials=True) as forgetful:
        assert forgetful.refresh(forgetful.prefetch(TABLES, pin_versions=False)).report.remembered == 0


def test_versions_stay_and_new_keys_open_them(s3: KeyedS3, server: RenewingPolaris, resolver: LocationResolver) -> None:
    write(s3, server, "create")
    server.lasts = BRIEFLY
    locations = resolver.prefetch(TABLES)
    write(s3, server, "append")
    s3.clear()
    again = resolver.refresh(locations)
    assert s3.requests == []
    for id, old in locations.items():
        new = again[id]
        assert (new.version, new.rows, new.fragments, new.schema) == (1, 3, 1, old.schema)
    assert set(keys(again)).isdisjoint(keys(locations))
    s3.revoked.update(keys(locations))
    for id in TABLES:
        before, after = ({"allow_http": "true", **(at[id].storage_options or {})} for at in (locations, again))
        with pytest.raises((OSError, ValueError), match="400 Bad Request"):
            lance.dataset(locations[id].location, storage_options=before)
        assert lance.dataset(again[id].location, version=1, storage_options=after).count_rows() == 3
    # A prefetch of the same tables differs.
    assert {at.version for at in resolver.prefetch(locations).values()} == {2}


def test_a_dataset_that_was_opened_before_is_not_read_again(s3: KeyedS3) -> None:
    with FakeIceberg() as server:
        server.add_table(["db"], "t", location="s3://lake/t")
        lance.write_dataset(ROWS, "s3://lake/t", storage_options=s3.options)
        stored = {f"storage.{key}": value for key, value in s3.options.items()}
        with LocationResolver.connect("iceberg", {"endpoint": server.endpoint, **QUICK, **stored}) as resolver:
            first = resolver.prefetch("db.t")
            resolver.forget()
            s3.clear()
            assert resolver.prefetch("db.t") == first
    assert not [request for request in s3.requests if request.path.endswith(".manifest")]


def test_what_is_gone_is_an_error_or_reported(server: RenewingPolaris, resolver: LocationResolver) -> None:
    server.lasts = BRIEFLY
    locations = resolver.prefetch(TABLES, pin_versions=False)
    server.lasts = 3600
    with Namespace.connect("polaris", server.properties) as ns:
        ns.deregister_table(DeregisterTableRequest(id=list(TABLES[1])))
    with pytest.raises(err.TableNotFoundError, match=r"^1 of 3 could not be resolved: .*cat\$db\$t0001"):
        resolver.refresh(locations)
    left = resolver.refresh(locations, on_error="report")
    assert list(left) == [TABLES[0], TABLES[2]]
    assert [problem.subject for problem in left.report.missing] == [TABLES[1]]
    # Locations that were found before the error are cached.
    assert left.report.remembered == 2


def test_a_catalog_that_is_down_is_reported(server: RenewingPolaris, resolver: LocationResolver) -> None:
    resolver.prefetch(TABLES[:2], pin_versions=False)
    server.lasts = BRIEFLY
    locations = resolver.prefetch(TABLES, pin_versions=False)
    server.fail(503, times=None)
    with pytest.raises(err.ServiceUnavailableError, match=r"^1 of 3 could not be resolved"):
        resolver.refresh(locations)


def test_a_table_made_anew_elsewhere_is_not_the_one_that_was_pinned(tmp_path: Path) -> None:
    with FakeIceberg() as server:
        for n in range(2):
            lance.write_dataset(ROWS, str(tmp_path / f"t{n}"))
        server.add_table(["db"], "t", location=str(tmp_path / "t0"))
        with LocationResolver.connect("iceberg", {"endpoint": server.endpoint, **QUICK}) as resolver:
            pinned, unpinned = resolver.prefetch("db.t"), resolver.prefetch("db.t", pin_versions=False)
            server.add_table(["db"], "t", location=str(tmp_path / "t1"))
            resolver.forget()
            message = r"db\$t \(the table has moved from .*t0 to .*t1, so version 1"
            with pytest.raises(err.InvalidTableStateError, match=message):
                resolver.refresh(pinned)
            assert len(resolver.refresh(pinned, on_error="report")) == 0
            assert resolver.refresh(unpinned)["db.t"].location == str(tmp_path / "t1")


async def test_an_async_namespace_is_awaited(server: RenewingPolaris) -> None:
    async with AsyncNamespace.connect("polaris", server.properties) as namespace:
        resolver = LocationResolver(namespace, vend_credentials=True)
        locations = await resolver.aprefetch(TABLES, pin_versions=False)
        assert await resolver.arefresh(locations) == locations
        with pytest.raises(err.InvalidInputError, match=r"await resolver\.arefresh"):
            resolver.refresh(locations)


def test_what_is_used_is_not_what_is_forgotten() -> None:
    memory = LocationCache(ttl=60, limit=2)
    a, b, c = (Table(TableId([name]), f"/{name}") for name in "abc")
    memory.learn(a)
    memory.learn(b)
    assert memory.get(a.id) is not None
    memory.learn(c)
    assert [memory.get(table.id) is not None for table in (a, b, c)] == [True, False, True]

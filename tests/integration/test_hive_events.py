"""The event log of real Hive Metastores: subjects of the client's own changes, and the same events as the fake's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import DeregisterTableRequest

from lance_ns_async import AsyncNamespace, NamespaceId
from lance_ns_async.backends.base import CatalogEvents
from tests.fakes.hive3 import FakeHive
from tests.fakes.hive3.raw import RawHive, catalog, database, named, table
from tests.fakes.thrift_wire import I64, STRUCT, Struct, Typed
from tests.servers.hive import EVENT_LOG, Hive, hive
from tests.support.budget import thorough, with_usual
from tests.support.hive import create, declare, drop, rename

# The listener of Hive 4 is not in Maven's repository.
VERSIONS = ("2.3.9", "3.1.3")

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=with_usual(VERSIONS, "3.1.3"))
def version(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def server(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hive]:
    with hive(tmp_path_factory.mktemp("hive"), version, properties=EVENT_LOG) as running:
        yield running


@pytest.fixture
def client(server: Hive) -> Iterator[RawHive]:
    with RawHive(server.uri) as connected:
        yield connected


def connected(server: Hive, version: str, root: Path) -> Any:
    impl = "hive2" if version == "2.3.9" else "hive3"
    return AsyncNamespace.connect(impl, {"uri": server.uri, "root": root.as_uri()})


async def test_changes_of_the_client_are_subjects(server: Hive, version: str, tmp_path: Path) -> None:
    above = () if version == "2.3.9" else ("hive",)
    d, e = NamespaceId([*above, "d"]), NamespaceId([*above, "e"])
    async with connected(server, version, tmp_path) as ns:
        read = ns.session.backend.read_events
        start = await read(None)
        assert start is not None and start.subjects == ()

        async def changed() -> Any:
            nonlocal start
            start = await read(start.position)
            return start.subjects or set()

        await ns.create_namespace(create(*d))
        await ns.create_namespace(create(*e))
        assert {d, e} <= await changed()
        await ns.declare_table(declare(*d, "Orders"))
        assert d.table("orders") in await changed()
        await ns.rename_table(rename(*d, "orders", to="bids"))
        assert {d.table("orders"), d.table("bids")} <= await changed()
        await ns.rename_table(rename(*d, "bids", to="bids", below=e))
        assert {d.table("bids"), e.table("bids")} <= await changed()
        await ns.declare_table(declare(*d, "other"))
        await ns.deregister_table(DeregisterTableRequest(id=[*e, "bids"]))
        assert {d.table("other"), e.table("bids")} <= await changed()
        await ns.drop_namespace(drop(*d, cascade=True))
        assert {d, d.table("other")} <= await changed()
        await ns.drop_namespace(drop(*e))
        assert {e} <= await changed()
        position = start.position
        assert {d, e, d.table("orders")} <= ((await read("0:0")).subjects or set())
        number, _, count = position.partition(":")
        assert await read(f"{int(number) + 1}:{count}") == CatalogEvents(position, None)


def test_the_fake_records_the_same_events(client: RawHive, version: Any, tmp_path: Path) -> None:
    real = recorded(client, version, tmp_path)
    with FakeHive(tmp_path / "fake", version=version, events="recorded") as fake, RawHive(fake.uri) as other:
        assert recorded(other, version, tmp_path) == real
    assert len(real) >= 10


@thorough
async def test_a_log_that_is_denied_is_no_log(tmp_path: Path) -> None:
    properties = {key: value for key, value in EVENT_LOG.items() if not key.endswith("auth")}
    with hive(tmp_path, properties=properties) as server:
        async with connected(server, "3.1.3", tmp_path) as ns:
            assert await ns.session.backend.read_events(None) is None
            assert ns.session.backend.server.lacks("read_events")


def recorded(client: RawHive, version: str, folder: Path) -> Sequence[Any]:
    """Returns the events of changes that are the same each time: type, names, and names in the message."""
    (number,) = client.do("get_current_notificationEventId").values()
    lake, prefix = (None, "") if version == "2.3.9" else ("lake", "@lake#")
    if lake is not None:
        client.do("create_catalog", catalog(lake, (folder / "lake").as_uri()))
    for name in ("A", "b"):
        client.do("create_database", database(lake, name))
    client.do("create_table", table(lake, "A", "T1"))
    for old, new in ((("a", "T1"), ("a", "T2")), (("a", "t2"), ("b", "t3")), (("B", "t3"), ("b", "t3"))):
        stored = client.do("get_table_req", named(lake, *old))[1]
        storage = Struct({1: Typed(STRUCT, []), 2: stored[7][2], 7: Struct()})
        altered = Struct({1: new[1], 2: new[0], 3: "me", 4: stored[4], 7: storage, 8: Typed(STRUCT, [])})
        client.do("alter_table", prefix + old[0], old[1], Struct({**altered, 9: stored[9], 12: stored[12], 17: lake}))
    client.do("drop_table", f"{prefix}B", "T3", False)
    client.do("create_table", table(lake, "b", "u1"))
    assert client.ask("create_table", table(lake, "b", "u1")).kind == "AlreadyExistsException"
    client.do("create_table", table(lake, "b", "u2"))
    client.do("drop_database", f"{prefix}B", False, True)
    client.do("alter_database", f"{prefix}A", database(lake, "a", parameters={"k": "v"}))
    client.do("drop_database", f"{prefix}a", False, True)
    if lake is not None:
        client.do("drop_catalog", Struct({1: lake}))
    request = Struct({1: Typed(I64, number), 2: 100})
    events = client.do("get_next_notification", request)[1]
    assert [event[1] for event in events] == list(range(number + 1, number + 1 + len(events)))
    assert client.do("get_next_notification", Struct({1: Typed(I64, number), 2: 3}))[1] == events[:3]
    messages = [json.loads(event[6]) for event in events]
    return [
        (event[3], event[4], event.get(5), event[7], event.get(8), message["db"], message.get("table"))
        for event, message in zip(events, messages, strict=True)
    ]

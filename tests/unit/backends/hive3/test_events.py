"""The event log of a Hive Metastore: subjects, pages, cleaned logs, and servers without a readable log."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from lance_namespace import DeregisterTableRequest
from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.backends.base import CatalogEvents
from lance_ns_async.backends.hive3.events import HiveEvent, events, is_recorded, subjects
from tests.fakes.hive3 import FakeHive
from tests.fakes.hive3.event_log import LISTENER
from tests.fakes.hive3.raw import RawHive, database
from tests.support.hive import connected, create, declare, drop, rename

CONFIG, CURRENT, NEXT = "get_config_value", "get_current_notificationEventId", "get_next_notification"


@pytest.fixture(params=["3.1.3", "4.0.1"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeHive]:
    with FakeHive(version=request.param, events="recorded") as server:
        server.add_catalog("lake")
        for name in ("d", "e"):
            server.add_database("lake", name)
        yield server


@pytest.fixture
def old() -> Iterator[FakeHive]:
    with FakeHive(version="2.3.9", events="recorded") as server:
        for name in ("d", "e"):
            server.add_database("hive", name)
        yield server


async def read(ns: AsyncNamespace, position: str | None) -> CatalogEvents | None:
    return await ns.session.backend.read_events(position)


async def position_of(ns: AsyncNamespace) -> str:
    """Returns the current position."""
    start = await read(ns, None)
    assert start is not None and start.subjects == ()
    return start.position


async def changed(ns: AsyncNamespace, position: str) -> tuple[str, Collection[NamespaceId | TableId] | None]:
    """Returns the next position, and what has changed."""
    result = await read(ns, position)
    assert result is not None
    return result.position, result.subjects


async def test_tables_are_subjects(server: FakeHive) -> None:
    orders, bids, moved = (TableId(["lake", *names]) for names in (("d", "orders"), ("d", "bids"), ("e", "bids")))
    async with connected(server) as ns:
        at = await position_of(ns)
        await ns.declare_table(declare("lake", "d", "Orders"))
        at, subjects = await changed(ns, at)
        assert subjects == {orders}
        await ns.rename_table(rename("lake", "d", "orders", to="Bids"))
        at, subjects = await changed(ns, at)
        assert subjects == {orders, bids}
        await ns.rename_table(rename("lake", "d", "bids", to="bids", below=("lake", "e")))
        at, subjects = await changed(ns, at)
        assert subjects == {bids, moved}
        table = await ns.session.backend.describe_table(moved)
        await ns.session.backend.replace_table(table, table.location, {"x": "y"})
        at, subjects = await changed(ns, at)
        assert subjects == {moved}
        await ns.deregister_table(DeregisterTableRequest(id=list(moved)))
        at, subjects = await changed(ns, at)
        assert subjects == {moved} and at == "5:1"
        assert await changed(ns, at) == (at, set())


async def test_a_read_costs_three_calls(server: FakeHive) -> None:
    async with connected(server) as ns:
        at = await position_of(ns)
        await changed(ns, at)
        assert server.calls == [CONFIG, CURRENT, NEXT] * 2
        await ns.declare_table(declare("lake", "d", "t"))
        server.clear()
        await changed(ns, at)
        assert server.calls == [CONFIG, CURRENT, NEXT]


async def test_databases_are_subjects(server: FakeHive) -> None:
    async with connected(server) as ns:
        at = await position_of(ns)
        await ns.create_namespace(create("lake", "New"))
        await ns.create_namespace(create("Pond"))
        at, subjects = await changed(ns, at)
        assert subjects == {NamespaceId(["lake", "new"]), NamespaceId(["pond", "default"])}
        with RawHive(server.uri) as client:
            client.do("alter_database", "@lake#d", database("lake", "d", parameters={"k": "v"}))
        at, subjects = await changed(ns, at)
        assert subjects == {NamespaceId(["lake", "d"])}
        await ns.drop_namespace(drop("lake", "new"))
        at, subjects = await changed(ns, at)
        assert subjects == {NamespaceId(["lake", "new"])}


@pytest.mark.parametrize("by_server", [False, True])
async def test_a_cascade_has_the_tables_and_the_database(server: FakeHive, by_server: bool) -> None:
    for name in ("a", "b"):
        server.add_table("lake", "d", name)
    async with connected(server) as ns:
        at = await position_of(ns)
        if by_server:
            with RawHive(server.uri) as client:
                client.do("drop_database", "@lake#d", False, True)
        else:
            await ns.drop_namespace(drop("lake", "d", cascade=True))
        _, subjects = await changed(ns, at)
    assert subjects == {NamespaceId("lake$d"), TableId("lake$d$a"), TableId("lake$d$b")}


async def test_ids_begin_with_the_catalog_of_the_event(server: FakeHive) -> None:
    async with connected(server) as ns, connected(server, impl="hive2") as without_catalogs:
        at = await position_of(ns)
        await ns.declare_table(declare("lake", "d", "t"))
        await ns.declare_table(declare("hive", "default", "t"))
        assert (await changed(ns, at))[1] == {TableId("lake$d$t"), TableId("hive$default$t")}
        assert (await changed(without_catalogs, at))[1] == {TableId("d$t"), TableId("default$t")}
        assert await changed(without_catalogs, "2:1") == ("2:1", set())


async def test_hive_2_has_ids_without_a_catalog(old: FakeHive) -> None:
    async with connected(old, impl="hive2") as ns:
        at = await position_of(ns)
        await ns.declare_table(declare("d", "T"))
        await ns.rename_table(rename("d", "t", to="u", below=("e",)))
        await ns.create_namespace(create("f"))
        at, subjects = await changed(ns, at)
        assert at == "3:1" and subjects == {TableId("d$t"), TableId("e$u"), NamespaceId(["f"])}


async def test_an_event_added_at_the_position_means_no_subjects(server: FakeHive) -> None:
    async with connected(server) as ns:
        server.log.add("CREATE_TABLE", ("lake", "d", "a"))
        assert await changed(ns, "0:0") == ("1:1", {TableId("lake$d$a")})
        server.log.add("CREATE_TABLE", ("lake", "d", "b"), number=1)
        assert await changed(ns, "1:1") == ("1:2", None)
        assert await changed(ns, "1:2") == ("1:2", set())
        server.log.add("CREATE_TABLE", ("lake", "d", "c"))
        assert await changed(ns, "1:2") == ("2:1", {TableId("lake$d$c")})
        assert await changed(ns, "1:1") == ("2:1", None)
        assert await changed(ns, "0:0") == ("2:1", {TableId(f"lake$d${name}") for name in "abc"})


async def test_a_sequence_that_goes_back_means_no_subjects(server: FakeHive) -> None:
    """A change that was recorded with an old number also stores the number after it."""
    for name in "abc":
        server.log.add("CREATE_TABLE", ("lake", "d", name))
    async with connected(server) as ns:
        at = await position_of(ns)
        server.log.go_back(1)
        server.log.add("CREATE_TABLE", ("lake", "d", "e"))
        assert await changed(ns, at) == ("2:2", None)
        server.log.add("CREATE_TABLE", ("lake", "d", "f"))
        assert await changed(ns, at) == ("3:2", None)


@pytest.mark.parametrize("count", [99, 100, 101, 250])
@pytest.mark.parametrize("is_old", [False, True])
async def test_pages_are_read_up_to_the_current_position(count: int, is_old: bool) -> None:
    with FakeHive(version="2.3.9" if is_old else "3.1.3", events="recorded") as server:
        async with connected(server, impl="hive2" if is_old else "hive3") as ns:
            for i in range(count):
                server.log.add("CREATE_TABLE", ("hive", "d", f"t{i}"))
            at, found = await changed(ns, "0:0")
        assert at == f"{count}:1" and found is not None and len(found) == count
        assert all(request.arguments[1][2] == 100 for request in server.requests if request.method == NEXT)
        assert server.calls.count(NEXT) <= count // 99 + 1


async def test_two_events_of_a_position_may_be_on_two_pages(old: FakeHive) -> None:
    for i in range(100):
        old.log.add("CREATE_TABLE", ("hive", "d", f"t{i}"))
    old.log.add("CREATE_TABLE", ("hive", "d", "other"), number=100)
    async with connected(old, impl="hive2") as ns:
        at, found = await changed(ns, "0:0")
    assert found is not None and TableId("d$other") in found and (len(found), at) == (101, "100:2")


@pytest.mark.parametrize("keep", [0, 1, 2])
async def test_a_cleaned_log_has_no_subjects(server: FakeHive, keep: int) -> None:
    async with connected(server) as ns:
        at = await position_of(ns)
        for name in ("a", "b", "c"):
            await ns.declare_table(declare("lake", "d", name))
        server.log.clean(keep)
        end = f"3:{min(keep, 1)}"
        assert await changed(ns, at) == (end, None)
        assert await changed(ns, "3:1") == (end, set())
        _, subjects = await changed(ns, "2:1")
        assert subjects == ({TableId("lake$d$c")} if keep else None)


async def test_a_gap_has_no_subjects(server: FakeHive) -> None:
    for name in ("a", "b", "c"):
        server.log.add("CREATE_TABLE", ("lake", "d", name))
    del server.log.events[1]
    async with connected(server) as ns:
        assert await changed(ns, "0:0") == ("3:1", None)


async def test_a_position_after_the_current_one_has_no_subjects(server: FakeHive) -> None:
    async with connected(server) as ns:
        server.log.add("CREATE_TABLE", ("lake", "d", "t"))
        server.log.reset()
        assert await changed(ns, "1:1") == ("0:0", None)


@pytest.mark.parametrize(
    "position", ["", "1", "-1:1", "x:1", "1:1\n", "²:1", f"{1 << 63}:1", "9" * 5000 + ":1"], ids=range(8)
)
async def test_other_positions_are_rejected(server: FakeHive, position: str) -> None:
    async with connected(server) as ns:
        with pytest.raises(InvalidInputError, match="event log"):
            await read(ns, position)
    assert server.calls == []


async def test_without_a_listener_there_is_no_log(server: FakeHive) -> None:
    async with connected(server) as ns:
        at = await position_of(ns)
        server.log.access = "unrecorded"
        await ns.declare_table(declare("lake", "d", "t"))
        assert await read(ns, at) is None and await read(ns, None) is None
        server.log.access = "recorded"
        assert await changed(ns, at) == (at, set())


@pytest.mark.parametrize(
    ("listeners", "recorded"),
    [
        (LISTENER, True),
        (f"a.B,{LISTENER}", True),
        (f" {LISTENER} , a.B", True),
        ("", False),
        ("a.DbNotificationListener", False),
        (f"{LISTENER}2", False),
    ],
)
def test_the_listener_is_one_of_the_configured_ones(listeners: str, recorded: bool) -> None:
    assert is_recorded(listeners) == recorded


async def test_denied_access_is_remembered(server: FakeHive) -> None:
    server.log.access = "denied"
    async with connected(server) as ns:
        assert await read(ns, None) is None
        assert server.calls == [CONFIG, CURRENT, "get_catalogs"]
        assert await read(ns, None) is None and await read(ns, "7:1") is None
        assert len(server.calls) == 3


@pytest.mark.parametrize("missing", [CONFIG, CURRENT])
async def test_missing_methods_are_remembered(server: FakeHive, missing: str) -> None:
    server.lacks.add(missing)
    async with connected(server) as ns:
        assert await read(ns, None) is None
        calls = len(server.calls)
        assert await read(ns, None) is None and len(server.calls) == calls


async def test_a_secret_setting_is_remembered(server: FakeHive) -> None:
    server.fail("ConfigValSecurityException", "For security reasons", match=CONFIG)
    async with connected(server) as ns:
        assert await read(ns, None) is None and await read(ns, None) is None
    assert server.calls == [CONFIG]


async def test_a_failing_server_is_not_one_without_a_log(server: FakeHive) -> None:
    async with connected(server) as ns:
        server.fail("TApplicationException", f"Internal error processing {CURRENT}", match=CURRENT)
        server.fail("MetaException", "the database is down", match="get_catalogs")
        with pytest.raises(InternalError, match="the database is down"):
            await read(ns, None)
        at = await position_of(ns)
        server.fail("TApplicationException", f"Internal error processing {CURRENT}", match=CURRENT)
        with pytest.raises(InternalError, match="Internal error processing"):
            await read(ns, at)
        server.log.add("CREATE_TABLE", ("lake", "d", "t"))
        server.fail("TApplicationException", f"Internal error processing {NEXT}", match=NEXT)
        with pytest.raises(InternalError, match="Internal error processing"):
            await read(ns, at)
        assert (await changed(ns, at))[1] == {TableId("lake$d$t")}


ALTERED = '{"server": "", "db": "old", "table": "Was", "tableObjBeforeJson": "{}"}'


def zipped(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content)).decode()


@pytest.mark.parametrize(
    ("message", "former"),
    [
        (ALTERED, ("old", "Was")),
        ("", None),
        ("{", None),
        ("{}", None),
        ('{"db": "old"}', None),
        ('{"db": "old", "table": 1}', None),
        ('{"db": "old", "table": " "}', None),
        ('{"a":' * 100_000, None),
        ("not base64", None),
        (base64.b64encode(b"not gzip").decode(), None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_former_name_is_in_the_message(message: str, former: tuple[str, str] | None) -> None:
    fields = {1: 7, 3: "ALTER_TABLE", 4: "New", 5: "Is", 6: message, 8: "Lake"}
    [event] = events({1: [fields]})
    assert event == HiveEvent(7, "ALTER_TABLE", "Lake", "New", "Is", former)
    expected = None if former is None else {TableId("lake$new$is"), TableId("lake$old$was")}
    assert subjects(event, has_catalogs=True) == expected


def test_a_compressed_message_is_read() -> None:
    def former(message: str) -> tuple[str, str] | None:
        fields = {1: 7, 3: "ALTER_TABLE", 4: "New", 5: "Is", 6: message, 8: "Lake"}
        return events({1: [fields]})[0].former

    assert former(zipped(ALTERED.encode())) == ("old", "Was")
    cut_off = base64.b64encode(gzip.compress(ALTERED.encode())[:-12]).decode()
    for message in (cut_off, zipped(b"[]"), zipped(b"\xff"), zipped(b" " * (65 * 1024 * 1024))):
        assert former(message) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({3: "CREATE_TABLE", 4: "d", 5: "t"}, [TableId("hive$d$t")]),
        ({3: "CREATE_TABLE", 4: "d", 5: " "}, [NamespaceId("hive$d")]),
        ({3: "ALTER_PARTITION", 4: "d", 5: "t", 8: "c"}, [TableId("c$d$t")]),
        ({3: "SOMETHING_NEW", 4: "d", 5: "t"}, [NamespaceId("hive$d")]),
        ({3: "SOMETHING_NEW"}, []),
        ({3: "SOMETHING_NEW", 4: "", 5: ""}, []),
        ({3: "OPEN_TXN", 4: "null", 5: " "}, []),
        ({3: "ALLOC_WRITE_ID_EVENT", 4: "d", 5: " "}, []),
        ({3: "CREATE_FUNCTION", 4: "d"}, []),
    ],
)
def test_types_decide_about_subjects(fields: dict[int, Any], expected: list[NamespaceId | TableId]) -> None:
    [event] = events({1: [{1: 1, 6: "", **fields}]})
    assert list(subjects(event, has_catalogs=True) or ()) == expected


async def test_a_rename_that_cannot_be_decoded_has_no_subjects(server: FakeHive) -> None:
    server.log.add("CREATE_TABLE", ("lake", "d", "a"))
    server.log.add("ALTER_TABLE", ("lake", "d", "b"), {"table": None})
    async with connected(server) as ns:
        assert await changed(ns, "0:0") == ("2:1", None)
        assert await changed(ns, "2:1") == ("2:1", set())

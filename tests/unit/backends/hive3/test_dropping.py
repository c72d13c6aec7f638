"""Catalogs and databases of a Hive Metastore; a drop deletes no data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal

import anyio
import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId
from lance_ns_async.calls.observers import Call
from tests.fakes.hive3 import FakeHive
from tests.fakes.thrift_wire import REPLY, Message
from tests.support.errors import catch
from tests.support.hive import connected, create, declare, drop, kept, namespaces, tables, written
from tests.support.running import running

pytestmark = pytest.mark.long


@pytest.fixture(params=["3.1.3", "4.0.1"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeHive]:
    version: Literal["3.1.3", "4.0.1"] = request.param
    with FakeHive(version=version) as server:
        yield server


async def test_listing_costs_one_call_unless_there_is_nothing(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_catalog("lake")
    assert await namespaces(ns, "LAKE") == ["default"] and server.calls == ["get_databases"]
    await catch(err.NamespaceNotFoundError, namespaces(ns, "none"), r"^Namespace not found: none ")
    await ns.drop_namespace(drop("lake", "default"))
    server.clear()
    assert await namespaces(ns, "lake") == []
    assert server.calls == ["get_databases", "get_catalog"]


async def test_a_catalog_has_a_place_and_maybe_a_description(server: FakeHive, ns: AsyncNamespace) -> None:
    place = (server.warehouse.parent / "root" / "lake").as_uri()
    made = await ns.create_namespace(create("Lake", description="all of it"))
    assert made.properties == await kept(ns, "lake") == {"description": "all of it", "catalog.location.uri": place}
    elsewhere = (server.warehouse.parent / "elsewhere").as_uri()
    await ns.create_namespace(create("other", **{"catalog.location.uri": f"{elsewhere}/"}))
    assert await kept(ns, "other") == {"catalog.location.uri": elsewhere}
    await ns.create_namespace(create("lake", "d"))
    assert (await kept(ns, "lake", "d"))["database.location-uri"] == f"{place}/d.db"


async def test_a_database_keeps_any_property_and_four_of_its_own(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_catalog("lake")
    properties = {
        "k": "v",
        "database.description": "sales",
        "database.location-uri": (server.warehouse.parent / "elsewhere").as_uri(),
        "database.owner": "staff",
        "database.owner-type": "GROUP",
    }
    await ns.create_namespace(create("lake", "d", **{**properties, "database.owner-type": "group"}))
    assert await kept(ns, "lake", "d") == properties
    sent = server.requests[0].arguments[1]
    assert (sent[2], sent[4], sent[6], sent[7], sent[8]) == ("sales", {"k": "v"}, "staff", 3, "lake")
    # The description of one is a request for another.
    await ns.create_namespace(create("lake", "e", **await kept(ns, "lake", "d")))
    assert await kept(ns, "lake", "e") == properties


@pytest.mark.parametrize(
    ("id", "properties", "message"),
    [
        (("lake",), {"k": "v"}, "a catalog can store only description and catalog.location.uri"),
        (("lake",), {"catalog.location.uri": "x/y"}, "relative"),
        (("lake",), {"catalog.location.uri": "/" + "x" * 4000}, "4001 characters; at most 4000"),
        (("lake",), {"description": "x" * 4001}, "'description' has 4001 characters"),
        (("la ke",), {}, "the name 'la ke'"),
        (("x" * 257,), {}, "257 characters; at most 256"),
        (("hive", "a-b"), {}, "the name 'a-b'"),
        (("hive", "x" * 129), {}, "129 characters; at most 128"),
        (("hive", "d"), {"k" * 181: "v"}, "key of 181 characters; at most 180"),
        (("hive", "d"), {"k": "v" * 4001}, "'k' has 4001 characters; at most 4000"),
        (("hive", "d"), {"database.location-uri": "x/y"}, "relative"),
        (("hive", "d"), {"database.location-uri": "/\ud800"}, "cannot be written as UTF-8"),
        (("hive", "d"), {"database.location-uri": "/x//y"}, "stored in another form"),
        (("lake",), {"catalog.location.uri": "file:///x/../y"}, "stored in another form"),
        (("hive", "d"), {"database.owner": "x" * 129}, "database.owner has 129 characters"),
        (("hive", "d"), {"database.owner-type": "king"}, "'king' is unknown; use one of USER, ROLE, GROUP"),
    ],
)
async def test_invalid_namespace(
    server: FakeHive, ns: AsyncNamespace, id: tuple[str, ...], properties: dict[str, str], message: str
) -> None:
    await catch(err.InvalidInputError, ns.create_namespace(create(*id, **properties)), message)
    assert server.calls == []


async def test_what_the_server_refuses_is_reported(server: FakeHive, ns: AsyncNamespace) -> None:
    await catch(err.NamespaceNotFoundError, ns.create_namespace(create("none", "d")), r"No such catalog none")
    await catch(err.NamespaceAlreadyExistsError, ns.create_namespace(create("HIVE")))
    await catch(err.NamespaceAlreadyExistsError, ns.create_namespace(create("hive", "Default")))
    with pytest.raises(err.InvalidInputError, match="No FileSystem for scheme"):
        await ns.create_namespace(create("hive", "d", **{"database.location-uri": "s3://b/d"}))
    for id in (("hive",), ("hive", "default")):
        await catch(err.InvalidInputError, ns.drop_namespace(drop(*id, cascade=True)))


async def test_a_server_that_hangs_up_on_a_location_is_no_riddle() -> None:
    async with running(connected, FakeHive(version="3.1.3")) as (server, ns):
        with pytest.raises(err.ServiceUnavailableError, match="the server closed it") as caught:
            await ns.create_namespace(create("lake", **{"catalog.location.uri": "s3a://b/lake"}))
        assert "in an unknown file system" in caught.value.__notes__[0]
        assert server.calls.count("create_catalog") == 1


@pytest.mark.parametrize("lost", [False, True])
async def test_a_database_lies_where_its_creation_said(server: FakeHive, ns: AsyncNamespace, lost: bool) -> None:
    base = server.warehouse.parent
    for name, location in (("a", f"file:{base}/x/"), ("b", f"{base}/x"), ("c", f"file://{base}/x")):
        if lost:
            server.cut("^create_database", when="after")
        made = await ns.create_namespace(create("hive", name, **{"database.location-uri": location}))
        result = await kept(ns, "hive", name)
        assert made.properties is not None and made.properties.items() <= result.items()
        assert result["database.location-uri"] == f"file://{base}/x"
    assert server.calls.count("create_database") == 3


async def test_overwriting_replaces_what_is_empty(server: FakeHive, ns: AsyncNamespace) -> None:
    await ns.create_namespace(create("lake", description="old"))
    await ns.create_namespace(create("lake", mode="Overwrite", description="new"))
    assert (await kept(ns, "lake"))["description"] == "new"
    await ns.create_namespace(create("lake", "d", k="old"))
    await ns.create_namespace(create("lake", "d", mode="Overwrite", k="new"))
    assert (await kept(ns, "lake", "d"))["k"] == "new"
    await catch(err.NamespaceNotEmptyError, ns.create_namespace(create("lake", mode="Overwrite")))


async def test_dropping_keeps_all_data(server: FakeHive, ns: AsyncNamespace) -> None:
    files = await _full_catalog(ns)
    await ns.deregister_table(["lake", "d", "gone"])
    with pytest.raises(err.NamespaceNotEmptyError, match=r"^Namespace not empty: lake .* it has 2, such as d, e\)"):
        await ns.drop_namespace(drop("lake"))
    await catch(err.NamespaceNotEmptyError, ns.drop_namespace(drop("lake", "d")))
    await ns.drop_namespace(drop("lake", "d", cascade=True))
    assert await namespaces(ns, "lake") == ["default", "e"]
    await ns.drop_namespace(drop("lake", cascade=True))
    assert await namespaces(ns) == ["hive"]
    assert all(file.read_bytes() == b"data" for file in files) and len(files) == 5
    _deleted_nothing(server)


@pytest.mark.parametrize(
    ("add_object", "held"),
    [
        (lambda server: server.add_table("lake", "d", "sales", parameters={}), "the table sales"),
        (lambda server: server.add_table("lake", "d", "v", parameters={}, table_type="VIRTUAL_VIEW"), "the table v"),
        (lambda server: server.add_function("lake", "d", "f"), "the function f"),
    ],
    ids=["table", "view", "function"],
)
@pytest.mark.parametrize("id", [("lake", "d"), ("lake",)], ids=["database", "catalog"])
async def test_cascade_refuses_other_objects(
    server: FakeHive, ns: AsyncNamespace, id: tuple[str, ...], add_object: Callable[[FakeHive], None], held: str
) -> None:
    server.add_catalog("lake")
    server.add_database("lake", "a")
    server.add_database("lake", "d")
    for database in ("a", "d"):
        server.add_table("lake", database, "t")
    add_object(server)
    message = rf"namespace lake\$d: a cascade drops only Lance tables.* it also contains {held}; remove"
    await catch(err.InvalidInputError, ns.drop_namespace(drop(*id, cascade=True)), message)
    assert await tables(ns, "lake", "a") == await tables(ns, "lake", "d") == ["t"]
    assert not any(method.startswith(("drop_", "alter_")) for method in server.calls)


async def test_cascade_refuses_objects_of_the_default_database(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_catalog("lake")
    server.add_function("lake", "default", "f")
    for cascade in (False, True):
        with pytest.raises(err.InvalidInputError if cascade else err.NamespaceNotEmptyError, match=r"lake\$default"):
            await ns.drop_namespace(drop("lake", cascade=cascade))
    assert "drop_catalog" not in server.calls


async def test_a_cascade_leaves_what_was_made_since_it_looked(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_database("hive", "d")
    server.add_table("hive", "d", "t")
    with server.hold("^drop_table") as hold:
        dropping = asyncio.ensure_future(ns.drop_namespace(drop("hive", "d", cascade=True)))
        await hold.reached()
        server.add_table("hive", "d", "late", parameters={})
    raised = await catch(err.NamespaceNotEmptyError, dropping)
    assert raised.value.__notes__ == ["and 1 tables of hive$d are no longer registered; their data is untouched"]
    assert server.calls.count("drop_database") == 1


async def test_a_cascade_that_fails_half_way_names_what_is_gone(server: FakeHive) -> None:
    server.add_database("hive", "d")
    for name in ("a", "b"):
        server.add_table("hive", "d", name)
    async with connected(server, client_pool_size="1") as ns:
        server.fail("MetaException", "not today", match="^drop_table")
        raised = await catch(err.InternalError, ns.drop_namespace(drop("hive", "d", cascade=True)), "not today")
        [note] = raised.value.__notes__
        assert "of the 2 tables of hive$d are no longer" in note


async def test_a_catalog_that_cannot_be_dropped_names_the_missing_tables(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_catalog("lake")
    server.add_database("lake", "d")
    for database in ("d", "default"):
        server.add_table("lake", database, "t")
    server.fail("MetaException", "not today", match="^drop_catalog")
    raised = await catch(err.InternalError, ns.drop_namespace(drop("lake", cascade=True)), "not today")
    assert raised.value.__notes__ == ["and 2 tables of lake are no longer registered; their data is untouched"]


async def test_cascade_on_a_server_without_functions(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_database("hive", "d")
    server.add_table("hive", "d", "t")
    server.lacks.add("get_functions")
    await ns.drop_namespace(drop("hive", "d", cascade=True))
    assert not await ns.exists(NamespaceId(["hive", "d"]))


async def test_dropping_an_empty_catalog_keeps_what_lies_at_its_place(server: FakeHive, ns: AsyncNamespace) -> None:
    files = await _full_catalog(ns)
    for id in (["d", "t"], ["d", "gone"], ["e", "t"], ["default", "t"]):
        await ns.deregister_table(["lake", *id])
    for name in ("d", "e"):
        await ns.drop_namespace(drop("lake", name))
    await ns.create_namespace(create("lake", mode="Overwrite"))
    await ns.drop_namespace(drop("lake"))
    assert not await ns.exists(NamespaceId(["lake"]))
    # It can be created again, and all its tables can be registered again.
    await ns.create_namespace(create("lake"))
    await ns.create_namespace(create("lake", "d"))
    request = {"id": ["lake", "d", "t"], "location": files[0].parents[1].as_uri()}
    await ns.register_table(request)
    assert all(file.read_bytes() == b"data" for file in files)
    _deleted_nothing(server)


async def test_catalog_with_a_table_in_its_default_database(server: FakeHive, ns: AsyncNamespace) -> None:
    await ns.create_namespace(create("lake"))
    await ns.declare_table(declare("lake", "default", "t"))
    before = await kept(ns, "lake")
    await catch(err.NamespaceNotEmptyError, ns.drop_namespace(drop("lake")), r"^Namespace not empty: lake\$default ")
    assert await kept(ns, "lake") == before and await tables(ns, "lake", "default") == ["t"]
    assert "drop_catalog" not in server.calls


@pytest.mark.parametrize(
    ("method", "how"), [*product(("alter_catalog", "drop_catalog"), ("fails", "cuts")), ("alter_catalog", "cuts-after")]
)
async def test_failed_catalog_drop_changes_nothing(server: FakeHive, ns: AsyncNamespace, method: str, how: str) -> None:
    await ns.create_namespace(create("lake", description="all of it"))
    before, default = await kept(ns, "lake"), await kept(ns, "lake", "default")
    if how == "fails":
        server.fail("MetaException", "not today", match=f"^{method}")
    else:
        server.cut(f"^{method}", when="after" if how == "cuts-after" else "before")
    await catch((err.InternalError, err.ServiceUnavailableError), ns.drop_namespace(drop("lake")))
    assert await kept(ns, "lake") == before
    assert await kept(ns, "lake", "default") == default


async def test_a_catalog_whose_drop_was_not_answered_is_dropped(server: FakeHive, ns: AsyncNamespace) -> None:
    await ns.create_namespace(create("lake"))
    server.cut("^drop_catalog", when="after")
    await ns.drop_namespace(drop("lake"))
    assert await namespaces(ns) == ["hive"] and server.calls.count("drop_catalog") == 1


async def test_a_drop_that_is_cancelled_leaves_the_catalog_as_it_was(server: FakeHive, ns: AsyncNamespace) -> None:
    await ns.create_namespace(create("lake"))
    before, default = await kept(ns, "lake"), await kept(ns, "lake", "default")
    server.cut("^drop_catalog", when="before")
    with server.hold("^drop_catalog") as hold:
        async with anyio.create_task_group() as group:
            group.start_soon(ns.drop_namespace, drop("lake"))
            await hold.reached()
            group.cancel_scope.cancel()
    assert await kept(ns, "lake") == before and await kept(ns, "lake", "default") == default


@pytest.mark.parametrize("when", ["before", "after"])
async def test_drop_cancelled_at_its_first_step(server: FakeHive, ns: AsyncNamespace, when: Any) -> None:
    await ns.create_namespace(create("lake"))
    before, default = await kept(ns, "lake"), await kept(ns, "lake", "default")
    server.cut("^drop_database", when=when)
    async with anyio.create_task_group() as group:

        def watch(call: Call) -> None:
            if call.outcome == "disconnected":
                group.cancel_scope.cancel()

        with ns.observe(watch):
            await ns.drop_namespace(drop("lake"))
    assert await kept(ns, "lake") == before and await kept(ns, "lake", "default") == default
    assert "alter_catalog" not in server.calls


async def test_a_catalog_is_not_dropped_if_the_server_does_not_move_it(server: FakeHive, ns: AsyncNamespace) -> None:
    await ns.create_namespace(create("lake"))
    before, default = await kept(ns, "lake"), await kept(ns, "lake", "default")
    # The error of a server behind a load balancer, whose other server answers from its cache.
    answer = Message(REPLY, "alter_catalog", server.requests[-1].sequence + 5).encoded()
    server.garbage(answer, match="^alter_catalog")
    with pytest.raises(err.ServiceUnavailableError, match=r"still has it at .* would delete everything there"):
        await ns.drop_namespace(drop("lake"))
    assert await kept(ns, "lake") == before and await kept(ns, "lake", "default") == default
    assert "drop_catalog" not in server.calls


async def test_what_could_not_be_put_back_is_reported(server: FakeHive, ns: AsyncNamespace) -> None:
    await ns.create_namespace(create("lake", description="all of it"))
    server.add_database("lake", "default", parameters={"team": "ours", "fs.s3a.secret.key": "hush"})
    server.fail("MetaException", "not today", match="^drop_catalog")
    server.fail("MetaException", "nor this", match="^create_database")
    [note] = (await catch(err.InternalError, ns.drop_namespace(drop("lake")), "not today")).value.__notes__
    assert "nor this" in note and "all of it" in note and "ours" in note and "hush" not in note


@pytest.mark.parametrize("id", [("lake",), ("hive", "d")])
@pytest.mark.parametrize("when", ["after", "middle"])
async def test_lost_creation_is_found(server: FakeHive, ns: AsyncNamespace, id: tuple[str, ...], when: Any) -> None:
    properties = {"description": "x"} if len(id) == 1 else {"k": "v", "database.owner-type": "role"}
    server.cut("^create_", when=when)
    await ns.create_namespace(create(*id, **properties))
    assert await ns.exists(NamespaceId(id))
    assert sum(method.startswith("create_") for method in server.calls) == 1


async def test_lost_creation_of_other_client(server: FakeHive, ns: AsyncNamespace) -> None:
    server.cut("^create_")
    with pytest.raises(err.ServiceUnavailableError, match="whether it took effect is unknown"):
        await ns.create_namespace(create("lake", description="ours"))
    await ns.create_namespace(create("lake", description="theirs"))
    server.cut("^create_")
    with pytest.raises(err.NamespaceAlreadyExistsError, match="created by another"):
        await ns.create_namespace(create("lake", description="ours"))


async def test_of_concurrent_creates_one_wins_in_the_database(server: FakeHive, ns: AsyncNamespace) -> None:
    message = "Insert failed : The statement was aborted because it would have caused a duplicate key value in a unique"
    server.fail("MetaException", message, match="^create_", times=2)
    await catch(err.NamespaceAlreadyExistsError, ns.create_namespace(create("hive", "d")))
    await catch(err.NamespaceAlreadyExistsError, ns.create_namespace(create("lake")))


async def _full_catalog(ns: AsyncNamespace) -> list[Path]:
    """Creates a catalog with tables in three databases; returns their files, and one that belongs to no table."""
    await ns.create_namespace(create("lake"))
    files = []
    for name in ("d", "e"):
        await ns.create_namespace(create("lake", name))
    for id in (["d", "t"], ["d", "gone"], ["e", "t"], ["default", "t"]):
        declared = await ns.declare_table(declare("lake", *id))
        files.append(await asyncio.to_thread(written, declared.location))
    return [*files, await asyncio.to_thread(written, (await kept(ns, "lake"))["catalog.location.uri"])]


def _deleted_nothing(server: FakeHive) -> None:
    """Checks that no drop requested the deletion of data, and no catalog was dropped at its own location."""
    drops = [r for r in server.requests if r.method in ("drop_table", "drop_database")]
    assert {r.method for r in drops} == {"drop_table", "drop_database"}
    assert not any(r.arguments[3 if r.method == "drop_table" else 2] for r in drops)
    before = [tuple(server.calls[i - 2 : i]) for i, method in enumerate(server.calls) if method == "drop_catalog"]
    assert {*before} == {("alter_catalog", "get_catalog")}

"""Tables of a Hive Metastore: filters, batches, names and locations; and metastores without catalogs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.calls.steps import Step, scheduler
from tests.fakes.hive3 import LANCE, FakeHive
from tests.fakes.thrift_wire import Struct
from tests.support.errors import catch
from tests.support.hive import connected, create, declare, describe, drop, kept, namespaces, rename, tables, written
from tests.support.running import running

LISTING = "get_table_names_by_filter"
BULK = "get_table_objects_by_name_req"


@pytest.fixture(params=["3.1.3", "4.0.1"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeHive]:
    with FakeHive(version=request.param) as server:
        server.add_catalog("lake")
        server.add_database("lake", "d")
        yield server


async def test_a_filter_lists_lance_tables_alone_whatever_the_case(server: FakeHive, ns: AsyncNamespace) -> None:
    for name, kind in (("a", "lance"), ("b", "LANCE"), ("c", "Lance"), ("d", "iceberg"), ("e", "lancelot")):
        server.add_table("lake", "d", name, parameters={"table_type": kind, "EXTERNAL": "TRUE"})
    server.add_table("lake", "d", "f", parameters={})
    assert await tables(ns, "lake", "d") == ["a", "b", "c"]
    assert server.calls == [LISTING]
    assert server.requests[0].arguments[1] == "@lake#d"


async def test_a_missing_database_is_no_empty_one(server: FakeHive, ns: AsyncNamespace) -> None:
    assert await tables(ns, "lake", "d") == []
    for missing in (("lake", "none"), ("none", "d")):
        with pytest.raises(err.NamespaceNotFoundError, match=rf"^Namespace not found: {missing[0]}\${missing[1]} "):
            await tables(ns, *missing)
    assert server.calls == [LISTING, "get_database"] * 3
    await catch(err.NamespaceNotFoundError, ns.declare_table(declare("lake", "none", "t")))
    assert not (server.warehouse.parent / "root").exists()


async def test_without_a_filter_all_tables_are_requested_from_then_on() -> None:
    async with running(connected, FakeHive(filters="refused")) as (server, ns):
        server.add_catalog("lake")
        server.add_database("lake", "d")
        for i in range(700):
            server.add_table("lake", "d", f"t{i:03}", parameters=LANCE if i % 2 else {})
        expected = [f"t{i:03}" for i in range(700) if i % 2]
        assert await tables(ns, "lake", "d") == expected
        assert sorted(server.calls) == sorted([LISTING, "get_all_tables", BULK, BULK, BULK])
        server.clear()
        assert await tables(ns, "lake", "d") == expected
        assert sorted(server.calls) == sorted(["get_all_tables", BULK, BULK, BULK])
        await catch(err.NamespaceNotFoundError, tables(ns, "lake", "none"))


async def test_a_failing_server_is_not_treated_as_one_without_filters(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_table("lake", "d", "t")
    server.fail("MetaException", "the database is down", match="get", times=2)
    await catch(err.InternalError, tables(ns, "lake", "d"), "the database is down")
    server.clear()
    assert await tables(ns, "lake", "d") == ["t"] and server.calls == [LISTING]
    server.fail("InvalidOperationException", "no", match=LISTING)
    await catch(err.InvalidInputError, tables(ns, "lake", "d"))
    assert "get_all_tables" not in server.calls


async def test_many_tables_are_described_a_hundred_at_once_each_with_its_own_error(
    server: FakeHive, ns: AsyncNamespace
) -> None:
    ids = [TableId(["lake", "d", f"t{i:04}"]) for i in range(950)]
    for id in ids:
        server.add_table(*id, parameters={**LANCE, "i": id.name})
    described = (await ns.describe_tables(ids)).raise_for_errors()
    assert server.calls == [BULK] * 10
    assert {id: (table.properties or {})["i"] for id, table in described.tables.items()} == {id: id.name for id in ids}
    assert all(table.id == id for id, table in described.tables.items())
    server.add_table("lake", "d", "a")
    server.add_table("lake", "d", "other", parameters={"table_type": "hudi"})
    ids = [TableId(["lake", "d", name]) for name in ("a", "A", "other", "none", "b c")]
    ids += [TableId(["lake", "none", name]) for name in ("x", "y")]
    described = await ns.describe_tables(ids)
    assert {*described.tables} == {*ids[:2]} and all(described.tables[id].id == id for id in ids[:2])
    kinds = {id.name: type(error) for id, error in described.errors.items()}
    assert issubclass(kinds.pop("other"), err.InvalidInputError)
    assert kinds == dict.fromkeys(("none", "b c"), err.TableNotFoundError) | dict.fromkeys(
        "xy", err.NamespaceNotFoundError
    )


async def test_concurrent_misses_share_one_database_call(server: FakeHive) -> None:
    async with connected(server, **{"client.pool-size": "8"}) as ns:
        described = await ns.describe_tables(TableId(["lake", "d", f"none{i}"]) for i in range(32))
    assert {type(error) for error in described.errors.values()} == {err.TableNotFoundError}
    assert server.calls.count("get_table_req") == 32 and server.calls.count("get_database") < 16


async def test_single_table_costs_one_call(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_table("lake", "d", "t")
    await ns.describe_table(describe("lake", "d", "t"))
    assert server.calls == ["get_table_req"]
    with pytest.raises(err.TableNotFoundError, match=r"^Table not found: lake\$d\$none "):
        await ns.describe_table(describe("lake", "d", "none"))
    with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: lake\$none "):
        await ns.describe_table(describe("lake", "none", "t"))
    assert server.calls == ["get_table_req"] + ["get_table_req", "get_database"] * 2


@pytest.mark.parametrize(
    ("location", "shown"),
    [("file:/x/y z", "file:///x/y z"), ("s3://b/x", "s3://b/x"), ("hdfs://n:8020/x", "hdfs://n:8020/x")],
)
async def test_locations_are_shown_as_uris(server: FakeHive, ns: AsyncNamespace, location: str, shown: str) -> None:
    server.add_table("lake", "d", "t", location=location)
    assert (await ns.describe_table(describe("lake", "d", "t"))).location == shown


async def test_the_metastores_own_parameters_are_not_shown(server: FakeHive) -> None:
    own = {"EXTERNAL": "TRUE", "transient_lastDdlTime": "1", "numFiles": "2", "totalSize": "3", "numRows": "4"}
    server.add_table("lake", "d", "t", parameters={**own, "table_type": "Lance", "k": "v"})
    async with connected(server, **{"storage.region": "us-west-2"}) as ns:
        result = await ns.describe_table(describe("lake", "d", "t"))
    assert result.properties == {"table_type": "Lance", "k": "v"}
    assert result.storage_options == {"region": "us-west-2"}


async def test_a_table_that_others_made_managed_is_read_and_its_data_left(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_table("lake", "d", "t", parameters={"table_type": "lance"}, table_type="MANAGED_TABLE")
    result = await ns.describe_table(describe("lake", "d", "t"))
    data = written(result.location)
    assert await tables(ns, "lake", "d") == ["t"]
    with pytest.raises(err.UnsupportedOperationError, match=r"^Not supported: rename_table .* would move its data"):
        await ns.rename_table(rename("lake", "d", "t", to="u"))
    await ns.deregister_table(["lake", "d", "t"])
    assert data.exists() and not await ns.exists(["lake", "d", "t"])
    assert "alter_table_with_environment_context" not in server.calls


async def test_what_is_declared_is_external_and_walks_no_directory(server: FakeHive, ns: AsyncNamespace) -> None:
    declared = await ns.declare_table(declare("Lake", "D", "T", k="v"))
    result = await ns.describe_table(describe("lake", "d", "t"))
    assert declared.location == result.location
    assert declared.properties == result.properties == {"k": "v", "table_type": "lance", "managed_by": "storage"}
    sent = server.requests[0].arguments[1]
    assert server.requests[0].method == "create_table"
    assert (sent[1], sent[2], sent[17], sent[12]) == ("t", "d", "lake", "EXTERNAL_TABLE")
    assert sent[9]["EXTERNAL"] == "TRUE" and sent[9]["DO_NOT_UPDATE_STATS"] == "true"


@pytest.mark.parametrize(("catalog", "below"), [("lake", "lake/d.db/t"), ("hive", "d.db/t")])
async def test_a_table_has_a_usual_place(server: FakeHive, catalog: str, below: str) -> None:
    server.add_database("hive", "d")
    async with connected(server, unique_locations="false") as ns:
        declared = await ns.declare_table(declare(catalog, "D", "T"))
    assert declared.location == (server.warehouse.parent / "root" / below).as_uri()


@pytest.mark.parametrize("location", [None, "elsewhere/t"])
async def test_losing_declaration_keeps_files(server: FakeHive, ns: AsyncNamespace, location: str | None) -> None:
    """A metastore deletes the folder that it made for a declaration that loses against another one."""
    path = server.warehouse.parent / "root" / (location or "lake/d.db/t")

    def win() -> None:
        server.add_table("lake", "d", "t", location=path.as_uri())
        path.mkdir(parents=True, exist_ok=True)
        (path / "rows").touch()

    server.before_commit(win)
    with pytest.raises(err.TableAlreadyExistsError):
        await ns.declare_table(declare("lake", "d", "t", location=None if location is None else path.as_uri()))
    assert (path / "rows").exists()


async def test_a_place_is_kept_as_the_server_will_show_it_and_any_text(server: FakeHive, ns: AsyncNamespace) -> None:
    base = server.warehouse.parent
    for name, location in (("a", f"file:{base}/x/"), ("b", f"{base}/x"), ("c", f"file://{base}/x")):
        declared = await ns.declare_table(declare("lake", "d", name, location=location))
        assert declared.location == f"file://{base}/x"
        assert (await ns.describe_table(describe("lake", "d", name))).location == declared.location
    properties = {"k" * 256: "v" * 40_000, "é": "日本", "empty": ""}
    await ns.declare_table(declare("lake", "d", "t", **properties))
    result = await ns.describe_table(describe("lake", "d", "t"))
    assert result.properties is not None and properties.items() <= result.properties.items()


@pytest.mark.parametrize(
    "location", ["s3://b//x", "s3://b/x/../y", "/x/./y", "file://host/x", "/x//y/", "file:///x/.", "file:x", "/\ud800"]
)
async def test_ambiguous_location_is_refused(server: FakeHive, ns: AsyncNamespace, location: str) -> None:
    problem = "two slashes in a row|in its path|the host|not a complete URI|UTF-8"
    await catch(err.InvalidInputError, ns.declare_table(declare("lake", "d", "t", location=location)), problem)
    with pytest.raises(err.InvalidInputError, match=r"root: it has '\.\.' in its path"):
        async with connected(server, root="s3://b/x/../y"):
            pass
    assert server.calls == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"table_type": "iceberg"}, "table_type='iceberg' is not supported"),
        ({"managed_by": "catalog"}, "managed_by='catalog' is not supported"),
        ({"EXTERNAL": "FALSE"}, "reserved for the metastore: EXTERNAL"),
        ({"numFiles": "1", "totalSize": "2"}, "reserved for the metastore: numFiles, totalSize"),
        ({"k" * 257: "v"}, "key of 257 characters; at most 256"),
        ({"k": "\ud800"}, "cannot be written as UTF-8"),
    ],
)
async def test_bad_properties(server: FakeHive, ns: AsyncNamespace, properties: dict[str, str], message: str) -> None:
    request = {"id": ["lake", "d", "t"], "location": "/x", "properties": properties, "mode": "Overwrite"}
    await catch(err.InvalidInputError, ns.declare_table(declare("lake", "d", "t", **properties)), message)
    await catch(err.InvalidInputError, ns.register_table(request), message)
    assert server.calls == []


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "a-b", "a.b", "x" * 257])
async def test_a_name_that_not_every_server_takes_is_not_made(server: FakeHive, ns: AsyncNamespace, name: str) -> None:
    server.add_table("lake", "d", "t")
    await catch(err.InvalidInputError, ns.declare_table(declare("lake", "d", name)), "the name")
    await ns.describe_table(describe("lake", "d", "t"))
    await catch(err.InvalidInputError, ns.rename_table(rename("lake", "d", "t", to=name)), "the name")
    assert "create_table" not in server.calls and "alter_table_with_environment_context" not in server.calls


@pytest.mark.parametrize(
    "id", [["la#ke", "d", "t"], ["lake", "!", "t"], ["lake", "d#", "t"], ["lake", "d", " t"], ["lake", "d", "t\n"]]
)
async def test_ambiguous_name_is_not_found(server: FakeHive, ns: AsyncNamespace, id: list[str]) -> None:
    server.add_table("lake", "d", "t")
    assert not await ns.exists(id)
    described = await ns.describe_tables([id, [*id[:2], "t2"]])
    assert not described.tables and len(described.errors) == 2
    assert "\n" not in str(described.errors[TableId(id)])


async def test_names_of_newer_servers_are_found() -> None:
    async with running(connected, FakeHive(version="4.0.1")) as (server, ns):
        server.add_database("hive", "d b")
        server.add_table("hive", "d b", "t-1")
        assert await tables(ns, "hive", "d b") == ["t-1"]
        assert await ns.exists(["hive", "d b", "t-1"])


async def test_renaming_keeps_all_else_of_the_table(server: FakeHive, ns: AsyncNamespace) -> None:
    server.add_database("lake", "e")
    server.add_table("lake", "d", "t", parameters={**LANCE, "k": "v"}, location="file:/x")
    await ns.rename_table(rename("lake", "d", "t", to="U"))
    await ns.rename_table(rename("LAKE", "d", "u", to="w", below=("lake", "E")))
    result = await ns.describe_table(describe("lake", "e", "w"))
    assert result.location == "file:///x" and result.properties == {"table_type": "lance", "k": "v"}
    assert await tables(ns, "lake", "d") == []
    [before, after] = [
        next(r for r in server.requests if r.method.startswith("alter_table") and r.arguments[3][1] == name).arguments[
            3
        ]
        for name in ("u", "w")
    ]
    # Fields that this client does not know are sent back, too: owner, times, serialization, partition keys.
    assert {4, 5, 6, 7, 8, 9, 12, 17} <= {*before} == {*after}
    assert before[7] == after[7] and {1, 2, 5, 6, 7, 8, 10, 11, 12} <= {*before[7]}


async def test_a_replacement_keeps_the_spelling_of_a_location() -> None:
    async with running(connected, FakeHive(schemes={"s3a"})) as (server, ns):
        server.add_table("hive", "default", "t", location="s3a://b/t")
        await ns.register_table({"id": ["hive", "default", "t"], "location": "s3://b/t", "mode": "Overwrite"})
        [altered] = [request for request in server.requests if request.method.startswith("alter_table")]
        assert altered.arguments[3][7][2] == "s3a://b/t"


@pytest.mark.parametrize("operation", ["rename_table", "replace_table"])
async def test_table_replaced_by_another_client(server: FakeHive, ns: AsyncNamespace, operation: str) -> None:
    id, location = ["lake", "d", "t"], "file:///new"
    await ns.declare_table({"id": id})

    @asynccontextmanager
    async def replace(step: Step) -> AsyncIterator[None]:
        if step.name == operation and step.changes:
            server.replace_later("lake", "d", "t", "file:/of-another")
        yield

    token = scheduler.set(replace)
    with pytest.raises(err.ConcurrentModificationError, match=f"{operation}: "):
        if operation == "rename_table":
            await ns.rename_table(rename(*id, to="u"))
        else:
            await ns.register_table({"id": id, "location": location, "mode": "Overwrite"})
    scheduler.reset(token)
    if server.compares:
        assert (await ns.describe_table(id)).location == "file:///of-another"


async def test_renaming_to_what_is_there_or_cannot_be_fails(server: FakeHive, ns: AsyncNamespace) -> None:
    for name in ("t", "taken"):
        server.add_table("lake", "d", name)
    await catch(err.TableAlreadyExistsError, ns.rename_table(rename("lake", "d", "t", to="taken")), r"lake\$d\$taken")
    await catch(err.TableAlreadyExistsError, ns.rename_table(rename("lake", "d", "t", to="T")), "both ids are equal")
    with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: lake\$none "):
        await ns.rename_table(rename("lake", "d", "t", to="t", below=("lake", "none")))
    with pytest.raises(err.UnsupportedOperationError, match="cannot leave their catalog"):
        await ns.rename_table(rename("lake", "d", "t", to="t", below=("hive", "default")))
    await catch(err.TableNotFoundError, ns.rename_table(rename("lake", "d", "none", to="x")))
    assert await tables(ns, "lake", "d") == ["t", "taken"]


@pytest.fixture
def old_server() -> Iterator[FakeHive]:
    with FakeHive(version="2.3.9") as running:
        yield running


async def test_no_call_names_a_catalog(old_server: FakeHive) -> None:
    async with connected(old_server, impl="hive2") as ns:
        await ns.create_namespace(create("Sales", team="data"))
        await ns.declare_table(declare("sales", "Orders"))
        await ns.declare_table(declare("sales", "offers"))
        await ns.describe_tables([["sales", "orders"], ["sales", "offers"]])
        await ns.rename_table(rename("sales", "offers", to="bids"))
        assert await namespaces(ns) == ["default", "sales"] and await tables(ns, "sales") == ["bids", "orders"]
        await ns.drop_namespace(drop("sales", cascade=True))
        assert await namespaces(ns) == ["default"]
    assert not [method for method in old_server.calls if "catalog" in method]
    fields = {"create_database": 8, "create_table": 17, "get_table_req": 4, "get_table_objects_by_name_req": 4}
    for call in old_server.requests:
        first = call.arguments[1]
        if isinstance(first, Struct):
            assert fields[call.method] not in first, call
        else:
            assert "@" not in first and "#" not in first, call


async def test_the_root_contains_databases_and_no_others(old_server: FakeHive) -> None:
    async with connected(old_server, impl="hive2") as ns:
        assert (await kept(ns, "default"))["database.description"] == "Default Hive database"
        for call in (kept(ns, "none"), tables(ns, "none"), ns.describe_table(describe("none", "t"))):
            await catch(err.NamespaceNotFoundError, call, r"^Namespace not found: none ")
        with pytest.raises(err.TableNotFoundError, match=r"^Table not found: default\$t "):
            await ns.describe_table(describe("default", "t"))
        for id in (["t"], ["a", "b", "t"]):
            await catch(err.InvalidInputError, ns.describe_table(describe(*id)))
        await catch(err.InvalidInputError, ns.create_namespace(create("a", "b")))
        await catch(err.InvalidInputError, ns.drop_namespace(drop("default")), "Can not drop default database")


@pytest.mark.parametrize("id", [("d" * 129,), ("d-d",)])
async def test_a_database_is_checked_as_one(old_server: FakeHive, id: tuple[str]) -> None:
    async with connected(old_server, impl="hive2") as ns:
        await catch(err.InvalidInputError, ns.create_namespace(create(*id)), r"at most 128|is invalid")
    assert old_server.calls == []


async def test_on_a_newer_server_it_has_the_databases_of_the_catalog_hive() -> None:
    with FakeHive() as server:
        server.add_catalog("lake")
        server.add_database("lake", "elsewhere")
        server.add_database("hive", "sales")
        server.add_table("hive", "sales", "orders")
        async with connected(server, impl="hive2") as old, connected(server) as new:
            assert await namespaces(old) == await namespaces(new, "hive") == ["default", "sales"]
            assert await tables(old, "sales") == ["orders"]
            there = await old.describe_table(describe("sales", "orders"))
            assert there.location == (await new.describe_table(describe("hive", "sales", "orders"))).location

"""Unity Catalog: bodies, versions of the API, and creations that the server does not make unique. A server with
authorization checks a location before the name, and refuses one that is in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from tests.fakes.unity import FakeUnity
from tests.fakes.unity.checks import Dialect, lost_race
from tests.support.errors import catch
from tests.support.lake import ROWS, stream
from tests.support.running import running
from tests.support.unity import DIALECTS, connected, declared, described, list_requests, opened

dialects = pytest.mark.parametrize("dialect", DIALECTS)
EMBEDDINGS = pa.schema([pa.field("id", pa.uint64(), nullable=False), pa.field("v", pa.list_(pa.float32(), 768))])


@dialects
async def test_a_declaration_is_an_external_table_of_format_text(dialect: Dialect) -> None:
    async with running(connected, FakeUnity(dialect=dialect)) as (server, ns):
        server.add_schema("main", "a")
        table = await declared(ns, "main", "a", "t", location="s3://bkt/t1.lance", properties={"k": "v"})
        assert list_requests(server) == ["POST tables", "GET tables/main.a.t"]
        assert server.requests[0].headers["Content-Type"] == "application/json"
        assert server.requests[0].json == {
            "name": "t",
            "catalog_name": "main",
            "schema_name": "a",
            "table_type": "EXTERNAL",
            "data_source_format": "TEXT",
            "storage_location": "s3://bkt/t1.lance",
            "properties": {"table_type": "lance", "k": "v"},
            "columns": [],
        }
        assert (table.location, table.properties) == ("s3://bkt/t1.lance", {"table_type": "lance", "k": "v"})
        assert table.managed_versioning is False


@dialects
async def test_a_schema_that_was_declared_is_described(dialect: Dialect) -> None:
    with FakeUnity(dialect=dialect) as server:
        server.add_schema("main", "a")
        id = TableId(["main", "a", "t"])
        async with opened(server) as backend:
            made = await backend.declare_table(id, "s3://b/t", {}, EMBEDDINGS)
            result = await backend.describe_table(id)
            assert made.schema == result.schema == EMBEDDINGS
        async with connected(server) as ns:
            response = await described(ns, *id)
            assert response.var_schema is not None
            assert [field.name for field in response.var_schema.fields] == ["id", "v"]


async def test_a_schema_is_returned_in_the_form_of_the_spec_or_left_out(server: FakeUnity, ns: AsyncNamespace) -> None:
    tags = pa.field("tags", pa.map_(pa.string(), pa.int8()))
    for name, field in (("said", tags), ("unsaid", pa.field("view", pa.list_view(pa.int8())))):
        await ns.declare_table({"id": ["main", "a", name], "location": f"s3://b/{name}"}, schema=pa.schema([field]))
    schema = (await described(ns, "main", "a", "said")).var_schema
    assert schema is not None and schema.fields[0].type.type == "map"
    assert (await described(ns, "main", "a", "unsaid")).var_schema is None


async def test_a_listing_gives_no_schema_and_requests_no_columns(server: FakeUnity) -> None:
    async with opened(server) as backend:
        # A column that Unity cannot keep is refused without a call.
        schema = pa.schema([pa.field("u", pa.dense_union([pa.field("a", pa.int8())]))])
        with pytest.raises(err.InvalidInputError, match="column 'u'"):
            await backend.declare_table(TableId(["main", "a", "t"]), None, {}, schema)
        assert list_requests(server) == []
        declared = await backend.declare_table(TableId(["main", "a", "t"]), "s3://b/t", {"k": "v"}, EMBEDDINGS)
        assert (await backend.scan_tables(NamespaceId(["main", "a"]), None)).items == [replace(declared, schema=None)]
    assert "omit_columns=true" in list_requests(server)[-1] and "omit_properties" not in list_requests(server)[-1]


async def test_unknown_columns_and_fields_spoil_no_describe() -> None:
    variant = {"name": "v", "type_name": "VARIANT", "type_text": "variant", "type_json": '"variant"', "position": 0}
    with FakeUnity(extra_fields=True) as server:
        server.add_table("main", "a", "strange", columns=[variant])
        server.add_table("main", "a", "bare", columns=None, data_source_format=None)
        server.add_table("main", "a", "peer", columns=[{"name": "__placeholder_id", "type_json": '{"type":"long"}'}])
        async with connected(server) as ns:
            for name in ("strange", "bare", "peer"):
                result = await described(ns, "main", "a", name)
                assert result.location and result.var_schema is None
        async with opened(server) as backend:
            id = TableId(["main", "a", "masked"])
            await backend.declare_table(id, "s3://b/t", {}, EMBEDDINGS)
            assert (await backend.describe_table(id)).schema == EMBEDDINGS


@pytest.mark.parametrize(
    "kind",
    [
        {"properties": None},
        {"properties": {"table_type": "iceberg"}},
        {"properties": {}},
        {"table_type": "MANAGED"},
        {"table_type": "STREAMING_TABLE"},
    ],
)
async def test_other_tables_are_no_lance_tables(server: FakeUnity, ns: AsyncNamespace, kind: dict[str, object]) -> None:
    server.add_table("main", "a", "other", **kind)  # type: ignore[arg-type]
    server.add_table("main", "a", "t", properties={"table_type": "LANCE"}, data_source_format="PARQUET")
    assert (await ns.list_tables(["main", "a"])).tables == ["t"]
    assert (await described(ns, "main", "a", "t")).location
    await catch(err.InvalidInputError, described(ns, "main", "a", "other"), r"main\$a\$other is no Lance table: it is")
    await catch(err.InvalidInputError, ns.deregister_table(["main", "a", "other"]), "no Lance table")
    assert not any(request.startswith("DELETE") for request in list_requests(server))


@dialects
async def test_a_catalog_that_is_missing_is_reported_in_every_dialect(dialect: Dialect) -> None:
    async with running(connected, FakeUnity(dialect=dialect, catalog=None), root="s3://b/r") as (_server, ns):
        for work in (
            ns.describe_namespace(["main"]),
            ns.list_namespaces(["main"]),
            ns.create_namespace(["main", "a"]),
            declared(ns, "main", "a", "t"),
            described(ns, "main", "a", "t"),
        ):
            await catch(err.NamespaceNotFoundError, work, "Catalog not found: main")


async def test_the_catalog_is_described_and_neither_made_nor_dropped(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.add_catalog("other")
    assert (await ns.list_namespaces([])).namespaces == ["main"] and await ns.exists(NamespaceId())
    assert (await ns.describe_namespace(["main"])).properties == {}
    assert (await ns.list_tables(["main"])).tables == []
    await catch(err.InvalidInputError, ns.create_namespace(["main"]), "created and dropped with Unity's own tools")
    await catch(err.InvalidInputError, ns.drop_namespace(["main"], behavior="Cascade"), "give a schema in it")
    assert set(list_requests(server)) == {"GET catalogs/main"}


@pytest.mark.parametrize("kind", ["MANAGED", "STREAMING_TABLE", "MATERIALIZED_VIEW"])
async def test_cascade_refuses_managed_tables(server: FakeUnity, ns: AsyncNamespace, kind: str) -> None:
    server.add_lance_tables("main", "a", 150)
    server.add_table("main", "a", "z", table_type=kind, properties={})
    with pytest.raises(err.InvalidInputError, match=f"also contains the {kind} table z, whose data the server would"):
        await ns.drop_namespace(["main", "a"], behavior="Cascade")
    assert await ns.exists(NamespaceId(["main", "a"]))
    assert not any(request.startswith("DELETE") for request in list_requests(server))


@pytest.mark.parametrize("kind", ["table", "namespace"])
async def test_of_two_that_remove_an_object_one_is_told_so(server: FakeUnity, ns: AsyncNamespace, kind: str) -> None:
    """The server rolls the transaction of the other one back, as seen on Unity Catalog 0.6.0."""
    if kind == "table":
        server.add_table("main", "a", "t")

    async def remove() -> err.LanceNamespaceError | None:
        try:
            if kind == "table":
                await ns.deregister_table(["main", "a", "t"])
            else:
                await ns.drop_namespace(["main", "a"])
        except err.LanceNamespaceError as e:
            return e
        return None

    with server.hold("DELETE") as hold:
        removals = asyncio.gather(remove(), remove())
        await hold.reached(2)
        hold.release()
        outcomes = await removals
    (error,) = [outcome for outcome in outcomes if outcome is not None]
    assert type(error) is (err.TableNotFoundError if kind == "table" else err.NamespaceNotFoundError)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_removal_that_lost_a_race_is_repeated_once(server: FakeUnity, ns: AsyncNamespace, times: int) -> None:
    lost = lost_race("table").answer("0.6")
    server.add_table("main", "a", "t")
    server.reply(lost.body, status=lost.status, match="DELETE", times=times)
    work = ns.deregister_table(["main", "a", "t"])
    if times == 1:
        await work
    else:
        await catch(err.InternalError, work, "by another transaction")
    assert await ns.exists(TableId(["main", "a", "t"])) is (times == 2)


async def test_a_service_for_delta_tables_alone_says_so() -> None:
    async with running(connected, FakeUnity(delta_only=True), root="s3://b/r") as (server, ns):
        server.add_schema("main", "a")
        with pytest.raises(err.UnsupportedOperationError, match="this service registers Delta tables only"):
            await declared(ns, "main", "a", "t")
        server.fail(400, body={"error_code": "INVALID_ARGUMENT", "message": "no such delta, in any format"})
        await catch(err.InvalidInputError, described(ns, "main", "a", "t"))


async def test_a_table_made_twice_is_reported_and_listed_once(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.add_table("main", "a", "t")
    server.duplicate("main.a.t")
    assert (await ns.list_tables(["main", "a"])).tables == ["t"]
    assert [id.name for tables in (await ns.list_many([["main", "a"]])).tables.values() for id in tables] == ["t"]
    for work in (
        described(ns, "main", "a", "t"),
        ns.deregister_table(["main", "a", "t"]),
        declared(ns, "main", "a", "t"),
        ns.drop_namespace(["main", "a"], behavior="Cascade"),
    ):
        await catch(err.InternalError, work, "has that name twice, because two processes")


async def test_a_schema_made_twice_is_listed_once_and_dropped_twice(server: FakeUnity, ns: AsyncNamespace) -> None:
    """The server serves one of the two, as seen on Unity Catalog 0.6.0."""
    server.add_schema("main", "a", {"k": "first"})
    server.duplicate("main.a")
    for properties in ({"k": "first"}, {}):
        assert (await ns.list_namespaces(["main"])).namespaces == ["a"]
        assert (await ns.describe_namespace(["main", "a"])).properties == properties
        await ns.drop_namespace(["main", "a"])
    assert not await ns.exists(NamespaceId(["main", "a"]))


CASCADE = {"id": ["main", "a"], "behavior": "Cascade"}


async def test_cascade_keeps_managed_volumes(server: FakeUnity, ns: AsyncNamespace, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "file").write_text("kept")
    server.add_lance_tables("main", "a", 2)
    server.add_volume("main", "a", "v", managed=True, location=(tmp_path / "v").as_uri())
    with pytest.raises(err.InvalidInputError, match="the MANAGED volume v, whose data the server would delete; rem"):
        await ns.drop_namespace(CASCADE)
    assert (await ns.list_tables(["main", "a"])).tables == ["t0000", "t0001"]
    assert (tmp_path / "v" / "file").read_text() == "kept"


async def test_cascade_names_what_would_only_lose_its_registration(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.add_table("main", "a", "t")
    server.add_table("main", "a", "d", properties={"table_type": "delta"})
    server.add_volume("main", "a", "v", managed=False)
    server.add_function("main", "a", "f")
    server.add_model("main", "a", "m")
    message = "it also contains the EXTERNAL table d, the EXTERNAL volume v, the function f, the model m; remove them"
    await catch(err.InvalidInputError, ns.drop_namespace(CASCADE), message)
    assert not any(request.startswith("DELETE") for request in list_requests(server))


async def test_a_long_list_of_what_else_there_is_is_cut(server: FakeUnity, ns: AsyncNamespace) -> None:
    for number in range(120):
        server.add_function("main", "a", f"f{number:03}")
    server.add_volume("main", "a", "v", managed=True)
    message = "contains the MANAGED volume v, whose data the server would delete, the function f000, .* and 116 more;"
    await catch(err.InvalidInputError, ns.drop_namespace(CASCADE), message)


async def test_cascade_takes_nothing_that_it_was_not_shown(server: FakeUnity, ns: AsyncNamespace) -> None:
    """Servers list only objects that a caller may see; a forced drop would remove others, too."""
    server.add_table("main", "a", "t")
    server.add_volume("main", "a", "v", managed=True)
    server.reply('{"volumes": []}', match="GET .*/volumes")
    raised = await catch(err.NamespaceNotEmptyError, ns.drop_namespace(CASCADE), "Cannot delete schema with volumes")
    assert "and 1 tables of main$a are no longer registered" in raised.value.__notes__[0]
    assert await ns.exists(NamespaceId(["main", "a"]))


@pytest.mark.parametrize("status", [404, 501])
async def test_cascade_on_an_older_server(server: FakeUnity, ns: AsyncNamespace, status: int) -> None:
    server.add_table("main", "a", "t")
    server.fail(status, match="GET .*/(volumes|functions|models)", body="Status: no such path", times=3)
    await ns.drop_namespace(CASCADE)
    assert not await ns.exists(NamespaceId(["main", "a"]))


async def test_cascade_removes_nothing_where_a_list_fails(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.add_table("main", "a", "t")
    server.fail(403, match="GET .*/models")
    await catch(err.PermissionDeniedError, ns.drop_namespace(CASCADE))
    assert await ns.exists(["main", "a", "t"])


async def test_a_cascade_that_stops_half_way_says_how_far_it_came(server: FakeUnity) -> None:
    server.add_lance_tables("main", "a", 3)
    server.fail(403, match="DELETE .*t0001")
    async with connected(server, max_in_flight="1") as ns:
        raised = await catch(err.PermissionDeniedError, ns.drop_namespace(CASCADE))
        assert "and 1 of the 3 tables of main$a are no longer registered" in raised.value.__notes__[0]
        await ns.drop_namespace(CASCADE)
        assert not await ns.exists(NamespaceId(["main", "a"]))


ID = ["main", "a", "t"]


@dataclass
class Place:
    """A server whose users need tokens, a client of its owner, and the folder of the tables."""

    server: FakeUnity
    ns: AsyncNamespace
    root: Path


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with running(connected, FakeUnity(authorization=["owner"]), root=str(tmp_path)) as (server, ns):
        server.add_schema("main", "a")
        yield Place(server, ns, tmp_path)


async def test_a_name_that_is_taken_exists(place: Place) -> None:
    location = (await declared(place.ns, *ID)).location
    for requested in (None, "s3://elsewhere/t"):
        await catch(err.TableAlreadyExistsError, declared(place.ns, *ID, location=requested))
    await catch(err.TableAlreadyExistsError, place.ns.register_table(ID, location=location))
    await place.ns.create_table(ID, stream(ROWS), mode="ExistOk")
    other = declared(place.ns, "main", "a", "other", location=f"{location}/inside")
    await catch(err.PermissionDeniedError, other, "Access denied")


async def test_a_table_gets_another_name_only_after_its_registration_is_removed(place: Place) -> None:
    location = (await declared(place.ns, *ID)).location
    request = {"id": ["main", "a", "new"], "location": location}
    async with connected(place.server, root=str(place.root), allow_aliases="true") as ns:
        await catch(err.PermissionDeniedError, ns.register_table(request), "Access denied")
        with pytest.raises(err.UnsupportedOperationError, match="deregister it, and register it at"):
            await ns.register_table(ID, location=location, properties={"k": "v"}, mode="Overwrite")
        await ns.deregister_table(ID)
        assert (await ns.register_table(request)).location == location


async def test_without_rights_a_declaration_is_denied_after_two_calls(place: Place) -> None:
    place.server.allow("reader", "main.a.seen")
    async with connected(place.server, auth_token="reader", root=str(place.root)) as ns:
        place.server.clear()
        await catch(err.PermissionDeniedError, declared(ns, *ID), "Access denied")
    assert list_requests(place.server) == ["POST tables", "GET tables/main.a.t"]

"""Unity Catalog: bodies, versions of the API, and creations that the server does not make unique.

A Unity server with authorization: it checks a location before the name, and refuses one that is in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from tests.fakes.unity import FakeUnity
from tests.fakes.unity.checks import Dialect, lost_race
from tests.support.unity import DIALECTS, connected, declared, described, list_requests, opened

dialects = pytest.mark.parametrize("dialect", DIALECTS)
EMBEDDINGS = pa.schema([pa.field("id", pa.uint64(), nullable=False), pa.field("v", pa.list_(pa.float32(), 768))])


@dialects
async def test_a_declaration_is_an_external_table_of_format_text(dialect: Dialect) -> None:
    with FakeUnity(dialect=dialect) as server:
        server.add_schema("main", "a")
        async with connected(server) as ns:
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


async def test_a_schema_is_returned_in_the_form_of_the_spec_or_left_out() -> None:
    tags = pa.field("tags", pa.map_(pa.string(), pa.int8()))
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with connected(server) as ns:
            for name, field in (("said", tags), ("unsaid", pa.field("view", pa.list_view(pa.int8())))):
                request = DeclareTableRequest(id=["main", "a", name], location=f"s3://b/{name}")
                await ns.declare_table(request, schema=pa.schema([field]))
            schema = (await described(ns, "main", "a", "said")).var_schema
            assert schema is not None and schema.fields[0].type.type == "map"
            assert (await described(ns, "main", "a", "unsaid")).var_schema is None


async def test_a_listing_gives_no_schema_and_requests_no_columns() -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with opened(server) as backend:
            declared = await backend.declare_table(TableId(["main", "a", "t"]), "s3://b/t", {"k": "v"}, EMBEDDINGS)
            page = await backend.scan_tables(NamespaceId(["main", "a"]), None)
            assert page.items == [replace(declared, schema=None)]
        assert "omit_columns=true" in list_requests(server)[-1] and "omit_properties" not in list_requests(server)[-1]


async def test_a_column_that_unity_cannot_keep_is_refused_without_a_call() -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with opened(server) as backend:
            schema = pa.schema([pa.field("u", pa.dense_union([pa.field("a", pa.int8())]))])
            with pytest.raises(InvalidInputError, match="column 'u'"):
                await backend.declare_table(TableId(["main", "a", "t"]), None, {}, schema)
        assert list_requests(server) == []


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
async def test_only_an_external_table_that_says_so_is_a_lance_table(kind: dict[str, object]) -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "other", **kind)  # type: ignore[arg-type]
        server.add_table("main", "a", "t", properties={"table_type": "LANCE"}, data_source_format="PARQUET")
        async with connected(server) as ns:
            assert (await ns.list_tables(ListTablesRequest(id=["main", "a"]))).tables == ["t"]
            assert (await described(ns, "main", "a", "t")).location
            with pytest.raises(InvalidInputError, match=r"main\$a\$other is no Lance table: it is"):
                await described(ns, "main", "a", "other")
            with pytest.raises(InvalidInputError, match="no Lance table"):
                await ns.deregister_table(DeregisterTableRequest(id=["main", "a", "other"]))
        assert not any(request.startswith("DELETE") for request in list_requests(server))


@dialects
async def test_what_is_there_and_what_is_missing_is_reported_in_every_dialect(dialect: Dialect) -> None:
    with FakeUnity(dialect=dialect) as server:
        server.add_table("main", "a", "t")
        async with connected(server, root="s3://b/r") as ns:
            with pytest.raises(TableAlreadyExistsError, match=r"^Table already exists: main\$a\$t"):
                await declared(ns, "main", "a", "t")
            with pytest.raises(NamespaceAlreadyExistsError, match=r"^Namespace already exists: main\$a"):
                await ns.create_namespace(CreateNamespaceRequest(id=["main", "a"]))
            with pytest.raises(TableNotFoundError, match=r"^Table not found: main\$a\$none"):
                await described(ns, "main", "a", "none")
            with pytest.raises(NamespaceNotFoundError, match=r"^Namespace not found: main\$none \(describe_table"):
                await described(ns, "main", "none", "t")
            with pytest.raises(NamespaceNotFoundError, match=r"^Namespace not found: main\$none"):
                await declared(ns, "main", "none", "t")
            with pytest.raises(NamespaceNotFoundError, match=r"^Namespace not found: main\$none"):
                await ns.list_tables(ListTablesRequest(id=["main", "none"]))
            with pytest.raises(NamespaceNotFoundError):
                await ns.drop_namespace(DropNamespaceRequest(id=["main", "none"]))
            await ns.drop_namespace(DropNamespaceRequest(id=["main", "none"], mode="Skip"))
            with pytest.raises(NamespaceNotEmptyError, match=r"^Namespace not empty: main\$a"):
                await ns.drop_namespace(DropNamespaceRequest(id=["main", "a"]))


@dialects
async def test_a_catalog_that_is_missing_is_reported_in_every_dialect(dialect: Dialect) -> None:
    with FakeUnity(dialect=dialect, catalog=None) as server:
        async with connected(server, root="s3://b/r") as ns:
            for work in (
                ns.describe_namespace(DescribeNamespaceRequest(id=["main"])),
                ns.list_namespaces(ListNamespacesRequest(id=["main"])),
                ns.create_namespace(CreateNamespaceRequest(id=["main", "a"])),
                declared(ns, "main", "a", "t"),
                described(ns, "main", "a", "t"),
            ):
                with pytest.raises(NamespaceNotFoundError, match="Catalog not found: main"):
                    await work


async def test_the_root_holds_the_catalog_and_costs_no_call() -> None:
    with FakeUnity() as server:
        server.add_catalog("other")
        async with connected(server) as ns:
            assert (await ns.list_namespaces(ListNamespacesRequest(id=[]))).namespaces == ["main"]
            assert await ns.exists(NamespaceId())
        assert list_requests(server) == []


async def test_the_catalog_is_described_and_neither_made_nor_dropped() -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            assert (await ns.describe_namespace(DescribeNamespaceRequest(id=["main"]))).properties == {}
            assert (await ns.list_tables(ListTablesRequest(id=["main"]))).tables == []
            with pytest.raises(InvalidInputError, match="created and dropped with Unity's own tools"):
                await ns.create_namespace(CreateNamespaceRequest(id=["main"]))
            with pytest.raises(InvalidInputError, match="give a schema in it"):
                await ns.drop_namespace(DropNamespaceRequest(id=["main"], behavior="Cascade"))
        assert set(list_requests(server)) == {"GET catalogs/main"}


async def test_cascade_removes_registrations_and_forces_nothing(tmp_path: Path) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with connected(server, root=str(tmp_path)) as ns:
            location = (await declared(ns, "main", "a", "t")).location
            assert location is not None
            lance.write_dataset(pa.table({"id": [1]}), location)
            await ns.drop_namespace(DropNamespaceRequest(id=["main", "a"], behavior="CASCADE"))
            assert not await ns.exists(NamespaceId(["main", "a"]))
            assert lance.dataset(location).count_rows() == 1
        assert list_requests(server)[-3:] == ["DELETE tables/main.a.t", "DELETE schemas/main.a", "GET schemas/main.a"]


@pytest.mark.parametrize("kind", ["MANAGED", "STREAMING_TABLE", "MATERIALIZED_VIEW"])
async def test_cascade_refuses_to_take_data_that_the_server_keeps(kind: str) -> None:
    with FakeUnity() as server:
        server.add_lance_tables("main", "a", 150)
        server.add_table("main", "a", "z", table_type=kind, properties={})
        async with connected(server) as ns:
            with pytest.raises(
                InvalidInputError, match=f"it also contains the {kind} table z, whose data the server would delete"
            ):
                await ns.drop_namespace(DropNamespaceRequest(id=["main", "a"], behavior="Cascade"))
            assert await ns.exists(NamespaceId(["main", "a"]))
        assert not any(request.startswith("DELETE") for request in list_requests(server))


async def test_deregistering_looks_before_it_deletes() -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t", location="s3://b/t")
        async with connected(server) as ns:
            answer = await ns.deregister_table(DeregisterTableRequest(id=["main", "a", "t"]))
            assert (answer.id, answer.location) == (["main", "a", "t"], "s3://b/t")
            assert not await ns.exists(["main", "a", "t"])
        assert list_requests(server)[:2] == ["GET tables/main.a.t", "DELETE tables/main.a.t"]


@pytest.mark.parametrize("kind", ["table", "namespace"])
async def test_of_two_that_remove_an_object_one_is_told_so(kind: str) -> None:
    """The server rolls the transaction of the other one back, as seen on Unity Catalog 0.6.0."""
    with FakeUnity() as server:
        server.add_schema("main", "a")
        if kind == "table":
            server.add_table("main", "a", "t")
        async with connected(server) as ns:

            async def remove() -> LanceNamespaceError | None:
                try:
                    if kind == "table":
                        await ns.deregister_table(DeregisterTableRequest(id=["main", "a", "t"]))
                    else:
                        await ns.drop_namespace(DropNamespaceRequest(id=["main", "a"]))
                except LanceNamespaceError as e:
                    return e
                return None

            with server.hold("DELETE") as hold:
                removals = asyncio.gather(remove(), remove())
                await hold.reached(2)
                hold.release()
                outcomes = await removals
        (error,) = [outcome for outcome in outcomes if outcome is not None]
        assert type(error) is (TableNotFoundError if kind == "table" else NamespaceNotFoundError)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_removal_that_lost_a_race_is_repeated_once(times: int) -> None:
    lost = lost_race("table").answer("0.6")
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        server.reply(lost.body, status=lost.status, match="DELETE", times=times)
        async with connected(server) as ns:
            work = ns.deregister_table(DeregisterTableRequest(id=["main", "a", "t"]))
            if times == 1:
                await work
            else:
                with pytest.raises(InternalError, match="by another transaction"):
                    await work
            assert await ns.exists(TableId(["main", "a", "t"])) is (times == 2)


async def test_a_rename_is_unsupported_and_the_error_names_a_way() -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        async with connected(server) as ns:
            with pytest.raises(UnsupportedOperationError, match="register its location under the new name"):
                await ns.rename_table(RenameTableRequest(id=["main", "a", "t"], new_table_name="u"))


async def test_a_service_for_delta_tables_alone_says_so() -> None:
    with FakeUnity(delta_only=True) as server:
        server.add_schema("main", "a")
        async with connected(server, root="s3://b/r") as ns:
            with pytest.raises(UnsupportedOperationError, match="this service registers Delta tables only"):
                await declared(ns, "main", "a", "t")
            server.fail(400, body={"error_code": "INVALID_ARGUMENT", "message": "no such delta, in any format"})
            with pytest.raises(InvalidInputError):
                await described(ns, "main", "a", "t")


async def test_a_table_made_twice_is_reported_and_listed_once() -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        server.duplicate("main.a.t")
        async with connected(server, root="s3://b/r") as ns:
            assert (await ns.list_tables(ListTablesRequest(id=["main", "a"]))).tables == ["t"]
            listed = await ns.list_many([["main", "a"]])
            assert [id.name for tables in listed.tables.values() for id in tables] == ["t"]
            for work in (
                described(ns, "main", "a", "t"),
                ns.deregister_table(DeregisterTableRequest(id=["main", "a", "t"])),
                declared(ns, "main", "a", "t"),
                ns.drop_namespace(DropNamespaceRequest(id=["main", "a"], behavior="Cascade")),
            ):
                with pytest.raises(InternalError, match="has that name twice, because two processes"):
                    await work


async def test_a_schema_made_twice_is_listed_once_and_dropped_twice() -> None:
    """The server serves one of the two, as seen on Unity Catalog 0.6.0."""
    with FakeUnity() as server:
        server.add_schema("main", "a", {"k": "first"})
        server.duplicate("main.a")
        async with connected(server) as ns:
            for properties in ({"k": "first"}, {}):
                assert (await ns.list_namespaces(ListNamespacesRequest(id=["main"]))).namespaces == ["a"]
                result = await ns.describe_namespace(DescribeNamespaceRequest(id=["main", "a"]))
                assert result.properties == properties
                await ns.drop_namespace(DropNamespaceRequest(id=["main", "a"]))
            assert not await ns.exists(NamespaceId(["main", "a"]))


CASCADE = DropNamespaceRequest(id=["main", "a"], behavior="Cascade")


async def test_cascade_keeps_the_files_of_a_managed_volume(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "file").write_text("kept")
    with FakeUnity() as server:
        server.add_lance_tables("main", "a", 2)
        server.add_volume("main", "a", "v", managed=True, location=(tmp_path / "v").as_uri())
        async with connected(server) as ns:
            with pytest.raises(
                InvalidInputError, match="the MANAGED volume v, whose data the server would delete; rem"
            ):
                await ns.drop_namespace(CASCADE)
            assert (await ns.list_tables(ListTablesRequest(id=["main", "a"]))).tables == ["t0000", "t0001"]
    assert (tmp_path / "v" / "file").read_text() == "kept"


async def test_cascade_names_what_would_only_lose_its_registration() -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        server.add_table("main", "a", "d", properties={"table_type": "delta"})
        server.add_volume("main", "a", "v", managed=False)
        server.add_function("main", "a", "f")
        server.add_model("main", "a", "m")
        async with connected(server) as ns:
            message = (
                "it also contains the EXTERNAL table d, the EXTERNAL volume v, the function f, the model m; remove them"
            )
            with pytest.raises(InvalidInputError, match=message):
                await ns.drop_namespace(CASCADE)
        assert not any(request.startswith("DELETE") for request in list_requests(server))


async def test_a_long_list_of_what_else_there_is_is_cut() -> None:
    with FakeUnity() as server:
        for number in range(120):
            server.add_function("main", "a", f"f{number:03}")
        server.add_volume("main", "a", "v", managed=True)
        async with connected(server) as ns:
            message = (
                "contains the MANAGED volume v, whose data the server would delete, the function f000, .* and 116 more;"
            )
            with pytest.raises(InvalidInputError, match=message):
                await ns.drop_namespace(CASCADE)


async def test_cascade_takes_nothing_that_it_was_not_shown() -> None:
    """Servers list only objects that a caller may see; a forced drop would remove others, too."""
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        server.add_volume("main", "a", "v", managed=True)
        server.reply('{"volumes": []}', match="GET .*/volumes")
        async with connected(server) as ns:
            with pytest.raises(NamespaceNotEmptyError, match="Cannot delete schema with volumes") as raised:
                await ns.drop_namespace(CASCADE)
            assert "and 1 tables of main$a are no longer registered" in raised.value.__notes__[0]
            assert await ns.exists(NamespaceId(["main", "a"]))


@pytest.mark.parametrize("status", [404, 501])
async def test_cascade_does_without_lists_that_a_server_does_not_have(status: int) -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        server.fail(status, match="GET .*/(volumes|functions|models)", body="Status: no such path", times=3)
        async with connected(server) as ns:
            await ns.drop_namespace(CASCADE)
            assert not await ns.exists(NamespaceId(["main", "a"]))


async def test_cascade_removes_nothing_where_a_list_fails() -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        server.fail(403, match="GET .*/models")
        async with connected(server) as ns:
            with pytest.raises(PermissionDeniedError):
                await ns.drop_namespace(CASCADE)
            assert await ns.exists(["main", "a", "t"])


async def test_a_cascade_that_stops_half_way_says_how_far_it_came() -> None:
    with FakeUnity() as server:
        server.add_lance_tables("main", "a", 3)
        server.fail(403, match="DELETE .*t0001")
        async with connected(server, max_in_flight="1") as ns:
            with pytest.raises(PermissionDeniedError) as raised:
                await ns.drop_namespace(CASCADE)
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

    @property
    def location(self) -> str:
        """The default location of the table."""
        return self.root.joinpath(*ID).as_uri()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    with FakeUnity(authorization=["owner"]) as server:
        server.add_schema("main", "a")
        async with connected(server, root=str(tmp_path)) as ns:
            yield Place(server, ns, tmp_path)


def rows() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("location", [None, "s3://elsewhere/t"])
async def test_a_name_that_is_taken_exists(place: Place, location: str | None) -> None:
    await declared(place.ns, *ID)
    with pytest.raises(TableAlreadyExistsError):
        await declared(place.ns, *ID, location=location)


async def test_registering_a_name_that_is_taken_finds_it(place: Place) -> None:
    await declared(place.ns, *ID)
    with pytest.raises(TableAlreadyExistsError):
        await place.ns.register_table(RegisterTableRequest(id=ID, location=place.location))


async def test_exist_ok_keeps_the_table(place: Place) -> None:
    await place.ns.create_table(CreateTableRequest(id=ID), rows())
    await place.ns.create_table(CreateTableRequest(id=ID, mode="ExistOk"), rows())
    assert (await place.ns.describe_tables([ID])).tables


async def test_a_location_of_another_table_is_denied(place: Place) -> None:
    location = (await declared(place.ns, *ID)).location
    with pytest.raises(PermissionDeniedError, match="Access denied"):
        await declared(place.ns, "main", "a", "other", location=f"{location}/inside")


async def test_a_table_gets_another_name_only_after_its_registration_is_removed(place: Place) -> None:
    location = (await declared(place.ns, *ID)).location
    request = RegisterTableRequest(id=["main", "a", "new"], location=location)
    async with connected(place.server, root=str(place.root), allow_aliases="true") as ns:
        with pytest.raises(PermissionDeniedError, match="Access denied"):
            await ns.register_table(request)
        with pytest.raises(UnsupportedOperationError, match="deregister it, and register it at"):
            await ns.register_table(
                RegisterTableRequest(id=ID, location=location, properties={"k": "v"}, mode="Overwrite")
            )
        await ns.deregister_table(DeregisterTableRequest(id=ID))
        assert (await ns.register_table(request)).location == location


async def test_without_rights_a_declaration_is_denied_after_two_calls(place: Place) -> None:
    place.server.allow("reader", "main.a.seen")
    async with connected(place.server, auth_token="reader", root=str(place.root)) as ns:
        place.server.clear()
        with pytest.raises(PermissionDeniedError, match="Access denied"):
            await declared(ns, *ID)
    assert list_requests(place.server) == ["POST tables", "GET tables/main.a.t"]

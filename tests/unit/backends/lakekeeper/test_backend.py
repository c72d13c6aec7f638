"""The differences of Lakekeeper: paths, names, renames, deletions, locations, credentials, and those from its API."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import DescribeTableResponse

from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet import undrop
from lance_ns_async.fleet.copies import copy
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.support.errors import catch
from tests.support.running import running

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}
KEYS = {"s3.access-key-id": "id", "s3.secret-access-key": "secret", "s3.session-token": "token"}


@asynccontextmanager
async def connect(server: FakeLakekeeper, **properties: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("lakekeeper", {**server.properties, **QUICK, **properties}) as ns:
        yield ns


async def describe(ns: AsyncNamespace, *id: str, vend: bool | None = None) -> DescribeTableResponse:
    return await ns.describe_table(list(id), vend_credentials=vend)


def requests_of(server: FakeLakekeeper) -> list[str]:
    """Returns the requests without the warehouse's id, and without the configuration."""
    prefix = server._prefix
    return [str(request).replace(f"/{prefix}", "") for request in server.requests if "/config" not in request.path]


async def test_every_operation_has_its_path(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_namespace(("a b", "c"))
    await ns.create_namespace(["a b", "d"], properties={"k": "v"})
    result = await ns.describe_namespace(["a b", "d"])
    assert result.properties is not None and result.properties.pop("namespace_id")
    assert result.properties == {"k": "v", "location": "s3://bucket/lake"}
    assert (await ns.list_namespaces(["a b"])).namespaces == ["c", "d"]
    await ns.drop_namespace(["a b", "d"])
    await ns.declare_table(["a b", "c", "t/1"])
    assert (await ns.list_tables(["a b", "c"])).tables == ["t/1"]
    await ns.deregister_table(["a b", "c", "t/1"])
    tables = "/lakekeeper/v1/namespaces/a%20b%1Fc/generic-tables"
    assert requests_of(server) == [
        "HEAD /catalog/v1/namespaces/a%20b",
        "POST /catalog/v1/namespaces",
        "GET /catalog/v1/namespaces/a%20b%1Fd",
        "GET /catalog/v1/namespaces?pageSize=1000&parent=a%20b",
        "DELETE /catalog/v1/namespaces/a%20b%1Fd",
        f"POST {tables}",
        f"GET {tables}?pageSize=1000",
        f"GET {tables}?pageSize=1000&pageToken=1",
        f"GET {tables}/t%2F1",
        f"DELETE {tables}/t%2F1?purgeRequested=false",
    ]


async def test_one_configuration_serves_all_operations_and_names_the_warehouse(server: FakeLakekeeper) -> None:
    server.add_lance_tables(("n",), 3)
    async with connect(server, endpoint=f"{server.endpoint}/catalog/") as ns:
        for name in ("t0000", "t0001", "t0002"):
            await describe(ns, "n", name)
    async with connect(server, warehouse="none") as ns:
        await catch(err.InvalidInputError, describe(ns, "n", "t"), "Warehouse 'none' not found")
    configs = [request.path for request in server.requests if "config" in request.path]
    assert configs == [f"/catalog/v1/config?warehouse={name}" for name in ("lake", "none")]


async def test_a_declaration_leaves_the_location_to_the_server(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    declared = await ns.declare_table(["n", "t"], properties={"doc": "about", "k": "v"})
    [body] = [request.json for request in server.requests if request.method == "POST"]
    assert declared.location is not None and declared.location.startswith("s3://bucket/lake/")
    identity = body["properties"].pop("lance_ns.registration")
    sent = {"doc": "about", "k": "v", "table_type": "lance"}
    assert identity and body == {"name": "t", "format": "lance", "doc": "about", "properties": sent}


async def test_listing_filters_formats_at_no_extra_call(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    names = server.add_lance_tables(("n",), 1500)
    server.add_table(("n",), "other", format="delta")
    assert [table.name async for table in ns.iter_tables(["n"])] == names
    assert len(requests_of(server)) == 3


async def test_case_of_names(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_namespace(("Sales",))
    declared = await ns.declare_table(["Sales", "Orders"])
    assert (await describe(ns, "sales", "ORDERS")).location == declared.location
    assert (await ns.list_tables(["SALES"])).tables == ["Orders"]
    await catch(err.TableAlreadyExistsError, ns.declare_table(["sales", "orders"]))
    await ns.rename_table(["sales", "orders"], new_table_name="ORDERS")
    assert (await ns.list_tables(["sales"])).tables == ["ORDERS"]
    server.add_table(("n",), "t")
    await _rename(ns, ["n", "t"], ["N", "T"])
    assert [str(id) async for id in ns.iter_tables(["n"])] == ["n$T"]


@pytest.mark.parametrize("operation", ["describe", "drop", "list", "create", "table"])
async def test_plus_in_a_namespace_is_refused(server: FakeLakekeeper, ns: AsyncNamespace, operation: str) -> None:
    server.add_table(("a b",), "t")
    server.add_namespace(("a b", "empty"))
    calls: dict[str, Any] = {
        "describe": lambda: ns.describe_namespace(["a+b"]),
        "drop": lambda: ns.drop_namespace(["a+b", "empty"]),
        "list": lambda: ns.list_namespaces(["a+b"]),
        "create": lambda: ns.create_namespace(["a+b", "c"]),
        "table": lambda: describe(ns, "a+b", "t"),
    }
    await catch(err.InvalidInputError, calls[operation](), "as a blank; choose another name")
    assert len(server.warehouse.spaces) == 3 and requests_of(server) == []


@pytest.mark.parametrize("levels", [["a.b"], ["a", "b", "c", "d", "e", "f"]])
async def test_invalid_namespace(server: FakeLakekeeper, ns: AsyncNamespace, levels: list[str]) -> None:
    server.add_namespace(levels[:-1] or ["a"])
    await catch(err.InvalidInputError, ns.create_namespace(levels))


async def test_a_table_moves_to_another_namespace(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_namespace(("m", "n"))
    location = server.add_table(("n",), "t")
    await _rename(ns, ["n", "t"], ["m", "n", "u"])
    assert (await describe(ns, "m", "n", "u")).location == location
    await catch(err.TableNotFoundError, describe(ns, "n", "t"))
    await catch(err.NamespaceNotFoundError, _rename(ns, ["m", "n", "u"], ["none", "u"]))
    [body, _] = [request.json for request in server.requests if request.method == "POST"]
    assert body == {"source": {"namespace": ["n"], "name": "t"}, "destination": {"namespace": ["m", "n"], "name": "u"}}


async def test_a_deregistered_table_can_be_restored_and_keeps_its_location() -> None:
    async with running(connect, FakeLakekeeper(soft=True)) as (server, ns):
        location = server.add_table(("n",), "t")
        await ns.deregister_table(["n", "t"])
        assert [table["name"] for table in server.warehouse.deleted] == ["t"]
        await catch(err.TableNotFoundError, describe(ns, "n", "t"))
        with pytest.raises(err.InvalidInputError, match="a deleted table that can still be restored"):
            await ns.register_table(["n", "t"], location=location)
        assert (await ns.declare_table(["n", "t"])).location != location


@asynccontextmanager
async def soft_drop(tmp_path: Path) -> AsyncIterator[tuple[FakeLakekeeper, AsyncNamespace, str]]:
    """Provides a warehouse with soft deletion and a table that was dropped with a retention, with its location."""
    async with running(connect, FakeLakekeeper(base=tmp_path.as_uri(), soft=True)) as (server, ns):
        location = server.add_table(("n",), "t", properties={"k": "v"})
        await ns.drop_table(["n", "t"], keep="7d")
        yield server, ns, location


async def test_a_dropped_table_is_restored_by_the_server(tmp_path: Path) -> None:
    async with soft_drop(tmp_path) as (server, ns, location):
        places = []
        for _ in range(2):
            places.append(server.add_table(("n",), "t"))
            await ns.drop_table(["n", "t"], keep="7d")
        server.add_table(("n",), "t")
        for as_, advice in ((None, "pass as_"), ("m.u", "rename that table first")):
            with pytest.raises(err.TableAlreadyExistsError, match=advice):
                await undrop(ns, location, as_=as_)
        await ns.rename_table(["n", "t"], new_table_name="later")
        await undrop(ns, location, as_="m.u")
        restored = await describe(ns, "m", "u")
        assert (restored.location, restored.properties) == (location, {"k": "v"})
        await undrop(ns, places[0])
        assert sorted((await ns.list_tables(["n"])).tables) == ["later", "t"]
        assert [table["base-location"] for table in server.warehouse.deleted] == places[1:]


@pytest.mark.parametrize(
    ("status", "fault"), [(403, "GET .*deleted-"), (403, "POST .*/undrop"), (404, "GET .*deleted-")]
)
async def test_an_undrop_needs_the_management_api(tmp_path: Path, status: int, fault: str) -> None:
    async with soft_drop(tmp_path) as (server, ns, location):
        server.fail(status, match=fault)
        with pytest.raises(err.PermissionDeniedError, match="the rights to list the deleted tables of the warehouse"):
            await undrop(ns, location)
        server.cut(match="POST .*/undrop", when="after")
        await undrop(ns, location)
        assert (await ns.list_tables(["n"])).tables == ["t"]


async def test_nothing_is_restored_if_the_right_table_is_not_known(tmp_path: Path) -> None:
    async with running(connect, FakeLakekeeper(base=tmp_path.as_uri(), soft=True)) as (server, ns):
        places = [f"{tmp_path.as_uri()}/chosen{n}" for n in range(2)]
        for place in places:
            server.add_table(("n",), "t", location=place)
            await ns.drop_table(["n", "t"], keep="7d")
        with pytest.raises(err.InvalidTableStateError, match="2 deleted tables had this name"):
            await undrop(ns, places[0])
        assert (await ns.list_tables(["n"])).tables == [] and len(server.warehouse.deleted) == 2


async def test_a_table_that_the_server_does_not_keep_any_more_is_registered(tmp_path: Path) -> None:
    async with soft_drop(tmp_path) as (server, ns, location):
        server.warehouse.deleted.clear()
        await undrop(ns, location)
        assert (await describe(ns, "n", "t")).location == location


async def test_a_protected_table_is_not_removed(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    location = server.add_table(("n",), "t", protected=True)
    await catch(err.PermissionDeniedError, ns.deregister_table(["n", "t"]), "protected")
    assert (await describe(ns, "n", "t")).location == location
    assert list(server.warehouse.spaces[("n",)].tables) == ["t"]


@pytest.mark.parametrize("place", ["", "/inner"])
async def test_a_location_of_another_table_is_refused(server: FakeLakekeeper, ns: AsyncNamespace, place: str) -> None:
    location = server.add_table(("n",), "t")
    with pytest.raises(err.InvalidInputError, match=r"LocationAlreadyTaken.*above or below that of another table"):
        await ns.register_table(["n", "u"], location=location + place)
    with pytest.raises(err.InvalidInputError, match="not valid for this warehouse"):
        await ns.register_table(["n", "u"], location="s3://elsewhere/u")


async def test_a_location_that_another_client_frees_is_declared(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    error = {"type": "LocationAlreadyTaken", "code": 409, "message": "Location is already taken"}
    server.fail(409, body={"error": error}, match="POST .*/generic-tables$")
    location = server.add_table(("n",), "t")
    place = f"{location}-2"
    await ns.register_table(["n", "u"], location=place)
    assert (await describe(ns, "n", "u")).location == place


async def test_a_token_comes_from_the_identity_provider() -> None:
    with FakeLakekeeper(client=("me", "s3cr3t")) as server:
        server.add_table(("n",), "t")
        uri = f"{server.endpoint}/idp/token"
        async with connect(server, credential="me:s3cr3t", oauth2_server_uri=uri) as ns:
            await describe(ns, "n", "t")
        async with connect(server, auth_token="wrong") as ns:
            await catch(err.UnauthenticatedError, describe(ns, "n", "t"))


DATA = pa.table({"id": [1, 2, 3]})
NFC, NFD = "\u00e9", "e\u0301"


async def _rename(ns: AsyncNamespace, old: list[str], new: list[str]) -> None:
    await ns.rename_table(old, new_namespace_id=new[:-1], new_table_name=new[-1])


@pytest.mark.parametrize("place", ["requested", "n/a"])
@pytest.mark.parametrize("rooted", [False, True])
async def test_a_drop_keeps_the_rows_of_a_table_at_its_location(tmp_path: Path, place: str, rooted: bool) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri()) as server:
        location = f"{tmp_path.as_uri()}/{place}"
        async with connect(server, **({"root": tmp_path.as_uri()} if rooted else {})) as ns:
            server.add_table(("n",), "a", location=location)
            server.add_table(("n",), "b", location=location)
            await ns.write(["n", "a"], DATA, mode="append")
            await ns.drop_table({"id": ["n", "b"]})
            assert (await ns.open(["n", "a"])).count_rows() == 3
            await ns.drop_table({"id": ["n", "a"]})
        assert not (tmp_path / place).exists()


async def test_a_location_with_the_names_of_a_table_may_be_that_of_another(tmp_path: Path) -> None:
    async with running(connect, FakeLakekeeper(base=tmp_path.as_uri())) as (server, ns):
        for name in ("a", "b"):
            server.add_table(("n",), name, location=f"{tmp_path.as_uri()}/n/a")
        await ns.write(["n", "b"], DATA, mode="append")
        await ns.drop_table({"id": ["n", "a"]})
        assert (await ns.open(["n", "b"])).count_rows() == 3


async def test_a_drop_at_a_location_of_the_server_describes_no_other_table(tmp_path: Path) -> None:
    async with running(connect, FakeLakekeeper(base=tmp_path.as_uri())) as (server, ns):
        server.add_lance_tables(("n",), 3)
        await ns.drop_table({"id": ["n", "t0001"]})
        assert not [request for request in requests_of(server) if "t0000" in request or "t0002" in request]


@pytest.mark.parametrize("taken", [["n", "taken"], ["N", "TAKEN"], ["m", "other"], ["n", "delta"]])
async def test_rename_onto_a_table(server: FakeLakekeeper, ns: AsyncNamespace, taken: list[str]) -> None:
    server.add_table(("n",), "t")
    server.add_table(("n",), "taken")
    server.add_table(("m",), "other")
    server.add_table(("n",), "delta", format="delta")
    with pytest.raises(err.TableAlreadyExistsError, match=rf"(?i)Table already exists: {taken[0]}\${taken[1]} "):
        await _rename(ns, ["n", "t"], taken)
    assert await ns.exists(["n", "t"])


async def test_a_rename_onto_an_invisible_name_says_what_takes_it() -> None:
    async with running(connect, FakeLakekeeper(soft=True)) as (server, ns):
        for name in ("t", "deleted"):
            server.add_table(("n",), name)
        server.add_iceberg_table(("n",), "iceberg")
        await ns.deregister_table({"id": ["n", "deleted"]})
        for name in ("deleted", "iceberg"):
            message = r"n\$\w+ .*an Iceberg table or view, or by a deleted"
            await catch(err.TableAlreadyExistsError, _rename(ns, ["n", "t"], ["n", name]), message)
        await catch(err.TableAlreadyExistsError, ns.declare_table(["n", "iceberg"]))
        assert (await ns.list_tables(["n"])).tables == ["t"]


async def test_rename_of_a_removed_table(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_table(("n",), "t")
    await describe(ns, "n", "t")
    server.warehouse.drop_table(("n",), "t", force=True)
    backend = ns.session.backend
    with pytest.raises(err.TableNotFoundError, match=r"n\$t "):
        await backend.rename_table(ns.session.table(["n", "t"]), ns.session.table(["n", "u"]))


@pytest.mark.parametrize(
    ("stored", "name"),
    [(NFC, NFD), (NFD, NFC), ("x2", "x\u00b2"), ("az", "a\u200dz"), ("kg", "\u338f"), ("1", "\u2460")],
)
async def test_equal_characters_are_refused(server: FakeLakekeeper, ns: AsyncNamespace, stored: str, name: str) -> None:
    server.add_table(("n",), stored)
    server.add_table(("n",), "t")
    await ns.describe_table({"id": ["n", stored]})
    for operation in ("describe_table", "drop_table", "deregister_table"):
        server.clear()
        with pytest.raises(err.InvalidInputError, match="takes both names for equal") as caught:
            await getattr(ns, operation)({"id": ["n", name]})
        assert ascii(stored) in str(caught.value) and ascii(name) in str(caught.value)
        # A drop describes with credentials, and then without.
        assert len(server.requests) <= 2
    for operation in ("declare_table", "create_empty_table"):
        await catch(err.TableAlreadyExistsError, getattr(ns, operation)({"id": ["n", name]}))
    await catch(err.TableAlreadyExistsError, _rename(ns, ["n", "t"], ["n", name]))


async def test_an_answer_about_another_table_is_still_a_mix_up(server: FakeLakekeeper) -> None:
    server.add_table(("n",), "t")
    async with connect(server, max_retries="0") as ns:
        table = {"name": unicodedata.normalize("NFKD", "\u00fc"), "format": "lance", "base-location": "s3://b/t"}
        server.fail(200, body={"table": table}, match="GET .*generic-tables/t")
        await catch(Exception, describe(ns, "n", "t"), "is there a proxy")


CHANGES: dict[str, Any] = {
    "create_namespace": {"id": ["new"]},
    "drop_namespace": {"id": ["empty"]},
    "declare_table": {"id": ["n", "new"]},
    "rename_table": {"id": ["n", "t"], "new_table_name": "u"},
    "deregister_table": {"id": ["n", "t"]},
    "drop_table": {"id": ["n", "t"]},
}


@pytest.mark.parametrize("operation", CHANGES)
async def test_a_change_whose_answer_was_lost_is_sent_again_by_its_key(tmp_path: Path, operation: str) -> None:
    async with running(connect, FakeLakekeeper(base=tmp_path.as_uri())) as (server, ns):
        server.add_table(("n",), "t")
        server.add_namespace(["empty"])
        server.cut(match="^(POST|DELETE) ", when="after")
        await getattr(ns, operation)(CHANGES[operation])
        changes = [request for request in server.requests if request.method in ("POST", "DELETE")]
        keys = {request.headers["Idempotency-Key"] for request in changes}
        assert len(changes) == 2 and len(keys) == 1


async def test_a_copy_leaves_the_ids_of_namespaces_behind(tmp_path: Path) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri()) as one, FakeLakekeeper(base=tmp_path.as_uri()) as two:
        one.add_namespace(["n"], {"k": "v"})
        one.add_table(("n",), "t")
        async with connect(one) as source, connect(two) as target:
            await copy(source, target)
            report = await copy(source, target)
        assert two.warehouse.spaces[("n",)].properties["k"] == "v"
        assert [(row.outcome, row.reason) for row in report.rows] == [("unchanged", "")]


async def test_a_namespace_with_deleted_tables_says_why_it_stays() -> None:
    async with running(connect, FakeLakekeeper(soft=True)) as (server, ns):
        server.add_table(("n",), "t")
        caught = await catch(err.NamespaceNotEmptyError, ns.drop_namespace({"id": ["n"]}))
        assert "deleted" not in str(caught.value)
        await ns.deregister_table({"id": ["n", "t"]})
        with pytest.raises(err.NamespaceNotEmptyError, match="can still be restored are in it: 1; wait until they"):
            await ns.drop_namespace({"id": ["n"]})


async def test_a_request_that_is_too_large_is_invalid_input(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_namespace(["n"])
    with pytest.raises(err.InvalidInputError, match="length limit exceeded"):
        await ns.declare_table({"id": ["n", "t"], "properties": {"k": "v" * 2**21}})


@pytest.mark.parametrize("properties", [{"k": "a\0b"}, {"a\0b": "v"}])
async def test_null_in_a_property(server: FakeLakekeeper, ns: AsyncNamespace, properties: dict[str, str]) -> None:
    server.add_namespace(["n"])
    for request in ({"id": ["n", "t"]}, {"id": ["m"]}):
        call = ns.declare_table if len(request["id"]) == 2 else ns.create_namespace
        with pytest.raises(err.InvalidInputError, match=r"property .*: Lakekeeper cannot store"):
            await call({**request, "properties": properties})
    assert server.requests == []


async def test_credentials_are_not_made_unless_they_are_requested() -> None:
    async with running(connect, FakeLakekeeper(vends=[{"prefix": "s3://", "config": KEYS}])) as (server, ns):
        server.add_table(("n",), "t")
        server.add_namespace(["empty"])
        server.cut(match="^POST ", when="after", times=1)
        assert not (await describe(ns, "n", "t")).storage_options
        await ns.declare_table({"id": ["n", "u"]})
        await ns.rename_table({"id": ["n", "t"], "new_table_name": "v"})
        await catch(err.TableAlreadyExistsError, ns.rename_table({"id": ["n", "v"], "new_table_name": "u"}))
        loads = [it for it in server.requests if it.method == "GET" and "/generic-tables/" in it.path]
        assert len(loads) > 2
        assert {it.headers.get("X-Iceberg-Access-Delegation") for it in loads} == {"client-managed"}

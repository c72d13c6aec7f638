"""The differences of Lakekeeper: its paths and bodies, names, renames, deletions, locations and credentials."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import lance_namespace.errors as err
import pytest
from lance_namespace import DescribeTableResponse

from lance_ns_async import AsyncNamespace
from tests.fakes.lakekeeper import FakeLakekeeper

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
    configs = [request.path for request in server.requests if "config" in request.path]
    assert configs == ["/catalog/v1/config?warehouse=lake"]


async def test_a_missing_warehouse_is_no_missing_table(server: FakeLakekeeper) -> None:
    async with connect(server, warehouse="none") as ns:
        with pytest.raises(err.InvalidInputError, match="Warehouse 'none' not found"):
            await describe(ns, "n", "t")


async def test_a_declaration_leaves_the_location_to_the_server(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    declared = await ns.declare_table(["n", "t"], properties={"doc": "about", "k": "v"})
    [body] = [request.json for request in server.requests if request.method == "POST"]
    assert declared.location is not None and declared.location.startswith("s3://bucket/lake/")
    identity = body["properties"].pop("lance_ns.registration")
    assert identity and body == {
        "name": "t",
        "format": "lance",
        "doc": "about",
        "properties": {"doc": "about", "k": "v", "table_type": "lance"},
    }


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
    with pytest.raises(err.TableAlreadyExistsError):
        await ns.declare_table(["sales", "orders"])
    await ns.rename_table(["sales", "orders"], new_table_name="ORDERS")
    assert (await ns.list_tables(["sales"])).tables == ["ORDERS"]


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
    with pytest.raises(err.InvalidInputError, match="as a blank; choose another name"):
        await calls[operation]()
    assert len(server.warehouse.spaces) == 3 and requests_of(server) == []


@pytest.mark.parametrize("levels", [["a.b"], ["a", "b", "c", "d", "e", "f"]])
async def test_invalid_namespace(server: FakeLakekeeper, ns: AsyncNamespace, levels: list[str]) -> None:
    server.add_namespace(levels[:-1] or ["a"])
    with pytest.raises(err.InvalidInputError):
        await ns.create_namespace(levels)


async def test_a_table_moves_to_another_namespace(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_namespace(("m", "n"))
    location = server.add_table(("n",), "t")
    request = {"id": ["n", "t"], "new_namespace_id": ["m", "n"], "new_table_name": "u"}
    await ns.rename_table(request)
    assert (await describe(ns, "m", "n", "u")).location == location
    with pytest.raises(err.TableNotFoundError):
        await describe(ns, "n", "t")
    with pytest.raises(err.NamespaceNotFoundError):
        await ns.rename_table(["m", "n", "u"], new_namespace_id=["none"], new_table_name="u")
    [body, _] = [request.json for request in server.requests if request.method == "POST"]
    assert body == {"source": {"namespace": ["n"], "name": "t"}, "destination": {"namespace": ["m", "n"], "name": "u"}}


async def test_an_iceberg_table_takes_the_name(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_iceberg_table(("n",), "t")
    server.add_table(("n",), "u")
    with pytest.raises(err.TableAlreadyExistsError):
        await ns.declare_table(["n", "t"])
    with pytest.raises(err.TableAlreadyExistsError):
        await ns.rename_table(["n", "u"], new_table_name="T")
    assert (await ns.list_tables(["n"])).tables == ["u"]


async def test_a_deregistered_table_can_be_restored_and_keeps_its_location() -> None:
    with FakeLakekeeper(soft=True) as server:
        location = server.add_table(("n",), "t")
        async with connect(server) as ns:
            await ns.deregister_table(["n", "t"])
            assert [table["name"] for table in server.warehouse.deleted] == ["t"]
            with pytest.raises(err.TableNotFoundError):
                await describe(ns, "n", "t")
            with pytest.raises(err.InvalidInputError, match="a deleted table that can still be restored"):
                await ns.register_table(["n", "t"], location=location)
            again = await ns.declare_table(["n", "t"])
            assert again.location != location


async def test_a_protected_table_is_not_removed(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    location = server.add_table(("n",), "t", protected=True)
    with pytest.raises(err.PermissionDeniedError, match="protected"):
        await ns.deregister_table(["n", "t"])
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


async def test_credentials_come_with_the_table_and_only_if_they_are_requested() -> None:
    vends = [{"prefix": "s3://bucket/lake", "config": KEYS}]
    with FakeLakekeeper(vends=vends, load_config={"s3.region": "eu-central-1"}) as server:
        server.add_table(("n",), "t")
        async with connect(server) as ns:
            assert (await describe(ns, "n", "t")).storage_options is None
            options = (await describe(ns, "n", "t", vend=True)).storage_options
        assert options == {
            "aws_access_key_id": "id",
            "aws_secret_access_key": "secret",
            "aws_session_token": "token",
            "aws_region": "eu-central-1",
        }
        headers = [request.headers.get("X-Iceberg-Access-Delegation") for request in server.requests[1:]]
        assert headers == ["client-managed", "vended-credentials"]


async def test_a_token_comes_from_the_identity_provider() -> None:
    with FakeLakekeeper(client=("me", "s3cr3t")) as server:
        server.add_table(("n",), "t")
        uri = f"{server.endpoint}/idp/token"
        async with connect(server, credential="me:s3cr3t", oauth2_server_uri=uri) as ns:
            await describe(ns, "n", "t")
        async with connect(server, auth_token="wrong") as ns:
            with pytest.raises(err.UnauthenticatedError):
                await describe(ns, "n", "t")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"credential": "me:s3cr3t"}, "give the token endpoint of the identity provider"),
        ({"subject_token": "eyJ"}, "give the token endpoint of the identity provider"),
        ({"warehouse": ""}, "warehouse"),
    ],
)
def test_settings_that_cannot_work_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(err.InvalidInputError, match=message):
        AsyncNamespace.connect("lakekeeper", {"endpoint": "http://127.0.0.1:1", "warehouse": "w", **properties})


@pytest.mark.parametrize(
    ("status", "type", "error"),
    [
        (403, "GenericTableActionForbidden", err.PermissionDeniedError),
        (404, "NoSuchNamespaceException", err.TableNotFoundError),
        (404, "GenericTableNotFound", err.TableNotFoundError),
    ],
)
async def test_type_of_an_error(
    server: FakeLakekeeper, ns: AsyncNamespace, status: int, type: str, error: type[err.LanceNamespaceError]
) -> None:
    body = {"error": {"message": "no", "type": type, "code": status}}
    server.fail(status, body=body, times=None, match="generic-tables")
    with pytest.raises(error):
        await describe(ns, "n", "t")

"""The fake Glue server: errors, slow responses and broken connections on demand."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

from tests.fakes.faults import When
from tests.fakes.glue import FakeGlue
from tests.fakes.glue.clients import Clients, code


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(stack)


@pytest.fixture
def server() -> Iterator[FakeGlue]:
    with FakeGlue() as running:
        yield running


@pytest.fixture
async def client(server: FakeGlue, clients: Clients) -> Any:
    return await clients(server)


async def outcome(call: Any) -> str:
    """Returns the error code of a call; empty if it succeeded."""
    try:
        await call
    except ClientError as e:
        return str(e.response["Error"]["Code"])
    return ""


async def failed(call: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as error:
        await call
    body: dict[str, Any] = error.value.response
    return body


async def test_a_fault_strikes_once_by_default(server: FakeGlue, client: Any) -> None:
    server.fail("ThrottlingException")
    body = await failed(client.get_databases())
    assert body["Error"] == {"Code": "ThrottlingException", "Message": "Rate exceeded"}
    assert body["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert await outcome(client.get_databases()) == ""
    server.fail("InternalServiceException", message="{oops}", status=500, times=2, headers={"Retry-After": "7"})
    body = await failed(client.get_databases())
    assert body["Error"] == {"Code": "InternalServiceException", "Message": "{oops}"}
    metadata = body["ResponseMetadata"]
    assert (metadata["HTTPStatusCode"], metadata["HTTPHeaders"]["retry-after"]) == (500, "7")
    assert [await outcome(client.get_databases()) for _ in range(2)] == ["InternalServiceException", ""]


async def test_a_fault_can_be_for_each_third_call_without_end(server: FakeGlue, client: Any) -> None:
    server.fail("ThrottlingException", every=3, times=None)
    outcomes = [await outcome(client.get_databases()) for _ in range(7)]
    assert outcomes == ["", "", "ThrottlingException", "", "", "ThrottlingException", ""]


async def test_an_operation_is_meant_by_all_of_its_name(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    server.fail("ThrottlingException", operation="GetDatabase", times=None)
    server.fail("OperationTimeoutException", operation=".*Catalogs?", times=None)
    assert await outcome(client.get_databases()) == ""
    assert await outcome(client.get_database(Name="db")) == "ThrottlingException"
    assert await outcome(client.get_catalogs()) == "OperationTimeoutException"
    assert await outcome(client.create_catalog(Name="a", CatalogInput={})) == "OperationTimeoutException"
    server.heal()
    assert await outcome(client.get_catalog(CatalogId=server.account + ":a")) == "EntityNotFoundException"


async def test_access_is_denied_until_healed(server: FakeGlue, client: Any, clients: Clients) -> None:
    server.deny("GetDatabases|AssumeRole")
    body = await failed(client.get_databases())
    assert body["Error"]["Code"] == "AccessDeniedException"
    assert body["Error"]["Message"].endswith("is not authorized to perform: glue:GetDatabases")
    sts = await clients(server, "sts")
    role = {"RoleArn": "arn:aws:iam::123456789012:role/reader", "RoleSessionName": "test"}
    body = await failed(sts.assume_role(**role))
    assert (body["Error"]["Code"], body["ResponseMetadata"]["HTTPStatusCode"]) == ("AccessDenied", 403)
    assert server.issued == []
    assert await code(client.get_databases()) == "AccessDeniedException"
    server.heal()
    assert await outcome(client.get_databases()) == ""
    assert await outcome(sts.assume_role(**role)) == ""


async def test_a_page_of_html_comes_instead_of_json(server: FakeGlue, client: Any) -> None:
    server.html_error("GetDatabases")
    assert await code(client.get_databases()) == "500"
    assert await outcome(client.get_databases()) == ""
    server.html_error(status=502)
    assert (await failed(client.get_databases()))["ResponseMetadata"]["HTTPStatusCode"] == 502


@pytest.mark.parametrize(("when", "kept"), [("before", []), ("after", ["db"])])
async def test_a_connection_is_cut_before_or_after_acting(
    server: FakeGlue, client: Any, when: When, kept: list[str]
) -> None:
    server.cut("CreateDatabase", when=when)
    # This is aiobotocore's error for a connection that was reset, also after the call was performed.
    with pytest.raises(EndpointConnectionError) as cut:
        await client.create_database(DatabaseInput={"Name": "db"})
    assert cut.value.kwargs["error"].errno == errno.ECONNRESET
    assert [each["Name"] for each in (await client.get_databases())["DatabaseList"]] == kept


async def test_calls_wait_side_by_side(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    with server.hold("GetDatabases") as held:
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(client.get_databases())
            await held.reached(5)
            assert (await client.get_database(Name="db"))["Database"]["Name"] == "db"
            assert (held.waiting, server.most_in_flight) == (5, 6)
            held.release()
    assert await outcome(client.get_databases()) == ""


async def test_latency_and_delays_outlast_a_client_that_waits_less(clients: Clients) -> None:
    async def answers(call: Any) -> bool:
        try:
            async with asyncio.timeout(0.1):
                await call
        except TimeoutError:
            return False
        return True

    with FakeGlue(latency=60.0) as server:
        client = await clients(server)
        assert not await answers(client.get_databases())
        server.heal()
        await client.get_databases()
        server.delay(60.0, "GetDatabases", times=1)
        await client.get_catalogs()
        assert not await answers(client.get_databases())
        await client.get_databases()
        server.reset()
        assert not await answers(client.get_databases())


async def test_reset_makes_it_as_new(server: FakeGlue, client: Any, clients: Clients) -> None:
    server.add_nested_catalog("a/b")
    server.add_database("", "db")
    await (await clients(server, "sts")).assume_role(RoleArn="arn:aws:iam::123456789012:role/r", RoleSessionName="me")
    server.fail("ThrottlingException", times=None)
    server.expire(server.properties["access_key_id"])
    server.reset()
    assert (server.calls, server.issued, server.connections) == ([], [], 0)
    assert (await client.get_databases())["DatabaseList"] == []
    assert (await client.get_catalogs())["CatalogList"] == []


async def test_a_stopped_server_refuses_connections_and_keeps_what_it_holds(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    await client.get_databases()
    endpoint = server.endpoint
    server.stop()
    with pytest.raises((EndpointConnectionError, ConnectionClosedError)):
        await client.get_databases()
    server.start()
    assert server.endpoint == endpoint
    assert len((await client.get_databases())["DatabaseList"]) == 1


async def test_after_its_block_nothing_listens_any_more(clients: Clients) -> None:
    with FakeGlue() as server:
        client = await clients(server)
    with pytest.raises(EndpointConnectionError):
        await client.get_databases()
    with pytest.raises(RuntimeError, match="inside its `with` block alone"):
        server.clear()

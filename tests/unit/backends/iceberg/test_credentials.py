"""Credentials that an Iceberg REST catalog vends: requested by a header, or at a separate endpoint."""

from __future__ import annotations

from asyncio import gather
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import time
from typing import Any

import lance_namespace.errors as err
import pytest
from lance_namespace import DescribeTableResponse

from lance_ns_async import AsyncNamespace
from tests.fakes.iceberg import MANAGED, VENDING, FakeIceberg
from tests.fakes.iceberg.catalog import NESSIE
from tests.support.errors import catch

UNTIL = "1795224088134"
KEYS = {
    "s3.access-key-id": "id",
    "s3.secret-access-key": "sesame-key",
    "s3.session-token": "sesame-token",
    "s3.session-token-expires-at-ms": UNTIL,
}
OPTIONS = {
    "aws_access_key_id": "id",
    "aws_secret_access_key": "sesame-key",
    "aws_session_token": "sesame-token",
    "expires_at_millis": UNTIL,
}
REGION, AWS_REGION = {"s3.region": "eu-west-1"}, {"aws_region": "eu-west-1"}
LOAD, ENDPOINT = "GET /v1/namespaces/a/tables/t?snapshots=refs", "GET /v1/namespaces/a/tables/t/credentials"


def entry(prefix: str = "s3://bucket", changes: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"prefix": prefix, "config": {**KEYS, **(changes or {})}}


def vending(**vends: Any) -> FakeIceberg:
    server = FakeIceberg(**vends)
    server.add_table(("a",), "t", location="s3://bucket/x/t")
    return server


@asynccontextmanager
async def connected(server: FakeIceberg, **properties: str) -> AsyncIterator[AsyncNamespace]:
    quick = {"backoff_initial": "1ms", "backoff_max": "2ms"}
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, **quick, **properties}) as ns:
        yield ns


async def described(ns: AsyncNamespace, *, vend: bool | None = True, name: str = "t") -> DescribeTableResponse:
    return await ns.describe_table(["a", name], vend_credentials=vend)


def calls(server: FakeIceberg) -> list[str]:
    return [str(request) for request in server.requests if "/config" not in request.path]


async def test_the_credentials_of_the_longest_prefix_come_with_the_table() -> None:
    far = entry("s3://bucket/", {"s3.access-key-id": "far"})
    with vending(vends=[far, entry("s3://bucket/x/t/"), entry("gs://other")], load_config=REGION) as server:
        options = {"storage.access_key_id": "configured", "storage.timeout": "60s"}
        async with connected(server, **options) as ns:
            table = await described(ns)
        assert table.storage_options == {"timeout": "60s", **AWS_REGION, **OPTIONS}
        assert table.location == "s3://bucket/x/t"
        assert calls(server) == [LOAD]
        assert server.requests[-1].headers[VENDING] == "vended-credentials"


async def test_older_servers_put_them_into_the_configuration_of_the_table() -> None:
    with vending(vends_config=KEYS, load_config=REGION) as server:
        async with connected(server) as ns:
            assert (await described(ns)).storage_options == AWS_REGION | OPTIONS


async def test_credentials_for_the_location_do_not_mix_with_those_of_the_table() -> None:
    keys = {"s3.access-key-id": "own", "s3.secret-access-key": "own"}
    with vending(vends_config=KEYS, load_config=REGION, vends=[{"prefix": "s3://", "config": keys}]) as server:
        async with connected(server) as ns:
            options = {"aws_access_key_id": "own", "aws_secret_access_key": "own"}
            assert (await described(ns)).storage_options == AWS_REGION | options


@pytest.mark.parametrize("vend", [None, False])
async def test_credentials_are_vended_only_on_request(vend: bool | None) -> None:
    with vending(vends=[entry()], renews=[entry()], load_config=KEYS) as server:
        async with connected(server) as ns:
            assert (await described(ns, vend=vend)).storage_options is None
            assert len((await ns.describe_tables([["a", "t"]])).tables) == 1
        assert calls(server) == [LOAD, LOAD]
        assert not any(VENDING in request.headers for request in server.requests)


async def test_a_property_enables_credentials_by_default() -> None:
    with vending(vends=[entry()]) as server:
        async with connected(server, vend_credentials="true") as ns:
            assert (await described(ns, vend=None)).storage_options == OPTIONS
            assert (await described(ns, vend=False)).storage_options is None
            declared = await ns.declare_table(["a", "u"], location="s3://bucket/u")
            assert declared.storage_options == OPTIONS


@pytest.mark.parametrize("vends", [{}, {"vends": []}, {"vends": [entry("s3://other")]}, {"load_config": REGION}])
async def test_a_server_that_gives_none_changes_nothing(vends: Mapping[str, Any]) -> None:
    with vending(**vends) as server:
        async with connected(server, **{"storage.timeout": "60s"}) as ns:
            assert (await described(ns)).storage_options == {"timeout": "60s"}
        assert calls(server) == [LOAD]


async def test_the_endpoint_gives_what_the_table_came_without() -> None:
    with vending(vends=[], renews=[entry()], load_config=REGION) as server:
        async with connected(server) as ns:
            assert (await described(ns)).storage_options == AWS_REGION | OPTIONS
        assert calls(server) == [LOAD, ENDPOINT]


async def test_the_endpoint_renews_what_ends_soon() -> None:
    soon = str(int(time() * 1000) + 30_000)
    near_its_end = entry(changes={"s3.session-token-expires-at-ms": soon, "s3.access-key-id": "old"})
    with vending(vends=[near_its_end], renews=[entry()], load_config=REGION) as server:
        async with connected(server) as ns:
            assert (await described(ns)).storage_options == AWS_REGION | OPTIONS
        assert calls(server) == [LOAD, ENDPOINT]


async def test_how_soon_is_a_storage_option() -> None:
    soon = str(int(time() * 1000) + 30_000)
    ending = entry(changes={"s3.session-token-expires-at-ms": soon})
    with vending(vends=[ending], renews=[entry()]) as server:
        async with connected(server, **{"storage.refresh_offset_millis": "1000"}) as ns:
            assert (await described(ns)).storage_options == OPTIONS | {
                "expires_at_millis": soon,
                "refresh_offset_millis": "1000",
            }
        assert calls(server) == [LOAD]


async def test_what_ends_soon_is_kept_if_it_cannot_be_renewed() -> None:
    soon = str(int(time() * 1000) + 30_000)
    with vending(vends=[entry(changes={"s3.session-token-expires-at-ms": soon})], renews=[entry()]) as server:
        server.fail(503, match="credentials", times=None)
        async with connected(server, max_retries="1") as ns:
            assert (await described(ns)).storage_options == OPTIONS | {"expires_at_millis": soon}
        assert calls(server) == [LOAD, ENDPOINT, ENDPOINT]


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_an_endpoint_that_gives_none_changes_nothing(status: int) -> None:
    with vending(renews=[]) as server:
        server.fail(status, match="credentials")
        async with connected(server) as ns:
            assert (await described(ns)).storage_options is None
            assert (await described(ns)).storage_options is None


@pytest.mark.parametrize(("status", "error"), [(403, err.PermissionDeniedError), (503, err.ServiceUnavailableError)])
async def test_an_endpoint_that_fails_is_reported(status: int, error: type[Exception]) -> None:
    with vending(renews=[]) as server:
        server.fail(status, match="credentials", times=None)
        async with connected(server, max_retries="0") as ns:
            await catch(error, described(ns), "on demand")


async def test_a_server_may_refuse_to_delegate_and_says_so() -> None:
    with vending(refuses_delegation=400) as server:
        async with connected(server) as ns:
            await catch(err.InvalidInputError, described(ns), "vending is not enabled")
            assert (await described(ns, vend=None)).location == "s3://bucket/x/t"


async def test_configured_options_do_where_credentials_are_forbidden() -> None:
    with vending(refuses_delegation=403) as server:
        async with connected(server) as ns:
            await catch(err.PermissionDeniedError, described(ns), "vending is not enabled")
        async with connected(server, **{"storage.timeout": "60s"}) as ns:
            assert (await described(ns)).storage_options == {"timeout": "60s"}


async def test_concurrent_requests_share_a_call() -> None:
    with vending(renews=[entry()]) as server:
        async with connected(server) as ns:
            tables = await gather(*(described(ns) for _ in range(20)))
        assert {table.storage_options["aws_access_key_id"] for table in tables if table.storage_options} == {"id"}
        assert calls(server) == [LOAD, ENDPOINT]


async def test_an_invalid_expiry_is_reported_without_secrets() -> None:
    with vending(vends=[entry(changes={"s3.session-token-expires-at-ms": "soon"})]) as server:
        async with connected(server) as ns:
            caught = await catch(err.InternalError, described(ns), "is not a number")
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("property", ["true", "false"])
async def test_versions_come_with_credentials_where_the_property_says_so(property: str, tmp_path: Path) -> None:
    with vending(vends=[entry()]) as server:
        server.add_table(("a",), "managed", properties=MANAGED, location=tmp_path.as_uri())
        async with connected(server, vend_credentials=property) as ns:
            await ns.list_table_versions(["a", "managed"], limit=1, descending=True)
        flags = [VENDING in request.headers for request in server.requests if "managed" in request.path]
        assert flags and flags == [property == "true"] * len(flags)


async def test_nessie_lists_no_endpoint_and_none_is_called() -> None:
    with FakeIceberg(NESSIE, vends=[]) as server:
        server.add_table(("a",), "t", location="s3://bucket/x/t")
        async with connected(server) as ns:
            assert (await described(ns)).storage_options is None
        assert calls(server) == [LOAD]

"""Credentials that Polaris vends for a table: requested by a header, and only if enabled."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace import DeclareTableRequest
from lance_namespace.errors import InvalidInputError

from tests.fakes.polaris import FakePolaris
from tests.support.polaris import connected, described, open_server

HEADER = "Polaris-Generic-Table-Access-Delegation"
CONFIG = {
    "s3.access-key-id": "id",
    "s3.secret-access-key": "sesame-key",
    "s3.session-token": "sesame-token",
    "s3.session-token-expires-at-ms": "1795224088134",
    "client.region": "eu-west-1",
}
OPTIONS = {
    "aws_access_key_id": "id",
    "aws_secret_access_key": "sesame-key",
    "aws_session_token": "sesame-token",
    "aws_region": "eu-west-1",
    "expires_at_millis": "1795224088134",
}


def vending(*entries: Any) -> FakePolaris:
    return FakePolaris(credential=None, vends=entries)


async def test_credentials_come_last_in_the_names_of_lance() -> None:
    near = {"prefix": "s3://bucket/x", "config": CONFIG}
    with vending({"prefix": "s3://bucket", "config": {"s3.access-key-id": "far"}}, near) as server:
        server.add_table(
            "cat", ("a",), "t", base_location="s3://bucket/x/t", properties={"aws_region": "old", "k": "v"}
        )
        options = {"storage.access_key_id": "configured", "storage.timeout": "60s"}
        async with connected(server, **options) as ns:
            result = await described(ns, "cat", "a", "t", vend=True)
        assert result.storage_options == {"timeout": "60s", "k": "v", **OPTIONS}
        assert result.properties == {"aws_region": "old", "k": "v"}
        assert server.requests[-1].headers[HEADER] == "vended-credentials"


@pytest.mark.parametrize("vend", [None, False])
async def test_credentials_are_vended_only_on_request(vend: bool | None) -> None:
    with vending({"prefix": "s3", "config": CONFIG}) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://bucket/t")
        async with connected(server) as ns:
            assert (await described(ns, "cat", "a", "t", vend=vend)).storage_options is None
            assert len((await ns.describe_tables([["cat", "a", "t"]])).tables) == 1
        assert not any(HEADER in request.headers for request in server.requests)


async def test_a_property_enables_credentials_by_default() -> None:
    with vending({"prefix": "s3", "config": CONFIG}) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://bucket/t")
        async with connected(server, vend_credentials="true") as ns:
            assert (await described(ns, "cat", "a", "t")).storage_options == OPTIONS
            assert (await described(ns, "cat", "a", "t", vend=False)).storage_options is None
            declared = await ns.declare_table(DeclareTableRequest(id=["cat", "a", "u"], location="s3://bucket/u"))
            assert declared.storage_options == OPTIONS


@pytest.mark.parametrize("configs", ["", ', "storage-access-configs": null', ', "storage-access-configs": []'])
async def test_a_server_that_gives_none_changes_nothing(configs: str) -> None:
    with open_server() as server:
        table = '{"name": "t", "format": "lance", "base-location": "s3://b/t", "properties": {"k": "v"}}'
        server.reply(f'{{"table": {table}{configs}}}')
        async with connected(server, **{"storage.timeout": "60s"}) as ns:
            result = await described(ns, "cat", "a", "t", vend=True)
        assert result.storage_options == {"timeout": "60s", "k": "v"}


async def test_credentials_for_another_place_are_not_taken() -> None:
    with vending({"prefix": "s3://other", "config": CONFIG}) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://bucket/t")
        async with connected(server) as ns:
            assert (await described(ns, "cat", "a", "t", vend=True)).storage_options is None


async def test_a_server_may_refuse_to_delegate_and_says_so() -> None:
    with FakePolaris(credential=None, refuses_delegation=True) as server:
        location = server.add_table("cat", ("a",), "t")
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match="vending is not supported"):
                await described(ns, "cat", "a", "t", vend=True)
            assert (await described(ns, "cat", "a", "t")).location == location


async def test_a_token_that_expired_is_renewed_for_these_calls_too() -> None:
    with FakePolaris(vends=[{"prefix": "s3", "config": CONFIG}]) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://bucket/t")
        async with connected(server) as ns:
            await described(ns, "cat", "a", "t")
            server.expire_tokens()
            assert (await described(ns, "cat", "a", "t", vend=True)).storage_options == OPTIONS

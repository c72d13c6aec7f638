"""Identities and headers of single requests: on the wire of one call, and nowhere else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, Call, Namespace
from lance_ns_async.calls import request_headers
from lance_ns_async.gateway import serving
from lance_ns_async.gateway.access import hash_of
from lance_ns_async.storage.opening import Opener
from tests.fakes.rest import FakeRest
from tests.fakes.server import Answer, Received
from tests.support.errors import catch
from tests.support.running import running

T = ["sales", "t"]
OWN = {"header.x-api-key": "own-key", "auth_token": "own-token"}
ANN = {"auth_token": "ann-token"}
DAY = 24 * 3_600_000


class VendingServer(FakeRest):
    """A server that vends each caller the key of its bearer token."""

    def __init__(self, *, lifetime: int = DAY) -> None:
        super().__init__()
        self.lifetime = lifetime
        """Milliseconds until the keys expire."""

    def handle(self, request: Received) -> Answer:
        expiry = str(int(time.time() * 1000) + self.lifetime)
        caller = request.headers.get("authorization", "nobody")
        self._credentials = {"aws_access_key_id": caller, "expires_at_millis": expiry}
        return super().handle(request)


def connect(server: FakeRest, **properties: str) -> AsyncNamespace:
    server.add_table(*T)
    return AsyncNamespace.connect("rest", {"uri": server.url, "backoff_initial": "0", **OWN, **properties})


@pytest.fixture
async def ns(server: FakeRest) -> AsyncIterator[AsyncNamespace]:
    async with connect(server) as connected:
        yield connected


def callers(server: FakeRest) -> list[str | None]:
    return [request.headers.get("authorization") for request in server.requests]


def vending(identity: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"id": T, "vend_credentials": True, "identity": identity}


def key(response: Any) -> str:
    return str(response.storage_options["aws_access_key_id"])


async def test_the_headers_are_those_of_one_call(server: FakeRest, ns: AsyncNamespace) -> None:
    context = {"header.X-Trace": "7", "headers.x-tenant": "north", "note": "no header"}
    await ns.describe_table(
        {"id": T, "identity": {"auth_token": "Bearer ann-token", "api_key": "ann-key"}, "context": context}
    )
    await ns.describe_table({"id": T})
    first, second = server.requests
    assert {name: first.headers.get(name) for name in ("authorization", "x-api-key", "x-trace", "x-tenant")} == {
        "authorization": "Bearer ann-token",
        "x-api-key": "ann-key",
        "x-trace": "7",
        "x-tenant": "north",
    }
    assert first.json == {"id": T} and first.path == second.path and "note" not in first.headers
    assert second.headers["authorization"] == "Bearer own-token" and second.headers["x-api-key"] == "own-key"
    assert "x-trace" not in second.headers


async def test_all_calls_of_an_operation_have_the_identity(server: FakeRest, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "t")
    server.add_table("sales", "rows", location=str(tmp_path / "t"))
    for mode in ("local", "auto"):
        async with connect(server, data_operations=mode) as ns:
            await ns.declare_table({"id": ["sales", mode], "identity": ANN})
            assert (await ns.count_table_rows({"id": ["sales", "rows"], "identity": ANN})).count == 2
            await ns.list_all_tables({"id": [], "identity": ANN})
            await ns.rename_table({"id": T, "new_table_name": "u", "identity": ANN})
            await ns.rename_table({"id": ["sales", "u"], "new_table_name": "t", "identity": ANN})
    assert set(callers(server)) == {"Bearer ann-token"}


async def test_concurrent_describes_of_two_identities_are_not_joined() -> None:
    async with running(connect, VendingServer()) as (server, ns):
        identities = [None, ANN, {"auth_token": "bob-token"}]
        with server.hold("/describe") as hold:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ns.describe_table(vending(it))) for it in identities]
                await hold.reached(3)
                hold.release()
    assert [key(task.result()) for task in tasks] == ["Bearer own-token", "Bearer ann-token", "Bearer bob-token"]


async def test_remembered_credentials_are_for_the_identity_of_the_namespace() -> None:
    async with running(connect, VendingServer()) as (server, ns):
        keys = [key(await ns.describe_table(vending(it))) for it in (None, ANN, None, ANN)]
    assert keys == ["Bearer own-token", "Bearer ann-token"] * 2
    assert callers(server) == ["Bearer own-token", "Bearer ann-token", "Bearer ann-token"]


async def test_a_remembered_error_is_for_the_identity_of_the_namespace() -> None:
    async with running(connect, VendingServer()) as (server, ns):
        server.fail(403)
        await catch(err.PermissionDeniedError, ns.describe_table(vending()))
        assert key(await ns.describe_table(vending(ANN))) == "Bearer ann-token"
        server.fail(403)
        await catch(err.PermissionDeniedError, ns.describe_table(vending(ANN)))
        await catch(err.PermissionDeniedError, ns.describe_table(vending()))
    assert callers(server) == ["Bearer own-token", "Bearer ann-token", "Bearer ann-token"]


async def test_rows_are_read_with_the_credentials_of_the_identity_alone(tmp_path: Path) -> None:
    """Lance would renew these keys with the identity of the namespace."""
    lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "t")
    async with running(connect, VendingServer(lifetime=1)) as (server, ns):
        server.add_table(*T, location=str(tmp_path / "t"))
        assert (await ns.count_table_rows({"id": T, "identity": ANN})).count == 2
    assert callers(server) == ["Bearer ann-token"]


async def test_managed_versions_need_the_identity_of_the_namespace(server: FakeRest, ns: AsyncNamespace) -> None:
    server.add_table(*T, managed_versioning=True)
    with pytest.raises(err.UnsupportedOperationError, match="with the identity of that namespace"):
        await ns.count_table_rows({"id": T, "identity": ANN})


@pytest.mark.parametrize("request_", [{"id": []}, {"id": T, "version": "one"}])
async def test_a_failed_request_leaves_none(server: FakeRest, ns: AsyncNamespace, request_: dict[str, Any]) -> None:
    await catch(err.InvalidInputError, ns.describe_table({**request_, "identity": ANN}))
    assert await ns.exists(T)
    assert [str(id) async for id in ns.iter_tables(["sales"])] == ["sales$t"]
    assert set(callers(server)) == {"Bearer own-token"}


async def test_no_secret_is_shown(server: FakeRest, ns: AsyncNamespace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    calls: list[Call] = []
    secrets = ("ann-token", "ann-key", "of-the-context")
    server.fail(403, body={"error": f"not with {' or '.join(secrets)}", "code": 15})
    with ns.observe(calls.append), pytest.raises(err.PermissionDeniedError) as caught:
        identity = {**ANN, "api_key": "ann-key"}
        await ns.describe_table({"id": T, "identity": identity, "context": {"header.x-key": "of-the-context"}})
    assert "not with *** or *** or ***" in str(caught.value)
    texts = (str(caught.value), caplog.text, repr(calls), repr(caught.value.__cause__))
    assert not [secret for secret in secrets for text in texts if secret in text]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"identity": {"auth_token": "hush\r\nx: y"}}, "identity.auth_token: a header cannot contain it"),
        ({"identity": {"api_key": "hush\n"}}, "identity.api_key: a header cannot contain it"),
        ({"identity": {"api_key": "hüsh"}}, "identity.api_key: a header cannot contain it"),
        ({"context": {"header.x": "hush\0"}}, "context 'header.x': a header cannot contain it"),
        ({"context": {"header.a\r\nb": "hush"}}, r"context 'header.a\\r\\nb': not a header"),
        ({"context": {"headers.": "hush"}}, "context 'headers.': not a header"),
        *(
            ({"context": {f"header.{name}": "hush"}}, f"context 'header.{name}': not a header")
            for name in ("Host", "Connection", "Upgrade", "Transfer-Encoding", "Content-Length", "Proxy-Authorization")
        ),
        ({"context": {"header.x": "hush", "headers.X": "hush"}}, "the header x is given twice"),
        ({"context": {"header.Authorization": "hush"}, "identity": ANN}, "the header authorization is given twice"),
    ],
)
async def test_invalid_headers(server: FakeRest, ns: AsyncNamespace, fields: dict[str, Any], problem: str) -> None:
    caught = await catch(err.InvalidInputError, ns.describe_table({"id": T, **fields}), problem)
    assert "hush" not in str(caught.value) and not server.requests


async def test_an_identity_within_a_request_is_refused(server: FakeRest) -> None:
    async with connect(server, data_operations="remote") as ns:
        query = {"k": 1, "vector": {}, "identity": ANN}
        with pytest.raises(err.UnsupportedOperationError, match="identity in a request"):
            await ns.explain_table_query_plan({"id": T, "query": query})
    assert not server.requests


async def test_a_rejected_identity_is_not_replaced_by_that_of_the_namespace() -> None:
    with FakeRest(token="right") as server:
        server.reply('{"access_token": "right", "expires_in": 3600}', match="/token")
        properties = {"uri": server.url, "credential": "id:secret", "oauth2_server_uri": f"{server.url}/token"}
        server.add_table(*T)
        async with AsyncNamespace.connect("rest", properties) as ns:
            await catch(err.UnauthenticatedError, ns.describe_table({"id": T, "identity": ANN}))
            await ns.describe_table({"id": T})
    assert callers(server)[::2] == ["Bearer ann-token", "Bearer right"]


async def test_a_signed_request_has_no_token_of_its_own(server: FakeRest) -> None:
    keys = {"rest_access_key_id": "key", "rest_secret_access_key": "secret"}
    signing = {"rest_sigv4_enabled": "true", "rest_signing_region": "eu-west-1", **keys}
    server.add_table(*T)
    async with AsyncNamespace.connect("rest", {"uri": server.url, **signing}) as ns:
        await catch(err.InvalidInputError, ns.describe_table({"id": T, "identity": ANN}), "rest_sigv4_enabled")
        await ns.describe_table({"id": T, "identity": {"api_key": "ann-key"}})
    (request,) = server.requests
    assert "x-api-key" in request.headers["authorization"] and request.headers["x-api-key"] == "ann-key"


def test_threads_of_a_sync_namespace_have_their_own_identities() -> None:
    with VendingServer() as server, Namespace("rest", {"uri": server.url, **OWN}) as ns:
        server.add_table(*T)
        tokens = [f"token-{number}" for number in range(16)]
        with ThreadPoolExecutor(16) as threads:
            keys = [*threads.map(lambda it: key(ns.describe_table(vending({"auth_token": it}))), tokens)]
        assert keys == [f"Bearer {it}" for it in tokens]
        assert key(ns.describe_table(vending())) == "Bearer own-token"


async def test_a_gateway_gives_each_request_the_rights_of_its_identity(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        f'[ann]\nsha256 = ["{hash_of("ann-token")}"]\nrights = "admin"\n'
        f'[own]\nsha256 = ["{hash_of("own-token")}"]\nrights = "read"\n'
    )
    async with (
        AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as lake,
        serving(lake, tokens=tokens) as gateway,
        AsyncNamespace.connect("rest", {"uri": gateway.url, "auth_token": "own-token"}) as ns,
    ):
        await ns.create_namespace({"id": ["sales"], "identity": ANN})
        await catch(err.PermissionDeniedError, ns.create_namespace({"id": ["other"]}), "own has the right 'read'")
        assert (await ns.list_namespaces({"id": []})).namespaces == ["sales"]


def test_datasets_for_an_identity_share_no_cache() -> None:
    opener = Opener()
    assert opener.caches() is opener.caches()
    with request_headers.scope(allowed=True):
        request_headers.use(auth_token="ann-token", api_key=None, context=None)
        assert opener.caches() is not opener.caches()

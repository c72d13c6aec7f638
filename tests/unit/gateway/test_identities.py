"""Callers with different rights at the catalog, through one gateway that uses the identity of each."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import jwt
import lance
import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.gateway import CallerNamespaces, Gateway, serving
from lance_ns_async.gateway.access import hash_of
from lance_ns_async.gateway.identities import MAX_CALLERS, Identity
from lance_ns_async.gateway.rights import Principal
from lance_ns_async.masked import MaskedText
from lance_ns_async.registry import BACKENDS
from lance_ns_async.spec.routes import BY_OPERATION, Route
from tests.fakes.http import FakeServer
from tests.fakes.oidc import FakeIssuer
from tests.fakes.rest import FakeRest
from tests.fakes.server import Answer, Received
from tests.support.gateway import Response, send_request
from tests.unit.gateway.test_explorer import Browser, address
from tests.unit.gateway.test_rights import BODIES
from tests.unit.gateway.test_watch import NEVER, watching

RULES = '[[oidc]]\nclaims = { aud = "lake" }\nrights = "admin"\ncredentials = true\n'
BODY = {
    "search_many": {"tables": ["**"], "vector": [1.0, 2.0], "k": 9},
    "watch": {"tables": ["**"], "every": None, "existing": True},
    **{name: {"k": 9, "vector": {"single_vector": [1.0, 2.0]}} for name in ("query_table", "analyze_table_query_plan")},
}
CALLERS = ("ann", "bob")
DATA = {
    *("list_namespaces", "describe_namespace", "list_tables", "list_all_tables", "describe_table", "describe_tables"),
    *("query_table", "search_many", "watch"),
}
"""Operations whose responses must have what only the caller may see, or else the test would prove nothing."""

MISSING = {name for name, it in BY_OPERATION.items() if it.path.startswith("/v1/table/{id}")}


class Deciding(FakeRest):
    """A catalog where each subject of a bearer token sees the namespace with its name and `both`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(base=folder.as_uri())
        self.callers: list[str] = []
        self.tokens: set[str] = set()
        self.audience = "lake"

    def handle(self, request: Received) -> Answer:
        """Answers as if there were only what the caller may see, with properties and credentials of the caller's."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.tokens.add(token)
        claims: dict[str, Any] = {"sub": "", "aud": []}
        if token:
            claims = jwt.decode(token, options={"verify_signature": False})
        caller = claims["sub"]
        self.callers.append(caller)
        if self.audience not in claims["aud"]:
            return Answer.of({"error": "another audience", "code": 16}, 401)
        namespaces, tables = self.namespaces, self.tables
        self._credentials = {"session": mark(caller)}
        visible, own = ("both", caller, mark(caller)), {"of": mark(caller)}
        self.namespaces = {id: own for id in namespaces if not id or id[0] in visible}
        self.tables = {id: {**it, "properties": own} for id, it in tables.items() if id[0] in visible}
        try:
            return super().handle(request)
        finally:
            self.namespaces, self.tables = {**self.namespaces, **namespaces}, {**self.tables, **tables}


def mark(caller: str) -> str:
    """Returns the text that only this caller may see."""
    return f"secret-of-{caller}"


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with FakeIssuer() as fake:
        fake.rotate("EdDSA")
        yield fake


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Deciding]:
    with Deciding(tmp_path) as server:
        for caller in CALLERS:
            server.namespaces[(mark(caller),)] = {}
            for table in ("t", mark(caller)):
                server.add_table(caller, table, location=(tmp_path / mark(caller) / table).as_uri())
                vector = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
                rows = pa.table({"a": [mark(caller)], "vector": vector})
                lance.write_dataset(rows, str(tmp_path / mark(caller) / table))
        server.add_table("both", "t")
        yield server


@dataclass
class Serving:
    """A gateway for callers with their own identities."""

    gateway: Gateway
    callers: CallerNamespaces
    issuer: FakeIssuer
    catalog: Deciding
    tokens: dict[str, str]

    def token(self, caller: str) -> str:
        return self.tokens.get(caller) or self.tokens.setdefault(caller, self.issuer.sign(sub=caller))

    async def ask(self, caller: str, method: str, target: str, body: Any = None, **headers: str) -> Response:
        headers = {"Authorization": f"Bearer {self.token(caller)}", **headers}
        return await send_request(self.gateway, method, target, body, headers, token=False)

    async def call(self, caller: str, route: Route, id: str, **headers: str) -> Response:
        namespace = "$" if route.operation == "list_namespaces" else id.partition("$")[0]
        path = route.path.replace("/namespace/{id}", f"/namespace/{namespace}").replace("{id}", id)
        body = BODY.get(route.operation, BODIES.get(route.operation, {}))
        if route.operation == "describe_tables":
            body = {"names": ["t", mark(caller)], "vend_credentials": True}
        elif route.operation == "describe_table":
            body = {"vend_credentials": True}
        target = path.replace("{index_name}", "i")
        if route.body == "rows":
            return await self.ask(caller, route.method, f"{target}?on=a", b"", **headers)
        return await self.ask(caller, route.method, target, None if route.method == "GET" else body, **headers)


@pytest.fixture(params=["forward", "exchange"])
async def served(
    request: pytest.FixtureRequest, issuer: FakeIssuer, catalog: Deciding, tmp_path: Path
) -> AsyncIterator[Serving]:
    async with serve(request.param, issuer, catalog, tmp_path) as it:
        yield it


@asynccontextmanager
async def serve(
    identity: Identity, issuer: FakeIssuer, catalog: Deciding, folder: Path, mount: str = "", **options: Any
) -> AsyncIterator[Serving]:
    """Serves the catalog; its own credentials are in the properties, but nobody may use them."""
    file = folder / "tokens.toml"
    file.write_text(f'[opaque]\nrights = "admin"\nsha256 = ["{hash_of("opaque")}"]\n{RULES}')
    properties = {"uri": catalog.endpoint, "max_retries": "0"}
    if identity == "exchange":
        catalog.audience = "catalog"
        properties |= {"oauth2_server_uri": issuer.token_endpoint, "credential": "gateway:client-secret"}
    else:
        properties |= {"auth-token": issuer.sign(sub="ann")}
    oidc: dict[str, Any] = {"oidc_issuer": issuer.issuer, "audience": "lake", "oidc_client_id": issuer.client}
    async with (
        CallerNamespaces({mount: ("rest", properties)}, identity, **options) as callers,
        serving(callers, tokens=file, token="owner", ui=True, grace=1, **oidc) as gateway,
    ):
        issuer.redirect_uris.add(f"{gateway.url}/ui/callback")
        yield Serving(gateway, callers, issuer, catalog, {})


async def test_no_operation_shows_what_only_another_caller_may_see(served: Serving) -> None:
    """Each caller asks for what is its own, what both may see, and what is another's; also at the same time."""
    before = dict(served.catalog.tables)
    for route in BY_OPERATION.values():
        own = [(caller, id) for caller in CALLERS for id in (f"{caller}$t", f"{caller}${mark(caller)}", "both$t")]
        # Changes are tried only on what is another's, so that nothing changes.
        steps = [*(() if route.changes else own), ("ann", "bob$t"), ("bob", "ann$t"), ("ann", "bob$t")]
        responses = []
        for caller, id in steps:
            served.catalog.callers.clear()
            responses.append(await served.call(caller, route, id))
            assert {*served.catalog.callers} <= {caller}, route
        responses += await asyncio.gather(*(served.call(caller, route, id) for caller, id in steps))
        for (caller, id), response in zip(2 * steps, responses, strict=True):
            assert not any(mark(it).encode() in response.body for it in CALLERS if it != caller), (route, caller, id)
            namespace = id.partition("$")[0]
            if route.operation in DATA and namespace == caller:
                assert response.status == 200 and mark(caller).encode() in response.body, (route, id, response)
            elif route.operation in MISSING and namespace not in (caller, "both"):
                assert response.status >= 400, (route, caller, id, response)
    assert served.catalog.tables == before


async def test_no_order_of_calls_at_once_shows_what_only_another_caller_may_see(served: Serving) -> None:
    choose = Random(58)
    routes = [route for route in BY_OPERATION.values() if not route.changes]
    for _ in range(30):
        callers = choose.choices(CALLERS, k=16)
        ids = [choose.choice((f"{it}${mark(it)}", "ann$t", "bob$t", "both$t")) for it in callers]
        calls = [(it, choose.choice(routes), id) for it, id in zip(callers, ids, strict=True)]
        responses = await asyncio.gather(*(served.call(*call) for call in calls))
        for call, response in zip(calls, responses, strict=True):
            assert not any(mark(it).encode() in response.body for it in CALLERS if it != call[0]), call


async def test_etags_and_vended_credentials_are_those_of_the_caller(served: Serving) -> None:
    describe = BY_OPERATION["describe_table"]
    ann = await served.call("ann", describe, "both$t")
    tag = {"If-None-Match": ann.headers["etag"]}
    assert (await served.call("ann", describe, "both$t", **tag)).status == 304
    bob = await served.call("bob", describe, "both$t", **tag)
    assert bob.status == 200 and bob.headers["etag"] != ann.headers["etag"]
    for caller, response in (("ann", ann), ("bob", bob)):
        assert response.json["storage_options"]["session"] == response.json["properties"]["of"] == mark(caller)


async def test_concurrent_calls_of_callers_are_never_one(served: Serving) -> None:
    """Calls of one caller may be coalesced; those of two callers wait at the catalog at the same time."""
    count = BY_OPERATION["count_table_rows"]
    for caller in CALLERS:
        await served.call(caller, count, "both$t")
    served.catalog.callers.clear()
    with served.catalog.hold("describe") as hold:
        tasks = [asyncio.create_task(served.call(caller, count, "both$t")) for caller in (*CALLERS, *CALLERS)]
        await hold.reached(2)
        hold.release()
        await asyncio.gather(*tasks)
    assert {*served.catalog.callers} == {*CALLERS}


async def test_pages_of_the_explorer_are_those_of_the_caller(served: Serving) -> None:
    for caller, other in (CALLERS, CALLERS[::-1]):
        browser = Browser(served.gateway)
        async with browser.client:
            served.issuer.user = {"sub": caller}
            page = await browser.client.get("/ui/sign-in/oidc", follow_redirects=True)
            assert "Continue to the page" in page.text
            served.catalog.callers.clear()
            pages = [
                await browser.get(path)
                for path in (
                    *("/ui", address("namespace", other), address("table", other, "t"), "/ui/search?q=secret"),
                    *(address("table", caller, "t"), address("table", "both", "t"), "/ui/dropped"),
                    f"/ui/sql?q=select * from {other}.t",
                )
            ]
            text = "".join(page.text for page in pages)
            assert mark(caller) in text and mark(other) not in text and {*served.catalog.callers} == {caller}
            # Folders in the storage would show what others have dropped.
            assert "no root" in pages[6].text


async def test_tokens_of_the_gateway_itself_never_reach_the_catalog(
    served: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for token in ("owner", "opaque"):
        served.tokens[token] = token
        response = await served.call(token, BY_OPERATION["list_namespaces"], "$")
        assert (response.status, response.code) == (403, 15) and "identity provider" in response.json["error"]
        assert (await served.ask(token, "GET", "/metrics")).status == 200
    assert served.catalog.tokens == set()
    assert (await served.ask("ann", "GET", "/ready")).status == 200 and served.catalog.tokens == {""}
    await served.call("ann", BY_OPERATION["describe_table"], "ann$t")
    own, token = served.catalog.tokens - {""}, served.token("ann")
    # The names of callers are only in the metrics for clients that are no callers.
    metrics = [(await served.ask(it, "GET", "/metrics")).body.decode() for it in ("ann", "opaque")]
    assert ["oidc:ann" in it for it in metrics] == [False, True]
    assert "lance_ns_call_duration_seconds_count{" in metrics[0]
    if served.issuer.forms:
        # The catalog gets the token of the exchange, with the gateway as the client; one exchange serves many calls.
        form = served.issuer.forms[0]
        assert (form["subject_token"], form["client_secret"]) == (token, "client-secret") and token not in own
        await served.call("ann", BY_OPERATION["describe_table"], "ann$t")
        assert len(served.issuer.forms) == len(own) == 1
    else:
        assert own == {token}
    # A new token replaces the old one at once.
    served.tokens["ann"] = served.issuer.sign(sub="ann", jti="2")
    await served.call("ann", BY_OPERATION["describe_table"], "ann$t")
    assert len(served.catalog.tokens - {""}) == 2 == len(served.callers)
    shown = caplog.text + repr(served.callers)
    assert not any(it and it in shown for it in (*served.catalog.tokens, token, "client-secret"))


async def test_a_token_that_the_catalog_refuses_is_an_error_of_its_caller(served: Serving) -> None:
    served.catalog.audience = "another"
    response = await served.call("ann", BY_OPERATION["list_namespaces"], "$")
    assert (response.status, response.code) == (401, 16) and served.token("ann") not in response.json["error"]
    assert (await served.ask("ann", "GET", "/ready")).status == 200


async def test_locations_and_folders_that_may_belong_to_others_are_refused(served: Serving) -> None:
    location = served.catalog.tables["bob", "t"]["location"]
    for place in (location, f"{mark('bob')}/t"):
        response = await served.ask("ann", "POST", "/v1/table/ann$mine/register", {"location": place})
        assert response.status == 403 and ("ann", "mine") not in served.catalog.tables
    response = await served.ask("ann", "POST", "/v1/table/ann$new/declare", {})
    assert response.status == 200 and ("ann", "new") in served.catalog.tables


async def test_many_callers_share_a_bounded_number_of_namespaces(
    issuer: FakeIssuer, catalog: Deciding, tmp_path: Path
) -> None:
    describe = BY_OPERATION["describe_table"]
    async with serve("forward", issuer, catalog, tmp_path) as it:
        names = [f"user{i}" for i in range(300)]
        for name in (*names, names[0]):
            response = await it.call(name, describe, "both$t")
            assert response.json["properties"] == {"of": mark(name)}
        assert len(it.callers) == MAX_CALLERS


async def test_a_namespace_in_use_is_not_closed_and_an_idle_one_is(
    issuer: FakeIssuer, catalog: Deciding, tmp_path: Path
) -> None:
    describe = BY_OPERATION["describe_table"]
    async with serve("forward", issuer, catalog, tmp_path, most=1, idle=0.01) as it:
        with catalog.hold() as hold:
            task = asyncio.create_task(it.call("ann", describe, "both$t"))
            await hold.reached()
            response = await it.call("bob", describe, "both$t")
            assert response.status == 503 and "Retry-After".lower() in response.headers and len(it.callers) == 1
            hold.release()
            assert (await task).status == 200
        async with watching(it.gateway, it.token("ann"), every=NEVER, existing=True) as stream:
            assert json.loads((await stream.block()).partition("data: ")[2])["token"]
            assert (await it.call("bob", describe, "both$t")).status == 503
        async with asyncio.timeout(10):
            while it.gateway.watches.count:  # noqa: ASYNC110 - the gateway notices that the client has left
                await asyncio.sleep(0)
        assert (await it.call("bob", describe, "both$t")).status == 200
        async with asyncio.timeout(10):
            while len(it.callers):  # noqa: ASYNC110 - nothing tells that a namespace is closed
                await asyncio.sleep(0)
        assert (await it.call("bob", describe, "both$t")).status == 200


async def test_mounted_catalogs_have_the_identity_of_the_caller(
    issuer: FakeIssuer, catalog: Deciding, tmp_path: Path
) -> None:
    async with serve("forward", issuer, catalog, tmp_path, mount="lake") as it:
        for caller in CALLERS:
            tables = (await it.ask(caller, "GET", "/v1/table")).json["tables"]
            assert {*tables} == {f"lake${caller}${mark(caller)}", f"lake${caller}$t", "lake$both$t"}


class Recording(FakeServer):
    """A server that refuses all requests, and records their credentials."""

    def __init__(self) -> None:
        super().__init__()
        self.credentials: set[str | None] = set()

    def handle(self, request: Received) -> Answer:
        self.credentials.add(request.headers.get("authorization"))
        return Answer.of({"error": {"message": "no", "type": "Forbidden", "code": 403}}, 403)


@pytest.mark.parametrize("impl", BACKENDS)
async def test_each_catalog_with_bearer_tokens_gets_those_of_callers(impl: str) -> None:
    ann = Principal("oidc:ann", token=MaskedText("a.b.c"))
    with Recording() as server:
        own = {"auth_token": "own", f"{impl}.auth-token": "own"} if impl == "iceberg" else {"auth_token": "own"}
        properties = {**BACKENDS[impl].example, **own}
        properties |= {name: server.endpoint for name in ("endpoint", "uri") if name in properties}
        if impl in ("dir", "glue", "hive2", "hive3"):
            with pytest.raises(InvalidInputError, match=f"identity forward: {impl} takes no bearer tokens"):
                CallerNamespaces({"": (impl, properties)}, "forward")
            return
        async with CallerNamespaces({"": (impl, properties)}, "forward") as callers:
            with callers.use(ann) as namespace, pytest.raises(LanceNamespaceError):
                await namespace.describe_table(DescribeTableRequest(id=["main", "a", "t"]))
        assert server.credentials == {"Bearer a.b.c"}


ENDPOINT = {"oauth2_server_uri": "https://id.example.com/token"}


@pytest.mark.parametrize(
    ("impl", "identity", "properties", "message"),
    [
        ("rest", "forward", {"header.Authorization": "Bearer x"}, "header.Authorization would be sent for all callers"),
        ("rest", "exchange", {"header.x-api-key": "x", **ENDPOINT}, "header.x-api-key would be sent for all callers"),
        ("iceberg", "forward", {"rest.sigv4-enabled": "true"}, "rest.sigv4-enabled signs all calls with one key"),
        ("rest", "exchange", {}, "identity exchange: rest properties: subject_token: give the address of the token"),
        ("rest", "forward", {"unknown": "x"}, "unknown"),
    ],
)
def test_other_identities_are_refused_at_the_start(
    impl: str, identity: Identity, properties: Mapping[str, str], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CallerNamespaces({"": (impl, {**BACKENDS[impl].example, **properties})}, identity)


async def test_callers_need_an_issuer() -> None:
    async with CallerNamespaces({"": ("rest", BACKENDS["rest"].example)}, "forward") as callers:
        with pytest.raises(InvalidInputError, match="set oidc_issuer"):
            await AsyncExitStack().enter_async_context(serving(callers))

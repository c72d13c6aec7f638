"""Signing in with bearer tokens: by a command, a callable, a provider, and exchange; and requests signed by SigV4."""

from __future__ import annotations

import pickle
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import lance_namespace
import lance_namespace.errors as err
import pytest
from lance_namespace import DescribeTableRequest

from lance_ns_async import AsyncNamespace, IcebergNamespace, Namespace
from lance_ns_async.calls.observers import Call
from lance_ns_async.settings import TokenFunction
from tests.fakes.http import FakeServer
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.fakes.sigv4 import FakeSts, Signatures
from tests.fakes.tokens import EXCHANGE, FakeIdentityProvider, Tokens
from tests.fakes.unity import FakeUnity
from tests.support.errors import catch
from tests.support.running import running

TYPE = "urn:ietf:params:oauth:token-type"
QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}
CREDENTIAL = "me:hush-hush"


@dataclass
class Site:
    """A catalog with a table, which accepts the tokens that `mint` returns until `expire` is called."""

    impl: str
    server: FakeServer
    properties: dict[str, str]
    id: list[str]
    mint: Callable[[], str]
    expire: Callable[[], None]
    minted: list[str] = field(default_factory=list)

    def token(self) -> str:
        self.minted.append(self.mint())
        return self.minted[-1]

    @asynccontextmanager
    async def connected(self, token: TokenFunction | None = None, /, **more: str) -> AsyncIterator[AsyncNamespace]:
        options = {**self.properties, **QUICK, **more}
        async with AsyncNamespace.connect(self.impl, options, token=token) as ns:
            yield ns

    async def describe(self, ns: AsyncNamespace) -> None:
        await ns.describe_table(self.id)


def iceberg() -> Site:
    server, numbers = FakeIceberg(client=("nobody", "but us")), count()
    server.add_table(("a",), "t")

    def mint() -> str:
        token = f"token-of-iceberg-{next(numbers)}"
        server.tokens.accept(token)
        return token

    return Site("iceberg", server, {}, ["a", "t"], mint, server.expire_tokens)


def polaris() -> Site:
    server = FakePolaris()
    server.add_table("cat", ("a",), "t")
    return Site("polaris", server, {}, ["cat", "a", "t"], server.token, server.expire_tokens)


def unity() -> Site:
    server, numbers = FakeUnity(authorization=[]), count()
    server.add_table("main", "a", "t")

    def mint() -> str:
        token = f"token-of-unity-{next(numbers)}"
        server.allow(token, "main.a.t")
        return token

    return Site("unity", server, {"catalog": "main"}, ["main", "a", "t"], mint, server.expire_tokens)


@pytest.fixture(params=[iceberg, polaris, unity], ids=lambda made: made.__name__)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    made: Site = request.param()
    with made.server:
        made.properties["endpoint"] = made.server.url
        yield made


async def test_a_command_signs_in_and_runs_again_after_a_rejection(site: Site, tmp_path: Path) -> None:
    runs = tmp_path / "token.runs"
    (file := tmp_path / "token").write_text(site.token())
    code = "import sys; print(open(sys.argv[1]).read()); open(sys.argv[1] + '.runs', 'a').write('x')"
    (script := tmp_path / "sign in.py").write_text(code)
    command = f"'{sys.executable}' '{script}' '{file}'"
    async with site.connected(auth_command=command) as ns:
        await site.describe(ns)
        site.expire()
        file.write_text(site.token())
        async with anyio.create_task_group() as group:
            for _ in range(64):
                group.start_soon(site.describe, ns)
        assert runs.read_text() == "xx"
        site.expire()
        raised = await catch(err.UnauthenticatedError, site.describe(ns))
        assert runs.read_text() == "xxx"
        shown = f"{ns!r} {raised.value}"
    assert not any(token in shown for token in site.minted)


@pytest.mark.parametrize("site", [polaris], indirect=True)
async def test_polaris_needs_the_id_for_a_secret_in_a_file(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for content, more in (("s3cr3t", {"client_id": "root"}), ("root:s3cr3t", {}), ("s3cr3t", {})):
        file.write_text(content)
        async with site.connected(client_secret_file=str(file), **more) as ns:
            if more or ":" in content:
                await site.describe(ns)
            else:
                await catch(err.InvalidInputError, site.describe(ns), f"client_secret_file '{file}': .* set client_id")


async def test_a_token_in_a_file_is_read_again(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    file = tmp_path / "token"

    def rotate() -> None:
        site.expire()
        (tmp_path / "next").write_text(f"Bearer {site.token()}\n")
        (tmp_path / "next").replace(file)

    async with site.connected(auth_token_file=str(file)) as ns:
        await catch(err.InvalidInputError, site.describe(ns), rf"auth_token_file '{file}': No such file")
        id = ns.namespace_id()
        for _ in range(2):
            rotate()
            async with anyio.create_task_group() as group:
                for _ in range(64):
                    group.start_soon(site.describe, ns)
        for replace in (file.unlink, lambda: file.write_text("")):
            replace()
            await site.describe(ns)
        rotate()
        await site.describe(ns)
        site.expire()
        before = len(site.server.requests)
        raised = await catch(err.UnauthenticatedError, site.describe(ns), "is auth_token_file right")
        assert len(site.server.requests) == before + 1 and ns.namespace_id() == id
    shown = f"{ns!r} {id} {raised.value} {caplog.text}"
    assert not any(token in shown for token in site.minted)


async def test_a_failing_command_says_why(site: Site) -> None:
    code = "import sys; sys.exit('Please run az login')"
    async with site.connected(auth_command=[sys.executable, "-c", code]) as ns:  # type: ignore[arg-type]
        await catch(err.UnauthenticatedError, site.describe(ns), r"fetch_token: auth_command .* 1: Please run az login")
    assert not site.server.requests


async def test_a_callable_signs_in_and_is_called_once_for_all(site: Site) -> None:
    calls: list[Call] = []
    async with site.connected(lambda: (site.token(), 3600)) as ns:
        with ns.observe(calls.append):
            async with anyio.create_task_group() as group:
                for _ in range(64):
                    group.start_soon(site.describe, ns)
        assert len(site.minted) == 1
        site.expire()
        async with anyio.create_task_group() as group:
            for _ in range(64):
                group.start_soon(site.describe, ns)
        shown = f"{ns!r} {ns.namespace_id()} {calls}"
    assert len(site.minted) == 2 and not any(token in shown for token in site.minted)
    assert [call.operation for call in calls].count("fetch_token") == 1


async def test_an_identity_provider_issues_the_tokens(site: Site) -> None:
    with FakeIdentityProvider(Tokens()) as provider:

        def answer_next() -> None:
            body = f'{{"access_token": "{site.token()}", "expires_in": 3600}}'
            provider.reply(body, match="POST /token")

        uri = f"{provider.url}/token"
        headers = {"header.X-Gateway": "hush-gate"}
        ways = {"credential": CREDENTIAL, "oauth2_server_uri": uri, "audience": "catalog", "scope": "all"}
        answer_next()
        async with site.connected(**ways, **headers) as ns:
            await site.describe(ns)
            site.expire()
            answer_next()
            await site.describe(ns)
            provider.fail(400, body={"error": "invalid_client"}, match="POST /token")
            site.expire()
            await catch(err.UnauthenticatedError, site.describe(ns), "HTTP 400: invalid_client")
        form = provider.requests[0].body.decode()
        assert "audience=catalog" in form and "scope=all" in form and "client_id=me" in form
        assert all("X-Gateway" not in request.headers for request in provider.requests)
        async with site.connected(**{**ways, "oauth2_server_uri": f"{provider.url}/tokn"}) as ns:
            await catch(err.InvalidInputError, site.describe(ns), r"no such page .*/tokn\); is oauth2_server_uri right")
        async with site.connected(**{**ways, "oauth2_server_uri": "http://127.0.0.1:1"}, max_retries="0") as ns:
            await catch(err.LanceNamespaceError, site.describe(ns), "is oauth2_server_uri right and the server up")


@pytest.mark.parametrize("status", [401, 419])
@pytest.mark.parametrize("impl", ["iceberg", "polaris"])
async def test_credentials_are_exchanged_once_for_all(impl: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    calls: list[Call] = []
    server: Any
    if impl == "iceberg":
        server = FakeIceberg(client=("me", "hush-hush"), expired_status=status, expires_in=3600)
        ids = [["a", name] for name in server.add_lance_tables(("a",), 200)]
    else:
        server = FakePolaris(credential=("me", "hush-hush"))
        ids = [["cat", "a", name] for name in server.add_lance_tables("cat", ("a",), 200)]

    def expire_half_way(finished: int, total: int) -> None:
        if finished == 100:
            server.expire_tokens()

    with server:
        options = {"endpoint": server.endpoint, "credential": CREDENTIAL, "scope": "PRINCIPAL_ROLE:ALL", **QUICK}
        async with AsyncNamespace.connect(impl, {**options, "max_in_flight": "32"}) as ns:
            with ns.observe(calls.append):
                assert len((await ns.describe_tables(ids, progress=expire_half_way)).raise_for_errors().tables) == 200
            shown = f"{ns!r} {ns.namespace_id()} {calls} {caplog.text}"
            assert "me" in ns.namespace_id() and "hush" not in shown and "Bearer" not in shown
        assert server.tokens.scopes == ["PRINCIPAL_ROLE:ALL"] * 2 and calls[0].operation == "fetch_token"
        assert [call.operation for call in calls].count("fetch_token") == 2
        assert len(server.requests) <= 200 + 3 + 32
        async with AsyncNamespace.connect(impl, {**options, "credential": "me:wr0ng"}) as ns:
            errors = (await ns.describe_tables(ids[:20])).errors.values()
            assert len(errors) == 20 and all(isinstance(error, err.UnauthenticatedError) for error in errors)
            assert all("wr0ng" not in str(error) for error in errors)
            message = "fetch_token: HTTP 401: (invalid_client|unauthorized_client)"
            await catch(err.UnauthenticatedError, ns.describe_table(ids[0]), message)


async def test_iceberg_exchanges_a_token_and_renews_by_refresh_tokens() -> None:
    subject = "hush-subject"
    with FakeIceberg(client=("me", "hush-hush"), subjects=[subject], refreshes=True, expires_in=3600) as server:
        server.add_table(("a",), "t")
        properties = {f"{TYPE}:id_token": subject, "endpoint": server.endpoint, **QUICK}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.describe_table(["a", "t"])
            server.expire_tokens()
            async with anyio.create_task_group() as group:
                for _ in range(64):
                    group.start_soon(ns.describe_table, {"id": ["a", "t"]})
            server.expire_tokens()
            server.tokens.revoke_refresh_tokens()
            await ns.describe_table(["a", "t"])
            grants = [EXCHANGE, "refresh_token", "refresh_token", EXCHANGE]
            assert [form["grant_type"] for form in server.tokens.forms] == grants
            server.tokens.subjects.clear()
            server.tokens.revoke_refresh_tokens()
            server.expire_tokens()
            with pytest.raises(err.UnauthenticatedError, match="is subject_token still valid") as raised:
                await ns.describe_table(["a", "t"])
            assert "hush" not in f"{raised.value} {ns!r}" and "refresh-token-" not in str(raised.value)
        first = {"grant_type": EXCHANGE, "subject_token": subject, "subject_token_type": f"{TYPE}:id_token"}
        assert server.tokens.forms[0] == {**first, "scope": "catalog"}


async def test_polaris_exchanges_its_own_tokens() -> None:
    with FakePolaris(realm="north") as server:
        server.add_table("cat", ("a",), "t")
        properties = {"endpoint": server.endpoint, "realm": "north", "subject_token": server.token(), **QUICK}
        async with AsyncNamespace.connect("polaris", properties) as ns:
            await ns.describe_table(["cat", "a", "t"])
        assert server.tokens.scopes == ["PRINCIPAL_ROLE:ALL"]
        async with AsyncNamespace.connect("polaris", {**properties, "realm": "south"}) as ns:
            with pytest.raises(err.InternalError, match=r"fetch_token: HTTP 404.*the property realm right") as raised:
                await ns.describe_table(["cat", "a", "t"])
        assert "oauth2_server_uri" not in str(raised.value)
        # The same server as an Iceberg REST catalog.
        properties = {"endpoint": f"{server.endpoint}/api/catalog", "credential": "root:s3cr3t", **QUICK}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            with pytest.raises(err.InvalidInputError, match=r"realm; is the property header.Polaris-Realm right"):
                await ns.describe_table(["a", "t"])


@pytest.mark.parametrize("path", ["", "/api/2.1/unity-catalog"])
async def test_unity_exchanges_the_token_of_an_identity_provider(path: str) -> None:
    with FakeUnity(authorization=[]) as server:
        server.add_table("main", "a", "t")
        server.subjects.add("hush-subject")
        exchange = {"subject_token": "hush-subject", "subject_token_type": "id_token"}
        properties = {"endpoint": f"{server.url}{path}", "catalog": "main", **exchange, **QUICK}
        async with AsyncNamespace.connect("unity", properties) as ns:
            await ns.describe_table(["main", "a", "t"])
            server.expire_tokens()
            server.subjects.clear()
            with pytest.raises(err.UnauthenticatedError, match=r"Invalid subject token.*is subject_token still valid"):
                await ns.describe_table(["main", "a", "t"])
        assert server.token_forms[0] == {
            "grant_type": EXCHANGE,
            "subject_token": "hush-subject",
            "subject_token_type": f"{TYPE}:id_token",
            "requested_token_type": f"{TYPE}:access_token",
        }
        message = "credential: give oauth2_server_uri with it"
        with pytest.raises(err.InvalidInputError, match=message):
            AsyncNamespace.connect("unity", {"endpoint": server.url, "catalog": "main", "credential": CREDENTIAL})


async def test_a_catalog_without_a_token_endpoint_says_what_to_set() -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "credential": CREDENTIAL, "header.X-Gateway": "west", **QUICK}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            for status in (404, 405):
                server.fail(status, match="oauth")
                with pytest.raises(err.InvalidInputError, match="has oauth2_server_uri to name the token") as raised:
                    await ns.describe_table(["a", "t"])
                assert "hush" not in str(raised.value)
        # A gateway in front of the catalog may require its header on this call, too.
        assert server.requests[0].headers["X-Gateway"] == "west"


def token_of_a_module() -> str:
    """Returns a token; a callable that can be pickled."""
    return "sesame-token"


def test_sync_namespaces_take_callables_and_are_pickled_with_them() -> None:
    with FakeIceberg(token="sesame-token") as server:
        server.add_table(("a",), "t")
        request = DescribeTableRequest(id=["a", "t"])
        with IcebergNamespace(endpoint=server.endpoint, token=token_of_a_module) as ns:
            assert ns.describe_table(request).location
            assert "sesame" not in f"{ns!r}"
            with pickle.loads(pickle.dumps(ns)) as copy:
                assert copy.describe_table(request).location
                assert copy.namespace_id() == ns.namespace_id()
        properties = {"endpoint": server.endpoint, "token": token_of_a_module}
        connected = lance_namespace.connect("lance_ns_async.IcebergNamespace", properties)  # type: ignore[arg-type]
        assert connected.describe_table(request).location
        with Namespace.connect("iceberg", {"endpoint": server.endpoint}, token=lambda: "sesame-token") as ns:
            assert ns.describe_table(request).location
            with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
                pickle.dumps(ns)


def test_pickles_contain_the_path_of_a_token(tmp_path: Path) -> None:
    (file := tmp_path / "token").write_text("sesame-token\n")
    with FakeIceberg(token="sesame-token") as server:
        server.add_table(("a",), "t")
        with IcebergNamespace(endpoint=server.endpoint, auth_token_file=file) as ns:
            assert ns.describe_table(["a", "t"]).location
            pickled = pickle.dumps(ns)
            assert str(file).encode() in pickled and b"sesame" not in pickled
            with pickle.loads(pickled) as copy:
                assert copy.describe_table(["a", "t"]).location


def test_sync_namespaces_run_commands_in_their_background_loop() -> None:
    with FakeIceberg(token="sesame-token") as server:
        server.add_table(("a",), "t")
        command = f"'{sys.executable}' -c 'print(\"sesame-token\")'"
        with IcebergNamespace(endpoint=server.endpoint, auth_command=command) as ns:
            assert ns.describe_table(["a", "t"]).location
            with pickle.loads(pickle.dumps(ns)) as copy:
                assert copy.describe_table(["a", "t"]).location


def test_callables_of_different_principals_have_different_ids() -> None:
    @dataclass
    class Source:
        secret: str = field(repr=False)

        def token(self) -> str:
            return self.secret

    def id_of(token: TokenFunction) -> str:
        return AsyncNamespace.connect("iceberg", {"endpoint": "http://127.0.0.1"}, token=token).namespace_id()

    one, other = Source("hush"), Source("shush")
    assert id_of(one.token) == id_of(one.token) != id_of(other.token)


@pytest.mark.parametrize(
    ("impl", "properties", "message"),
    [
        ("iceberg", {"endpoint": "http://127.0.0.1", "auth_token": "t"}, "auth_token and token: set one of them"),
        ("iceberg", {"endpoint": "http://127.0.0.1", "token": "hush"}, "token: given twice"),
        ("dir", {"root": "lake"}, "token: unknown"),
    ],
)
def test_a_callable_that_does_not_fit_is_refused(impl: str, properties: dict[str, str], message: str) -> None:
    with pytest.raises(err.InvalidInputError, match=message) as raised:
        Namespace.connect(impl, properties, token=token_of_a_module)
    assert "hush" not in str(raised.value)


KEY, SECRET = "AKIDEXAMPLE", "sesame-secret"
ARN = "arn:aws:iam::123456789012:role/catalog"


def signing(**options: Any) -> FakePolaris:
    server = FakePolaris(base="s3://lake", **{"credential": None, "signatures": Signatures(), **options})
    server.add_namespace("lake", ("a",))
    server.add_table("lake", ("a",), "t")
    return server


@asynccontextmanager
async def connect_signing(server: FakePolaris | FakeIceberg, **more: str) -> AsyncIterator[AsyncNamespace]:
    usual = {
        "endpoint": server.endpoint,
        "rest.sigv4-enabled": "true",
        "rest.signing-region": "eu-central-1",
        "rest.access-key-id": KEY,
        "rest.secret-access-key": SECRET,
        **QUICK,
    }
    impl = "polaris" if isinstance(server, FakePolaris) else "iceberg"
    async with AsyncNamespace.connect(impl, {**usual, **more}) as ns:
        yield ns


async def describe_signed(ns: AsyncNamespace, *id: str) -> None:
    await ns.describe_table(list(id or ("lake", "a", "t")))


async def test_a_token_of_polaris_is_sent_beside_the_signature() -> None:
    server = signing(credential=("me", "s3cret"), realm="north")
    async with running(connect_signing, server, credential="me:s3cret", realm="north") as (server, ns):
        await describe_signed(ns)
        server.expire_tokens()
        await describe_signed(ns)
        always = {"host", "original-authorization", "polaris-realm", "x-amz-content-sha256", "x-amz-date"}
        assert server.signatures and all(signed >= always for signed in server.signatures.accepted)


async def test_rejected_signatures_and_denials_are_explained() -> None:
    with signing() as server:
        async with connect_signing(server, **{"rest.signing-name": "glue"}) as ns:
            await catch(err.UnauthenticatedError, describe_signed(ns), r"correct service.*signing-name.*keys right\?")
        server.fail(403, headers={"x-amzn-ErrorType": "AccessDeniedException"}, body={"Message": "User: x may not"})
        async with connect_signing(server) as ns:
            await catch(err.PermissionDeniedError, describe_signed(ns), "User: x may not")


@pytest.fixture
def polaris_server() -> Iterator[FakePolaris]:
    with signing(signatures=Signatures(keys={})) as server:
        yield server


@pytest.fixture
def sts(polaris_server: FakePolaris) -> Iterator[FakeSts]:
    assert polaris_server.signatures
    own = Signatures("sts", "eu-central-1", must_sign=frozenset({"host", "x-amz-date"}))
    with FakeSts(own, polaris_server.signatures) as server:
        yield server


async def test_the_keys_of_a_role_sign_until_they_are_rejected(polaris_server: FakePolaris, sts: FakeSts) -> None:
    role = {"assume_role_external_id": "lance", "assume_role_timeout_sec": "30m", "sts_endpoint": sts.url}
    async with connect_signing(polaris_server, assume_role_arn=ARN, **role) as ns:
        await describe_signed(ns)
        await describe_signed(ns)
        assert len(sts.roles) == 1
        request = polaris_server.requests[-1]
        # Rejected keys are replaced.
        assert polaris_server.signatures
        polaris_server.signatures.expired.add("ASIAROLE1")
        await describe_signed(ns)
    parameters = {name: value for name, value in sts.roles[0].items() if name not in ("Action", "Version")}
    session = {"RoleSessionName": "lance-ns-async", "DurationSeconds": "1800", "ExternalId": "lance"}
    assert parameters == {"RoleArn": ARN, **session}
    assert len(sts.roles) == 2 and "Credential=ASIAROLE1/" in request.headers["Authorization"]
    assert request.headers["X-Amz-Security-Token"] == "sesame-token-1"

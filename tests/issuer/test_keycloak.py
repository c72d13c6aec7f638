"""A real Keycloak as the issuer of a gateway: bearer tokens, changes of keys, sign-in of browsers, identities."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import pytest_asyncio

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import CallerNamespaces, Gateway, serving
from tests.servers.keycloak import Keycloak, mappers
from tests.servers.process import free_port

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SECRET, PASSWORD = "hush:+% hush", "pass-word"
RULE = '[[oidc]]\nclaims = { groups = "data-readers" }\nrights = "read"\nonly = ["sales.**"]\n'


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    with Keycloak(tmp_path_factory.mktemp("keycloak")) as server:
        group = server.create("/lake/groups", {"name": "data-readers"})
        job = {"clientId": "job", "secret": SECRET, "serviceAccountsEnabled": True, "standardFlowEnabled": False}
        client = server.create("/lake/clients", {**job, "protocolMappers": mappers("lake")})
        account = server.find(f"/lake/clients/{client}/service-account-user")["id"]
        password = {"type": "password", "value": PASSWORD, "temporary": False}
        names = {"email": "ann@example.com", "emailVerified": True, "firstName": "Ann", "lastName": "A"}
        ann = server.create("/lake/users", {"username": "ann", "enabled": True, "credentials": [password], **names})
        for member in (account, ann):
            server.change(f"/lake/users/{member}/groups/{group}")
        # The client that exchanges tokens must be in their audience.
        exchange = {"standardFlowEnabled": False, "attributes": {"standard.token.exchange.enabled": "true"}}
        server.create(
            "/lake/clients", {"clientId": "lake", "secret": SECRET, **exchange, "protocolMappers": mappers("catalog")}
        )
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lake(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path_factory.mktemp("lake"))}) as namespace:
        for name in ("sales", "staff"):
            await namespace.create_namespace({"id": [name]})
            await namespace.write(f"{name}.t", pa.table({"id": [1]}))
        yield namespace


def options(keycloak: Keycloak, folder: Path, audience: str = "lake", rule: str = RULE) -> dict[str, Any]:
    """Returns the arguments of a gateway."""
    file = folder / f"{audience}.toml"
    file.write_text(rule)
    return {"tokens": file, "oidc_issuer": keycloak.issuer, "audience": audience}


async def statuses(gateway: Gateway, token: str) -> list[int]:
    """Returns the statuses of listings of the two namespaces."""
    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {token}"}) as client:
        return [
            (await client.get(f"{gateway.url}/v1/namespace/{name}/table/list")).status_code
            for name in ("sales", "staff")
        ]


async def test_tokens_have_the_rights_of_their_groups_also_after_a_change_of_keys(
    keycloak: Keycloak, lake: AsyncNamespace, tmp_path: Path
) -> None:
    async with serving(lake, **options(keycloak, tmp_path)) as gateway:
        first = keycloak.token("job", SECRET)
        assert await statuses(gateway, first) == [200, 403]
        realm = keycloak.find("/lake")["id"]
        kind = "org.keycloak.keys.KeyProvider"
        config = {"priority": ["200"], "algorithm": ["RS256"]}
        keycloak.create(
            "/lake/components",
            {"name": "new", "providerId": "rsa-generated", "providerType": kind, "parentId": realm, "config": config},
        )
        second = keycloak.token("job", SECRET)
        assert second.partition(".")[0] != first.partition(".")[0]
        async with asyncio.timeout(60):
            # The gateway reads the keys every ten seconds, at most.
            while await statuses(gateway, second) != [200, 403]:  # noqa: ASYNC110 - nothing tells that they were read
                await asyncio.sleep(0.1)
        assert await statuses(gateway, first) == [200, 403]
        assert await statuses(gateway, first[:-6] + second[-6:]) == [401, 401]


@pytest.mark.parametrize("secret", ["", SECRET])
async def test_browsers_sign_in(keycloak: Keycloak, lake: AsyncNamespace, tmp_path: Path, secret: str) -> None:
    port = free_port()
    name = "confidential" if secret else "public"
    kind: dict[str, Any] = {"secret": secret} if secret else {"publicClient": True}
    uris = [f"http://127.0.0.1:{port}/ui/callback"]
    attributes = {"pkce.code.challenge.method": "S256"}
    client = {"clientId": name, **kind, "redirectUris": uris, "attributes": attributes}
    keycloak.create("/lake/clients", {**client, "protocolMappers": mappers("lake")})
    flow: dict[str, Any] = {"oidc_client_id": name, "port": port, "ui": True}
    if secret:
        flow["oidc_client_secret_file"] = tmp_path / "secret"
        flow["oidc_client_secret_file"].write_text(secret)
    async with (
        serving(lake, **options(keycloak, tmp_path), **flow) as gateway,
        httpx.AsyncClient(trust_env=False, timeout=30) as browser,
    ):
        begin = await browser.get(f"{gateway.url}/ui/sign-in/oidc")
        form = await browser.get(begin.headers["location"])
        for cookie in browser.cookies.jar:
            # Browsers send secure cookies to this machine without TLS, too.
            cookie.secure = False
        action = re.search(r'action="([^"]+)"', form.text)
        assert action is not None
        done = await browser.post(html.unescape(action[1]), data={"username": "ann", "password": PASSWORD})
        assert (await browser.get(done.headers["location"])).status_code == 200
        page = await browser.get(f"{gateway.url}/ui")
        assert (page.status_code, "sales" in page.text, "staff" in page.text) == (200, True, False)


@pytest.mark.parametrize("identity", ["forward", "exchange"])
async def test_the_catalog_gets_the_identity_of_the_caller(
    keycloak: Keycloak, lake: AsyncNamespace, tmp_path: Path, identity: Any
) -> None:
    audience = "catalog" if identity == "exchange" else "lake"
    everybody = '[[oidc]]\nclaims = { azp = "job" }\nrights = "admin"\n'
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(serving(lake, **options(keycloak, tmp_path, audience)))
        (tmp_path / "front").mkdir()
        client = {"oauth2_server_uri": keycloak.token_endpoint, "credential": f"lake:{SECRET}", "scope": "openid"}
        properties = {"uri": catalog.url, **(client if identity == "exchange" else {})}
        callers = await stack.enter_async_context(CallerNamespaces({"": ("rest", properties)}, identity))
        front = serving(callers, **options(keycloak, tmp_path / "front", rule=everybody))
        gateway = await stack.enter_async_context(front)
        assert await statuses(gateway, keycloak.token("job", SECRET)) == [200, 403]

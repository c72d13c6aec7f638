"""Tokens of an OpenID Connect issuer, over the wire: hostile ones, rights by claims, and rotated keys."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, oidc, serving
from lance_ns_async.gateway.access import hash_of
from lance_ns_async.gateway.oidc import MAX_TOKEN, Issuer, Rule, TokenError
from lance_ns_async.gateway.request_log import RequestRecord
from lance_ns_async.gateway.request_log import log as request_log
from lance_ns_async.gateway.rights import Principal
from tests.fakes.oidc import Algorithm, FakeIssuer
from tests.support.gateway import Response, send_request

RULES = """
[[oidc]]
claims = { groups = "data-readers" }
rights = "read"
only = ["sales.**"]

[[oidc]]
claims = { realm_access.roles = "hr", email_verified = true }
rights = "read"
only = ["hr.**"]

[[oidc]]
claims = { resource_access."my.client".roles = "all" }
rights = "admin"
"""
CLIENT: Mapping[str, Any] = {"oidc_issuer": "https://a", "audience": "lake", "oidc_client_id": "a", "ui": True}
SUBJECT = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
READER: Mapping[str, Any] = {"groups": ["others", "data-readers"]}

NAMES = ("issuer", "jwks_uri", "authorization_endpoint", "token_endpoint")
Forge = Callable[[FakeIssuer], str]


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with FakeIssuer() as fake:
        yield fake


@pytest.fixture
async def gateway(issuer: FakeIssuer, tmp_path: Path) -> AsyncIterator[Gateway]:
    issuer.rotate("ES256")
    issuer.rotate("EdDSA")
    issuer.rotate("RS256")
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as ns:
        for name in ("sales", "hr"):
            await ns.create_namespace({"id": [name]})
        async with serve(ns, issuer, tmp_path) as gateway:
            yield gateway


@contextlib.asynccontextmanager
async def serve(namespace: object, issuer: FakeIssuer, folder: Path, **options: Any) -> AsyncIterator[Gateway]:
    file = folder / "tokens.toml"
    file.write_text(f'[opaque]\nrights = "read"\nsha256 = ["{hash_of("a.b.c")}"]\n{RULES}')
    async with serving(namespace, tokens=file, oidc_issuer=issuer.issuer, audience="lake", **options) as gateway:
        yield gateway


async def ask(gateway: Gateway, token: str, header: str = "Authorization") -> Response:
    value = f"Bearer {token}" if header == "Authorization" else token
    return await send_request(gateway, "GET", "/v1/namespace/$/list", headers={header: value}, token=False)


def part(value: object) -> str:
    raw = (
        value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else json.dumps(value).encode()
    )
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(payload: str | None = None, head: str | None = None, **changed: Any) -> Forge:
    """Returns what signs any text with the issuer's own key; in texts, `@` is the beginning of the usual fields."""

    def forge(issuer: FakeIssuer) -> str:
        kid = next(reversed(issuer.private))
        header = json.dumps({"alg": "RS256", "typ": "JWT", "kid": kid})
        claims = json.dumps(issuer.claims(**READER, **changed))
        texts = [
            usual if text is None else text.replace("@", usual[:-1])
            for text, usual in ((head, header), (payload, claims))
        ]
        text = ".".join(map(part, texts))
        return f"{text}.{part(jwt.get_algorithm_by_name('RS256').sign(text.encode(), issuer.private[kid]))}"

    return forge


def with_headers(**headers: Any) -> Forge:
    return lambda issuer: issuer.sign(headers=headers, **READER)


def with_claims(**changed: Any) -> Forge:
    return lambda issuer: issuer.sign(**{**READER, **changed})


def unsigned(alg: object, signature: str = "") -> Forge:
    return lambda issuer: f"{part({'alg': alg, 'kid': 'key-0'})}.{part(issuer.claims(**READER))}.{signature}"


def confused(issuer: FakeIssuer) -> str:
    """Returns a token with an HMAC whose secret is the public key."""
    public = issuer.private["key-0"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    text = f"{part({'alg': 'HS256', 'kid': 'key-0'})}.{part(issuer.claims(**READER))}"
    return f"{text}.{part(jwt.get_algorithm_by_name('HS256').sign(text.encode(), pem))}"


def foreign(**headers: Any) -> Forge:
    """Returns what signs with a key of the attacker, under the name of the issuer's key."""

    def forge(issuer: FakeIssuer) -> str:
        attacker = FakeIssuer()
        key = {**attacker.published["key-0"], "kid": "key-3"}
        links = {name: f"{issuer.url}/evil" if value is None else value for name, value in headers.items()}
        claims = issuer.claims(**READER)
        return jwt.encode(claims, attacker.private["key-0"], "RS256", headers={"kid": "key-3", "jwk": key, **links})

    return forge


def changed_parts(change: Callable[[list[str]], list[str]]) -> Forge:
    return lambda issuer: ".".join(change(issuer.sign(**READER).split(".")))


HOSTILE: Mapping[str, Forge] = {
    **{f"alg {alg}": unsigned(alg) for alg in ("none", "None", "NONE", "", None, ["RS256"], "HS256")},
    "alg none with a signature": unsigned("none", "YWJj"),
    "HMAC with the public key": confused,
    "alg of another key": lambda it: jwt.encode(
        it.claims(**READER), it.private["key-1"], "ES256", headers={"kid": "key-0"}
    ),
    "PS256": lambda it: jwt.encode(it.claims(**READER), it.private["key-3"], "PS256", headers={"kid": "key-3"}),
    "RS512": lambda it: jwt.encode(it.claims(**READER), it.private["key-3"], "RS512", headers={"kid": "key-3"}),
    "key of the attacker": foreign(),
    "key at the attacker": foreign(jku=None),
    "certificate at the attacker": foreign(x5u=None, x5c=["MIIB"]),
    "unknown kid": with_headers(kid="unknown"),
    "kid of the key for encryption": with_headers(kid="enc-1"),
    "kid as a path": with_headers(kid="../../../dev/null"),
    "kid as SQL": with_headers(kid="key-3' OR '1'='1"),
    "no kid": signed(head='{"alg": "RS256"}'),
    "kid that is a list": signed(head='{"alg": "RS256", "kid": ["key-3"]}'),
    "repeated alg": signed(head='@, "alg": "RS256"}'),
    "repeated kid": signed(head='{"kid": "key-0", "kid": "key-3", "alg": "RS256"}'),
    "critical extension": with_headers(crit=["exp"], exp=1),
    "unencoded payload": with_headers(crit=["b64"], b64=False),
    "compressed": with_headers(zip="DEF"),
    "nested": with_headers(cty="JWT"),
    "nested payload": lambda it: signed(payload=json.dumps(it.sign(**READER)))(it),
    "token of a sign-out": with_headers(typ="logout+jwt"),
    "encrypted": lambda it: f"{it.sign(**READER)}.YQ.YQ",
    "huge header": with_headers(x="a" * (MAX_TOKEN * 3 // 4)),
    "deeply nested header": signed(head="[" * 10_000),
    "deeply nested claims": signed(payload='{"a":' * 1_900 + "1" + "}" * 1_900),
    "header that is no object": signed(head='"RS256"'),
    "header that is no JSON": signed(head="alg=RS256"),
    "header that is not UTF-8": changed_parts(lambda it: [part(b'{"a": "\xff"}'), *it[1:]]),
    "claims that are no object": signed(payload="[]"),
    "repeated sub": signed(payload='@, "sub": "admin"}'),
    "repeated groups": signed(payload='@, "groups": "data-readers"}'),
    "repeated aud": signed(payload='@, "aud": "lake"}'),
    "repeated field of a claim": signed(payload='@, "a": {"b": 1, "b": 2}}'),
    "wrong audience": with_claims(aud="other"),
    "part of the audience": with_claims(aud=["lak", "lake2", "LAKE"]),
    "azp instead of aud": with_claims(aud=None, azp="lake"),
    "audience as an object": with_claims(aud={"lake": True}),
    "no issuer": with_claims(iss=None),
    "wrong issuer": with_claims(iss="https://evil.example.com/realms/lake"),
    "issuer with a slash": lambda it: it.sign(**READER, iss=f"{it.issuer}/"),
    "no expiry": with_claims(exp=None),
    "expiry as text": with_claims(exp="9999999999"),
    "expiry that is a list": with_claims(exp=[9999999999]),
    "start that is true": with_claims(nbf=True),
    "endless": signed(payload='@, "exp": Infinity}', exp=None),
    "huge expiry": signed(payload='@, "exp": 1e999}', exp=None),
    "not yet valid": with_claims(nbf=time.time() + 3600),
    "issued in the future": with_claims(iat=time.time() + 3600),
    "no subject": with_claims(sub=None),
    "empty subject": with_claims(sub=""),
    "subject that is a number": signed(sub=7),
    "long subject": with_claims(sub="a" * 256),
    "subject with a line": with_claims(sub="a\n2026-11-26 ann drop_table 200"),
    "subject with a space": with_claims(sub="ann drop_table"),
    "changed claims": lambda it: changed_parts(lambda parts: [parts[0], part(it.claims(groups="admin")), parts[2]])(it),
    "no signature": changed_parts(lambda it: [it[0], it[1], ""]),
    "part of a signature": changed_parts(lambda it: [it[0], it[1], it[2][:100]]),
    "signature of another token": lambda it: it.sign(**READER).rpartition(".")[0] + "." + it.sign().rpartition(".")[2],
    "other base64": changed_parts(lambda it: [it[0], it[1], f"{it[2]}=="]),
    "only dots": lambda _: "..",
}


async def test_hostile_tokens_are_refused(
    gateway: Gateway, issuer: FakeIssuer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have the same response, and none causes a request; each kind of reason is one short warning."""
    monkeypatch.setattr(oidc, "_PAUSE", inf)
    caplog.set_level(logging.INFO, request_log.name)
    assert len(HOSTILE) >= 40
    wrong = (await ask(gateway, "..")).json
    assert wrong["error"] == "Unauthenticated: the token is wrong; the gateway's log has the reason"
    assert "token is wrong; send it as" in (await ask(gateway, "opaque")).json["error"]
    accepted = {}
    for name, forge in HOSTILE.items():
        token = forge(issuer)
        for _ in range(2):
            answer = await ask(gateway, token)
            if (answer.status, answer.json) != (401, wrong):
                accepted[name] = answer
    assert not accepted and len(issuer.requests) == 2
    lines = [it.getMessage() for it in caplog.records if it.name == oidc.__name__]
    assert 10 < len(lines) < len(HOSTILE) and all(len(it) < 400 and it.isprintable() for it in lines)
    assert {record.args[0].principal for record in caplog.records if record.name == request_log.name} == {None}  # type: ignore[index, union-attr]
    for forge in (
        signed(),
        signed(payload='@, "x": 1}', head='@, "x": 1}'),
        with_headers(typ="JWT"),
        with_claims(nbf=0),
    ):
        assert (await ask(gateway, forge(issuer))).status == 200


@pytest.mark.parametrize("kid", ["key-0", "key-1", "key-2", "key-3"])
async def test_claims_give_rights(
    gateway: Gateway, issuer: FakeIssuer, kid: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, request_log.name)
    now = time.time()
    token = issuer.sign(kid, {"typ": "at+jwt"}, **READER, exp=now - 20, nbf=now + 20, iat=now + 20)
    for header in ("Authorization", "x-lance-token", "x-api-key"):
        assert (await ask(gateway, token, header)).json["namespaces"] == ["sales"]
    drop = await send_request(gateway, "POST", "/v1/table/sales$t/drop", {}, {"x-api-key": token})
    assert drop.status == 403 and f"oidc:{SUBJECT} has the right 'read'" in drop.json["error"]
    assert (await ask(gateway, "a.b.c")).json["namespaces"] == ["hr", "sales"]
    principals = [record.args[0].principal for record in caplog.records if isinstance(record.args[0], RequestRecord)]  # type: ignore[index]
    metrics = (
        await send_request(gateway, "GET", "/metrics", headers={"x-api-key": "a.b.c"}, token=False)
    ).body.decode()
    assert f'lance_ns_client_requests_total{{client="oidc:{SUBJECT}"}} 4' in metrics
    metrics = (await send_request(gateway, "GET", "/metrics", headers={"x-api-key": token}, token=False)).body.decode()
    assert "lance_ns_requests_total" in metrics and SUBJECT not in metrics
    assert principals == [f"oidc:{SUBJECT}"] * 4 + ["opaque"] and len(issuer.requests) == 2


@pytest.mark.parametrize(
    ("claims", "namespaces"),
    [
        ({**READER, "realm_access": {"roles": ["hr"]}, "email_verified": True}, ["hr", "sales"]),
        ({"realm_access": {"roles": ["hr"]}, "email_verified": True}, ["hr"]),
        ({"resource_access": {"my.client": {"roles": ["all"]}}}, ["hr", "sales"]),
        # The first rule that matches decides on the right.
        ({**READER, "resource_access": {"my.client": {"roles": ["all"]}}}, ["sales"]),
        ({"realm_access": {"roles": ["hr"]}}, None),
        ({"realm_access": {"roles": ["hr"]}, "email_verified": 1}, None),
        ({"realm_access": ["roles"], "groups": {"data-readers": 1}, "resource_access": "all"}, None),
        ({"realm_access.roles": "hr", "email_verified": True}, None),
        ({"groups": "data-readers-2", "rights": "admin", "name": "owner"}, None),
    ],
)
async def test_rules_select_by_claims(
    gateway: Gateway,
    issuer: FakeIssuer,
    claims: Mapping[str, Any],
    namespaces: list[str] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, request_log.name)
    answer = await ask(gateway, issuer.sign(**claims))
    assert f" oidc:{SUBJECT} " in caplog.records[-1].getMessage()
    if namespaces is not None:
        assert answer.json["namespaces"] == namespaces
    else:
        assert (answer.status, answer.code) == (403, 15) and answer.json["error"].endswith(f"oidc:{SUBJECT}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        *(({"aud": it}, f"aud is {it!r}, not 'lake'") for it in ("account", ["a", "b"])),
        ({"aud": "a" * 9_000}, f"aud is '{'a' * 79}..., not 'lake'"),
        ({"aud": None}, "it has no aud"),
        ({"sub": None}, "it has no sub"),
        ({"iss": "https://a"}, "iss is 'https://a', not 'http://127.0.0.1:"),
        ({"exp": 7}, "exp is 7, and the time is "),
        ({"nbf": 1e11}, "The token is not yet valid (nbf)"),
        ({"headers": {"kid": "a\n"}, "iss": "b"}, r"its kid 'a\n' is no key of 'http://127.0.0.1:"),
        ({"headers": {"typ": "logout+jwt"}}, "typ is 'logout+jwt', not 'JWT'"),
    ],
)
async def test_the_first_refusal_for_a_reason_is_a_warning(
    issuer: FakeIssuer, changes: Mapping[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Issuer(issuer.issuer, "lake") as known:
        for _ in range(3):
            with pytest.raises(TokenError):
                await known.verify(issuer.sign(**changes), ())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and f"a JWT is refused: {reason}" in record.getMessage()


async def test_an_expired_token_is_named_so(gateway: Gateway, issuer: FakeIssuer) -> None:
    for exp in (time.time() - 40, 0, True):
        answer = await ask(gateway, issuer.sign(**READER, exp=exp))
        assert answer.status == 401 and answer.json["error"].endswith("the token is expired; get a new one")
    forged = foreign()(issuer).split(".")
    forged[1] = part(issuer.claims(exp=1))
    assert "token is wrong" in (await ask(gateway, ".".join(forged))).json["error"]


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_keys_are_rotated(
    issuer: FakeIssuer, algorithm: Algorithm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_PAUSE", 0.0)
    async with Issuer(issuer.issuer, "lake") as known:
        old = issuer.sign()
        first = await known.verify(old, ())
        assert await known.verify(old, ()) is first
        rules = [Rule({"azp": "spark"}, Principal("oidc", "write"))]
        assert (await known.verify(old, rules)).principal == Principal(f"oidc:{SUBJECT}", "write")
        assert (await known.verify(old, ())).principal is None
        issuer.rotate(algorithm)
        await known.verify(issuer.sign(), ())
        await known.verify(old, ())
        del issuer.published["key-0"]
        assert len(issuer.requests) == 4
        # An unknown key is a reason to look; the one that was removed is then unknown, too.
        for token in (issuer.sign(headers={"kid": "other"}), old):
            with pytest.raises(TokenError, match="wrong"):
                await known.verify(token, ())
        issuer.stop()
        with pytest.raises(TokenError, match="wrong"):
            await known.verify(issuer.sign(headers={"kid": "other"}), ())
        assert "the last keys stay in use" in caplog.text
        assert (await known.verify(issuer.sign(), ())).name == f"oidc:{SUBJECT}"


async def test_a_flood_of_unknown_keys_costs_one_read(issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_PAUSE", 0.0)
    async with Issuer(issuer.issuer, "lake") as known:
        issuer.clear()
        kid = issuer.rotate()
        tokens = [issuer.sign(), *(issuer.sign(headers={"kid": f"unknown-{i}"}) for i in range(100))]
        with issuer.hold() as hold:
            tasks = [asyncio.create_task(known.verify(token, ())) for token in tokens]
            await hold.reached()
            # A client that leaves does not end the read of the others.
            tasks.pop().cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(it, TokenError) for it in results) == 99 and kid == "key-1"
        assert len(issuer.requests) == 2
        monkeypatch.setattr(oidc, "_PAUSE", inf)
        issuer.clear()
        for i in range(100):
            with pytest.raises(TokenError):
                await known.verify(issuer.sign(headers={"kid": f"unknown-{i}"}), ())
        assert not issuer.requests


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda it: it.stop(), "is the URL right, and the issuer running?"),
        (
            lambda it: it.fail(404),
            "openid-configuration has the status 404; is the name of the realm in the URL right?",
        ),
        (lambda it: it.fail(302, headers={"Location": "/realms/lake/a"}), "the status 302"),
        (lambda it: it.reply("<html>"), "no JSON object"),
        (lambda it: it.reply('{"issuer": "https://other"}'), "its configuration is that of 'https://other'"),
        (lambda it: it.reply("{" + " " * 300_000 + "}"), "longer than 262144 bytes"),
        (lambda it: it.reply(json.dumps({"issuer": it.issuer})), "its configuration has no jwks_uri"),
        *(
            (lambda it, url=url: it.reply(json.dumps({"issuer": it.issuer, "jwks_uri": url})), message)
            for url, message in (
                *(("https://a:99999999/b", "jwks_uri: must be"), ("https://a\x00/b", "jwks_uri: must be")),
                *(("http://a/b", "jwks_uri: must be an https:// URL"), (["https://a"], "jwks_uri: must be")),
            )
        ),
        *(
            (lambda it, url=url: it.reply(json.dumps(dict.fromkeys(NAMES, it.issuer) | url)), message)
            for url, message in (
                ({"authorization_endpoint": "http://a"}, "authorization_endpoint: must be an https:// URL"),
                ({"token_endpoint": None}, "its configuration has no token_endpoint, so omit oidc_client_id"),
            )
        ),
        (lambda it: it.reply('{"keys": 7}', match="certs"), "at most 100"),
        (lambda it: it.reply(json.dumps({"keys": [{}] * 101}), match="certs"), "at most 100"),
        (lambda it: it.reply(json.dumps({"keys": [1, {"kty": []}, {"kid": "a"}]}), match="certs"), "no key with an id"),
        (lambda it: it.publish({"kid": "key-0", "kty": "RSA", "n": "AQAB", "e": "AQAB"}), "no key with an id"),
        (lambda it: it.publish({"kid": "key-0", "kty": "EC", "crv": "P-256", "x": "!", "y": 1}), "no key with an id"),
        (lambda it: it.publish({"kid": "key-0", "kty": "oct", "k": "AQAB", "alg": "HS256"}), "no key with an id"),
    ],
)
async def test_an_issuer_that_cannot_be_used_is_an_error(
    issuer: FakeIssuer, prepare: Callable[[FakeIssuer], None], message: str, tmp_path: Path
) -> None:
    prepare(issuer)
    with pytest.raises(LanceNamespaceError) as caught:
        await contextlib.AsyncExitStack().enter_async_context(
            serve(object(), issuer, tmp_path, oidc_client_id="explorer", ui=True)
        )
    assert message in str(caught.value) and f"oidc_issuer='{issuer.issuer}'" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"oidc_issuer": "https://a"}, "oidc_issuer: requires audience=NAME$"),
        ({"tokens": None, "oidc_issuer": "https://a"}, "requires audience=NAME and tokens=FILE with .* rules"),
        ({"tokens": None, "oidc_issuer": "https://a", "audience": "lake"}, "oidc_issuer: requires tokens=FILE"),
        ({"audience": "lake"}, "audience: requires oidc_issuer=URL"),
        ({"oidc_issuer": "https://a", "audience": ""}, "audience: must not be empty"),
        ({"oidc_client_id": "a"}, "oidc_client_id: requires oidc_issuer=URL and ui=True"),
        ({**CLIENT, "ui": False}, "oidc_client_id: requires ui=True"),
        ({"oidc_client_secret_file": Path("a")}, "oidc_client_secret_file: requires oidc_client_id=ID"),
        ({"oidc_scope": "a"}, "oidc_scope: requires oidc_client_id=ID"),
        *(({**CLIENT, "oidc_client_id": it}, "oidc_client_id .*: must be printable ASCII") for it in ("", "ä", "a\n")),
        *(({**CLIENT, "oidc_scope": it}, "oidc_scope .*: must be names") for it in ("", " ", 'a "b"', "a\\b", "ä")),
        ({**CLIENT, "oidc_client_secret_file": Path(__file__)}, "oidc_client_secret_file .*: more than one line"),
        ({**CLIENT, "oidc_client_secret_file": Path("/no/such")}, "oidc_client_secret_file '/no/such': No such file"),
        *(
            ({"public_url": url}, "public_url .*: must be scheme and host")
            for url in ("lake", "https://a/b", "https://a?b", "https://u@a", "ftp://a", "https://a\n")
        ),
        *(
            ({"oidc_issuer": url, "audience": "lake"}, "oidc_issuer: must be an https:// URL")
            for url in (
                "http://a.example.com",
                "ftp://localhost",
                "https://",
                "https://u:p@a",
                "https://a?b",
                "http://[",
                "",
            )
        ),
    ],
)
async def test_options_that_cannot_be_are_refused(options: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(RULES)
    with pytest.raises(InvalidInputError, match=message):
        await contextlib.AsyncExitStack().enter_async_context(serving(object(), **{"tokens": file, **options}))


@pytest.mark.parametrize(
    ("content", "audience", "public_url", "warning"),
    [
        (RULES, None, None, "tokens.toml has [[oidc]] rules, but no issuer is set"),
        ("", "lake", None, "tokens.toml has no [[oidc]] rule"),
        ("", None, "http://lake.example.com", "browsers use http://lake.example.com: tokens and cookies"),
        (RULES, "lake", "http://localhost:8080", ""),
    ],
)
async def test_settings_that_seldom_work_are_warnings(
    issuer: FakeIssuer,
    content: str,
    audience: str | None,
    public_url: str | None,
    warning: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(content)
    url = issuer.issuer if audience else None
    async with serving(object(), tokens=file, oidc_issuer=url, audience=audience, public_url=public_url) as gateway:
        if url is None:
            assert "accepts no tokens of an identity" in (await ask(gateway, issuer.sign())).json["error"]
    assert warning in caplog.text and len(caplog.records) == bool(warning)


async def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'lance-ns-async\[oidc\]'"):
        Issuer("https://a", "lake")


async def test_the_explorer_names_the_subject(issuer: FakeIssuer, tmp_path: Path) -> None:
    import httpx

    async with (
        AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns,
        serve(ns, issuer, tmp_path, ui=True) as gateway,
        httpx.AsyncClient(base_url=gateway.url, follow_redirects=True, trust_env=False) as browser,
    ):
        for claims, text in (({}, "Permission denied: no rule"), (READER, f"<strong>oidc:{SUBJECT}</strong>")):
            form = (await browser.get("/ui")).text.partition('name="form_token" value="')[2].partition('"')[0]
            page = await browser.post("/ui/sign-in", data={"form_token": form, "token": issuer.sign(**claims)})
            assert text in page.text

"""The fake Polaris server: tokens, realms, rights and vended credentials."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest

from tests.fakes.iceberg.errors import error_in
from tests.fakes.polaris import FakePolaris
from tests.fakes.polaris.requests import FORM, GRANT, MANAGEMENT, OAUTH, OUTSIDE, V1, N, P, T, bearing, check_bare
from tests.fakes.raw import ask


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Basic cm9vdDpzM2NyM3Q=", "Bearer"])
@pytest.mark.parametrize("path", [T, f"{N}/a/namespaces", f"{V1}/config", f"{MANAGEMENT}/catalogs"])
def test_without_a_good_token_there_is_not_a_word(header: str | None, path: str) -> None:
    with FakePolaris() as server:
        check_bare(ask(server, "GET", path, headers={"Authorization": header} if header else {}), 401)
        assert error_in(ask(server, "GET", "/elsewhere")) == OUTSIDE


@pytest.mark.parametrize(
    ("form", "headers", "status", "error"),
    [
        (GRANT, {}, 200, None),
        (GRANT, bearing("stale"), 200, None),
        (GRANT.replace("ALL", "nope"), {}, 200, None),
        (
            "grant_type=client_credentials&scope=PRINCIPAL_ROLE%3AALL",
            {"Authorization": f"Basic {base64.b64encode(b'root:s3cr3t').decode()}"},
            200,
            None,
        ),
        (GRANT.replace("s3cr3t", "wrong"), {}, 401, ("unauthorized_client", "The client is not authorized")),
        (GRANT.replace("root", "nobody"), {}, 401, ("unauthorized_client", "The client is not authorized")),
        (GRANT.partition("&scope")[0], {}, 400, ("invalid_scope", "The scope is invalid")),
        (GRANT.replace("PRINCIPAL_ROLE%3AALL", "catalog"), {}, 400, ("invalid_scope", "The scope is invalid")),
        (GRANT.replace("client_id=root&", ""), {}, 400, ("invalid_client", "The Client is invalid")),
        (
            GRANT.replace("client_credentials", "password"),
            {},
            400,
            ("unsupported_grant_type", "The grant type is invalid"),
        ),
    ],
)
def test_tokens_are_issued_to_clients(form: str, headers: dict[str, str], status: int, error: Any) -> None:
    with FakePolaris(token_lifetime=90) as server:
        server.add_catalog("cat")
        reply = ask(server, "POST", OAUTH, form, {**FORM, **headers, "Accept-Encoding": "identity"})
        assert (reply.status, reply.headers["Content-Type"]) == (status, "application/json;charset=UTF-8")
        assert server.token_requests == 1
        if error is not None:
            assert reply.json == {"error": error[0], "error_description": error[1], "error_uri": None}
            return
        token = reply.json["access_token"]
        kind = "urn:ietf:params:oauth:token-type:access_token"
        rest = {"token_type": "bearer", "issued_token_type": kind, "expires_in": 90}
        assert reply.json == {"access_token": token, **rest}
        assert ask(server, "GET", N, headers=bearing(token)).status == 200
        check_bare(ask(server, "GET", N, headers=bearing(token[:-2] + "xx")), 401)


def test_a_token_request_is_a_form() -> None:
    with FakePolaris() as server:
        reply = ask(server, "POST", OAUTH, {"grant_type": "x"}, {"Content-Type": "application/json"})
        assert error_in(reply)[:2] == (415, "NotSupportedException")


def test_tokens_end_by_time_by_will_and_with_the_server() -> None:
    with FakePolaris(token_lifetime=60) as server:
        server.add_catalog("cat")

        def status(token: str) -> int:
            return ask(server, "GET", N, headers=bearing(token)).status

        aged, first = server.token(), status(server.token())
        server.advance(59)
        assert (first, status(aged)) == (200, 200)
        server.advance(2)
        check_bare(ask(server, "GET", N, headers=bearing(aged)), 401)
        willed = server.token()
        server.expire_tokens()
        assert status(willed) == 401
        lost = server.token()
        assert status(lost) == 200
        server.stop()
        server.start()
        assert (status(lost), status(server.token())) == (401, 200)


def test_a_token_can_be_exchanged_while_it_lives() -> None:
    with FakePolaris(token_lifetime=60) as server:
        grant = "urn:ietf:params:oauth:grant-type:token-exchange"
        form = f"grant_type={quote(grant)}&subject_token={server.token()}&scope=PRINCIPAL_ROLE%3AALL"
        assert ask(server, "POST", OAUTH, form, FORM).status == 200
        server.expire_tokens()
        expired = ask(server, "POST", OAUTH, form, FORM)
        assert (expired.status, expired.json["error"]) == (400, "invalid_client")


@pytest.mark.parametrize(("named", "status"), [(None, 404), ("other", 404), ("mine", 200)])
def test_a_realm_must_be_named_everywhere(named: str | None, status: int) -> None:
    with FakePolaris(realm="mine") as server:
        server.add_catalog("cat")
        assert server.properties["realm"] == "mine"
        headers = {"Polaris-Realm": named} if named else {}
        for reply in (
            ask(server, "POST", OAUTH, GRANT, {**FORM, **headers}),
            ask(server, "GET", N, headers={**bearing(server.token()), **headers}),
        ):
            assert reply.status == status
            if status == 404:
                assert error_in(reply) == (404, "MissingOrInvalidRealm", "Missing or invalid realm")


@pytest.mark.parametrize(
    ("method", "path", "body", "outcome"),
    [
        ("GET", N, None, "LIST_NAMESPACES"),
        ("POST", N, {"namespace": ["x"]}, "CREATE_NAMESPACE"),
        ("GET", f"{N}/schema", None, "LOAD_NAMESPACE_METADATA"),
        ("DELETE", f"{N}/schema", None, "DROP_NAMESPACE"),
        ("GET", T, None, "LIST_TABLES"),
        ("POST", T, {"name": "x", "format": "lance"}, "CREATE_TABLE_DIRECT"),
        ("GET", f"{T}/t1", None, "LOAD_TABLE"),
        ("DELETE", f"{T}/t1", None, "DROP_TABLE_WITHOUT_PURGE"),
        ("DELETE", f"{T}/zz", None, "DROP_TABLE_WITHOUT_PURGE"),
        ("GET", f"{MANAGEMENT}/catalogs", None, "LIST_CATALOGS"),
        ("GET", f"{T}/zz", None, 404),
        ("GET", f"{P}/namespaces/zz/generic-tables", None, 404),
        ("GET", f"{V1}/nocat/namespaces", None, 404),
        ("GET", f"{V1}/config?warehouse=cat", None, 200),
    ],
)
def test_without_grants_little_is_possible(method: str, path: str, body: Any, outcome: str | int) -> None:
    with FakePolaris(powerless={"bob": "b0b"}) as server:
        server.add_table("cat", ["schema", "sub"], "t1")
        form = GRANT.replace("root", "bob").replace("s3cr3t", "b0b")
        token = ask(server, "POST", OAUTH, form, FORM).json["access_token"]
        reply = ask(server, method, path, body, bearing(token))
        if isinstance(outcome, int):
            assert reply.status == outcome
            return
        who = "Principal 'bob' with activated PrincipalRoles '[]' and activated grants via '[]'"
        assert error_in(reply) == (403, "ForbiddenException", f"{who} is not authorized for op {outcome}")


@pytest.mark.parametrize(
    ("options", "header", "credentials"),
    [
        ({}, "Polaris-Generic-Table-Access-Delegation", []),
        ({"vends": [{"prefix": "s3://b", "config": {"k": "v"}}]}, "X-Iceberg-Access-Delegation", []),
        (
            {"vends": [{"prefix": "s3://b", "config": {"k": "v"}}]},
            "Polaris-Generic-Table-Access-Delegation",
            [{"prefix": "s3://b", "config": {"k": "v"}}],
        ),
        ({"refuses_delegation": True}, "Polaris-Generic-Table-Access-Delegation", None),
    ],
)
def test_credentials_are_given_out_only_by_some(options: Any, header: str, credentials: Any) -> None:
    with FakePolaris(credential=None, **options) as server:
        server.add_table("cat", ["schema", "sub"], "t1")
        assert ask(server, "GET", f"{T}/t1").json["storage-access-configs"] == []
        reply = ask(server, "GET", f"{T}/t1", headers={header: "vended-credentials"})
        if credentials is None:
            assert reply.status == 400
        else:
            assert reply.json["storage-access-configs"] == credentials

"""The fake Polaris server: raw requests and responses."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.iceberg.errors import error_in
from tests.fakes.polaris import FakePolaris
from tests.fakes.polaris.requests import (
    BASE,
    GENERIC,
    MANAGEMENT,
    NEW,
    NOWHERE,
    OAUTH,
    OUTSIDE,
    V1,
    C,
    N,
    P,
    T,
    check_bare,
    exists,
    names,
    no_space,
    no_table,
    wrong,
)
from tests.fakes.raw import ask

VIOLATION = "ResteasyReactiveViolationException"


@pytest.fixture
def server() -> Iterator[FakePolaris]:
    """Provides a server without authorization, with `schema`, `schema.sub`, a table `t1` and an Iceberg table `ice`."""
    with FakePolaris(credential=None) as running:
        running.add_table("cat", ["schema", "sub"], "t1")
        running.add_iceberg_table("cat", ["schema", "sub"], "ice")
        yield running


def table(name: str) -> dict[str, Any]:
    """Returns a table in the form of responses."""
    usual = {"format": "lance", "base-location": f"{BASE}/schema/sub/{name}", "doc": None}
    return {"name": name, **usual, "properties": {"table_type": "lance"}}


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (N, {"namespaces": [["schema"]], "next-page-token": None}),
        (f"{N}?parent=", {"namespaces": [["schema"]], "next-page-token": None}),
        (f"{N}?parent=schema", {"namespaces": [["schema", "sub"]], "next-page-token": None}),
        (f"{N}?parent=schema%1Fsub", {"namespaces": [], "next-page-token": None}),
        (f"{N}/schema%1fsub", {"namespace": ["schema", "sub"], "properties": {"location": f"{BASE}/schema/sub/"}}),
        (f"{T}/t1", {"table": table("t1"), "storage-access-configs": []}),
        (T, {"next-page-token": None, "identifiers": [{"namespace": ["schema", "sub"], "name": "t1"}]}),
        (f"{V1}/config?warehouse=cat", {"defaults": {"default-base-location": BASE}, "overrides": {"prefix": "cat"}}),
    ],
)
def test_what_is_there(server: FakePolaris, path: str, answer: dict[str, Any]) -> None:
    reply = ask(server, "GET", path)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json;charset=UTF-8")
    assert {key: reply.json[key] for key in answer} == answer


@pytest.mark.parametrize(
    ("levels", "fields", "kept"),
    [
        (["new"], {}, {}),
        (["schema", "new"], {"properties": None}, {}),
        (["new"], {"properties": {"a": "b", "n": 1, "t": True}, "unknown": 1}, {"a": "b", "n": "1", "t": "true"}),
        (["new"], {"properties": {"location": f"{BASE}/new"}}, {}),
    ],
)
def test_namespaces_are_made_with_a_location(server: FakePolaris, levels: list[str], fields: Any, kept: Any) -> None:
    reply = ask(server, "POST", N, {"namespace": levels, **fields})
    made = {"namespace": levels, "properties": {**kept, "location": f"{BASE}/{'/'.join(levels)}/"}}
    assert (reply.status, reply.json) == (200, made)
    assert ask(server, "GET", f"{N}/{'%1F'.join(levels)}").json == made


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, {}),
        ({"doc": "d", "properties": {"table_type": "lance"}}, {}),
        ({"format": "", "base-location": "not a uri %%", "unknown": 1}, {}),
        ({"base-location": "", "properties": None}, {"properties": {}}),
        ({"base-location": "s3://b/../x//"}, {}),
        ({"properties": {"n": 2, "x": None}}, {"properties": {"n": "2", "x": None}}),
    ],
)
def test_tables_are_made_of_anything(server: FakePolaris, fields: Any, kept: Any) -> None:
    body = {"name": "m", "format": "lance", **fields}
    usual: Any = {"base-location": None, "doc": None, "properties": {}}
    made = {key: value for key, value in {**usual, **body, **kept}.items() if key != "unknown"}
    reply = ask(server, "POST", T, body)
    assert (reply.status, reply.json) == (200, {"table": made, "storage-access-configs": []})
    assert ask(server, "GET", f"{T}/m").json == reply.json


@pytest.mark.parametrize(
    ("method", "path", "body", "error"),
    [
        ("GET", f"{N}?parent=zz", None, no_space("zz")),
        ("GET", f"{N}/zz", None, no_space("zz")),
        ("DELETE", f"{N}/zz", None, no_space("zz")),
        ("GET", f"{P}/namespaces/zz/generic-tables", None, no_space("zz")),
        ("POST", f"{P}/namespaces/zz/generic-tables", NEW, no_space("zz")),
        ("POST", N, {"namespace": ["zz", "sub"]}, no_space("zz")),
        ("GET", f"{V1}/nocat/namespaces", None, no_space("''")),
        ("POST", f"{V1}/nocat/namespaces", {"namespace": ["x"]}, no_space("''")),
        ("POST", N, {"namespace": ["schema"]}, exists("Cannot create namespace schema. Namespace already exists")),
        ("POST", N, {"namespace": []}, exists("Cannot create root namespace, as it already exists implicitly.")),
        ("DELETE", f"{N}/schema", None, (409, "NamespaceNotEmptyException", "Namespace schema is not empty")),
        ("DELETE", f"{N}/schema%1Fsub", None, (409, "NamespaceNotEmptyException", "Namespace schema.sub is not empty")),
        ("GET", f"{T}/zz", None, no_table("schema.sub.zz")),
        ("GET", f"{P}/namespaces/zz/generic-tables/t", None, no_table("zz.t")),
        ("GET", f"{GENERIC}/nocat/namespaces/zz/generic-tables/t", None, no_table("zz.t")),
        ("DELETE", f"{T}/zz", None, no_table("schema.sub.zz")),
        ("DELETE", f"{P}/namespaces/zz/generic-tables/t", None, no_space("zz")),
        ("DELETE", f"{GENERIC}/nocat/namespaces/zz/generic-tables/t", None, no_space("zz")),
        ("POST", T, {**NEW, "name": "t1"}, exists("Generic table already exists: schema.sub.t1")),
        ("POST", T, {**NEW, "name": "ice"}, exists("Table already exists: schema.sub.ice")),
        ("GET", f"{T}/ice", None, no_table("schema.sub.ice")),
        ("DELETE", f"{T}/ice", None, no_table("schema.sub.ice")),
        ("POST", T, {**NEW, "name": ""}, wrong("Invalid table name: null or empty")),
        (
            "POST",
            T,
            {**NEW, "format": None},
            (400, VIOLATION, "createGenericTable.createGenericTableRequest.format: must not be null"),
        ),
        (
            "POST",
            T,
            {**NEW, "properties": {"polaris.x": "1"}},
            wrong("Property 'polaris.x' matches reserved prefix 'polaris.'"),
        ),
        (
            "POST",
            N,
            {"namespace": ["x"], "properties": {"location": "file:///elsewhere"}},
            wrong(
                "Namespace x has a custom location, which is not enabled. "
                f"Expected a location in: [{BASE}/x/]. Got location: [file:///elsewhere]"
            ),
        ),
        ("GET", f"{V1}/config?warehouse=zz", None, (404, "NotFoundException", "Unable to find warehouse zz")),
        ("GET", f"{V1}/config", None, (400, "BadRequestException", "Please specify a warehouse")),
        ("POST", N, "{nonsense", (400, "WebApplicationException", "HTTP 400 Bad Request")),
        ("POST", T, None, (500, "NullPointerException", "Cannot read the request because it is null")),
        ("PUT", f"{T}/t1", None, NOWHERE),
        ("PATCH", f"{T}/t1", None, NOWHERE),
        ("DELETE", T, None, NOWHERE),
        ("GET", f"{N}/schema/namespaces", None, NOWHERE),
        ("GET", f"{C}/nonsense", None, NOWHERE),
        ("GET", "/api/nonsense", None, OUTSIDE),
        ("GET", "/", None, OUTSIDE),
        ("DELETE", N, None, (405, "NotAllowedException", "HTTP 405 Method Not Allowed")),
        ("DELETE", f"{N}/%2E", None, (405, "NotAllowedException", "HTTP 405 Method Not Allowed")),
    ],
)
def test_errors_tell_type_and_message(
    server: FakePolaris, method: str, path: str, body: Any, error: tuple[int, str, str]
) -> None:
    reply = ask(server, method, path, body, {"Accept-Encoding": "gzip"})
    assert error_in(reply) == error
    assert reply.headers["Content-Type"] == "application/json"
    assert "Content-Encoding" not in reply.headers


@pytest.mark.parametrize("body", [{"format": "lance"}, {"name": "x"}, {**NEW, "properties": {"p": {}}}])
def test_what_cannot_be_read_is_refused_without_a_word(server: FakePolaris, body: Any) -> None:
    check_bare(ask(server, "POST", T, body), 400)


@pytest.mark.parametrize(("type", "status"), [("text/plain", 415), ("application/json;charset=UTF-8", 200)])
def test_a_body_is_json_and_says_so(server: FakePolaris, type: str, status: int) -> None:
    headers = {"Content-Type": type}
    assert ask(server, "POST", N, {"namespace": ["x"]}, headers).status == status


@pytest.mark.parametrize(("accept", "status"), [("text/html", 406), ("*/*", 200), ("application/json", 200)])
def test_answers_are_json_or_none(server: FakePolaris, accept: str, status: int) -> None:
    assert ask(server, "GET", T, headers={"Accept": accept}).status == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", f"{T}/t1", 200),
        ("HEAD", f"{T}/zz", 404),
        ("HEAD", f"{N}/schema", 204),
        ("HEAD", f"{N}/zz", 404),
        ("DELETE", f"{T}/t1", 204),
    ],
)
def test_some_answers_have_no_body(server: FakePolaris, method: str, path: str, status: int) -> None:
    reply = ask(server, method, path)
    assert (reply.status, reply.body) == (status, b"")
    assert status != 204 or "Content-Type" not in reply.headers


def test_what_is_dropped_is_gone(server: FakePolaris) -> None:
    create = {"name": "t2", "format": "lance", "base-location": "s3://b/t2", "properties": {"table_type": "lance"}}
    made = ask(server, "POST", T, create)
    assert ask(server, "GET", f"{T}/t2").json == made.json
    assert names(ask(server, "GET", T)) == ["t1", "t2"]
    assert [ask(server, "DELETE", f"{T}/{name}").status for name in ("t1", "t2", "t2")] == [204, 204, 404]
    assert ask(server, "POST", N, {"namespace": ["empty"]}).status == 200
    assert [ask(server, "DELETE", f"{N}/empty").status for _ in range(2)] == [204, 404]


def test_catalogs_are_managed(server: FakePolaris) -> None:
    definition = {
        "name": "a/b",
        "type": "INTERNAL",
        "readOnly": False,
        "properties": {"default-base-location": "file:///data/b"},
        "storageConfigInfo": {"storageType": "FILE", "allowedLocations": ["file:///data/b"]},
    }
    made = ask(server, "POST", f"{MANAGEMENT}/catalogs", {"catalog": definition})
    assert (made.status, made.json["name"], made.json["entityVersion"]) == (201, "a/b", 1)
    assert "readOnly" not in made.json
    listed = ask(server, "GET", f"{MANAGEMENT}/catalogs").json["catalogs"]
    assert ([catalog["name"] for catalog in listed], listed[1]) == (["cat", "a/b"], made.json)
    again = ask(server, "POST", f"{MANAGEMENT}/catalogs", {"catalog": definition})
    assert error_in(again)[:2] == (409, "AlreadyExistsException")
    assert ask(server, "POST", f"{V1}/a%2Fb/namespaces", {"namespace": ["n"]}).status == 200
    assert ask(server, "GET", f"{V1}/a/b/namespaces").status == 404


def test_successes_are_compressed_for_those_who_like(server: FakePolaris) -> None:
    plain = ask(server, "GET", T)
    packed = ask(server, "GET", T, headers={"Accept-Encoding": "deflate, gzip"})
    assert (packed.headers["Content-Encoding"], gzip.decompress(packed.body)) == ("gzip", plain.body)
    assert "Content-Encoding" not in plain.headers
    assert "ETag" not in plain.headers


@pytest.mark.parametrize("path", [T, f"{T}/zz", "/nowhere"])
def test_requests_have_ids(server: FakePolaris, path: str) -> None:
    assert ask(server, "GET", path, headers={"X-Request-ID": "mine"}).headers["X-Request-ID"] == "mine"
    first, second = (ask(server, "GET", path).headers["X-Request-ID"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("path", [T, OAUTH])
def test_errors_on_demand_are_those_of_the_server_or_a_gateway(server: FakePolaris, path: str) -> None:
    for status in (401, 429):
        server.fail(status)
        check_bare(ask(server, "POST", path), status)
    server.fail(429, headers={"Retry-After": "1"})
    assert ask(server, "POST", path).headers["Retry-After"] == "1"
    for status, type in ((403, "ForbiddenException"), (419, "AuthenticationTimeoutException")):
        server.fail(status)
        assert error_in(ask(server, "POST", path))[:2] == (status, type)
    server.fail(503)
    gateway = ask(server, "POST", path)
    assert (gateway.status, gateway.headers["Content-Type"]) == (503, "text/html;charset=utf-8")


def test_thousands_of_tables_are_planted(server: FakePolaris) -> None:
    planted = server.add_lance_tables("cat", ["big"], 5000)
    server.add_table("cat", ["big"], "other", format="delta", base_location=None, properties={})
    listed = ask(server, "GET", f"{P}/namespaces/big/generic-tables")
    assert names(listed) == [*planted, "other"]
    other = ask(server, "GET", f"{P}/namespaces/big/generic-tables/other").json["table"]
    assert (other["format"], other["base-location"], other["properties"]) == ("delta", None, {})

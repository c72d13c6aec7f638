"""Requests to Apache Polaris 1.4.1, and its responses, which the fake repeats. Remaining differences: some messages of
errors; the fake creates no Iceberg tables, and refuses only those whose location overlaps that of a generic table; a
namespace's location is compared with those of its siblings, not with their tables."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from tests.fakes.http import Reply, ask, check, error_in
from tests.fakes.polaris import FakePolaris

V1, GENERIC, MANAGEMENT = "/api/catalog/v1", "/api/catalog/polaris/v1", "/api/management/v1"
C, P = f"{V1}/cat", f"{GENERIC}/cat"
N = f"{C}/namespaces"
BASE = "file:///data/cat"
AT_BASE, CHANGE = {"default-base-location": BASE}, {"updates": {"x": "1"}, "removals": ["y"]}
OAUTH = f"{V1}/oauth/tokens"
GRANT = "grant_type=client_credentials&client_id=root&client_secret=s3cr3t&scope=PRINCIPAL_ROLE%3AALL"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def names(reply: Reply) -> list[str]:
    return [identifier["name"] for identifier in reply.json["identifiers"]]


def check_bare(reply: Reply, status: int) -> None:
    headers = {key.lower(): value for key, value in reply.headers.items()}
    assert (reply.status, reply.body) == (status, b"")
    assert (headers["content-length"], headers["content-encoding"]) == ("0", "identity")
    assert "content-type" not in headers
    assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)


A = f"{P}/namespaces/a/generic-tables"
ILLEGAL, FORBIDDEN, NULL = "IllegalArgumentException", "ForbiddenException", "NullPointerException"
VIOLATION, WEB, REALM = "ResteasyReactiveViolationException", "WebApplicationException", "MissingOrInvalidRealm"
EXISTS, NO_TABLE, NO_SPACE = "AlreadyExistsException", "NoSuchTableException", "NoSuchNamespaceException"
NO_PATH, NO_METHOD = "NotFoundException", "NotAllowedException"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
TABLES = ("t", "T", "a/b", "a b", "a%20b", "a%2Fb", "a+b", "日本", "x" * 300, "u\x1fv", "new\nline", "q?x#y", "\0")


@pytest.fixture
def server() -> Iterator[FakePolaris]:
    """Provides a server without authorization, with some namespaces, tables in `a`, and an invalid location."""
    with FakePolaris(credential=None) as running:
        for levels in (["..", "x"], ["q"], ["a.b"], ["a", "b"]):
            running.add_namespace("cat", levels)
        for name in TABLES:
            running.add_table("cat", ["a"], name)
        running.add_iceberg_table("cat", ["a"], "ice")
        running.add_table("cat", ["spoilt"], "t", base_location="file:///data/x y")
        running.add_table("cat", ["whole"], "t", base_location="s3://b/x y")
        yield running


def new(**changes: Any) -> dict[str, Any]:
    """Returns the body that declares a table, with some fields changed, and without those that are `...`."""
    body = {"name": "n", "format": "lance", "base-location": f"{BASE}/a/n", "properties": {"table_type": "lance"}}
    return {key: value for key, value in (body | changes).items() if value is not ...}


def space(*levels: Any, **properties: Any) -> dict[str, Any]:
    """Returns the body that creates a namespace."""
    return {"namespace": levels, "properties": properties}


def ice(location: str) -> dict[str, Any]:
    """Returns the body that creates an Iceberg table."""
    return {"name": "new", "location": location, "schema": SCHEMA, "stage-create": False}


def described(*levels: str, **properties: str) -> dict[str, Any]:
    """Returns the response for a namespace."""
    return {"namespace": list(levels), "properties": {**properties, "location": f"{BASE}/{'/'.join(levels)}/"}}


def named(name: str, **changes: Any) -> dict[str, Any]:
    """Returns the response for a table that `new` declares."""
    table = {"name": name, "format": "lance", "base-location": f"{BASE}/a/n", "doc": None}
    return {"table": {**table, "properties": {"table_type": "lance"}, **changes}, "storage-access-configs": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "expected"),
    [
        # Namespaces.
        ("PUT", N, {}, 405, NO_METHOD),
        *(("DELETE", it, None, 405, NO_METHOD) for it in (N, f"{N}/%2E")),
        *(("POST", N, it, 500, NULL) for it in ({"namespace": None}, {})),
        ("POST", N, [], 400, None),
        ("POST", N, '"x"', 400, None),
        *(("POST", N, it, 400, WEB) for it in ("{nonsense", {"namespace": "n"})),
        ("POST", N, {"namespace": []}, 409, EXISTS),
        ("POST", N, space("a"), 409, EXISTS),
        ("POST", N, space("none", "n"), 404, NO_SPACE),
        ("POST", N, space("n", k=None), 400, ILLEGAL),
        *(("POST", N, it, 403, FORBIDDEN) for it in (space("n", location=f"{BASE}/a"), space("n", location=""))),
        *(("POST", N, it, 403, FORBIDDEN) for it in (space("n", location=f"{BASE}/../x"), space("a/x"))),
        ("POST", N, space("n", location="file:///elsewhere"), 400, ILLEGAL),
        ("POST", N, space("n", location=f"{BASE}/n"), 200, described("n")),
        ("POST", N, {"namespace": ["n"], "properties": None}, 200, described("n")),
        ("POST", N, {"namespace": ["n"], "unknown": 1}, 200, described("n")),
        ("POST", N, space(1, n=1, b=True), 200, described("1", n="1", b="true")),
        ("POST", N, space(None), 200, described("null")),
        *(("POST", N, space(f"n{c}m"), 400, ILLEGAL) for c in '"<>^{|}`[]\\ \t\x1f\u00a0\u2028%'),
        *(("POST", N, space(f"n{c}m"), 200, described(f"n{c}m")) for c in "!#$&'()*+,-.:;=?@_ß日🎉\ufeff\u0301"),
        ("POST", N, space("spoilt", "child"), 400, ILLEGAL),
        ("POST", N, space("whole", "child"), 200, described("whole", "child")),
        ("GET", f"{N}/a%1Fb", None, 200, described("a", "b")),
        ("GET", f"{N}/a%2Eb", None, 200, described("a.b")),
        *(("GET", it, None, 404, NO_SPACE) for it in (f"{N}/zz", f"{N}/a%1F")),
        ("GET", f"{N}/a%00", None, 400, ILLEGAL),
        ("HEAD", f"{N}/a%00", None, 400, None),
        ("HEAD", f"{N}/a", None, 204, None),
        ("HEAD", f"{N}/zz", None, 404, None),
        *(("HEAD", it, None, 200, None) for it in (f"{N}/%2e", f"{N}/")),
        ("DELETE", f"{N}/a", None, 409, "NamespaceNotEmptyException"),
        ("DELETE", f"{N}/q", None, 204, None),
        ("DELETE", f"{N}/zz", None, 404, NO_SPACE),
        ("GET", f"{N}?parent=a", None, 200, {"namespaces": [["a", "b"]], "next-page-token": None}),
        ("GET", f"{N}?parent=a%2Eb", None, 200, {"namespaces": [], "next-page-token": None}),
        ("GET", f"{N}?pageSize=x", None, 404, NO_PATH),
        # Properties of namespaces.
        ("POST", f"{N}/a/properties", CHANGE, 200, {"updated": ["x"], "removed": [], "missing": ["y"]}),
        ("POST", f"{N}/a/properties", {"updates": {"x": "1"}, "removals": ["x"]}, 422, "UnprocessableEntityException"),
        ("POST", f"{N}/zz/properties", {"updates": {"x": "1"}}, 404, NO_SPACE),
        # Generic tables.
        ("POST", A, new(), 200, named("n")),
        ("POST", A, new(name=7), 200, named("7")),
        ("POST", A, new(format="", unknown=1), 200, named("n", format="")),
        ("POST", A, new(properties=None, doc="d"), 200, named("n", properties={}, doc="d")),
        ("POST", A, new(properties={"n": 2, "x": None}), 200, named("n", properties={"n": "2", "x": None})),
        *(
            ("POST", A, new(**{"base-location": place}), 200, named("n", **{"base-location": place}))
            for place in ("not a uri %%", "", "s3://b/../x//", f"{BASE}/a/t", None)
        ),
        *(("POST", A, it, 400, VIOLATION) for it in (new(format=None), new(name=None))),
        ("POST", A, new(name=""), 400, ILLEGAL),
        *(("POST", A, it, 400, None) for it in (new(name=...), new(format=...), new(properties={"x": {}}))),
        ("POST", A, new(properties={"polaris.x": "1"}), 400, ILLEGAL),
        ("POST", A, [], 400, None),
        ("POST", A, '"x"', 400, None),
        ("POST", A, None, 500, NULL),
        *(("POST", A, it, 409, EXISTS) for it in (new(name="t"), new(name="ice"))),
        ("POST", f"{P}/namespaces/zz/generic-tables", new(), 404, NO_SPACE),
        *(("GET", f"{A}/{quote(name, safe='')}", None, 200, ...) for name in TABLES),
        *(("HEAD", f"{A}/{quote(name, safe='')}", None, 200, None) for name in TABLES),
        ("GET", f"{A}/a+b", None, 200, named("a+b", **{"base-location": f"{BASE}/a/a+b"})),
        *(("GET", it, None, 404, NO_TABLE) for it in (f"{A}/zz", f"{A}/ice", f"{P}/namespaces/zz/generic-tables/t")),
        ("GET", f"{GENERIC}/zz/namespaces/a/generic-tables/t", None, 404, NO_TABLE),
        ("DELETE", f"{A}/t", None, 204, None),
        ("DELETE", f"{A}/zz", None, 404, NO_TABLE),
        ("DELETE", f"{P}/namespaces/zz/generic-tables/t", None, 404, NO_SPACE),
        *(("HEAD", it, None, 200, None) for it in (f"{A}/%2e", f"{A}/")),
        *(("GET", it, None, 404, NO_PATH) for it in (f"{A}/%2E%2E", f"{A}//t")),
        ("PUT", f"{A}/t", None, 404, NO_PATH),
        ("DELETE", A, None, 404, NO_PATH),
        *(("GET", it, None, 400, VIOLATION) for it in (f"{A}?pageSize=0", f"{A}?pageSize=-1")),
        ("GET", f"{A}?pageSize=x", None, 404, NO_PATH),
        # Iceberg tables.
        ("POST", f"{C}/namespaces/spoilt/tables", ice(f"{BASE}/spoilt/new"), 400, ILLEGAL),
        ("POST", f"{C}/namespaces/a/tables", ice(f"{BASE}/a/t"), 403, FORBIDDEN),
        # Catalogs.
        ("GET", f"{V1}/config?warehouse=cat", None, 200, {"overrides": {"prefix": "cat"}}),
        ("GET", f"{V1}/config?warehouse=zz", None, 404, NO_PATH),
        ("GET", f"{V1}/config", None, 400, "BadRequestException"),
        ("GET", f"{MANAGEMENT}/catalogs/cat", None, 200, {"name": "cat", "properties": AT_BASE}),
        *(("GET", it, None, 404, NO_PATH) for it in (f"{MANAGEMENT}/catalogs/zz", f"{C}/nonsense", "/api/nonsense")),
    ],
)
def test_requests(server: FakePolaris, method: str, path: str, body: Any, status: int, expected: Any) -> None:
    check(ask(server, method, path, body), status, expected)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "expected"),
    [
        *(("GET", N, None, it, 404, REALM) for it in ({"Polaris-Realm": "nope"}, {"Polaris-Realm": ""})),
        ("GET", N, None, {"Polaris-Realm": "POLARIS"}, 200, ...),
        ("POST", OAUTH, GRANT, FORM | {"Polaris-Realm": "nope"}, 404, REALM),
        *(("POST", OAUTH, it, FORM, 500, NULL) for it in ("client_id=root", "")),
        ("POST", OAUTH, {"grant_type": "x"}, {"Content-Type": "application/json"}, 415, "NotSupportedException"),
        ("POST", N, space("n"), {"Content-Type": "text/plain"}, 415, "NotSupportedException"),
        ("GET", A, None, {"Accept": "text/html"}, 406, "NotAcceptableException"),
    ],
)
def test_headers(
    server: FakePolaris, method: str, path: str, body: Any, headers: Any, status: int, expected: Any
) -> None:
    check(ask(server, method, path, body, headers), status, expected)


def test_messages(server: FakePolaris) -> None:
    custom, size = "Namespace n has a custom location, which is not enabled.", "listGenericTables.pageSize:"
    where = f"Expected a location in: [{BASE}/n/]. Got location: file:///x/]"
    clash = f"conflicts with existing table or namespace at location '{BASE}/a/'"
    for method, path, body, message in (
        ("POST", N, space("n", location="file:///x"), f"{custom} {where}"),
        ("POST", N, space("a/x"), f"Unable to create table at location '{BASE}/a/x/' because it {clash}"),
        ("GET", f"{A}?pageSize=0", None, f"Invalid value: {size} must be greater than or equal to 1"),
        ("GET", f"{N}/zz%1Fy", None, "Namespace does not exist: zz.y"),
    ):
        assert error_in(ask(server, method, path, body))[2] == message


@pytest.mark.parametrize("end", ["", "/", "/%2e", "?pageSize=1", "?pageToken=x", "?pageSize=2&pageToken="])
def test_lists_are_not_paged(server: FakePolaris, end: str) -> None:
    reply = ask(server, "GET", f"{A}{end}")
    assert (names(reply), reply.json["next-page-token"]) == (list(TABLES), None)
    spaces = [[name] for name in ("..", "q", "a.b", "a", "spoilt", "whole")]
    assert ask(server, "GET", f"{N}{end}").json == {"namespaces": spaces, "next-page-token": None}


def test_responses_have_a_type_and_are_compressed_on_request(server: FakePolaris) -> None:
    plain, packed = ask(server, "GET", A), ask(server, "GET", A, headers={"Accept-Encoding": "deflate, gzip"})
    assert (packed.headers["Content-Encoding"], gzip.decompress(packed.body)) == ("gzip", plain.body)
    types = [
        ask(server, method, path).headers.get("Content-Type")
        for method, path in (("GET", A), ("HEAD", A), ("GET", f"{A}/zz"), ("DELETE", f"{A}/t"))
    ]
    assert types == ["application/json;charset=UTF-8", "application/json", "application/json", None]


def test_concurrent_changes_of_properties_conflict(server: FakePolaris) -> None:
    with server.hold("properties") as hold, ThreadPoolExecutor(2) as pool:
        changes = [pool.submit(ask, server, "POST", f"{N}/a/properties", {"removals": ["k"]}) for _ in range(2)]
        hold.wait_for(2)
        hold.release()
        assert sorted(change.result().status for change in changes) == [200, 409]


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Basic cm9vdDpzM2NyM3Q=", "Bearer"])
def test_a_token_is_required(header: str | None) -> None:
    with FakePolaris() as server:
        for path in (A, f"{V1}/config", f"{MANAGEMENT}/catalogs"):
            check_bare(ask(server, "GET", path, headers={"Authorization": header} if header else {}), 401)


@pytest.mark.parametrize(
    ("form", "headers", "status", "error"),
    [
        *((GRANT, it, 200, None) for it in ({}, bearing("stale"))),
        (
            "grant_type=client_credentials&scope=PRINCIPAL_ROLE%3AALL",
            {"Authorization": f"Basic {base64.b64encode(b'root:s3cr3t').decode()}"},
            200,
            None,
        ),
        (GRANT.replace("s3cr3t", "wrong"), {}, 401, "unauthorized_client"),
        (GRANT.partition("&scope")[0], {}, 400, "invalid_scope"),
        (GRANT.replace("PRINCIPAL_ROLE%3AALL", "catalog"), {}, 400, "invalid_scope"),
        (GRANT.replace("client_id=root&", ""), {}, 400, "invalid_client"),
        (GRANT.replace("client_credentials", "password"), {}, 400, "unsupported_grant_type"),
    ],
)
def test_tokens_are_issued_and_expire(form: str, headers: dict[str, str], status: int, error: str | None) -> None:
    with FakePolaris(token_lifetime=90) as server:
        server.add_catalog("cat")
        reply = ask(server, "POST", OAUTH, form, {**FORM, **headers})
        assert (reply.status, reply.json.get("error")) == (status, error)
        if error is None:
            token = bearing(reply.json["access_token"])
            assert (ask(server, "GET", N, headers=token).status, reply.json["expires_in"]) == (200, 90)
            server.advance(91)
            check_bare(ask(server, "GET", N, headers=token), 401)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", N, None, 403),
        ("POST", N, {"namespace": ["x"]}, 403),
        *((it, f"{N}/a", None, 403) for it in ("GET", "DELETE")),
        ("POST", A, {"name": "x", "format": "lance"}, 403),
        ("GET", f"{A}/t1", None, 403),
        ("DELETE", f"{A}/zz", None, 403),
        *(("GET", it, None, 404) for it in (f"{A}/zz", f"{V1}/nocat/namespaces")),
        ("GET", f"{V1}/config?warehouse=cat", None, 200),
    ],
)
def test_a_principal_without_grants(method: str, path: str, body: Any, status: int) -> None:
    with FakePolaris(powerless={"bob": "b0b"}) as server:
        server.add_table("cat", ["a"], "t1")
        check(ask(server, method, path, body, bearing(server.token("bob"))), status, {403: FORBIDDEN}.get(status, ...))


@pytest.mark.parametrize(
    ("strictness", "refused", "accepted"),
    [
        ("1.5", ["a/b", " a", "a "], ["a.b", ".", "a:b", "a\tb"]),
        ("1.6", ["a/b", " a", ".", "..", "a\tb", "a\x1fb", *(f"a{c}b" for c in '\\:*?"<>|#+`')], ["a.b", "a;b", "ü"]),
    ],
)
def test_newer_servers_accept_fewer_names(strictness: Any, refused: list[str], accepted: list[str]) -> None:
    with FakePolaris(credential=None, strict_names=strictness) as server:
        server.add_namespace("cat", ["a"])
        for name in (*refused, *accepted):
            assert ask(server, "POST", A, new(name=name)).status == (200 if name in accepted else 400), name


def test_pages_of_namespaces() -> None:
    """The option is off by default on the server; the token is opaque, and contains the page size of its request."""
    with FakePolaris(credential=None, paging=True) as server:
        for name in "abcde":
            server.add_namespace("cat", [name])
        pages, query = [], "pageSize=2"
        while query:
            page = ask(server, "GET", f"{N}?{query}").json
            pages.append([levels[0] for levels in page["namespaces"]])
            query = f"pageToken={quote(page['next-page-token'])}" if page["next-page-token"] else ""
        assert pages == [["a", "b"], ["c", "d"], ["e"]]
        check(ask(server, "GET", f"{N}?pageSize=-1"), 400, ILLEGAL)
        check(ask(server, "GET", f"{N}?pageToken=garbage"), 500, "RuntimeException")

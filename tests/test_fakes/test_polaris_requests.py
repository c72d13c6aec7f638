"""The fake Polaris server: requests to a real Polaris 1.4.1, and its responses.

The real server received 351 requests; these are the ones in which the fake once differed. Remaining differences:

- messages of errors, of which only the type is known;
- the order of listings, which is that of creation in both and was sorted before the comparison;
- `POST .../tables` creates no Iceberg table, because the fake has no Iceberg API; only its refusal is implemented;
- when a location is refused because it overlaps a sibling's, only siblings are compared, not the tables in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.polaris import FakePolaris
from tests.fakes.polaris.requests import BASE, FORM, GRANT, OAUTH, C, N, P
from tests.fakes.raw import ask

A = f"{P}/namespaces/a/generic-tables"
JSON, JSON_UTF8 = "application/json", "application/json;charset=UTF-8"
BY_HAND = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


@pytest.fixture
def server() -> Iterator[FakePolaris]:
    """Provides a server without authorization, with some namespaces, tables in `a`, and an invalid location."""
    with FakePolaris(credential=None) as running:
        for level in ("..", "q", "deep"):
            running.add_namespace("cat", [level])
        for name in ("t", "T", "a/b", "a b", "a%20b", "a%2Fb", "日本", "x" * 300, "u\x1fv", "new\nline", "q?x#y", "\0"):
            running.add_table("cat", ["a"], name)
        running.add_table("cat", ["spoilt"], "t", base_location="file:///data/x y")
        running.add_table("cat", ["whole"], "t", base_location="s3://b/x y")
        yield running


def new(**changes: Any) -> dict[str, Any]:
    """Returns the body that declares a table, with some fields changed."""
    body = {"name": "n", "format": "lance", "base-location": f"{BASE}/a/n", "properties": {"table_type": "lance"}}
    return body | changes


def space(level: Any, **properties: Any) -> dict[str, Any]:
    """Returns the body that creates a namespace of one level."""
    return {"namespace": [level], "properties": properties}


NOT_FOUND_REALM = (404, "MissingOrInvalidRealm", JSON)
NULL = (500, "NullPointerException", JSON)
ILLEGAL = (400, "IllegalArgumentException", JSON)
VIOLATION = (400, "ResteasyReactiveViolationException", JSON)
FORBIDDEN = (403, "ForbiddenException", JSON)
WEB = (400, "WebApplicationException", JSON)
BARE = (400, None, None)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "answer"),
    [
        ("GET", N, None, {"Polaris-Realm": "nope"}, NOT_FOUND_REALM),
        ("GET", N, None, {"Polaris-Realm": ""}, NOT_FOUND_REALM),
        ("GET", N, None, {"Polaris-Realm": "POLARIS"}, (200, None, JSON_UTF8)),
        ("POST", OAUTH, "client_id=root", FORM, NULL),
        ("POST", OAUTH, "", FORM, NULL),
        ("POST", OAUTH, GRANT, FORM | {"Polaris-Realm": "nope"}, NOT_FOUND_REALM),
        ("PUT", N, {}, {}, (405, "NotAllowedException", JSON)),
        ("POST", N, {"namespace": None}, {}, NULL),
        ("POST", N, {}, {}, NULL),
        ("POST", N, [], {}, BARE),
        ("POST", N, '"x"', {}, BARE),
        ("POST", N, space("n", k=None), {}, ILLEGAL),
        ("POST", N, space("n", location=f"{BASE}/a"), {}, FORBIDDEN),
        ("POST", N, space("n", location=""), {}, FORBIDDEN),
        ("POST", N, space("n", location=f"{BASE}/../x"), {}, FORBIDDEN),
        ("POST", N, space("n", location="file:///elsewhere"), {}, ILLEGAL),
        ("POST", N, {"namespace": "n"}, {}, WEB),
        ("POST", N, {"namespace": ["n"], "unknown": 1}, {}, (200, None, JSON_UTF8)),
        ("POST", N, space("n[m"), {}, ILLEGAL),
        ("POST", N, space("n]m"), {}, ILLEGAL),
        ("POST", N, space("n\u00a0m"), {}, ILLEGAL),
        ("POST", N, space("n\u2028m"), {}, ILLEGAL),
        *(("POST", N, space(f"n{c}m"), {}, ILLEGAL) for c in '"<>^{|}`'),
        *(("POST", N, space(f"n{c}m"), {}, (200, None, JSON_UTF8)) for c in "!#$&'()*+,-.:;=?@_ß日🎉\ufeff\u0301"),
        ("HEAD", f"{N}/%2e", None, {}, (200, None, JSON)),
        ("HEAD", f"{N}/", None, {}, (200, None, JSON)),
        ("GET", f"{N}/%2e", None, {}, (200, None, JSON_UTF8)),
        ("GET", f"{N}/a%00", None, {}, ILLEGAL),
        ("HEAD", f"{N}/a%00", None, {}, (400, None, JSON)),
        ("POST", A, new(format=None), {}, VIOLATION),
        ("POST", A, new(name=None), {}, VIOLATION),
        ("POST", A, [], {}, BARE),
        ("POST", A, '"x"', {}, BARE),
        ("GET", f"{A}/%2e", None, {}, (200, None, JSON_UTF8)),
        ("HEAD", f"{A}/%2e", None, {}, (200, None, JSON)),
        ("HEAD", f"{A}/", None, {}, (200, None, JSON)),
        *(
            ("HEAD", f"{A}/{name}", None, {}, (200, None, JSON))
            for name in ("t", "T", "a%2Fb", "a%20b", "a%2520b", "a%252Fb", "%E6%97%A5%E6%9C%AC", "x" * 300)
        ),
        *(("HEAD", f"{A}/{name}", None, {}, (200, None, JSON)) for name in ("u%1Fv", "new%0Aline", "q%3Fx%23y", "%00")),
        ("POST", f"{C}/namespaces/spoilt/tables", {"name": "ice", "schema": BY_HAND}, {}, ILLEGAL),
        ("POST", N, {"namespace": ["spoilt", "child"]}, {}, ILLEGAL),
        ("POST", N, {"namespace": ["whole", "child"]}, {}, (200, None, JSON_UTF8)),
    ],
)
def test_answers_are_those_of_the_real_server(
    server: FakePolaris, method: str, path: str, body: Any, headers: dict[str, str], answer: tuple[Any, ...]
) -> None:
    reply = ask(server, method, path, body, headers)
    kind = reply.json["error"]["type"] if reply.body and reply.status >= 400 else None
    assert (reply.status, kind, reply.headers.get("Content-Type")) == answer
    if method == "HEAD":
        assert reply.body == b""


@pytest.mark.parametrize(("level", "name"), [(1, "1"), (None, "null"), ("n", "n")])
def test_levels_become_text(server: FakePolaris, level: Any, name: str) -> None:
    reply = ask(server, "POST", N, {"namespace": [level]})
    assert reply.json == {"namespace": [name], "properties": {"location": f"{BASE}/{name}/"}}


def test_names_of_tables_become_text(server: FakePolaris) -> None:
    assert ask(server, "POST", A, new(name=7)).json["table"]["name"] == "7"


NO_PAGES = ["?pageSize=1", "?pageSize=2", "?pageToken=x", "?pageToken=", "?pageSize=2&pageToken="]


@pytest.mark.parametrize("end", ["", "/", "/%2e", "?parent=", "?pageSize=0", "?pageSize=-1", *NO_PAGES])
def test_lists_of_namespaces_are_whole(server: FakePolaris, end: str) -> None:
    ask(server, "POST", N, {"namespace": [1]})
    reply = ask(server, "GET", f"{N}{end}")
    names = ["..", "1", "a", "deep", "q", "spoilt", "whole"]
    body = {"namespaces": [[name] for name in names], "next-page-token": None}
    assert (reply.status, reply.json | {"namespaces": sorted(reply.json["namespaces"])}) == (200, body)


@pytest.mark.parametrize("end", ["", "/", "/%2e", *NO_PAGES])
def test_lists_of_tables_are_whole(server: FakePolaris, end: str) -> None:
    ask(server, "POST", A, new(name=7))
    reply = ask(server, "GET", f"{A}{end}")
    assert (reply.status, reply.json["next-page-token"], reply.json["identifiers"][-1]["name"]) == (200, None, "7")
    assert len(reply.json["identifiers"]) == 13

"""The fake Polaris server: paths, names and pages, parsed like in the real one."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.fakes.iceberg.errors import error_in
from tests.fakes.polaris import FakePolaris
from tests.fakes.polaris.requests import BASE, NOWHERE, OUTSIDE, N, P, names, no_table
from tests.fakes.raw import ask


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("{t}/%2E", "the list"),
        ("{t}/%2e/", "the list"),
        ("{t}/", "the list"),
        ("{t}/x/..", "the list"),
        ("{c}/../cat/namespaces/n/generic-tables/t", "t"),
        ("{t}/%2E%2E", NOWHERE),
        ("{t}/.%2e", NOWHERE),
        ("{t}//t", NOWHERE),
        ("{c}/namespaces//generic-tables", NOWHERE),
        ("{t}/a%2Fb", "a/b"),
        ("{t}/a%252Fb", "a%2Fb"),
        ("{t}/a+b", "a+b"),
        ("{t}/a%2Bb", "a+b"),
        ("{t}/a%20b", "a b"),
        ("{t}/ova%3Fb", "ova?b"),
        ("{t}/ova?b", "ova"),
        ("{t}/T", no_table("n.T")),
    ],
)
def test_paths_are_read_raw(path: str, expected: str | tuple[int, str, str]) -> None:
    planted = ["t", "a/b", "a%2Fb", "a+b", "a b", "ova", "ova?b"]
    with FakePolaris(credential=None) as server:
        for name in planted:
            server.add_table("cat", ["n"], name)
        reply = ask(server, "GET", path.format(c=P, t=f"{P}/namespaces/n/generic-tables"))
    match expected:
        case "the list":
            assert names(reply) == planted
        case str():
            assert reply.json["table"]["name"] == expected
        case _:
            assert error_in(reply) == expected


def test_only_the_unit_separator_separates() -> None:
    spaces = [["a.b"], ["a", "b"], ["a%1Fb"], ["a b"], ["a+b"]]
    with FakePolaris(credential=None) as server:
        for levels in spaces:
            server.add_namespace("cat", levels)
        for path, levels in {
            "a.b": ["a.b"],
            "a%2Eb": ["a.b"],
            "a%1Fb": ["a", "b"],
            "a%1fb": ["a", "b"],
            "a%251Fb": ["a%1Fb"],
            "a+b": ["a+b"],
            "a%20b": ["a b"],
        }.items():
            assert ask(server, "GET", f"{N}/{path}").json["namespace"] == levels
        for path in ("a%1F", "%1Fa", "a%1F%1Fb", "a%2520b"):
            assert ask(server, "GET", f"{N}/{path}").status == 404
        assert ask(server, "GET", f"{N}?parent=a").json["namespaces"] == [["a", "b"]]
        # A plus is a blank in a query.
        assert ask(server, "GET", f"{N}?parent=a+b").json["namespaces"] == []
        messages = [error_in(ask(server, "DELETE", f"{N}/zz{dot}b"))[2] for dot in (".", "%1F")]
        assert messages == ["Namespace does not exist: zz.b"] * 2


CONTROLS = ["tab\t", "us\x1f", "nul\0", "\x7f"]
ODD_NAMES = "a.b|a/b|a%b|a+b|a;b|a?b#c|a:b|a,b|a\\b|a'b\"c|ünï表|🙂| a |T|t".split("|")
ODD_LEVELS = "a.b a+b a;b a?b#c a:b a'b ünï表 a%1Fb".split()


def test_tables_take_any_name() -> None:
    with FakePolaris(credential=None) as server:
        server.add_namespace("cat", ["n"])
        path = f"{P}/namespaces/n/generic-tables"
        kept = [*ODD_NAMES, *CONTROLS, "x" * 300]
        for name in (*kept, ".", ".."):
            assert ask(server, "POST", path, {"name": name, "format": "lance"}).status == 200
        for name in kept:
            one = f"{path}/{quote(name, safe='')}"
            assert ask(server, "GET", one).json["table"]["name"] == name
            assert ask(server, "DELETE", one).status == 204
        assert names(ask(server, "GET", path)) == [".", ".."]


@pytest.mark.parametrize("level", [*ODD_LEVELS, "a/b", "x" * 300])
def test_levels_take_what_stands_in_a_uri(level: str) -> None:
    with FakePolaris(credential=None) as server:
        server.add_catalog("cat")
        assert ask(server, "POST", N, {"namespace": [level]}).status == 200
        made = ask(server, "GET", f"{N}/{quote(level, safe='')}").json
        assert made["namespace"] == [level]
        assert made["properties"] == {"location": f"file:///data/cat/{level}/"}


@pytest.mark.parametrize("level", ["a b", "a\tb", "a\\b", "a\x1fb", "a%b", "a%2"])
def test_levels_take_nothing_else(level: str) -> None:
    with FakePolaris(credential=None) as server:
        server.add_catalog("cat")
        reply = ask(server, "POST", N, {"namespace": [level]})
    assert error_in(reply)[:2] == (400, "IllegalArgumentException")


@pytest.mark.parametrize(
    ("strictness", "refused", "taken"),
    [
        ("1.5", ["a/b", " a", "a "], ["a.b", ".", "a:b", "a\tb"]),
        ("1.6", ["a/b", " a", ".", "..", "a\tb", "a\x1fb", *(f"a{c}b" for c in '\\:*?"<>|#+`')], ["a.b", "a;b", "ü"]),
    ],
)
def test_newer_servers_take_fewer_names(strictness: Any, refused: list[str], taken: list[str]) -> None:
    with FakePolaris(credential=None, strict_names=strictness) as server:
        server.add_namespace("cat", ["n"])
        for name in (*refused, *taken):
            reply = ask(server, "POST", f"{P}/namespaces/n/generic-tables", {"name": name, "format": "lance"})
            assert reply.status == (200 if name in taken else 400), name
        for level in refused:
            reply = ask(server, "POST", N, {"namespace": [level]})
            assert error_in(reply)[:2] == (400, "IllegalArgumentException")


def test_locations_of_siblings_lie_apart() -> None:
    with FakePolaris(credential=None) as server:
        server.add_namespace("cat", ["schema"])
        for level in ("", "schema/x"):
            reply = ask(server, "POST", N, {"namespace": [level]})
            clash = f"conflicts with existing table or namespace at location '{BASE}/schema/'"
            message = f"Unable to create entity at location '{BASE}/{level}/' because it {clash}"
            assert error_in(reply) == (403, "ForbiddenException", message)
        assert ask(server, "POST", N, {"namespace": ["schemata"]}).status == 200


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", 200),
        ("?pageToken=abc&pageSize=1", 200),
        ("?pageSize=0", "ResteasyReactiveViolationException"),
        ("?pageSize=-1", "ResteasyReactiveViolationException"),
        ("?pageSize=x", "NotFoundException"),
    ],
)
def test_the_list_of_tables_is_never_paged(query: str, outcome: int | str) -> None:
    with FakePolaris(credential=None) as server:
        planted = server.add_lance_tables("cat", ["n"], 3)
        reply = ask(server, "GET", f"{P}/namespaces/n/generic-tables{query}")
    if outcome == 200:
        assert (names(reply), reply.json["next-page-token"]) == (planted, None)
    else:
        assert error_in(reply)[:2] == (404 if outcome == "NotFoundException" else 400, outcome)


def test_the_list_of_tables_can_be_made_to_page() -> None:
    with FakePolaris(credential=None, table_page=2) as server:
        planted = server.add_lance_tables("cat", ["n"], 5)
        pages: list[list[str]] = []
        token = ""
        while token is not None:
            page = ask(server, "GET", f"{P}/namespaces/n/generic-tables?pageToken={token}")
            pages.append(names(page))
            token = page.json["next-page-token"]
    assert pages == [planted[:2], planted[2:4], planted[4:]]


def children(server: FakePolaris, query: str) -> tuple[list[str], str | None]:
    page = ask(server, "GET", f"{N}?{query}").json
    return [levels[0] for levels in page["namespaces"]], page["next-page-token"]


def with_five(paging: bool) -> FakePolaris:
    server = FakePolaris(credential=None, paging=paging)
    for name in "abcde":
        server.add_namespace("cat", [name])
    return server


@pytest.mark.parametrize("query", ["", "pageSize=2", "pageSize=0", "pageSize=-1", "pageToken=garbage"])
def test_namespaces_come_at_once_without_the_flag(query: str) -> None:
    with with_five(paging=False) as server:
        assert children(server, query) == (list("abcde"), None)
        assert error_in(ask(server, "GET", f"{N}?pageSize=x")) == OUTSIDE


def test_namespaces_are_paged_under_the_flag() -> None:
    with with_five(paging=True) as server:
        for query in ("", "pageToken=", "pageSize=5", "pageSize=6"):
            assert children(server, query) == (list("abcde"), None)
        assert children(server, "pageSize=0") == ([], None)
        first, token = children(server, "pageSize=2")
        assert token is not None and quote(token, safe="") != token
        # A token without a size keeps the page size of its request.
        second, token = children(server, f"pageToken={quote(token)}")
        assert token is not None
        third, end = children(server, f"pageToken={quote(token)}&pageSize=2")
        assert (first, second, third, end) == (["a", "b"], ["c", "d"], ["e"], None)
        assert error_in(ask(server, "GET", f"{N}?pageSize=-1"))[:2] == (400, "IllegalArgumentException")
        assert error_in(ask(server, "GET", f"{N}?pageToken=garbage"))[:2] == (500, "RuntimeException")
        assert error_in(ask(server, "GET", f"{N}?pageSize=x")) == OUTSIDE

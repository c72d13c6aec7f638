"""The fake Unity Catalog server: pages, and omissions from them, as raw requests and responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.fakes.unity import FakeUnity
from tests.fakes.unity.requests import LIST, TABLE, call, column, error, page


def planted(server: FakeUnity, count: int) -> list[str]:
    """Provides tables `t000`, `t001` ... in `c1.s1`."""
    names = [f"t{i:03}" for i in range(count)]
    for name in names:
        server.add_table("c1", "s1", name, columns=[column()])
    return names


def walk(server: FakeUnity, more: str = "", headers: Any = None) -> list[tuple[list[str], str | None]]:
    """Returns all pages, twenty at most."""
    pages = [page(server, f"{LIST}{more}", headers)]
    while (token := pages[-1][1]) is not None and len(pages) < 20:
        pages.append(page(server, f"{LIST}{more}&page_token={quote(token, safe='')}", headers))
    return pages


@pytest.fixture
def server() -> Iterator[FakeUnity]:
    with FakeUnity(catalog="c1") as running:
        running.add_schema("c1", "s1")
        yield running


def test_names_come_in_byte_order(server: FakeUnity) -> None:
    for name in ("a", "z", "_z", "Z", "B", "@x", "0", "-x"):
        server.add_table("c1", "s1", name)
    assert page(server, LIST) == (["-x", "0", "@x", "B", "Z", "_z", "a", "z"], None)
    assert page(server, f"{LIST}&page_token=C") == (["Z", "_z", "a", "z"], None)


@pytest.mark.parametrize(
    ("limit", "size"),
    [("", 100), ("&max_results=", 100), ("&max_results=0", 100), ("&max_results=101", 100), ("&max_results=99", 99)],
)
def test_pages_hold_a_hundred_at_most(server: FakeUnity, limit: str, size: int) -> None:
    names = planted(server, 120)
    assert walk(server, limit) == [(names[:size], names[size - 1]), (names[size:], None)]


@pytest.mark.parametrize("limit", ["-1", "x", "1.5"])
@pytest.mark.parametrize("path", [LIST, "/schemas?catalog_name=c1"])
def test_other_sizes_are_refused(server: FakeUnity, path: str, limit: str) -> None:
    assert error(call(server, "GET", f"{path}&max_results={limit}"))[:2] == (400, "INVALID_ARGUMENT")


def test_a_full_last_page_has_a_token(server: FakeUnity) -> None:
    names = planted(server, 4)
    assert walk(server, "&max_results=2") == [(names[:2], "t001"), (names[2:], "t003"), ([], None)]
    assert call(server, "GET", f"{LIST}&page_token=t003").json == {"tables": [], "next_page_token": None}


def test_schemas_are_paged_alike(server: FakeUnity) -> None:
    for name in ("s2", "s3"):
        server.add_schema("c1", name)
    first = page(server, "/schemas?catalog_name=c1&max_results=2")
    assert (first, page(server, "/schemas?catalog_name=c1&page_token=s2")) == ((["s1", "s2"], "s2"), (["s3"], None))


@pytest.mark.parametrize(
    ("query", "columns", "properties"),
    [
        ("", True, True),
        ("&omit_columns=true", False, True),
        ("&omit_columns=1&omit_properties=false", False, True),
        ("&omit_properties=true", True, False),
    ],
)
def test_columns_and_properties_can_be_left_out(server: FakeUnity, query: str, columns: bool, properties: bool) -> None:
    planted(server, 1)
    (table,) = call(server, "GET", LIST + query).json["tables"]
    whole = call(server, "GET", "/tables/c1.s1.t000").json
    left = {"columns": whole["columns"] if columns else [], "properties": whole["properties"] if properties else {}}
    assert table == {**whole, **left}
    assert error(call(server, "GET", f"{LIST}&omit_columns=yes"))[:2] == (400, "INVALID_ARGUMENT")


def test_pages_can_be_short_empty_and_unsorted() -> None:
    for options in (
        {"short_pages": True},
        {"empty_pages": True},
        {"unsorted": True},
        {"short_pages": True, "empty_pages": True, "unsorted": True},
    ):
        with FakeUnity(catalog="c1", **options) as server:  # type: ignore[arg-type]
            names = planted(server, 30)
            pages = walk(server, "&max_results=10")
            listed = [name for page, _ in pages for name in page]
        sizes = [len(page) for page, _ in pages]
        assert sorted(listed) == names
        assert (listed != names) == ("unsorted" in options)
        assert (0 in sizes[:-1]) == ("empty_pages" in options)
        assert any(0 < size < 10 for size in sizes) == ("short_pages" in options)


def test_a_token_can_be_repeated_for_ever() -> None:
    with FakeUnity(catalog="c1", repeat_token=True) as server:
        names = planted(server, 3)
        assert walk(server) == [(names, "again")] * 20


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (401, "UNAUTHENTICATED", "No authorization found.")),
        ({"Authorization": "Basic cm9vdDpwdw=="}, (401, "UNAUTHENTICATED", "No authorization found.")),
        (bearing("junk"), (401, "UNAUTHENTICATED", "Invalid access token.")),
        (bearing("unknown"), (403, "PERMISSION_DENIED", "User not allowed: unknown")),
        (bearing("nobody"), (403, "PERMISSION_DENIED", "Access denied.")),
        (bearing("all"), None),
    ],
)
def test_users_are_identified_by_their_tokens(headers: dict[str, str], expected: Any) -> None:
    with FakeUnity(catalog="c1", authorization=["all"]) as server:
        planted(server, 1)
        server.allow("nobody")
        server.disown("unknown")
        reply = call(server, "GET", "/tables/c1.s1.t000", headers=headers)
        assert "WWW-Authenticate" not in reply.headers
        if expected is None:
            assert (reply.status, server.properties["auth_token"]) == (200, "all")
            server.expire_tokens()
            reply = call(server, "GET", "/tables/c1.s1.t000", headers=headers)
            expected = (401, "UNAUTHENTICATED", "Invalid access token.")
        assert error(reply) == expected


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/tables/c1.s1.t001", None, 200),
        ("GET", "/tables/c1.s1.t000", None, 403),
        ("GET", "/tables/c1.s1.zz", None, 404),
        ("GET", "/schemas/c1.s1", None, 200),
        ("GET", "/schemas/c1.s2", None, 403),
        ("GET", "/schemas/c1.zz", None, 404),
        ("GET", "/catalogs/c1", None, 200),
        ("DELETE", "/tables/c1.s1.t001", None, 403),
        ("DELETE", "/tables/c1.s1.zz", None, 404),
        ("DELETE", "/schemas/c1.s1", None, 403),
        ("PATCH", "/schemas/c1.s1", {"properties": {}}, 403),
        ("POST", "/tables", TABLE, 403),
        ("POST", "/schemas", {"name": "x", "catalog_name": "c1"}, 403),
        ("POST", "/catalogs", {"name": "x"}, 403),
    ],
)
def test_users_may_do_what_they_were_granted(method: str, path: str, body: Any, status: int) -> None:
    with FakeUnity(catalog="c1", authorization=[]) as server:
        planted(server, 2)
        server.add_schema("c1", "s2")
        server.allow("some", "c1.s1.t001")
        assert call(server, method, path, body, bearing("some")).status == status


def test_lists_are_filtered_after_paging() -> None:
    with FakeUnity(catalog="c1", authorization=[]) as server:
        planted(server, 250)
        server.allow("some", *(f"c1.s1.{name}" for name in ("t005", "t150", "t155")))
        server.allow("nobody")
        some, none = (walk(server, headers=bearing(token)) for token in ("some", "nobody"))
        assert some == [(["t005"], "t099"), (["t150", "t155"], "t199"), ([], None)]
        assert none == [([], "t099"), ([], "t199"), ([], None)]
        schemas = [page(server, "/schemas?catalog_name=c1", bearing(token)) for token in ("some", "nobody")]
        assert schemas == [(["s1"], None), ([], None)]


def test_thousands_of_tables_are_planted(server: FakeUnity) -> None:
    names = server.add_lance_tables("c1", "big", 2000)
    server.add_table("c1", "big", "other", properties={}, data_source_format=None, columns=None)
    assert page(server, "/tables?catalog_name=c1&schema_name=big") == (["other", *names[:99]], "t0098")
    other = call(server, "GET", "/tables/c1.big.other").json
    assert (other["properties"], other["data_source_format"], other["columns"]) == ({}, None, None)

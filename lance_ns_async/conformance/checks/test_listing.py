"""Listings of tables: complete, in pages, and of the whole catalog."""

from __future__ import annotations

import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, LanceNamespace, ListTablesRequest
from lance_namespace.errors import NamespaceNotFoundError

from lance_ns_async.conformance.home import Home, expect, pages

NAMES = [f"t{number}" for number in range(8)]


def test_an_empty_namespace_lists_no_tables(ns: LanceNamespace, home: Home) -> None:
    page = ns.list_tables(ListTablesRequest(id=home.id))
    assert page.tables == [] and not page.page_token, (
        f"expected no table and no page token, found {page.tables} and the token {page.page_token!r}"
    )


def test_a_missing_namespace_is_not_an_empty_one(ns: LanceNamespace, home: Home) -> None:
    with expect(NamespaceNotFoundError):
        ns.list_tables(ListTablesRequest(id=home.beside("none")))


def test_a_listing_without_a_limit_is_complete(ns: LanceNamespace, home: Home) -> None:
    _declare(ns, home)
    listed = pages(ns.list_tables, ListTablesRequest(id=home.id))
    tables = [name for page in listed for name in page.tables]
    assert sorted(tables) == NAMES, f"expected {NAMES}, found {tables}"


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_pages_of_tables_have_each_name_once(ns: LanceNamespace, home: Home, limit: int) -> None:
    _declare(ns, home)
    tables: list[str] = []
    for page in pages(ns.list_tables, ListTablesRequest(id=home.id, limit=limit)):
        assert len(page.tables) <= limit, f"expected at most {limit} tables in a page, found {len(page.tables)}"
        tables += page.tables
    assert sorted(tables) == NAMES, f"expected {NAMES}, found {tables}"


def test_a_listing_has_no_tables_of_other_namespaces(ns: LanceNamespace, home: Home) -> None:
    ns.create_namespace(CreateNamespaceRequest(id=home.beside("a")))
    ns.declare_table(DeclareTableRequest(id=home.beside("a", "theirs")))
    ns.declare_table(DeclareTableRequest(id=home.table("ours")))
    tables = ns.list_tables(ListTablesRequest(id=home.id)).tables
    assert tables == ["ours"], f"expected ['ours'], without the tables of another namespace, found {tables}"


def test_tables_that_are_only_declared_can_be_left_out(ns: LanceNamespace, home: Home) -> None:
    _declare(ns, home)
    page = ns.list_tables(ListTablesRequest(id=home.id, include_declared=False))
    assert page.tables == [], f"expected no table, found {page.tables}"


def test_all_tables_are_listed_by_whole_ids(ns: LanceNamespace, home: Home) -> None:
    _declare(ns, home)
    listed = pages(ns.list_all_tables, ListTablesRequest(id=[]))
    tables = [name for page in listed for name in page.tables]
    ours = sorted(table for table in tables if home.name in table)
    expected = sorted("$".join(home.table(name)) for name in NAMES)
    assert ours == expected, f"expected {expected}, found {ours}"


def _declare(ns: LanceNamespace, home: Home) -> None:
    for name in NAMES:
        ns.declare_table(DeclareTableRequest(id=home.table(name)))

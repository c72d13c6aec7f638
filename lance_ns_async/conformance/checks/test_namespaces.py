"""Namespaces: created in each mode, described, listed and dropped."""

from __future__ import annotations

import lance_namespace as spec
import lance_namespace.errors as err
import pytest
from lance_namespace import LanceNamespace

from lance_ns_async.conformance.home import Home, expect, pages, request_for


def test_a_created_namespace_has_its_properties(ns: LanceNamespace, home: Home) -> None:
    made = ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a"), properties={"k": "v"}))
    assert made.properties is None or made.properties.get("k") == "v", (
        f"expected the property k='v' in the response, found {made.properties}"
    )
    _check_property(ns, home.beside("a"), "v")


def test_creating_an_existing_one_fails(ns: LanceNamespace, home: Home) -> None:
    with expect(err.NamespaceAlreadyExistsError):
        ns.create_namespace(spec.CreateNamespaceRequest(id=home.id))


@pytest.mark.parametrize("mode", ["ExistOk", "exist_ok", "EXIST_OK"])
def test_mode_exist_ok_keeps_an_existing_one(ns: LanceNamespace, home: Home, mode: str) -> None:
    ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a"), properties={"k": "old"}))
    ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a"), properties={"k": "new"}, mode=mode))
    _check_property(ns, home.beside("a"), "old")


@pytest.mark.parametrize("mode", ["ExistOk", "Overwrite"])
def test_each_mode_creates_a_missing_one(ns: LanceNamespace, home: Home, mode: str) -> None:
    ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a"), mode=mode))
    ns.namespace_exists(spec.NamespaceExistsRequest(id=home.beside("a")))


def test_mode_overwrite_replaces_an_empty_one(ns: LanceNamespace, home: Home) -> None:
    ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a"), properties={"k": "old", "gone": "1"}))
    ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a"), properties={"k": "new"}, mode="Overwrite"))
    properties = _check_property(ns, home.beside("a"), "new")
    assert "gone" not in properties, f"expected no property of the replaced namespace, found {properties}"


def test_mode_overwrite_keeps_one_with_a_table(ns: LanceNamespace, home: Home) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    with expect(err.NamespaceNotEmptyError):
        ns.create_namespace(spec.CreateNamespaceRequest(id=home.id, mode="Overwrite"))
    ns.describe_table(spec.DescribeTableRequest(id=home.table("t")))


def test_an_unknown_mode_is_refused(ns: LanceNamespace, home: Home) -> None:
    with expect(err.InvalidInputError):
        ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a"), mode="Replace"))
    with expect(err.NamespaceNotFoundError):
        ns.namespace_exists(spec.NamespaceExistsRequest(id=home.beside("a")))


def test_a_child_needs_its_parent(ns: LanceNamespace, home: Home) -> None:
    with expect(err.NamespaceNotFoundError, err.InvalidInputError):
        ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("none", "child")))
    with expect(err.NamespaceNotFoundError):
        ns.namespace_exists(spec.NamespaceExistsRequest(id=home.beside("none")))


def test_a_listing_has_children_and_no_grandchildren(ns: LanceNamespace, home: Home) -> None:
    for name in ("b", "a"):
        ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside(name)))
    _nest(ns, home.beside("a", "x"))
    page = ns.list_namespaces(spec.ListNamespacesRequest(id=list(home.parent)))
    assert home.listed(page.namespaces) == ["a", "b"], (
        f"expected {home.name}_a and {home.name}_b, found {page.namespaces}"
    )
    page = ns.list_namespaces(spec.ListNamespacesRequest(id=home.beside("a")))
    assert [name.rsplit(".", 1)[-1] for name in page.namespaces] == ["x"], f"expected x, found {page.namespaces}"


def test_a_namespace_without_children_lists_none(ns: LanceNamespace, home: Home) -> None:
    page = ns.list_namespaces(spec.ListNamespacesRequest(id=home.id))
    assert page.namespaces == [] and not page.page_token, (
        f"expected no namespace and no page token, found {page.namespaces} and the token {page.page_token!r}"
    )


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_pages_of_namespaces_have_each_name_once(ns: LanceNamespace, home: Home, limit: int) -> None:
    for number in range(8):
        ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside(f"n{number}")))
    names: list[str] = []
    for page in pages(ns.list_namespaces, spec.ListNamespacesRequest(id=list(home.parent), limit=limit)):
        assert len(page.namespaces) <= limit, f"expected at most {limit} names in a page, found {len(page.namespaces)}"
        names += page.namespaces
    expected = [f"n{number}" for number in range(8)]
    assert home.listed(names) == expected, f"expected {expected} after {home.name}_, found {names}"


@pytest.mark.parametrize("operation", ["describe_namespace", "namespace_exists", "list_namespaces", "drop_namespace"])
def test_a_missing_namespace_is_not_found(ns: LanceNamespace, home: Home, operation: str) -> None:
    with expect(err.NamespaceNotFoundError):
        getattr(ns, operation)(request_for(operation, home.beside("none")))


def test_an_existing_namespace_exists(ns: LanceNamespace, home: Home) -> None:
    ns.namespace_exists(spec.NamespaceExistsRequest(id=home.id))


def test_a_dropped_namespace_is_gone(ns: LanceNamespace, home: Home) -> None:
    ns.drop_namespace(spec.DropNamespaceRequest(id=home.id))
    with expect(err.NamespaceNotFoundError):
        ns.describe_namespace(spec.DescribeNamespaceRequest(id=home.id))
    page = ns.list_namespaces(spec.ListNamespacesRequest(id=list(home.parent)))
    assert home.name not in {name.rsplit(".", 1)[-1] for name in page.namespaces}, (
        f"expected a listing without {home.name}, found {page.namespaces}"
    )


@pytest.mark.parametrize("mode", ["Skip", "skip", "SKIP"])
def test_a_drop_with_mode_skip_accepts_a_missing_one(ns: LanceNamespace, home: Home, mode: str) -> None:
    ns.drop_namespace(spec.DropNamespaceRequest(id=home.beside("none"), mode=mode))


@pytest.mark.parametrize("behavior", [None, "Restrict"])
def test_a_drop_refuses_a_namespace_with_a_table(ns: LanceNamespace, home: Home, behavior: str | None) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    with expect(err.NamespaceNotEmptyError):
        ns.drop_namespace(spec.DropNamespaceRequest(id=home.id, behavior=behavior))
    ns.describe_table(spec.DescribeTableRequest(id=home.table("t")))


def test_a_drop_refuses_a_namespace_with_a_child(ns: LanceNamespace, home: Home) -> None:
    ns.create_namespace(spec.CreateNamespaceRequest(id=home.beside("a")))
    _nest(ns, home.beside("a", "x"))
    with expect(err.NamespaceNotEmptyError):
        ns.drop_namespace(spec.DropNamespaceRequest(id=home.beside("a")))
    ns.namespace_exists(spec.NamespaceExistsRequest(id=home.beside("a", "x")))


def test_a_cascade_drops_the_tables_or_is_refused(ns: LanceNamespace, home: Home) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    try:
        ns.drop_namespace(spec.DropNamespaceRequest(id=home.id, behavior="Cascade"))
    except (err.InvalidInputError, err.NamespaceNotEmptyError):
        # A catalog without a cascade must say so, and leave all.
        ns.describe_table(spec.DescribeTableRequest(id=home.table("t")))
        pytest.skip("it drops empty namespaces alone")
    with expect(err.NamespaceNotFoundError):
        ns.namespace_exists(spec.NamespaceExistsRequest(id=home.id))


def test_a_cascade_drops_an_empty_namespace(ns: LanceNamespace, home: Home) -> None:
    ns.drop_namespace(spec.DropNamespaceRequest(id=home.id, behavior="Cascade"))
    with expect(err.NamespaceNotFoundError):
        ns.namespace_exists(spec.NamespaceExistsRequest(id=home.id))


def test_the_root_can_be_neither_created_nor_dropped(ns: LanceNamespace, home: Home) -> None:
    with expect(err.NamespaceAlreadyExistsError, err.InvalidInputError):
        ns.create_namespace(spec.CreateNamespaceRequest(id=[]))
    with expect(err.InvalidInputError, err.NamespaceNotEmptyError):
        ns.drop_namespace(spec.DropNamespaceRequest(id=[]))
    ns.namespace_exists(spec.NamespaceExistsRequest(id=home.id))


def _check_property(ns: LanceNamespace, id: list[str], expected: str) -> dict[str, str]:
    """Returns the properties of a namespace; fails unless the property `k` has the expected value."""
    properties = ns.describe_namespace(spec.DescribeNamespaceRequest(id=id)).properties or {}
    assert properties.get("k") == expected, f"expected the property k={expected!r}, found {properties}"
    return properties


def _nest(ns: LanceNamespace, id: list[str]) -> None:
    """Creates a namespace in another one, unless the catalog has a fixed number of levels."""
    try:
        ns.create_namespace(spec.CreateNamespaceRequest(id=id))
    except err.InvalidInputError:
        pytest.skip("its namespaces hold tables alone")

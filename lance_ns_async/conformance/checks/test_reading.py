"""Calls that change nothing: these are safe on a catalog in production."""

from __future__ import annotations

import uuid

import lance_namespace as spec
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.conformance.home import expect, pages, request_for
from lance_ns_async.conformance.targets import Target

SAMPLE = 5
"""Namespaces and tables that are looked at."""


@pytest.fixture
def missing(target: Target) -> list[str]:
    return [*target.parent, f"conformance_{uuid.uuid4().hex}"]


@pytest.fixture
def namespaces(ns: LanceNamespace, target: Target) -> list[list[str]]:
    """The first namespaces under the parent."""
    names = ns.list_namespaces(spec.ListNamespacesRequest(id=list(target.parent), limit=SAMPLE)).namespaces
    joined = ".".join(target.parent)
    return [[*target.parent, name.removeprefix(f"{joined}.")] for name in names[:SAMPLE]]


def test_pages_of_namespaces_are_the_whole_listing(ns: LanceNamespace, target: Target) -> None:
    def listed(limit: int | None) -> list[str]:
        names: list[str] = []
        for page in pages(ns.list_namespaces, spec.ListNamespacesRequest(id=list(target.parent), limit=limit)):
            names += page.namespaces
            # A large catalog is not read to its end.
            if len(names) >= 10 * SAMPLE:
                break
        return names

    whole, paged = listed(None), listed(SAMPLE)
    repeated = sorted({name for name in whole if whole.count(name) > 1})
    assert not repeated, f"expected each name once, found {repeated[:9]} more than once"
    assert paged[: len(whole)] == whole[: len(paged)], (
        f"expected the names of a listing without a limit, {whole[:9]}, found {paged[:9]} in pages"
    )


@pytest.mark.parametrize("operation", ["describe_namespace", "namespace_exists", "list_namespaces", "list_tables"])
def test_a_missing_namespace_is_not_found(ns: LanceNamespace, missing: list[str], operation: str) -> None:
    with expect(NamespaceNotFoundError):
        getattr(ns, operation)(request_for(operation, missing))


@pytest.mark.parametrize("operation", ["describe_table", "table_exists"])
def test_a_missing_table_is_not_found(ns: LanceNamespace, missing: list[str], operation: str) -> None:
    with expect(TableNotFoundError, NamespaceNotFoundError):
        getattr(ns, operation)(request_for(operation, [*missing, "t"]))


def test_listed_namespaces_are_described(ns: LanceNamespace, namespaces: list[list[str]]) -> None:
    for id in namespaces:
        ns.namespace_exists(spec.NamespaceExistsRequest(id=id))
        ns.describe_namespace(spec.DescribeNamespaceRequest(id=id))


def test_listed_tables_are_described_with_their_locations(ns: LanceNamespace, namespaces: list[list[str]]) -> None:
    for id in namespaces:
        try:
            names = ns.list_tables(spec.ListTablesRequest(id=id, limit=SAMPLE)).tables[:SAMPLE]
        except InvalidInputError:
            # A namespace may be for namespaces alone.
            continue
        for name in names:
            ns.table_exists(spec.TableExistsRequest(id=[*id, name]))
            described = ns.describe_table(spec.DescribeTableRequest(id=[*id, name]))
            assert described.location, f"expected a location of {[*id, name]}, found {described.location!r}"

"""The installed release of the spec: the packages that allow it, and unknown fields of newer releases."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import CreateNamespaceRequest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from lance_ns_async import AsyncNamespace, DirNamespace
from lance_ns_async.operations.requests import REASONS
from tests.documentation.pages import Page
from tests.support import operations

pytestmark = [pytest.mark.bare, pytest.mark.environment]
RELEASES = [f"0.{minor}.{patch}" for minor in range(10, 16) for patch in (0, 1, 9)] + ["1.0.0"]


@pytest.fixture
def ns(tmp_path: Path) -> Iterator[DirNamespace]:
    with DirNamespace(root=str(tmp_path)) as namespace:
        namespace.create_namespace(CreateNamespaceRequest(id=["a"]))
        yield namespace


def admitted(package: str) -> SpecifierSet:
    """Returns the releases of the spec that a package allows."""
    (result,) = [it for it in map(Requirement, requires(package) or []) if it.name == "lance-namespace"]
    return result.specifier


def test_releases_are_those_of_pylance() -> None:
    ours, theirs = admitted("lance-ns-async"), admitted("pylance")
    assert [it for it in RELEASES if it in ours] == [it for it in RELEASES if it in theirs]
    assert version("lance-namespace") == version("lance-namespace-urllib3-client")
    assert Version(version("lance-namespace")) >= Version("0.13")


class FromRust(dict[str, Any]):
    """A request in the form in which Lance's Rust side passes it: it may be newer than the installed models."""


def test_what_lance_says_is_let_pass_and_what_users_say_is_not(ns: DirNamespace) -> None:
    declared = ns.declare_table(FromRust(id=["a", "t"], of_a_later_spec={"some": 1}))
    assert ns.describe_table(FromRust(id=["a", "t"], of_a_later_spec=True)).location == declared.location
    with pytest.raises(InvalidInputError, match="DescribeTableRequest: of_a_later_spec: unknown"):
        ns.describe_table({"id": ["a", "t"], "of_a_later_spec": True})


@pytest.mark.glue
def test_the_page_shows_what_glue_and_the_others_do() -> None:
    assert Page(operations.PAGE).text == operations.written(), "run: python -m tests.documentation"


@pytest.mark.glue
def test_each_operation_is_served_by_glue_or_another_catalog_or_needs_a_server() -> None:
    assert len(operations.OPERATIONS) == 54
    servers = {row.operation: {impl for impl, why in row.reasons.items() if why is None} for row in operations.rows()}
    assert {operation for operation, impls in servers.items() if impls == {"rest"}} == set(REASONS)
    assert all(servers.values()) and all(hasattr(AsyncNamespace, name) for name in operations.OPERATIONS)


@pytest.mark.parametrize("operation", REASONS)
def test_what_nobody_serves_says_why(tmp_path: Path, operation: str) -> None:
    message = f"^Not supported: {operation} \\({REASONS[operation]}\\)$"
    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(UnsupportedOperationError, match=message):
        getattr(ns, operation)({"id": ["t"]})

"""The documentation's table of operations agrees with the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import UnsupportedOperationError

from lance_ns_async import AsyncNamespace, DirNamespace, registry
from lance_ns_async.operations.requests import REASONS
from tests.documentation.pages import Page
from tests.support import operations


@pytest.mark.glue
def test_the_page_shows_what_glue_and_the_others_do() -> None:
    assert Page(operations.PAGE).text == operations.written(), "run: python -m tests.documentation"


@pytest.mark.glue
def test_each_operation_is_served_by_glue_or_another_catalog_or_needs_a_server() -> None:
    assert len(operations.OPERATIONS) == 54
    servers = {row.operation: {impl for impl, why in row.reasons.items() if why is None} for row in operations.rows()}
    assert {operation for operation, impls in servers.items() if impls == {"rest"}} == set(REASONS)
    assert all(servers.values())
    assert all(hasattr(AsyncNamespace, name) for name in operations.OPERATIONS)


@pytest.mark.parametrize("operation", REASONS)
def test_what_nobody_serves_says_why(tmp_path: Path, operation: str) -> None:
    message = f"^Not supported: {operation} \\({REASONS[operation]}\\)$"
    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(UnsupportedOperationError, match=message):
        getattr(ns, operation)({"id": ["t"]})


@pytest.mark.parametrize("operation", operations.NEEDS_COMMITS)
def test_what_needs_commits_is_an_operation(operation: str) -> None:
    assert hasattr(LanceNamespace, operation) and hasattr(AsyncNamespace, operation)


def test_each_catalog_has_a_column() -> None:
    assert list(operations.NAMES) and set(operations.NAMES) == set(registry.BACKENDS)

"""The kit on the catalogs of the contract, through the sync interface, with the messages that this package promises."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Set
from typing import Any, cast

import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError

from lance_ns_async import Namespace
from lance_ns_async.conformance import Target
from lance_ns_async.conformance.plugin import calls, home, ns, other, table
from tests.contract.conftest import applies, site
from tests.contract.site import Site
from tests.contract.sites import BEHIND_A_GATEWAY, REAL, ROUND_TRIPS, SITES, VARIANTS, parametrize_site
from tests.support import budget

__all__ = ["applies", "calls", "home", "ns", "other", "site", "table"]

USUAL = [*(site for site in SITES if site not in REAL | VARIANTS.keys() | {BEHIND_A_GATEWAY}), "rest-on-a-gateway"]
"""A site of each kind; `tests/contract` also has the variants and the real servers."""

DATA = {"test_columns", "test_rows", "test_versions"}
"""Modules whose operations are the same for all catalogs, so the usual run has them on few."""

WITH_DATA = {"dir", "iceberg-fake", "rest-on-pylance"}

ENOUGH: Mapping[str, Set[object]] = {
    "test_pages_of_tables_have_each_name_once": {3},
    "test_pages_of_namespaces_have_each_name_once": {3},
    "test_mode_exist_ok_keeps_an_existing_one": {"exist_ok"},
    "test_a_drop_with_mode_skip_accepts_a_missing_one": {"skip"},
    "test_a_name_is_stored_as_it_is_or_refused": {"a/b", "a?b#c", "a'b", "Abc", "x" * 200, "a+b"},
}
"""The parameters of the usual run, for checks of which one decides what the others do.

`tests/contract` has further odd names.
"""

MESSAGES = {
    "NamespaceNotFoundError": "Namespace not found: ",
    "NamespaceAlreadyExistsError": "Namespace already exists: ",
    "NamespaceNotEmptyError": "Namespace not empty: ",
    "TableNotFoundError": "Table not found: ",
    "TableAlreadyExistsError": "Table already exists: ",
    "UnsupportedOperationError": "Not supported: ",
}
"""The beginning of each message, which lancedb reads; the id follows."""

REPLACES_NOTHING = {"nessie", "polaris", "lakekeeper", "unity", "pylance"}
"""Catalogs that replace no registration."""


class Checked:
    """A namespace whose errors must begin as documented."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._namespace, name)

        def call(request: Any, *data: bytes) -> Any:
            try:
                return method(request, *data)
            except LanceNamespaceError as e:
                _check_message(e, request)
                raise

        return method if name == "close" else call


def _check_message(error: LanceNamespaceError, request: Any) -> None:
    """Fails unless the message has the beginning of its kind, and then the id, or that of a parent."""
    if (beginning := MESSAGES.get(type(error).__name__)) is None:
        return
    message = str(error)
    assert message.startswith(beginning), message
    if beginning != MESSAGES["UnsupportedOperationError"] and (id := dict(request).get("id")):
        ids = ["$".join(id[:depth]) for depth in range(1, len(id) + 1)]
        if (new := dict(request).get("new_table_name")) is not None:
            ids.append("$".join([*id[:-1], new]))
        named = message.removeprefix(beginning)
        assert any(re.match(rf"{re.escape(it)}($|[ ,;])", named) for it in ids), message


@pytest.fixture(scope="session")
def target(site: Site) -> Target:
    def connect() -> LanceNamespace:
        return cast(LanceNamespace, Checked(Namespace.connect(site.impl, site.properties)))

    return Target(site.impl, connect, site.above, takes_mappings=True)


@pytest.fixture
def leftovers() -> Iterator[list[str]]:
    leftovers: list[str] = []
    yield leftovers
    assert leftovers == []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Chooses the sites of a check; a thorough run has all."""
    module = metafunc.definition.path.stem
    if budget.is_thorough:
        sites = [site for site in SITES if site not in ROUND_TRIPS | {BEHIND_A_GATEWAY}]
    else:
        sites = [site for site in USUAL if module not in DATA or site in WITH_DATA]
    parametrize_site(metafunc, sites)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what only a thorough run has."""
    for item in items:
        if isinstance(item, pytest.Function) and (enough := ENOUGH.get(item.originalname)) is not None:
            if enough.isdisjoint(item.callspec.params.values()):
                item.add_marker(budget.thorough)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Accepts an operation that is not supported, if the catalog is known not to support it."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, UnsupportedOperationError) and isinstance(item, pytest.Function):
        site = cast(Site, item.funcargs["site"])
        name = str(item.callspec.params["site"])
        nests = site.nests or not re.search("child", item.name)
        renames = site.can.renames or not re.search("renam", item.name)
        replaces = "mode_overwrite_replaces_the_table" not in item.name or not any(
            it in name for it in REPLACES_NOTHING
        )
        if not (nests and renames and replaces):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, str(call.excinfo.value))
    return report

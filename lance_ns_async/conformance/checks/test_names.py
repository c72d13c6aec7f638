"""Hostile names: stored exactly as they are, or refused; never another table, and never half of one."""

from __future__ import annotations

import lance_namespace as spec
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError, TableNotFoundError

from lance_ns_async.conformance.home import Home, check_location, expect

NAMES = {
    "a space": "a b",
    "an accent": "é",
    "Japanese": "日本",
    "a slash": "a/b",
    "a percent-encoded slash": "a%2Fb",
    "a dot": "a.b",
    "one dot": ".",
    "two dots": "..",
    "a query and a fragment": "a?b#c",
    "a quote": "a'b",
    "a backtick": "`a`",
    "a tilde": "~",
    "an at sign": "a@main",
    "upper case": "Abc",
    "200 characters": "x" * 200,
    "a plus": "a+b",
    "a backslash": "a\\b",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=list(NAMES))
def test_a_name_is_stored_as_it_is_or_refused(ns: LanceNamespace, home: Home, name: str) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("beside")))
    try:
        declared = ns.declare_table(spec.DeclareTableRequest(id=home.table(name)))
    except InvalidInputError:
        listed = _listed(ns, home)
        assert listed == ["beside"], f"expected ['beside'] after {name!r} was refused, found {listed}"
        return
    listed = [it for it in _listed(ns, home) if it != "beside"]
    assert listed in ([name], [name.lower()]), f"expected {name!r} in the listing, found {listed}"
    described = ns.describe_table(spec.DescribeTableRequest(id=home.table(name)))
    check_location("the described table", described.location, declared.location)
    ns.drop_table(spec.DropTableRequest(id=home.table(name)))
    with expect(TableNotFoundError):
        ns.describe_table(spec.DescribeTableRequest(id=home.table(name)))
    listed = _listed(ns, home)
    assert listed == ["beside"], f"expected ['beside'] after {name!r} was dropped, found {listed}"


def _listed(ns: LanceNamespace, home: Home) -> list[str]:
    return ns.list_tables(spec.ListTablesRequest(id=home.id)).tables

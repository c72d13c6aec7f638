from __future__ import annotations

import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.fleet.copy_plan import IdMapping, To

ORDERS = TableId(["hive", "sales", "orders"])


@pytest.mark.parametrize(
    ("to", "copy"),
    [
        (None, "hive.sales.orders"),
        ("lake", "lake.hive.sales.orders"),
        (["a.b"], "$a.b$hive$sales$orders"),
        (NamespaceId(["x", "y"]), "x.y.hive.sales.orders"),
        ({"hive": "lake"}, "lake.sales.orders"),
        ({"hive": ""}, "sales.orders"),
        ({"": "lake"}, "lake.hive.sales.orders"),
        ({"hive": "a", "hive.sales": "b.c"}, "b.c.orders"),
        (lambda id: [id.name], "$orders"),
    ],
)
def test_ids_follow_the_rules(to: To, copy: str) -> None:
    assert IdMapping.parse(to).table(ORDERS) == TableId(copy)


def test_names_of_the_source_are_renamed_and_those_of_rules_are_not() -> None:
    mapping = IdMapping.parse({"Hive": "Lake"}, "lower")
    assert mapping.table(TableId(["Hive", "Sales", "Orders"])) == ("Lake", "sales", "orders")
    assert mapping.namespace(NamespaceId(["Hive", "Sales"])) == ("Lake", "sales")
    assert IdMapping.parse(None, lambda name: f"{name}_").table(TableId(["a", "b"])) == ("a_", "b_")


def test_ids_without_a_rule_are_refused() -> None:
    mapping = IdMapping.parse({"spark": "lake"})
    with pytest.raises(InvalidInputError, match="no rule of `to` applies"):
        mapping.table(ORDERS)
    assert mapping.namespace(ORDERS.parent) is None


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="appears twice"):
        IdMapping.parse({"a.b": "x", "a$b": "y"})
    with pytest.raises(InvalidInputError, match="rename 'upper'"):
        IdMapping.parse(None, "upper")  # type: ignore[arg-type]


def test_copies_are_traced_back() -> None:
    mapping = IdMapping.parse({"hive": "lake", "hive.sales": "lake.s", "other": "elsewhere"})
    assert [*mapping.sources(TableId(["lake", "s", "t"]))] == [("hive", "sales", "t"), ("hive", "s", "t")]
    # A table of hive.sales becomes one of lake.s, so no table becomes one of lake.sales.
    assert [*mapping.sources(TableId(["lake", "sales", "t"]))] == []
    assert mapping.images(NamespaceId(["hive"])) == [("lake",), ("lake", "s")]
    assert mapping.images(NamespaceId()) == [("lake", "s"), ("lake",), ("elsewhere",)]
    assert not IdMapping.parse(lambda id: id).is_invertible

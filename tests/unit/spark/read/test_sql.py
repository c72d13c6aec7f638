"""Names of SQL views, and chains of unions, without Spark."""

from __future__ import annotations

import warnings

import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import TableId
from lance_ns_async.spark import Location, Locations, PrefetchReport, union, views
from lance_ns_async.spark.read.sql import MANY, branches, quote, warn_of_chains


def located(*ids: str, version: int | None = 1) -> Locations:
    return Locations([Location(TableId(id), f"/{id}", version) for id in ids], PrefetchReport(len(ids)))


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        (located("a$b_c", "a_b$c"), r"a\$b_c and a_b\$c would both be `a_b_c`; .*name="),
        (located("a$t", "A$T"), r"a\$t and A\$T would both be `A_T`"),
        (located("a$t", version=None), r"a\$t is not pinned to a version; prefetch it with pin_versions=True"),
    ],
)
def test_views_that_cannot_be_are_refused(locations: Locations, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^views: {message}"):
        views(None, locations)  # type: ignore[arg-type]


def test_a_view_needs_a_name() -> None:
    with pytest.raises(InvalidInputError, match=r"the name for a\$t must not be empty"):
        views(None, located("a$t"), name=lambda id: "")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "sql"), [("t", "`t`"), ("a`b", "`a``b`"), ("``", "``````"), ("a.b c", "`a.b c`")])
def test_names_are_quoted(name: str, sql: str) -> None:
    assert quote(name) == sql


def test_nothing_at_all_cannot_be_united() -> None:
    with pytest.raises(InvalidInputError, match="no DataFrames"):
        union([])


def chain(count: int) -> str:
    return " UNION ALL ".join(f"SELECT * FROM t{n}" for n in range(count))


def tree(low: int, high: int) -> str:
    if high - low == 1:
        return f"SELECT * FROM t{low}"
    middle = (low + high) // 2
    return f"({tree(low, middle)}) union all ({tree(middle, high)})"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT 1", 1),
        ("", 1),
        (chain(300), 300),
        (f"SELECT count(*) FROM ({chain(300)})", 300),
        (f"WITH a AS ({chain(5)}) SELECT * FROM a Union DISTINCT SELECT * FROM a", 5),
        (tree(0, 1000), 2),
        ("SELECT 'a UNION b', \"union\", `union`, 'it\\'s union' -- union\n/* union\nunion */ FROM reunion UNION b", 2),
        ("SELECT 1) UNION (SELECT 2", 2),
    ],
)
def test_the_branches_of_a_chain_are_counted(query: str, count: int) -> None:
    assert branches(query) == count


def test_a_long_chain_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=rf"^a union of {MANY + 1} branches in a chain") as caught:
        warn_of_chains(chain(MANY + 1), stacklevel=1)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_chains(chain(MANY), stacklevel=1)
        warn_of_chains(tree(0, 1000), stacklevel=1)

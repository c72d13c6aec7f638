"""The argument `what`: ids, namespaces and patterns, and the namespaces to list for a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.many.patterns import Pattern, Selection, What


def matches(text: str, *names: str) -> bool:
    return Pattern.parse(text).matches(TableId(names))


@pytest.mark.parametrize(
    ("what", "ids"),
    [
        *(("db.t", [["db", "t"]]), ("t", [["t"]]), ("db$t.v2", [["db", "t.v2"]])),
        (TableId(["db", "t"]), [["db", "t"]]),
        ([["db", "t"], ("db", "u")], [["db", "t"], ["db", "u"]]),
        (["db.t", "db$t", TableId(["db", "t"])], [["db", "t"]]),
        *(([["a*", "t"]], [["a*", "t"]]), (iter(["b.t", "a.t"]), [["b", "t"], ["a", "t"]]), ([], [])),
    ],
)
def test_tables_are_named_by_strings_ids_and_sequences_of_names(what: What, ids: list[list[str]]) -> None:
    assert Selection.read(what) == Selection(tuple(map(TableId, ids)), ())


def test_patterns_and_namespaces_are_mixed() -> None:
    (pattern,) = Selection.read(NamespaceId(["d*", "in[1]"])).patterns
    assert pattern.matches(TableId(["d*", "in[1]", "any\nname"]))
    assert not pattern.matches(TableId(["db", "in[1]", "t"]))
    assert not pattern.matches(TableId(["d*", "in[1]", "deeper", "t"]))
    assert pattern.item == NamespaceId(["d*", "in[1]"])
    selection = Selection.read(["db.*", "db.t", NamespaceId(["db"]), "db.*", ["db", "t"]])
    assert selection.ids == (TableId(["db", "t"]),)
    assert [pattern.item for pattern in selection.patterns] == ["db.*", NamespaceId(["db"])]


@pytest.mark.parametrize("what", ["", "db..t", "db.", "db..*", ".*", "$", [["db", ""]], [[]]])
def test_an_empty_name_is_refused(what: What) -> None:
    with pytest.raises(InvalidInputError):
        Selection.read(what)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        *(("db.*", ["db", "t"]), ("db.t?", ["db", "t1"]), ("db.t[0-4]", ["db", "t3"])),
        *(("*.orders", ["sales", "orders"]), ("d*.in.t*", ["db", "in", "t"]), ("db$t.*", ["db", "t.v2"])),
        *(("**", ["t"]), ("**", ["a", "b", "t"]), ("db.**", ["db", "t"]), ("db.**", ["db", "a", "b", "t"])),
        *(("**.orders", ["orders"]), ("**.orders", ["a", "b", "orders"]), ("a.**.z.t*", ["a", "z", "t"])),
        *(("a.**.z.t*", ["a", "z", "b", "z", "t1"]), ("**.a.**.t", ["a", "a", "t"]), ("a**b.t", ["a-and-b", "t"])),
    ],
)
def test_a_pattern_matches(text: str, names: list[str]) -> None:
    assert matches(text, *names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        *(("db.*", ["db", "a", "t"]), ("db.*", ["t"]), ("db.*", ["DB", "t"]), ("db.T*", ["db", "t1"])),
        *(("*", ["db", "t"]), ("db.**", ["db"]), ("db.**", ["dbx", "t"]), ("**.orders", ["orders", "t"])),
        *(("a.**.z.t*", ["a", "t"]), ("db.t.*", ["db", "t.v2"])),
    ],
)
def test_a_pattern_does_not_match(text: str, names: list[str]) -> None:
    assert not matches(text, *names)


def _reference(levels: list[str], names: Iterable[str]) -> bool:
    """A simple implementation of the rule, for comparison."""
    names = list(names)
    if not levels:
        return not names
    if levels[0] == "**":
        return any(_reference(levels[1:], names[skip:]) for skip in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], levels[0]) and _reference(levels[1:], names[1:])


_names = st.sampled_from(["a", "b", "ab"])


@given(
    st.lists(st.sampled_from(["a", "b", "*", "a*", "?", "**"]), max_size=4),
    st.sampled_from(["a", "*", "?b"]),
    st.lists(_names, max_size=4),
    _names,
)
def test_a_match_is_reached_by_its_namespaces(above: list[str], last: str, namespace: list[str], name: str) -> None:
    levels = [*above, last]
    pattern = Pattern.parse("$".join(levels))
    parent = NamespaceId(namespace)
    table = parent.table(name)
    expected = _reference(levels, table)
    assert pattern.matches(table) == expected
    if expected:
        assert pattern.holds(parent) and parent[: len(pattern.start)] == pattern.start
        if pattern.table_name is not None:
            assert pattern.table_name == name
        for depth in range(len(pattern.start), len(parent)):
            above_it = NamespaceId(parent[:depth])
            children = pattern.children(above_it)
            assert pattern.leads(above_it) and pattern.concerns(above_it)
            assert children is None or parent[depth] in children


@pytest.mark.parametrize(
    ("text", "start", "table_name"),
    [
        *(("db.*", ["db"], None), ("*.orders", [], "orders"), ("a.b.c*.d.t", ["a", "b"], "t")),
        *(("**.orders", [], None), ("*", [], None)),
    ],
)
def test_a_search_starts_as_deep_as_it_can(text: str, start: list[str], table_name: str | None) -> None:
    pattern = Pattern.parse(text)
    assert (pattern.start, pattern.table_name) == (NamespaceId(start), table_name)


def test_names_that_are_spelled_out_need_no_listing() -> None:
    pattern = Pattern.parse("a*.in.t*")
    assert pattern.children(NamespaceId()) is None and pattern.children(NamespaceId(["a1"])) == {"in"}
    assert not pattern.leads(NamespaceId(["b"])) and not pattern.leads(NamespaceId(["a1", "in"]))
    assert pattern.holds(NamespaceId(["a1", "in"]))


def test_wildcards_in_a_row_mean_one() -> None:
    assert Pattern.parse("**.a.**.**.b").levels == Pattern.parse("**.**.a.**.b").levels
    assert Pattern.parse("**." * 10_000 + "x").levels == Pattern.parse("**.x").levels
    assert matches("a.**.**", "a", "t") and not matches("a.**.**.**", "b", "t")


@pytest.mark.parametrize("make", [TableId, NamespaceId, lambda text: Pattern.parse(f"{text}*")])
def test_ids_and_patterns_have_at_most_100_levels(make: Callable[[str], object]) -> None:
    make(".".join("a" * 100))
    with pytest.raises(InvalidInputError, match=r"has 101 (names|levels)"):
        make(".".join("a" * 101))

"""SQL that clients of a gateway may use: realistic texts are accepted, costly ones are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async.gateway.limits import Limits, Memory, RemoteGuard, Share
from lance_ns_async.storage.sql_bounds import Texts
from tests.unit.storage.test_sql_bounds import DEADLY, EVERYDAY

COSTLY = {
    "repeat": "length(repeat('a', 2000000000)) > 5",
    "range": "array_length(range(0, 1000000000)) > 1",
    "generate_series": "array_length(generate_series(0, 1000000000)) > 1",
    "lpad": "length(lpad('a', 2000000000, 'a')) > 1",
    "rpad": "length(RPAD ('a', 2000000000, 'a')) > 1",
    "array_repeat": "array_length(array_repeat(1, 1000000000)) > 5",
    "array_resize": "array_length(array_resize([1], 1000000000, 1)) > 5",
    "arrow_cast": "arrow_cast(null, 'FixedSizeList(1000000000, Float32)') IS NULL",
    "levenshtein": "levenshtein(name, 'abc') > 1",
    "quoted": "length(`repeat`('a', 2000000000)) > 5",
    "quoted twice": 'length("repeat" (name, 2000000000)) > 5',
    "qualified": "length(a.repeat('a', 2000000000)) > 5",
    "comment": "length(repeat/**/('a', 2000000000)) > 5",
    "line": "length(repeat--\n('a', 2000000000)) > 5",
    "wide blank": "length(repeat\u2003('a', 2000000000)) > 5",
    "long literal": "concat(name, '" + "a" * 5_000 + "') = 'a'",
    "long operand": "name || '" + "a" * 5_000 + "' = 'a'",
    "long default": "coalesce(name, '" + "a" * 5_000 + "') = 'a'",
    "many operands": "concat(" + "name, " * 200 + "name) = 'a'",
    "many items": "array_has([" + "name, " * 200 + "name], 'a')",
    "long replacement": "replace(name, 'a', '" + "b" * 300 + "') = 'a'",
    "replacement by a column": "replace(name, 'a', name) = 'a'",
    "replacement by a function": "replace(name, 'a', upper(name)) = 'a'",
    "replacement in brackets": "replace(name, 'a', (name)) = 'a'",
    "replacement in a list": "replace(name, 'a', [name][1]) = 'a'",
    "replaced twice": "replace(replace(name, 'a', 'bbbbbbbb'), 'b', 'aaaaaaaa') = 'a'",
    "replaced and joined": "replace(concat(name, name), 'a', 'b') = 'a'",
    "encoded twice": "encode(encode(name, 'hex'), 'hex') = 'a'",
    "pattern": "name LIKE '" + "%a" * 10_000 + "'",
    "expression": "regexp_like(name, '" + "(a|b)" * 5_000 + "')",
    "expressions": " AND ".join(["regexp_like(name, '(a{100}){100}')"] * 20),
    "calls": " OR ".join(["abs(id) = 1"] * 300),
    "subquery": "id = (SELECT(1))",
    "braces": "{a} = 1",
    "semicolon": "id > 1;",
}
"""Texts that a remote caller may not send."""


def check(texts: Texts, *functions: str) -> None:
    limits = Limits(functions=frozenset(functions))
    RemoteGuard(limits, Share(Memory(limits.memory))).check_sql(texts)


@pytest.mark.parametrize("sql", EVERYDAY, ids=range(len(EVERYDAY)))
def test_everyday_conditions_pass(sql: str) -> None:
    check(Texts({"filter": sql}))


@pytest.mark.parametrize("sql", DEADLY.values(), ids=DEADLY)
def test_deadly_texts_are_rejected(sql: str) -> None:
    for texts in (Texts({"filter": sql}), Texts(values={"filter": sql})):
        with pytest.raises(InvalidInputError, match=r"^filter: .*; ") as rejected:
            check(texts)
        assert len(str(rejected.value)) < 300


@pytest.mark.parametrize("sql", COSTLY.values(), ids=COSTLY)
def test_costly_texts_are_rejected(sql: str) -> None:
    Texts({"filter": sql}).check()
    with pytest.raises(InvalidInputError, match=r"^filter: "):
        check(Texts({"filter": sql}))


@pytest.mark.parametrize("sql", ["'" + "a" * 5_000 + "'", "length('" + "a" * 5_000 + "')"])
def test_long_values_are_rejected(sql: str) -> None:
    Texts(values={"updates: name": sql}).check()
    with pytest.raises(InvalidInputError, match=r"^updates: name: .* 4096 bytes"):
        check(Texts(values={"updates: name": sql}))


def test_limits_apply_to_all_texts_of_a_request_together() -> None:
    with pytest.raises(InvalidInputError, match=r"^columns: c25[0-9]: "):
        check(Texts(values={f"columns: c{i}": "upper(name)" for i in range(300)}))
    check(Texts(values={f"columns: c{i}": "name" for i in range(5_000)}))


def test_a_function_may_be_allowed() -> None:
    check(Texts({"filter": "Levenshtein(name, 'abc') > 1"}), "levenshtein")


@given(st.text(alphabet="ab1'`\"()[],.+-*/ \n\\$E:ü", max_size=60))
def test_any_text_passes_or_is_rejected(sql: str) -> None:
    try:
        check(Texts({"filter": sql}, {"value": sql}))
    except InvalidInputError as e:
        assert str(e).startswith(("filter: ", "value: "))

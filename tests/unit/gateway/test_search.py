"""A search of many tables in one request to the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.gateway import Gateway, MountedNamespace, serving
from lance_ns_async.gateway.limits import Limits, Memory, RemoteGuard, Share
from lance_ns_async.many.row_results import decode
from lance_ns_async.storage.arrow import file
from lance_ns_async.storage.sql_bounds import Texts
from tests.support.gateway import ask
from tests.unit.gateway.test_rights import gateway_for
from tests.unit.storage.test_sql_bounds import DEADLY, EVERYDAY

ROWS = pa.table({"id": [1, 2], "vector": pa.array([[0.0, 1.0], [1.0, 0.0]], pa.list_(pa.float32(), 2))})
ANN: Mapping[str, Mapping[str, Any]] = {"ann": {"rights": "read", "only": ["s.pub_*"]}, "owner": {"rights": "admin"}}


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as opened:
        for parent in ("s", "hidden"):
            await opened.create_namespace([parent])
        for id in ("s.pub_a", "s.secret", "hidden.t"):
            await opened.write(id, ROWS)
        yield opened


def client(gateway: Gateway, name: str) -> AsyncNamespace:
    properties = {"uri": gateway.url, "data_operations": "remote", "header.x-lance-token": name}
    return AsyncNamespace.connect("rest", properties)


async def test_a_client_searches_what_it_may_see(ns: AsyncNamespace, tmp_path: Path) -> None:
    async with gateway_for(ns, tmp_path, ANN) as gateway:
        async with client(gateway, "ann") as ann:
            found = await ann.search_many("**", vector=[0, 1], columns=["id"])
            assert found.searched == [TableId("s$pub_a")] and not found.errors
            assert {row["_table"] for row in found.rows.to_pylist()} == {"s$pub_a"}
            found = await ann.search_many(["s.pub_a", "s.pub_b", "s.secret"], vector=[0, 1])
            assert {str(id): type(error) for id, error in found.errors.items()} == {
                "s$secret": err.PermissionDeniedError,
                "s$pub_b": err.TableNotFoundError,
            }
        async with client(gateway, "owner") as owner:
            assert len((await owner.search_many("**", vector=[0, 1])).searched) == 3


async def test_rights_hold_before_a_server_that_searches_itself(ns: AsyncNamespace, tmp_path: Path) -> None:
    async with serving(ns) as inner, client(inner, inner.token) as upstream:
        async with gateway_for(upstream, tmp_path, ANN) as gateway, client(gateway, "ann") as ann:
            found = await ann.search_many("**", vector=[0, 1], columns=["id"])
            assert found.searched == [TableId("s$pub_a")] and found.rows.num_rows == 2 and not found.errors


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tables": ["s.secret"], "vector": [0, 1]}, err.ErrorCode.PERMISSION_DENIED),
        ({"tables": [], "vector": [0, 1]}, err.ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"]}, err.ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "k": 10**9}, err.ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "nprobes": 3}, err.ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "query_fields": {"k": 3}}, err.ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "query_fields": {"include": None}}, err.ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "filter": "sleep(9) > 1"}, err.ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "timeout": 0}, err.ErrorCode.INVALID_INPUT),
    ],
)
async def test_invalid_requests_are_refused(
    ns: AsyncNamespace, tmp_path: Path, fields: Mapping[str, Any], code: err.ErrorCode
) -> None:
    async with gateway_for(ns, tmp_path, ANN) as gateway:
        assert (await ask(gateway, "POST", "/v1/table/search", fields, {"x-lance-token": "ann"})).code == code


async def test_without_one_catalog_tables_are_searched_one_by_one(ns: AsyncNamespace) -> None:
    async with serving(MountedNamespace({"a": ns})) as gateway, client(gateway, gateway.token) as mounted:
        found = await mounted.search_many("a.s.*", vector=[0, 1], columns=["id"])
        assert {str(id) for id in found.searched} == {"a$s$pub_a", "a$s$secret"} and not found.errors


def test_a_response_that_is_not_of_a_search_is_an_error() -> None:
    for data in (
        b"rows",
        file(ROWS.to_reader()),
        file(ROWS.replace_schema_metadata({"lance_ns.search": "{"}).to_reader()),
    ):
        with pytest.raises(err.InternalError):
            decode(data)


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
        with pytest.raises(err.InvalidInputError, match=r"^filter: .*; ") as rejected:
            check(texts)
        assert len(str(rejected.value)) < 300


@pytest.mark.parametrize("sql", COSTLY.values(), ids=COSTLY)
def test_costly_texts_are_rejected(sql: str) -> None:
    Texts({"filter": sql}).check()
    with pytest.raises(err.InvalidInputError, match=r"^filter: "):
        check(Texts({"filter": sql}))


@pytest.mark.parametrize("sql", ["'" + "a" * 5_000 + "'", "length('" + "a" * 5_000 + "')"])
def test_long_values_are_rejected(sql: str) -> None:
    Texts(values={"updates: name": sql}).check()
    with pytest.raises(err.InvalidInputError, match=r"^updates: name: .* 4096 bytes"):
        check(Texts(values={"updates: name": sql}))


def test_limits_of_texts() -> None:
    with pytest.raises(err.InvalidInputError, match=r"^columns: c25[0-9]: "):
        check(Texts(values={f"columns: c{i}": "upper(name)" for i in range(300)}))
    check(Texts(values={f"columns: c{i}": "name" for i in range(5_000)}))
    check(Texts({"filter": "Levenshtein(name, 'abc') > 1"}), "levenshtein")


@given(st.text(alphabet="ab1'`\"()[],.+-*/ \n\\$E:ü", max_size=60))
def test_any_text_passes_or_is_rejected(sql: str) -> None:
    try:
        check(Texts({"filter": sql}, {"value": sql}))
    except err.InvalidInputError as e:
        assert str(e).startswith(("filter: ", "value: "))

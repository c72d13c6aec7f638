"""Bounds of SQL texts: realistic texts are accepted, and texts that Lance cannot process are not."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import UpdateFieldMetadataRequest, UpdateTableRequest
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError, UnsupportedOperationError

from lance_ns_async import AsyncNamespace
from lance_ns_async.storage import fields
from lance_ns_async.storage.sql_bounds import Texts
from tests.support.errors import catch
from tests.support.lake import ID, Lake, lake, stream

pytestmark = pytest.mark.environment
EVERYDAY = [
    "id > 1 AND (name = 'a' OR name = 'b') AND NOT (x IS NULL)",
    "id IN (" + ",".join(map(str, range(10_000))) + ")",
    "id NOT IN (" + ",".join(f"'{i:036}'" for i in range(10_000)) + ")",
    " OR ".join(f"id = {i}" for i in range(1_000)),
    " AND ".join(f"(x > {i} AND x BETWEEN {i} AND {i + 1})" for i in range(300)),
    "name = '" + "a" * 1_000_000 + "'",
    "name LIKE 'a%' AND lower(name) NOT LIKE '%b' AND starts_with(name, 'c')",
    "name = 'it''s -- no comment /* here */ ('",
    "`odd ( name` = 1 AND st.a['b'] = 2 AND tags[1] = 'a' AND array_has_any(tags, ['a', 'b'])",
    "CAST(x AS DECIMAL(10, 2)) > 1.5e-3 AND date '2020-01-01' < now() AND ts >= timestamp '2020-01-01 00:00:00'",
    "regexp_like(name, '^a(b|c)*$') AND json_extract(doc, '$.a') = 'b' AND contains_tokens(name, 'a b')",
    "coalesce(name, 'none') = 'none' OR concat(name, '-', st.a) = 'a-1' OR name || 'x' = 'ax'",
    *("(" * 40 + "id > 1" + ")" * 40, "not(a)and(b)or(c)in(1,2)", "-x + 1 * (2 - y) / 3 % 4 >= - 5"),
    "été > 1 AND 名前 = 'ü'",
]
DEADLY = {
    "NOT": "NOT (" * 60 + "id > 1" + ")" * 60,
    "NOT with an error": "NOT (" * 24 + "id >" + ")" * 24,
    "CAST": "CAST(" * 24 + "id >" + ")" * 24,
    "lists": "ARRAY[" * 24 + "id >" + "]" * 24,
    "long within NOT": "NOT (" * 9 + "id IN (" + "1," * 20_000 + "1)" + ")" * 9,
    "brackets": "(" * 41 + "id > 1" + ")" * 41,
    "lists in lists": "[" * 200,
    "sum": "1+" * 10_000 + "id > 1",
    "nested sums": "(1+1+1+1+" * 30 + "id" + ")" * 30 + " > 1",
    "IS NULL": "id" + " IS NULL" * 10_000,
    "LIKE": "name" + " LIKE name" * 3_000,
    "casts": "id" + "::int" * 10_000 + " > 1",
    "indexes": "x" + "[1]" * 3_000 + " = 1",
    "IN": "id IN (1)" + " IN (1)" * 3_000,
    "BETWEEN": "(" * 20 + "id > 1" + " BETWEEN false AND true)" * 20,
    "BETWEEN in a row": "id" + " BETWEEN id" * 20 + " AND 1" * 20,
    "COALESCE": "coalesce(" * 20 + "name" + ", name)" * 20 + " = 'a'",
    "COALESCE again": " OR ".join(["coalesce(" * 9 + "name" + ", name)" * 9 + " = 'a'"] * 100),
    "OR": " OR ".join(f"id = {i}" for i in range(100_000)),
    "literals": "id IN (" + ",".join(map(str, range(300_000))) + ")",
    "blanks": "id > 1" + " " * 1_000_000,
    "comments": "id > 1 --" + "a" * 1_000_000,
    "length": "name = '" + "a" * 5_000_000 + "'",
    "quote": "name = 'a",
    "name": "`a = 1",
    "comment": "id > 1 /* a",
    "closing": "id > 1) OR (true",
    "escapes": "name = E'\\' OR id > 1'",
    "national": "name = N'a'",
    "dollars": "name = $$a$$",
    "placeholder": "id = $1",
    "question": "id = ?",
    "colon": "id = :a",
}
"""Texts that Lance would process endlessly, or that would end the process or cause a panic."""


@pytest.mark.parametrize("sql", EVERYDAY, ids=range(len(EVERYDAY)))
def test_everyday_conditions_pass(sql: str) -> None:
    Texts({"filter": sql}).check()


@pytest.mark.parametrize("sql", DEADLY.values(), ids=DEADLY)
def test_deadly_texts_are_refused(sql: str) -> None:
    for texts in (Texts({"filter": sql}), Texts(values={"filter": sql})):
        with pytest.raises(InvalidInputError, match=r"^filter: .*; ") as refused:
            texts.check()
        assert len(str(refused.value)) < 300


def test_bounds_hold_for_all_texts_of_a_request_together() -> None:
    one = " OR ".join(f"id = {i}" for i in range(6_000))
    with pytest.raises(InvalidInputError, match=r"^b: .*AND and OR"):
        Texts({"a": one, "b": one}).check()


@given(st.text(alphabet="ab1'`\"()[],.+-*/ \n\\$E:ü", max_size=60))
def test_any_text_passes_or_is_refused(sql: str) -> None:
    try:
        Texts({"filter": sql}, {"value": sql}).check()
    except InvalidInputError as e:
        assert str(e).startswith(("filter: ", "value: "))


ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})
EVIL = DEADLY["NOT"]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("query_table", {"k": 1, "vector": {}, "filter": EVIL}),
    ("query_table", {"k": 1, "vector": {}, "columns": {"column_aliases": {"c": EVIL}}}),
    ("analyze_table_query_plan", {"k": 1, "vector": {}, "filter": EVIL}),
    ("explain_table_query_plan", {"query": {"k": 1, "vector": {}, "filter": EVIL}}),
    ("count_table_rows", {"predicate": EVIL}),
    ("delete_from_table", {"predicate": EVIL}),
    ("update_table", {"predicate": EVIL, "updates": [["name", "'c'"]]}),
    ("update_table", {"updates": [["name", EVIL]]}),
    ("alter_table_add_columns", {"new_columns": [{"name": "c", "expression": EVIL}]}),
    ("merge_insert_into_table", {"on": ["id"], "when_matched_update_all": True, "when_matched_update_all_filt": EVIL}),
]


@pytest.mark.parametrize(("operation", "request_"), CALLS)
async def test_every_operation_with_sql_is_bounded(operation: str, request_: dict[str, Any], tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.write(["t"], ROWS)
        with pytest.raises(InvalidInputError, match="functions, NOT and the like are nested more than 10 levels deep"):
            rows = [stream(ROWS)] if operation == "merge_insert_into_table" else []
            await getattr(ns, operation)({"id": ["t"], **request_}, *rows)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("NOT " * 47 + "a > 1", "it has 47 or more NOT in a row; remove pairs of NOT: they have no effect"),
        ("not\n" * 200 + "a", "it has 47 or more NOT in a row; remove pairs"),
        ("(" * 40 + "NOT " * 7 + "a" + ")" * 40, "it has 7 or more NOT in a row within 40 brackets and NOT; remove"),
        ("NOT " * 46 + "(a > 1)", "brackets and NOT are nested more than 46 levels deep; remove"),
    ],
)
def test_many_not_are_refused_as_what_they_are(sql: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^filter: {re.escape(message)}"):
        Texts({"filter": sql}).check()


def test_not_of_several_terms_are_not_in_a_row() -> None:
    Texts({"filter": " AND ".join(["NOT a", "b NOT IN (1)", "NOT (c)"] * 100)}).check()


async def test_lance_can_process_accepted_texts(tmp_path: Path) -> None:
    """The largest text within the bounds is processed, and Lance reports its errors at once."""
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.write(["t"], ROWS)
        largest = [
            "id IN (" + ",".join(map(str, range(1, 100_000))) + ")",
            *(" OR ".join(f"id = {i}" for i in range(1, 2_000)), "NOT (" * 10 + "id > 5" + ")" * 10),
            *("(" * 40 + "id > 0" + ")" * 40, "1+" * 99 + "id > 1", "NOT " * 46 + "id > 0"),
            *("(" * 40 + "NOT " * 6 + "id > 0" + ")" * 40, "(" * 26 + "NOT (" * 10 + "id > 0" + ")" * 36),
        ]
        for sql in largest:
            assert (await ns.count_table_rows({"id": ["t"], "predicate": sql})).count in (0, 2)
        for broken in ("NOT (" * 10 + "id >" + ")" * 10, "POSITION(" * 10 + "id >" + ")" * 10):
            await catch(InvalidInputError, ns.count_table_rows({"id": ["t"], "predicate": broken}))


RECORDS = pa.table({"id": [1, 2], "a b": [3, 4], "in": [{"a": 1, "d.e": 2}, {"a": 3, "d.e": 4}]})


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        await opened.create(rows=RECORDS)
        yield opened


@pytest.mark.parametrize(
    ("path", "names", "canonical"),
    [
        *(("id", ("id",), "id"), ("`id`", ("id",), "id"), ("a b", ("a b",), "a b")),
        *(("in.`d.e`", ("in", "d.e"), "in.`d.e`"), ("`in`.`a`", ("in", "a"), "in.a")),
        ("`a``b`.é", ("a`b", "é"), "`a``b`.é"),
    ],
)
def test_a_path_is_read_and_written_in_one_way(path: str, names: tuple[str, ...], canonical: str) -> None:
    assert (
        fields.split_path(path) == names
        and fields.join_path(names) == canonical
        and fields.split_path(canonical) == names
    )


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "`a", "a`", "a`b`", "`a`b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^field path '.*': invalid; write e.g. a, a.b or a.`b.c`"):
        fields.split_path(path)


async def test_columns_are_updated_by_their_paths(here: Lake) -> None:
    async def update(*pairs: list[str]) -> int:
        return (await here.ns.update_table(UpdateTableRequest(id=ID, updates=list(pairs)))).updated_rows

    assert await update(["`a b`", "`a b` + 7"], ["`id`", "id * 2"]) == 2 and await update(["a b", "`a b` + 1"]) == 2
    assert await here.values("a b") == [11, 12] and await here.values("id") == [2, 4]
    await catch(InvalidInputError, update(["id", "1"], ["`id`", "2"]), r"^updates: `id`: duplicate column")
    await catch(UnsupportedOperationError, update(["in.a", "1"]), r"^Not supported: updates: in.a \(.*\); update in$")
    await catch(TableColumnNotFoundError, update(["`no`", "1"]), "'no'")


async def test_fields_are_annotated_by_their_paths(here: Lake) -> None:
    async def annotate(*paths: str) -> dict[str, Any]:
        updates = [{"path": path, "metadata": {"k": path}} for path in paths]
        request = UpdateFieldMetadataRequest.from_dict({"id": ID, "updates": updates})
        assert request is not None
        return (await here.ns.update_field_metadata(request)).fields or {}

    assert (await annotate("`id`", "`a b`", "`in`.a", "in.`d.e`")) == {
        "id": {"k": "`id`"},
        "a b": {"k": "`a b`"},
        "in.a": {"k": "`in`.a"},
        "in.`d.e`": {"k": "in.`d.e`"},
    }
    for twice in (("id", "`id`"), ("in.a", "`in`.`a`")):
        await catch(InvalidInputError, annotate(*twice), r"^updates: (id|in\.a): duplicate field")
    assert (await here.dataset()).version == 2

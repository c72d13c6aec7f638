"""Queries of texts without a column, and with different texts for several columns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import CreateTableIndexRequest, QueryTableRequest
from lance_namespace.errors import InvalidInputError

from tests.support.lake import ID, Lake, in_file, lake

ROWS = pa.table(
    {
        "id": range(6),
        "title": ["red apple", "green apple", "blue sky", "red sky red", "x", "apple"],
        "in": [{"body.text": it} for it in ["sky", "apple pie", "red", "apple", "y", "apple tart"]],
    }
)
BODY = "in.`body.text`"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        await opened.create(rows=ROWS)
        for column, positions in (("title", True), (BODY, False)):
            await opened.ns.create_table_scalar_index(
                CreateTableIndexRequest(id=ID, column=column, index_type="FTS", with_position=positions)
            )
        yield opened


async def scores(here: Lake, query: Mapping[str, Any]) -> dict[int, float]:
    fields = {"id": ID, "k": 9, "vector": {}, "full_text_query": query, "columns": {"column_names": ["id"]}}
    request = QueryTableRequest.from_dict(fields)
    assert request is not None
    return {row["id"]: row["_score"] for row in in_file((await here.ns.query_table(request)).data)}


def structured(**query: Any) -> dict[str, Any]:
    return {"structured_query": {"query": query}}


async def test_without_a_column_all_that_have_an_index_are_searched(here: Lake) -> None:
    best = await scores(here, {"string_query": {"query": "apple"}})
    assert set(best) == {0, 1, 3, 5}
    assert await scores(here, {"string_query": {"query": "apple", "columns": []}}) == best
    assert await scores(here, structured(match={"terms": "apple"})) == best
    both = [{"terms": "apple", "column": "title"}, {"terms": "apple", "column": BODY}]
    assert await scores(here, structured(multi_match={"match_queries": both})) == best
    assert await scores(here, structured(multi_match={"match_queries": [{"terms": "apple"}]})) == best
    assert set(await scores(here, structured(match={"terms": "applx", "fuzziness": 1}))) == {0, 1, 3, 5}
    assert set(await scores(here, structured(match={"terms": "red apple", "operator": "and"}))) == {0}
    none_red = {"must": [{"match": {"terms": "apple"}}], "must_not": [{"match": {"terms": "red"}}], "should": []}
    assert set(await scores(here, structured(boolean=none_red))) == {1, 5}


async def test_a_phrase_is_looked_for_where_positions_are_known(here: Lake) -> None:
    assert set(await scores(here, structured(phrase={"terms": "red apple"}))) == {0}
    with pytest.raises(InvalidInputError, match="position is not found"):
        await scores(here, structured(phrase={"terms": "apple tart", "column": BODY}))


async def test_each_column_may_be_searched_for_something_else(here: Lake) -> None:
    matches = [{"terms": "red", "column": "title"}, {"terms": "apple", "column": BODY}]
    one, other = [await scores(here, structured(match=it)) for it in matches]
    both = await scores(here, structured(multi_match={"match_queries": matches}))
    expected = {id: one.get(id, 0) + other.get(id, 0) for id in {*one, *other}}
    assert both == pytest.approx(expected) and next(iter(both)) == 3
    fuzzy = [{**matches[0], "terms": "rod", "fuzziness": 1}, {**matches[1], "boost": 2.0}]
    boosted = await scores(here, structured(multi_match={"match_queries": fuzzy}))
    assert boosted[1] == pytest.approx(2 * other[1]) and set(boosted) == set(expected)
    operators = [{"terms": "red apple", "column": "title", "operator": "And"}, {"terms": "red apple", "column": BODY}]
    assert set(await scores(here, structured(multi_match={"match_queries": operators}))) == {0, 1, 2, 3, 5}

"""Queries: by vector, by text, by filter; explained and analyzed; and refused ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from tests.support.errors import catch
from tests.support.lake import ID, ROWS, Lake, in_file, lake

pytestmark = pytest.mark.environment


def make_query(**fields: Any) -> dict[str, Any]:
    """Returns a query for five rows and without a vector by default."""
    return {"id": ID, "k": 5, "vector": {}, **fields}


def near(*vector: float, **fields: Any) -> dict[str, Any]:
    return make_query(vector={"single_vector": list(vector)}, **fields)


def structured(**query: Any) -> dict[str, Any]:
    return {"structured_query": {"query": query}}


X, IN_TEXT = {"string_query": {"query": "x"}}, {"terms": "x", "column": "text"}


async def run_query(here: Lake, request: dict[str, Any]) -> list[dict[str, Any]]:
    return in_file((await here.ns.query_table(request)).data)


async def test_without_a_vector_the_first_rows_are_found(here: Lake) -> None:
    assert await run_query(here, make_query(columns={"column_names": ["id"]})) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert await run_query(here, make_query(k=1, offset=1, columns={"column_names": ["id"]})) == [{"id": 2}]
    assert await run_query(here, make_query(filter="id > 2")) == ROWS.slice(2).to_pylist()
    assert await run_query(here, make_query(filter="id > 9")) == []
    with_ids = await run_query(here, make_query(k=2, columns={"column_names": ["id"]}, with_row_id=True))
    assert with_ids == [{"id": 1, "_rowid": 0}, {"id": 2, "_rowid": 1}]
    # LanceDB sends these fields unasked.
    sent = {"vector": {"single_vector": []}, "prefilter": True, "with_row_id": False, "bypass_vector_index": True}
    assert await run_query(here, make_query(k=1, columns={"column_names": ["id"]}, **sent)) == [{"id": 1}]
    assert await run_query(here, make_query(k=1, columns={"column_names": ["id"]}, fast_search=False)) == [{"id": 1}]


async def test_rows_are_found_by_one_or_several_vectors(here: Lake) -> None:
    assert (await run_query(here, near(1, 0, k=2))) == [
        {"id": 2, "text": "green pear", "v": [1.0, 0.0], "_distance": 0.0},
        {"id": 1, "text": "red apple", "v": [0.0, 1.0], "_distance": 2.0},
    ]
    ids: Sequence[tuple[dict[str, Any], list[int]]] = [
        ({"k": 2, "offset": 1}, [1, 3]),
        ({"lower_bound": 1.0, "upper_bound": 3}, [1]),
        ({"lower_bound": 1.0}, [1, 3]),
        ({"filter": "id <> 2", "prefilter": True, "k": 1}, [1]),
        ({"filter": "id <> 2", "prefilter": False, "k": 1}, []),
        ({"distance_type": "Dot"}, [3, 2, 1]),
        ({"nprobes": 1, "refine_factor": 1, "ef": 10, "bypass_vector_index": True, "vector_column": "v"}, [2, 1, 3]),
        ({"nprobes": 1, "minimum_nprobes": 1, "maximum_nprobes": 2, "fast_search": False}, [2, 1, 3]),
    ]
    for fields, expected in ids:
        assert [row["id"] for row in await run_query(here, near(1, 0, **fields))] == expected, fields
    request = make_query(k=1, vector={"multi_vector": [[1, 0], [0.0, 1.0]]}, columns={"column_names": ["id"]})
    assert await run_query(here, request) == [
        {"query_index": 0, "id": 2, "_distance": 0.0},
        {"query_index": 1, "id": 1, "_distance": 0.0},
    ]


async def test_columns_may_have_other_names_even_those_that_a_search_adds(here: Lake) -> None:
    rows = pa.table({"a b": [1], "S": ["x"], "in": [{"x": 1, "y.z": 2}], "v": ROWS["v"].slice(1, 1).combine_chunks()})
    await here.create(["n", "odd"], rows)
    request = near(1, 0, id=["n", "odd"], columns={"column_aliases": {"p": "`a b`", "q": "in.`y.z`", "S": "S"}})
    assert await run_query(here, request) == [{"p": 1, "q": 2, "S": "x", "_distance": 0.0}]
    request = make_query(id=["n", "odd"], columns={"column_names": ["a b", "in.x"]})
    assert await run_query(here, request) == [{"a b": 1, "in.x": 1}]
    await here.ns.create_table_scalar_index(spec.CreateTableIndexRequest(id=ID, column="text", index_type="FTS"))
    aliases = {"column_aliases": {"_distance": "id", "d": "_distance"}}
    assert await run_query(here, near(1, 0, k=1, columns=aliases)) == [{"_distance": 2, "d": 0.0}]
    text = {"string_query": {"query": "pear"}}
    assert await run_query(here, make_query(full_text_query=text, columns={"column_aliases": {"_score": "id"}})) == [
        {"_score": 2}
    ]


async def test_rows_are_found_by_their_text(here: Lake) -> None:
    await here.ns.create_table_scalar_index(
        spec.CreateTableIndexRequest(id=ID, column="text", index_type="FTS", with_position=True)
    )
    text = {"match": {"terms": "apple", "column": "text"}}
    queries: Sequence[tuple[dict[str, Any], list[int]]] = [
        ({"string_query": {"query": "pear"}}, [2]),
        ({"string_query": {"query": "red pear", "columns": ["text"]}}, [1, 2]),
        (structured(**text), [1]),
        (structured(match={"terms": "apple"}), [1]),
        (structured(match={"terms": "rod", "fuzziness": 1, "boost": 2.0}), [1]),
        (structured(match={"terms": "red pear", "operator": "And"}), []),
        (structured(phrase={"terms": "green pear"}), [2]),
        (structured(phrase={"terms": "pear green"}), []),
        (structured(boost={"positive": text, "negative": text}), [1]),
        (structured(multi_match={"match_queries": [text["match"]]}), [1]),
        (structured(boolean={"must": [text], "should": [], "must_not": []}), [1]),
        (structured(boolean={"must": [text], "should": [], "must_not": [text]}), []),
    ]
    for query, expected in queries:
        rows = await run_query(here, make_query(full_text_query=query, columns={"column_names": ["id"]}))
        assert sorted(row["id"] for row in rows) == expected, query
        assert all(row["_score"] >= 0 for row in rows)


async def test_a_query_is_explained_and_analyzed(here: Lake) -> None:
    plan = await here.ns.explain_table_query_plan({"id": ID, "query": near(1, 0)})
    assert "_distance" in plan and "elapsed" not in plan
    assert "output_rows=1" in await here.ns.analyze_table_query_plan(near(1, 0, k=1))
    verbose = {"id": ID, "query": near(1, 0, version=7), "verbose": True}
    await catch(err.TableVersionNotFoundError, here.ns.explain_table_query_plan(verbose))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 0}, "^k 0: must be at least 1"),
        ({"k": 2**63}, "^k 9223372036854775808: must be at most 9223372036854775807"),
        ({"offset": 2**64}, "^offset 18446744073709551616: must be at most 9223372036854775807"),
        ({"nprobes": 0}, "^nprobes 0: must be at least 1"),
        ({"refine_factor": 0}, "^refine_factor 0: must be at least 1"),
        ({"ef": 0}, "^ef 0: must be at least 1"),
        ({"minimum_nprobes": 3, "maximum_nprobes": 2}, "^minimum_nprobes 3: must not be above maximum_nprobes 2"),
        ({"distance_type": "far"}, "^distance_type 'far': must be one of l2, cosine"),
        ({"columns": {"column_names": ["id"], "column_aliases": {"a": "id"}}}, "^columns: set column_names or"),
        ({"vector": {"single_vector": [1.0], "multi_vector": [[1.0]]}}, "^vector: set single_vector or multi_vector"),
        ({"vector": {"single_vector": [1.0]}, "full_text_query": X}, "^vector and full_text_query: set only one"),
        ({"vector": {"multi_vector": [[1.0], [2.0]]}, "offset": 1}, "^offset 1: not supported with several vectors"),
        ({"vector": {"multi_vector": [[]]}}, "^multi_vector: a vector is empty"),
        ({"vector": {"multi_vector": [[1.0], []]}}, "^multi_vector: a vector is empty"),
        *[
            ({field: value}, f"^{field}: allowed only with a vector; set a vector, or omit this field")
            for field, value in {
                "vector_column": "v",
                "distance_type": "dot",
                "lower_bound": 1.0,
                "upper_bound": 0.0,
                "nprobes": 5,
                "minimum_nprobes": 1,
                "maximum_nprobes": 2,
                "ef": 3,
                "refine_factor": 2,
            }.items()
        ],
    ],
)
async def test_a_query_that_no_table_could_answer_is_refused(here: Lake, fields: dict[str, Any], message: str) -> None:
    for id in (ID, ["n", "none"]):
        await catch(err.InvalidInputError, here.ns.query_table(make_query(id=id, **fields)), message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vector": {"single_vector": [1.0, 2.0, 3.0]}}, "vector size 3 does not match .* size 2"),
        ({"vector": {"multi_vector": [[1.0, 2.0], [3.0]]}}, "must have the same length"),
        ({"vector": {"single_vector": [1.0, 2.0]}, "vector_column": "id"}, "must be a vector"),
        ({"filter": "id = = 1"}, "sql parser error"),
        ({"filter": "id"}, "does not return a boolean"),
        ({"filter": "nothing(id) = 1"}, "Invalid function 'nothing'"),
        ({"full_text_query": X}, "no column has a full-text index; create one with create_table_scalar_index"),
        ({"full_text_query": {}}, "^full_text_query: set either string_query or structured_query"),
        ({"full_text_query": structured()}, "^full_text_query: each query must have exactly one kind"),
        (
            {"full_text_query": structured(match={"terms": "x"})},
            "no column is set, and no column has a full-text index",
        ),
        (
            {"full_text_query": structured(match={**IN_TEXT, "operator": "xor"})},
            "^operator 'xor': must be one of and, or",
        ),
        ({"full_text_query": structured(multi_match={"match_queries": []})}, "^match_queries: must not be empty"),
    ],
)
async def test_a_query_the_table_cannot_answer_is_refused(here: Lake, fields: dict[str, Any], message: str) -> None:
    await catch(err.InvalidInputError, here.ns.query_table(make_query(**fields)), message)


async def test_a_vector_column_is_named_where_it_is_doubtful(here: Lake) -> None:
    v = ROWS["v"].combine_chunks()
    await here.create(["n", "two"], pa.table({"v": v, "w": v}))
    await here.create(["n", "usual"], pa.table({"v": v, "vector": v, "id": [1, 2, 3]}))
    await here.create(["n", "no"], pa.table({"id": [1]}))
    for name, message in (("two", "set it to one of v, w"), ("no", "the table has no vector column")):
        with pytest.raises(err.InvalidInputError, match=f"^vector_column: required, .*; {message}"):
            await here.ns.query_table(near(1, 0, id=["n", name]))
    assert [row["id"] for row in await run_query(here, near(1, 0, id=["n", "usual"]))] == [2, 1, 3]


@pytest.mark.parametrize(
    "fields",
    [
        *({"columns": {"column_names": ["no"]}}, {"columns": {"column_aliases": {"a": "no"}}}, {"filter": "no = 1"}),
        {"vector": {"single_vector": [1.0, 0.0]}, "vector_column": "no"},
        {"full_text_query": {"string_query": {"query": "x", "columns": ["no"]}}},
    ],
)
async def test_a_column_that_is_not_there_is_named(here: Lake, fields: dict[str, Any]) -> None:
    with pytest.raises(err.TableColumnNotFoundError, match=r"^Table column not found: n\$t .*\bno\b"):
        await here.ns.query_table(make_query(**fields))


async def test_a_branch_is_searched_and_explained(here: Lake) -> None:
    await here.ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="dev"))
    await here.ns.delete_from_table(spec.DeleteFromTableRequest(id=ID, branch="dev", predicate="id = 1"))
    rows = await run_query(here, make_query(branch="dev", columns={"column_names": ["id"]}))
    assert rows == [{"id": 2}, {"id": 3}] and len(await run_query(here, make_query())) == 3
    assert len(await run_query(here, make_query(branch="dev", version=1))) == 3
    await catch(err.TableBranchNotFoundError, here.ns.query_table(make_query(branch="no")), "no branch 'no'")
    await catch(err.TableVersionNotFoundError, here.ns.query_table(make_query(version=9)))

    async def explain(query: dict[str, Any], **fields: Any) -> str:
        return await here.ns.explain_table_query_plan({"query": make_query(**query), **fields})

    dev = {"id": ID, "branch": "dev"}
    for plan in (await explain(dev), await explain(dev, **dev), await explain({"id": ID}, **dev)):
        assert "tree/dev" in plan
    with pytest.raises(err.InvalidInputError, match=r"^query.id \['n', 'no'\]: the request itself has \['n', 't'\]; "):
        await explain({"id": ["n", "no"]}, id=ID)
    with pytest.raises(err.InvalidInputError, match=r"^query.branch 'dev': the request itself has 'main'; omit"):
        await explain({"branch": "dev"}, id=ID, branch="main")


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ"])
async def test_a_limit_above_the_number_of_rows_returns_all(tmp_path: Path, kind: str) -> None:
    """Lance would reserve memory for all of it, and end the process."""
    vectors = pa.array([[float(n)] * 16 for n in range(300)], pa.list_(pa.float32(), 16))
    async with lake(tmp_path) as opened:
        await opened.ns.write(ID, pa.table({"id": range(300), "vector": vectors}))
        await opened.ns.create_table_index({"id": ID, "column": "vector", "index_type": kind})
        graph = {"ef": 2**41} if "HNSW" in kind else {}
        query = {"id": ID, "k": 2**40, "vector": {"single_vector": [0.0] * 16}, "refine_factor": 2**30, **graph}
        assert 0 < len(in_file((await opened.ns.query_table(query)).data)) <= 300
        assert in_file((await opened.ns.query_table({**query, "k": 2, "offset": 2**40, **graph})).data) == []


TEXTS = pa.table(
    {
        "id": range(6),
        "title": ["red apple", "green apple", "blue sky", "red sky red", "x", "apple"],
        "in": [{"body.text": it} for it in ["sky", "apple pie", "red", "apple", "y", "apple tart"]],
    }
)
BODY = "in.`body.text`"


@pytest.fixture
async def indexed(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        await opened.create(rows=TEXTS)
        for column, positions in (("title", True), (BODY, False)):
            await opened.ns.create_table_scalar_index(
                spec.CreateTableIndexRequest(id=ID, column=column, index_type="FTS", with_position=positions)
            )
        yield opened


async def scores(indexed: Lake, query: Mapping[str, Any]) -> dict[int, float]:
    request = make_query(k=9, full_text_query=query, columns={"column_names": ["id"]})
    return {row["id"]: row["_score"] for row in in_file((await indexed.ns.query_table(request)).data)}


async def test_without_a_column_all_that_have_an_index_are_searched_and_phrases_by_positions(indexed: Lake) -> None:
    best = await scores(indexed, {"string_query": {"query": "apple"}})
    assert set(best) == {0, 1, 3, 5}
    assert await scores(indexed, {"string_query": {"query": "apple", "columns": []}}) == best
    assert await scores(indexed, structured(match={"terms": "apple"})) == best
    both = [{"terms": "apple", "column": "title"}, {"terms": "apple", "column": BODY}]
    assert await scores(indexed, structured(multi_match={"match_queries": both})) == best
    assert await scores(indexed, structured(multi_match={"match_queries": [{"terms": "apple"}]})) == best
    assert set(await scores(indexed, structured(match={"terms": "applx", "fuzziness": 1}))) == {0, 1, 3, 5}
    assert set(await scores(indexed, structured(match={"terms": "red apple", "operator": "and"}))) == {0}
    none_red = {"must": [{"match": {"terms": "apple"}}], "must_not": [{"match": {"terms": "red"}}], "should": []}
    assert set(await scores(indexed, structured(boolean=none_red))) == {1, 5}
    assert set(await scores(indexed, structured(phrase={"terms": "red apple"}))) == {0}
    with pytest.raises(err.InvalidInputError, match="position is not found"):
        await scores(indexed, structured(phrase={"terms": "apple tart", "column": BODY}))


async def test_each_column_may_be_searched_for_something_else(indexed: Lake) -> None:
    matches = [{"terms": "red", "column": "title"}, {"terms": "apple", "column": BODY}]
    one, other = [await scores(indexed, structured(match=it)) for it in matches]
    both = await scores(indexed, structured(multi_match={"match_queries": matches}))
    expected = {id: one.get(id, 0) + other.get(id, 0) for id in {*one, *other}}
    assert both == pytest.approx(expected) and next(iter(both)) == 3
    fuzzy = [{**matches[0], "terms": "rod", "fuzziness": 1}, {**matches[1], "boost": 2.0}]
    boosted = await scores(indexed, structured(multi_match={"match_queries": fuzzy}))
    assert boosted[1] == pytest.approx(2 * other[1]) and set(boosted) == set(expected)
    operators = [{"terms": "red apple", "column": "title", "operator": "And"}, {"terms": "red apple", "column": BODY}]
    assert set(await scores(indexed, structured(multi_match={"match_queries": operators}))) == {0, 1, 2, 3, 5}

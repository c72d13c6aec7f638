"""Descriptions of many tables of AWS Glue: by patterns of names, by pages, singly; and servers without patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import lance_namespace.errors as err
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.backends.glue.backend import expressions
from lance_ns_async.calls.observers import Call
from lance_ns_async.model import NamespaceId
from tests.fakes.glue import FakeGlue
from tests.support.glue import connected, opened
from tests.support.lake import ROWS

NAMES = [f"table_{i:04}" for i in range(2000)]
OTHERS = [f"other_{i:04}" for i in range(500)]


@pytest.fixture(scope="module")
def full() -> Iterator[FakeGlue]:
    """2,000 Lance tables among 2,500."""
    with FakeGlue() as server:
        server.add_database("", "db")
        server.add_tables("", "db", NAMES)
        server.add_tables("", "db", OTHERS, parameters={"table_type": "ICEBERG"})
        yield server


@pytest.fixture
def server(full: FakeGlue) -> FakeGlue:
    full.heal()
    full.clear()
    full.switch(ignore_expression=False, fnmatch_expression=False, short_pages=False)
    return full


async def resolved(ns: AsyncNamespace, names: Sequence[str]) -> None:
    """Describes the tables, which must all be at their locations."""
    result = (await ns.describe_tables([["db", name] for name in names])).raise_for_errors()
    assert {id.name: table.location for id, table in result.tables.items()} == {
        name: f"s3://bucket/db/{name.lower()}.lance" for name in names
    }


@pytest.mark.parametrize(
    ("strategy", "count", "calls"),
    [
        ("auto", 7, {"GetTable": 7}),
        ("auto", 8, {"GetTables": 1}),
        ("auto", 100, {"GetTables": 1}),
        ("auto", 500, {"GetTables": 5}),
        ("auto", 2000, {"GetTables": 20}),
        ("get", 100, {"GetTable": 100}),
        ("list", 8, {"GetTable": 8}),
        ("list", 2000, {"GetTables": 20}),
    ],
)
async def test_cost_of_a_strategy(server: FakeGlue, strategy: str, count: int, calls: dict[str, int]) -> None:
    # The other five hundred come after the Lance tables in the listing.
    async with connected(server, bulk_strategy=strategy) as ns:
        await resolved(ns, NAMES[:count])
    assert {operation: server.calls.count(operation) for operation in set(server.calls)} == calls


@pytest.mark.parametrize("strategy", ["auto", "get", "list"])
async def test_listing_reads_every_page_once(server: FakeGlue, strategy: str) -> None:
    async with connected(server, bulk_strategy=strategy) as ns:
        page = await ns.list_tables(["db"])
        assert page.tables == NAMES and server.calls == ["GetTables"] * 25
        first = await ns.list_tables(["db"], limit=3)
        second = await ns.list_tables(["db"], limit=3, page_token=first.page_token)
    assert [*first.tables, *second.tables] == NAMES[:6]


async def test_pages_that_are_short_or_empty_are_not_the_last(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.switch(short_pages=True)
    await resolved(ns, NAMES[:20])
    assert (await ns.list_tables(["db"])).tables == NAMES


async def test_patterns_are_as_short_as_glue_wants_and_side_by_side(server: FakeGlue, ns: AsyncNamespace) -> None:
    names = [f"{i:03}{'x' * 250}" for i in range(40)]
    server.add_database("", "long")
    server.add_tables("", "long", names)
    server.delay(0.02)
    result = (await ns.describe_tables([["long", name] for name in names])).raise_for_errors()
    assert len(result) == 40 and server.calls == ["GetTables"] * 5 and server.most_in_flight == 5
    assert all(len(call.parameters["Expression"]) <= 2048 for call in server.requests)


async def test_names_are_returned_as_requested(server: FakeGlue, ns: AsyncNamespace) -> None:
    names = [f"Table_{i:04}" for i in range(8)] + ["TABLE_0000", "table_0000"]
    await resolved(ns, names)
    assert server.calls == ["GetTables"]


async def test_odd_names_are_described_individually(server: FakeGlue, ns: AsyncNamespace) -> None:
    odd = ["a.b", "a*b", "a|b", "[a]", "a?", "é é"]
    server.add_database("", "odd")
    server.add_tables("", "odd", [*odd, "acb", "ab", *NAMES[:8]])
    result = (await ns.describe_tables([["odd", name] for name in (*odd, *NAMES[:8])])).raise_for_errors()
    assert set(result.tables) == {TableId(["odd", name]) for name in (*odd, *NAMES[:8])}
    assert server.calls.count("GetTables") == 1 and server.calls.count("GetTable") == 5


async def test_each_miss_is_confirmed_by_its_own_name(server: FakeGlue, ns: AsyncNamespace) -> None:
    missing = [f"none{i}" for i in range(3)]
    result = await ns.describe_tables([["db", name] for name in (*NAMES[:20], *missing)])
    assert len(result.tables) == 20 and {id.name for id in result.errors} == set(missing)
    assert all(isinstance(e, err.TableNotFoundError) for e in result.errors.values())
    assert server.calls.count("GetTable") == 3
    gone = await ns.describe_tables([["gone", name] for name in NAMES[:20]])
    assert {type(e) for e in gone.errors.values()} == {err.NamespaceNotFoundError}
    assert server.calls.count("GetTable") == 3, "a missing database is missing for all its tables"
    server.clear()
    await resolved(ns, NAMES[:20])
    assert server.calls == ["GetTables"], "patterns are still trusted"


@pytest.mark.parametrize("quirk", ["ignore_expression", "fnmatch_expression"])
async def test_server_without_patterns(server: FakeGlue, ns: AsyncNamespace, quirk: str) -> None:
    server.switch(**{quirk: True})
    async with opened(server) as backend:
        parent = NamespaceId(["db"])
        given_up = backend.capabilities_now.describe_batch
        first = await backend.describe_tables(parent, NAMES[-20:])
        for name in NAMES[-20:]:
            if name not in first:
                assert (await backend.describe_table(parent.table(name))).id.name == name
        assert given_up == 100 and backend.capabilities_now.describe_batch == 0
        assert backend.capabilities.listing_has_locations
        assert backend.capabilities.describe_batch == 100 and backend.server.traits.batches is False
    assert server.calls.count("GetTables") <= 2
    await resolved(ns, NAMES[-100:])
    server.clear()
    await resolved(ns, NAMES[:100])
    assert not [call for call in server.requests if "Expression" in call.parameters]


async def test_what_was_made_since_a_pattern_missed_it_alone_proves_nothing(server: FakeGlue) -> None:
    server.add_database("", "growing")
    server.add_tables("", "growing", NAMES[:8])
    async with opened(server) as backend:
        parent = NamespaceId(["growing"])
        assert len(await backend.describe_tables(parent, [*NAMES[:8], "late"])) == 8
        server.add_table("", "growing", "late")
        await backend.describe_table(parent.table("late"))
        assert backend.capabilities_now.describe_batch == 100


async def test_the_prefix_patterns_of_moto_find_only_the_requested_tables() -> None:
    with FakeGlue(stock=True) as server:
        async with connected(server, root="s3://bucket") as ns:
            await ns.create_namespace({"id": ["db"]})
            for i in range(30):
                await ns.declare_table({"id": ["db", f"t{i}"]})
            result = (await ns.describe_tables([["db", f"t{i}"] for i in range(10)])).raise_for_errors()
        assert server.calls.count("GetTables") == 1
    assert {id.name for id in result.tables} == {f"t{i}" for i in range(10)}


async def test_every_table_is_resolved_though_a_third_of_the_calls_are_throttled(server: FakeGlue) -> None:
    server.fail("ThrottlingException", times=None, every=3)
    async with connected(server, max_retries="8") as ns:
        await resolved(ns, NAMES)
        assert 20 <= len(server.calls) <= 40
        server.clear()
        await resolved(ns, NAMES[:7])
    async with connected(server, max_retries="8", bulk_strategy="get") as ns:
        await resolved(ns, NAMES[:200])


async def test_tables_of_many_databases_are_described_side_by_side(server: FakeGlue, ns: AsyncNamespace) -> None:
    for i in range(4):
        server.add_database("", f"db{i}")
        server.add_tables("", f"db{i}", NAMES[:10])
    ids = [TableId([f"db{i}", name]) for i in range(4) for name in NAMES[:10]]
    result = (await ns.describe_tables(ids)).raise_for_errors()
    assert set(result.tables) == set(ids) and server.calls == ["GetTables"] * 4


@given(st.lists(st.text("ab-_ 0é", min_size=1, max_size=255), unique=True, max_size=60))
def test_patterns_mean_each_name_once_and_no_other(names: list[str]) -> None:
    lowered = [name.lower() for name in names]
    parts = list(expressions(lowered))
    assert [name for _, part in parts for name in part] == lowered
    for expression, part in parts:
        assert len(expression) <= 2048 and part
        assert [name for name in lowered if re.fullmatch(expression, name)] == part


async def test_tables_are_described_together_where_no_credentials_come_with_them(tmp_path: Path) -> None:
    ids = [["n", name] for name in "abcdefgh"]
    with FakeGlue() as server:
        async with connected(server, root=tmp_path.as_uri()) as ns:
            await ns.create_namespace(["n"])
            for id in ids:
                await ns.write(id, ROWS)
            calls: list[Call] = []
            steps: list[tuple[int, int]] = []
            with ns.observe(calls.append):
                opened = await ns.open_many([*ids, ["n", "none"]], progress=lambda *step: steps.append(step))
        assert calls[0].operation == "describe_tables" and {str(call.subject) for call in calls[1:]} == {"n", "n$none"}
        assert [list(id) for id in opened.tables] == ids and steps[-1] == (9, 9)
        assert [type(error) for error in opened.errors.values()] == [err.TableNotFoundError]

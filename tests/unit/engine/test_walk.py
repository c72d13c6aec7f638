"""Walks of a subtree are complete: in rounds, or page by page in one order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, InvalidInputError, NamespaceNotFoundError, PermissionDeniedError

from lance_ns_async.backends.base import Capabilities
from lance_ns_async.calls.paging import encode_token
from lance_ns_async.engine.walk import Tree
from lance_ns_async.model import Id, NamespaceId, TableId
from tests.fakes.memory import MemoryBackend, Size, as_asked, fixed
from tests.support.errors import catch

ROOT = NamespaceId()
NAMES = st.text("ab$é", min_size=1, max_size=2)
TABLES = st.lists(st.lists(NAMES, min_size=1, max_size=4).map(TableId), max_size=15)
STARTS = st.lists(NAMES, max_size=2).map(NamespaceId)
SIZES: st.SearchStrategy[Size] = st.one_of(
    st.just(as_asked), st.builds(lambda sizes: fixed(*sizes, 2), st.lists(st.integers(0, 3)))
)
CATALOGS = st.builds(
    Capabilities, st.integers(0, 1), st.none() | st.just(4), paginates=st.booleans(), lists_only_lance=st.booleans()
)


def planted(
    tables: Sequence[TableId], others: Sequence[TableId] = (), *, can: Capabilities, size: Size = as_asked
) -> MemoryBackend:
    backend = MemoryBackend.able(can, size)
    backend.add_other_table(id for id in tables if len(id) > can.min_depth)
    backend.plant_others(id for id in others if len(id) > can.min_depth and id not in backend.tables)
    return backend


def tree(backend: MemoryBackend, start: NamespaceId = ROOT, workers: int = 3) -> Tree:
    return Tree(backend, start, max_in_flight=workers)


def below(start: NamespaceId, ids: Sequence[TableId]) -> set[TableId]:
    return {id for id in ids if id[: len(start)] == start and len(id) > len(start)}


def in_order(id: TableId) -> list[tuple[bool, str]]:
    """Returns the tables of a namespace before those of its child namespaces."""
    return [*((True, name) for name in id.parent), (False, id.name)]


async def all_tables(walking: Tree, *, recursive: bool = True) -> list[TableId]:
    return [id async for group in walking.tables(recursive=recursive) for id in group]


async def all_namespaces(walking: Tree, *, recursive: bool = True) -> list[NamespaceId]:
    return [id async for group in walking.namespaces(recursive=recursive) for id in group]


async def all_pages(walking: Tree, limits: Sequence[int | None]) -> list[TableId]:
    result: list[TableId] = []
    token: str | None = None
    for turn in count():
        page = await walking.page(limits[turn % len(limits)], token)
        result += page.items
        if (token := page.token) is None:
            return result
        assert len(page.items) == limits[turn % len(limits)]
    raise AssertionError


@given(TABLES, TABLES, STARTS, CATALOGS, SIZES, st.integers(1, 4), st.lists(st.none() | st.integers(1, 4), min_size=1))
async def test_rounds_and_pages_are_the_whole_subtree(
    tables: list[TableId],
    others: list[TableId],
    start: NamespaceId,
    can: Capabilities,
    size: Size,
    workers: int,
    limits: list[int | None],
) -> None:
    backend = planted(tables, others, can=can, size=size)
    backend.plant_namespace(start)
    expected = below(start, list(backend.tables))
    walking = tree(backend, start, workers)
    result = await all_tables(walking)
    assert len(result) == len(expected) and set(result) == expected
    assert await all_pages(walking, limits) == sorted(expected, key=in_order)
    own = await all_tables(walking, recursive=False)
    assert len(own) == len(set(own)) and set(own) == {id for id in expected if id.parent == start}


@given(TABLES, STARTS, CATALOGS, SIZES, st.integers(1, 4))
async def test_parents_come_before_children(
    tables: list[TableId], start: NamespaceId, can: Capabilities, size: Size, workers: int
) -> None:
    backend = planted(tables, can=can, size=size)
    backend.plant_namespace(start)
    expected = {id for id in backend.namespaces if id[: len(start)] == start and id != start}
    result = await all_namespaces(tree(backend, start, workers))
    assert len(result) == len(expected) and set(result) == expected
    for id in result:
        assert id.parent == start or result.index(id.parent) < result.index(id)
    own = await all_namespaces(tree(backend, start, workers), recursive=False)
    assert set(own) == {id for id in expected if id.parent == start}
    assert not [operation for operation, _ in backend.calls if operation != "list_namespaces"]


@given(TABLES, st.lists(NAMES, min_size=1, max_size=3).map(NamespaceId), st.integers(0, 40), st.booleans())
async def test_a_dropped_namespace_hides_no_other(
    tables: list[TableId], dropped: NamespaceId, after: int, is_paged: bool
) -> None:
    backend = planted(tables, can=Capabilities(0, None))
    expected = set(backend.tables)

    def drop(operation: str, subject: Id) -> None:
        if len(backend.calls) > after:
            backend.drop_tree(dropped)

    backend.on_call = drop
    walking = tree(backend)
    result = await all_pages(walking, [2]) if is_paged else await all_tables(walking)
    assert len(result) == len(set(result))
    assert {id for id in expected if id[: len(dropped)] != dropped} <= set(result) <= expected
    await all_namespaces(tree(backend))


@pytest.mark.parametrize("can", [Capabilities(0, None), Capabilities(1, 2, lists_only_lance=False)])
async def test_a_start_that_is_missing_is_an_error(can: Capabilities) -> None:
    walking = tree(planted([], can=can), NamespaceId(["gone"]))
    await catch(NamespaceNotFoundError, all_tables(walking))
    await catch(NamespaceNotFoundError, all_namespaces(walking))
    await catch(NamespaceNotFoundError, walking.page(None, None))


async def test_what_the_catalog_cannot_have_is_not_requested() -> None:
    backend = planted([TableId(["a", "t"]), TableId(["b", "t"])], can=Capabilities(1, 1))
    a, b = NamespaceId(["a"]), NamespaceId(["b"])
    expected = [("list_namespaces", ROOT), ("list_tables", a), ("list_tables", b)]
    assert len(await all_tables(tree(backend))) == 2 and backend.calls == expected
    backend.calls.clear()
    assert len((await tree(backend).page(None, None)).items) == 2 and backend.calls == expected
    backend.calls.clear()
    assert await all_namespaces(tree(backend)) == [a, b] and backend.calls == expected[:1]


async def test_calls_run_side_by_side_as_many_as_may_be() -> None:
    backend = planted([TableId([name, "t"]) for name in "abcdefghijkl"], can=Capabilities(0, None))
    backend.turns = 10
    await all_tables(tree(backend, workers=5))
    assert backend.most_in_flight == 5


async def test_a_consumer_may_stop_at_any_time() -> None:
    backend = planted([TableId([name, "t"]) for name in "abcdefghijkl"], can=Capabilities(0, None))
    async with aclosing(tree(backend, workers=2).tables(recursive=True)) as groups:
        async for group in groups:
            if group:
                break
    assert len(backend.calls) < 12 and backend.in_flight == 0


async def test_an_error_ends_the_walk() -> None:
    backend = planted([TableId([name, "t"]) for name in "abc"], can=Capabilities(0, None))
    denied = PermissionDeniedError("Permission denied: b")
    backend.faults["list_tables", NamespaceId(["b"])] = denied
    assert (await catch(PermissionDeniedError, all_tables(tree(backend)))).value is denied
    await catch(PermissionDeniedError, tree(backend).page(None, None))


@pytest.mark.parametrize("endless", [ROOT, NamespaceId(["a"])])
async def test_a_listing_that_does_not_end_is_an_error(endless: NamespaceId) -> None:
    backend = planted([TableId(["a", "t"])], can=Capabilities(0, None, paginates=True))
    backend.endless.add(endless)
    for walk in (all_tables, all_namespaces):
        await catch(InternalError, walk(tree(backend)), r"listing of .* does not end: page token '0/0' came twice")
    await catch(InternalError, tree(backend).page(None, None), "does not end")


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_below_one_is_refused_before_any_call(limit: int) -> None:
    backend = planted([TableId(["t"])], can=Capabilities(0, None))
    await catch(InvalidInputError, tree(backend).page(limit, None), "at least 1")
    assert not backend.calls


async def test_pages_cost_no_more_than_their_limit_needs() -> None:
    backend = planted([TableId([n, "t"]) for n in "abcdef"], can=Capabilities(0, None, lists_only_lance=False))
    page = await tree(backend).page(2, None)
    assert list(page.items) == [TableId(["a", "t"]), TableId(["b", "t"])]
    assert ("list_tables", NamespaceId(["c"])) not in backend.calls
    backend.calls.clear()
    await tree(backend).page(2, page.token)
    assert ("list_tables", NamespaceId(["a"])) not in backend.calls


FOREIGN: list[object] = [
    *(5, "page", [], {}, ["db", "t"], [None], ["x", "y", 3], {"after": None}, {"after": []}, {"after": ["db"]}),
    *({"after": ["db", 1]}, {"after": ["db", None]}, {"after": ["other", "t"]}, {"after": "db"}),
]


@pytest.mark.parametrize("value", FOREIGN)
async def test_a_foreign_token_is_refused(value: object) -> None:
    backend = planted([TableId(["db", "t"])], can=Capabilities(0, None))
    with pytest.raises(InvalidInputError, match="not one of this listing"):
        await tree(backend, NamespaceId(["db"])).page(None, encode_token(value))


async def test_a_page_goes_on_where_the_last_table_was_although_it_is_gone() -> None:
    backend = planted([TableId(["a", "t"]), TableId(["a", "u"]), TableId(["b", "t"])], can=Capabilities(0, None))
    page = await tree(backend).page(1, None)
    backend.drop_tree(NamespaceId(["a"]))
    assert await tree(backend).page(None, page.token) == await tree(backend).page(None, None)

"""Listings with faulty page tokens: missing, repeated or overlapping pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import chain, count, cycle, repeat

import pytest
from lance_namespace import ListTablesRequest
from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async import AsyncNamespace, NamespaceId
from tests.faults.catalogs import HTTP, Catalog, open_catalog
from tests.faults.faults import Fault
from tests.faults.operations import connect_by_proxy, outcome
from tests.faults.proxy import respond
from tests.support.budget import with_usual

PAGING = pytest.mark.parametrize("impl", [*HTTP, "glue"])
Ask = Callable[[AsyncNamespace, NamespaceId], Awaitable[list[str]]]


async def _list(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    return (await ns.list_tables(ListTablesRequest(id=list(parent)))).tables


async def _list_one(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    return (await ns.list_tables(ListTablesRequest(id=list(parent), limit=1))).tables


async def _walk(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    return [id.name async for id in ns.iter_tables(parent)]


async def _many(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    listing = await ns.list_many([parent])
    return [id.name for id in listing.raise_for_errors().tables[parent]]


async def _many_for_a_while(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    listing = await ns.list_many([parent], timeout=1)
    return [id.name for id in listing.raise_for_errors().tables[parent]]


WAYS = pytest.mark.parametrize("ask", with_usual([_list, _walk, _many], _list, _many))


def _pages(catalog: Catalog, pages: Iterable[tuple[list[str], object]]) -> Fault:
    """Returns a fault that responds with these pages in order, whatever the request."""
    responses: Iterator[bytes] = (catalog.page(names, token) for names, token in pages)
    return Fault("pages", respond(lambda exchange: next(responses)), forwards=False)


async def _page_requests(
    catalog: Catalog, fault: Fault, ask: Ask, more: Mapping[str, str] | None = None
) -> tuple[list[str] | LanceNamespaceError, int]:
    """Returns the result, and the number of requested pages."""
    async with connect_by_proxy(catalog.impl, fault, more=more, only=catalog.is_listing) as (proxy, ns):
        result = await outcome(ask(ns, catalog.id("t").parent))
    return result, sum(map(catalog.is_listing, proxy.requests))


@PAGING
@WAYS
@pytest.mark.parametrize("tokens", [["a"], ["a", "b"], ["a", "b", "c"]], ids="".join)
async def test_a_repeated_token_is_an_error_after_one_round(impl: str, ask: Ask, tokens: list[str]) -> None:
    catalog = open_catalog(impl)
    fault = _pages(catalog, (([f"t{i}"], token) for i, token in enumerate(cycle(tokens))))
    result, pages = await _page_requests(catalog, fault, ask)
    assert isinstance(result, InternalError) and "page token 'a' came twice" in str(result)
    assert pages == len(tokens) + 1


@PAGING
@WAYS
@pytest.mark.parametrize("names", [[["t0"]], [["t0"], ["t1"]]], ids=["one page", "two pages"])
async def test_pages_that_repeat_with_other_tokens_are_an_error(impl: str, ask: Ask, names: list[list[str]]) -> None:
    catalog = open_catalog(impl)
    fault = _pages(catalog, ((page, f"{i}") for i, page in enumerate(cycle(names))))
    result, pages = await _page_requests(catalog, fault, ask)
    assert isinstance(result, InternalError) and "100 pages in a row came before, with other page tokens" in str(result)
    assert pages == len(names) + 101


@PAGING
@pytest.mark.parametrize("ask", [_list, _many_for_a_while])
async def test_an_endless_listing_ends_with_the_operation(impl: str, ask: Ask) -> None:
    catalog = open_catalog(impl)
    fault = _pages(catalog, (([], f"{i}") for i in count()))
    result, pages = await _page_requests(catalog, fault, ask, {"operation_timeout": "1s"})
    assert isinstance(result, ServiceUnavailableError) and pages > 2


@PAGING
@WAYS
@pytest.mark.parametrize("token", with_usual([7, 1.5, True, [1], {"a": 1}], 7, [1]), ids=str)
async def test_a_token_that_is_not_a_string_is_an_error(impl: str, ask: Ask, token: object) -> None:
    catalog = open_catalog(impl)
    result, pages = await _page_requests(catalog, _pages(catalog, chain([(["t0"], "a")], repeat((["t1"], token)))), ask)
    assert isinstance(result, InternalError), repr(result)
    assert f"{type(token).__name__} instead of a string" in str(result) and pages == 2


@PAGING
async def test_a_token_that_is_not_a_string_is_not_returned(impl: str) -> None:
    catalog = open_catalog(impl)
    result, _ = await _page_requests(catalog, _pages(catalog, repeat((["t0"], [1]))), _list_one)
    assert isinstance(result, InternalError), repr(result)


@PAGING
@WAYS
@pytest.mark.parametrize("end", [None, "", 0, False], ids=str)
async def test_empty_pages_are_skipped(impl: str, ask: Ask, end: object) -> None:
    catalog = open_catalog(impl)
    pages = [(["t0"], "1"), ([], "2"), ([], "3"), (["t1"], "4"), ([], end)]
    result, page_count = await _page_requests(catalog, _pages(catalog, pages), ask)
    assert (result, page_count) == (["t0", "t1"], 5)


@PAGING
@WAYS
async def test_a_table_on_two_pages_is_listed_once(impl: str, ask: Ask) -> None:
    catalog = open_catalog(impl)
    pages = [(["t0", "t1"], "1"), (["t1", "t2"], "2"), (["t0", "t3", "t3"], None)]
    result, _ = await _page_requests(catalog, _pages(catalog, pages), ask)
    # A walk keeps only one page in memory, so it cannot detect duplicates on earlier pages.
    assert isinstance(result, list)
    assert (list(dict.fromkeys(result)) if ask is _walk else result) == ["t0", "t1", "t2", "t3"]

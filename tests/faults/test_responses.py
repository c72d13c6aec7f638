"""Reads, declarations and bulk describes with a faulty response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import chain, count, cycle, repeat

import pytest
from lance_namespace import DeclareTableResponse, ListTablesRequest
from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)

from lance_ns_async import AsyncNamespace, BulkResult, NamespaceId, Table
from tests.fakes.sockets import http
from tests.faults.catalogs import CATALOGS, FAULTY, FAULTY_TABLES, FINE_TABLES, HTTP, Catalog, open_catalog
from tests.faults.error_responses import answer
from tests.faults.faults import Fault
from tests.faults.operations import (
    ANY,
    ATTEMPTS,
    check,
    check_text,
    connect_by_proxy,
    declare,
    describe,
    for_faults,
    in_doubt,
    list_tables,
    outcome,
)
from tests.faults.proxy import End, Proxy, always, change, respond
from tests.support.budget import with_usual


@for_faults(right=True)
async def test_unusual_responses_are_understood(fault: Fault, impl: str) -> None:
    id = open_catalog(impl).id("t0")
    async with connect_by_proxy(impl, fault) as (proxy, ns):
        assert await describe(ns, id) == proxy.catalog.place(id)


@for_faults(*ANY)
async def test_the_error_of_a_read_describes_the_fault(fault: Fault, impl: str) -> None:
    id, expected = open_catalog(impl).id("t0"), fault.error(impl)
    # A call is not retried if that cannot help, even if retries are left.
    async with connect_by_proxy(impl, fault, repeats=0 if expected.then in ("again", "reads") else 9) as (proxy, ns):
        check(await describe(ns, id), expected)
        assert len(proxy.table_requests) == 1
        if fault.lists:
            result = await list_tables(ns, id)
            assert type(result) is expected.error, repr(result)


@for_faults("again", "reads")
async def test_a_read_is_retried_if_that_may_help(fault: Fault, impl: str) -> None:
    async with connect_by_proxy(impl, fault, repeats=ATTEMPTS - 1) as (proxy, ns):
        check(await describe(ns, proxy.catalog.id("t0")), fault.error(impl), attempts=ATTEMPTS)
        assert len(proxy.table_requests) == ATTEMPTS


_ICEBERG_BODY = {"error": {"type": "NoSuchTableException", "message": "busy", "code": 404}}

_OTHER_CODES = {
    "glue": {"__type": "AccessDeniedException", "Message": "busy"},
    "iceberg": _ICEBERG_BODY,
    "polaris": _ICEBERG_BODY,
    "rest": {"code": 13, "error": "busy"},
    "unity": {"error_code": "PERMISSION_DENIED", "message": "busy"},
}
"""Errors whose code in the body does not mean throttling."""


@pytest.mark.parametrize("impl", _OTHER_CODES)
async def test_http_429_is_throttling_whatever_the_body_says(impl: str) -> None:
    fault = Fault("throttling", answer(429, _OTHER_CODES[impl]))
    async with connect_by_proxy(impl, fault, repeats=ATTEMPTS - 1) as (proxy, ns):
        error = await describe(ns, proxy.catalog.id("t0"))
        assert isinstance(error, ThrottlingError) and "busy" in str(error), repr(error)
        assert len(proxy.table_requests) == ATTEMPTS


@for_faults("reads", "doubt", "void", right=True)
async def test_a_change_that_took_effect_is_found_and_not_repeated(fault: Fault, impl: str) -> None:
    catalog = open_catalog(impl)
    new = catalog.new()
    async with connect_by_proxy(impl, fault, repeats=9, only=catalog.is_write) as (proxy, ns):
        response = await declare(ns, new, catalog.place(new))
        assert isinstance(response, DeclareTableResponse), response
        assert response.location == catalog.place(new) == await describe(ns, new)
        assert proxy.writes == 1


@for_faults("reads", "doubt")
async def test_a_change_with_a_lost_response_is_in_doubt(fault: Fault, impl: str) -> None:
    """The table is removed before the response, as if the change had not taken effect."""
    catalog, expected = open_catalog(impl), fault.error(impl)
    new = catalog.new()
    async with connect_by_proxy(impl, fault, repeats=9, only=catalog.is_write, undo=new) as (proxy, ns):
        result = await declare(ns, new, catalog.place(new))
        assert type(result) is expected.error and in_doubt(result), repr(result)
        assert expected.message in str(result) and proxy.writes == 1


@for_faults("reads", "doubt")
async def test_a_change_whose_lookup_fails_is_in_doubt(fault: Fault, impl: str) -> None:
    catalog = open_catalog(impl)
    new = catalog.new()
    async with connect_by_proxy(impl, fault) as (proxy, ns):
        result = await declare(ns, new, catalog.place(new))
        assert type(result) is fault.error(impl).error and in_doubt(result), repr(result)
        assert proxy.writes == 1 and len(proxy.table_requests) == 2


@for_faults("never")
async def test_a_rejected_change_is_not_in_doubt(fault: Fault, impl: str) -> None:
    catalog, expected = open_catalog(impl), fault.error(impl)
    new = catalog.new()
    async with connect_by_proxy(impl, fault, repeats=ATTEMPTS - 1, only=catalog.is_write) as (proxy, ns):
        result = await declare(ns, new, catalog.place(new))
        assert type(result) is (expected.declares or expected.error), repr(result)
        assert not in_doubt(result)
        lookups = 1 if type(result) is catalog.ambiguous else 0
        assert proxy.writes == 1 and len(proxy.table_requests) == 1 + lookups


@for_faults("again")
async def test_a_throttled_change_is_retried(fault: Fault, impl: str) -> None:
    catalog = open_catalog(impl)
    new = catalog.new()
    retries = ATTEMPTS - 1
    async with connect_by_proxy(impl, fault, repeats=retries, only=catalog.is_write, times=ATTEMPTS) as (proxy, ns):
        result = await declare(ns, new, catalog.place(new))
        assert type(result) is fault.error(impl).error and not in_doubt(result), repr(result)
        assert proxy.writes == ATTEMPTS
        response = await declare(ns, new, catalog.place(new))
        assert isinstance(response, DeclareTableResponse), response
        assert proxy.writes == ATTEMPTS + 1


NONSENSE = Fault("nonsense", always(http(200, "nonsense").data, "close"))
"""A response that is invalid in every protocol."""

_FINE = [name for name in FINE_TABLES if name.startswith("good")]


def _is_faulty(request: bytes) -> bool:
    return FAULTY.encode() in request


async def _describe_all(catalog: Catalog, ns: AsyncNamespace) -> BulkResult[Table]:
    """Describes twenty tables in mixed order, eight of them with a fault; asserts that each has an outcome."""
    ids = [*(catalog.id(name) for name in _FINE), *(catalog.id(name, FAULTY) for name in FAULTY_TABLES)]
    ids_in_turn = sorted(ids, key=lambda id: id.name[-1])
    result = await outcome(ns.describe_tables(ids_in_turn))
    assert isinstance(result, BulkResult), result
    assert sorted([*result.tables, *result.errors]) == sorted(ids)
    for id, table in result.tables.items():
        assert (table.id, table.location) == (id, catalog.place(id))
    for error in result.errors.values():
        check_text(error)
    return result


def _check_fine(result: BulkResult[Table], proxy: Proxy) -> None:
    """Asserts that the tables without faults were found, with one request each."""
    assert {proxy.catalog.id(name) for name in _FINE} <= set(result.tables)
    for name in _FINE:
        assert sum(name.encode() in request for request in proxy.requests) == 1, name


@for_faults(*ANY, right=True, one_of_each=True)
async def test_a_fault_does_not_affect_other_tables(fault: Fault, impl: str) -> None:
    expected = (fault.expected or {})[impl]
    # A connection that is closed after its response may already be in use for the next request.
    async with connect_by_proxy(impl, fault, repeats=9 if expected is None else 0, only=_is_faulty) as (proxy, ns):
        result = await _describe_all(proxy.catalog, ns)
    if expected is not None:
        assert {proxy.catalog.id(name, FAULTY) for name in FAULTY_TABLES} <= set(result.errors)
        assert {type(error) for error in result.errors.values()} == {expected.error}
    if expected is None or expected.error is not UnauthenticatedError:
        # After a 401, the remaining tables are not requested.
        _check_fine(result, proxy)


@for_faults("again", "reads", one_of_each=True)
async def test_a_temporary_fault_costs_only_its_retries(fault: Fault, impl: str) -> None:
    async with connect_by_proxy(impl, fault, repeats=9, only=_is_faulty, times=3) as (proxy, ns):
        result = await _describe_all(proxy.catalog, ns)
    assert not result.errors
    _check_fine(result, proxy)


@pytest.mark.parametrize("impl", ("iceberg", "polaris", "unity", "hive3", "glue"))
async def test_an_invalid_response_fails_only_its_tables(impl: str) -> None:
    once = {"max_retries": "0"}
    async with connect_by_proxy(impl, NONSENSE, repeats=9, only=_is_faulty, times=3, more=once) as (proxy, ns):
        result = await _describe_all(proxy.catalog, ns)
    # One of the three responses is for several tables; each of these is then described individually.
    assert len(result.errors) == (3 if impl in HTTP else 2)
    assert {type(error) for error in result.errors.values()} == {InternalError}
    _check_fine(result, proxy)


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
async def test_after_a_401_nothing_more_is_requested(impl: str) -> None:
    fault = Fault("HTTP 401", answer(401))
    async with connect_by_proxy(impl, fault, only=_is_faulty, more={"max_in_flight": "1"}) as (proxy, ns):
        result = await _describe_all(proxy.catalog, ns)
    assert {type(error) for error in result.errors.values()} == {UnauthenticatedError}
    assert sum(map(_is_faulty, proxy.table_requests)) == 1


@pytest.mark.parametrize("impl", CATALOGS)
@pytest.mark.parametrize("end", ["hang", "drip"])
async def test_a_slow_response_does_not_delay_other_tables(impl: str, end: End) -> None:
    fault = Fault("a slow response", change(lambda right: right[:100], end))
    async with connect_by_proxy(impl, fault, only=_is_faulty) as (proxy, ns):
        result = await _describe_all(proxy.catalog, ns)
    assert set(result.errors) == {proxy.catalog.id(name, FAULTY) for name in FAULTY_TABLES}
    assert {type(error) for error in result.errors.values()} == {ServiceUnavailableError}
    _check_fine(result, proxy)


PAGING = pytest.mark.parametrize("impl", [*HTTP, "glue"])
Ask = Callable[[AsyncNamespace, NamespaceId], Awaitable[list[str]]]


async def _list(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    return (await ns.list_tables(ListTablesRequest(id=list(parent)))).tables


async def _walk(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    return [id.name async for id in ns.iter_tables(parent)]


async def _many(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    return [id.name for id in (await ns.list_many([parent])).raise_for_errors().tables[parent]]


async def _many_for_a_while(ns: AsyncNamespace, parent: NamespaceId) -> list[str]:
    return [id.name for id in (await ns.list_many([parent], timeout=1)).raise_for_errors().tables[parent]]


WAYS = pytest.mark.parametrize("ask", with_usual([_list, _walk, _many], _list, _many))


def _pages(catalog: Catalog, pages: Iterable[tuple[list[str], object]]) -> Fault:
    """Returns a fault that responds with these pages in order, whatever the request."""
    responses: Iterator[bytes] = (catalog.page(names, token) for names, token in pages)
    return Fault("pages", respond(lambda exchange: next(responses)), forwards=False)


async def _page_requests(
    catalog: Catalog, fault: Fault, ask: Ask, more: Mapping[str, str] | None = None
) -> tuple[list[str] | LanceNamespaceError, int]:
    async with connect_by_proxy(catalog.impl, fault, more=more, only=catalog.is_listing) as (proxy, ns):
        result = await outcome(ask(ns, catalog.id("t").parent))
    return result, sum(map(catalog.is_listing, proxy.requests))


@PAGING
@WAYS
@pytest.mark.parametrize("repeated", [["a"], ["a", "b"], ["a", "b", "c"], ["t0"], ["t0", "t1"]], ids="".join)
async def test_a_repeated_token_or_page_is_an_error(impl: str, ask: Ask, repeated: list[str]) -> None:
    """A token is an error after one round, a page after 100 that came before with other tokens."""
    catalog, is_page = open_catalog(impl), repeated[0] == "t0"
    fault = _pages(catalog, (([it], f"{i}") if is_page else ([f"t{i}"], it) for i, it in enumerate(cycle(repeated))))
    result, pages = await _page_requests(catalog, fault, ask)
    text = "100 pages in a row came before, with other page tokens" if is_page else "page token 'a' came twice"
    assert isinstance(result, InternalError) and text in str(result)
    assert pages == len(repeated) + (101 if is_page else 1)


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

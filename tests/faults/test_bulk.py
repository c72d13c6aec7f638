"""Twenty tables described at once, of which eight meet a fault: nothing is lost, and nothing asked for twice."""

from __future__ import annotations

import pytest
from lance_namespace.errors import InternalError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async import AsyncNamespace, Described
from tests.fakes.sockets import http
from tests.faults.backends import WICKED, Catalog, location
from tests.faults.operations import ANY, cells, check_text, connect, outcome
from tests.faults.responses import answer
from tests.faults.server import Deed, End, Misbehaving
from tests.faults.table import CATALOGS, HTTP, Fault

NONSENSE = Deed(lambda right: http(200, "nonsense").data, "close")
"""What is no answer on any wire."""

_FINE = [f"good{i:02}" for i in range(12)]
_WICKED = [f"odd{i}" for i in range(8)]


async def _describe_all(catalog: Catalog, ns: AsyncNamespace) -> Described:
    """All twenty, those that meet faults among the others, each with an outcome."""
    ids = [*(catalog.id(name) for name in _FINE), *(catalog.id(name, WICKED) for name in _WICKED)]
    ids_in_turn = sorted(ids, key=lambda id: id.name[-1])
    result = await outcome(ns.describe_tables(ids_in_turn))
    assert isinstance(result, Described), result
    assert sorted([*result.tables, *result.errors]) == sorted(ids)
    for id, table in result.tables.items():
        assert (table.id, table.location) == (id, location(id.parent.name, id.name))
    for error in result.errors.values():
        check_text(error)
    return result


def _check_fine(catalog: Catalog, result: Described, server: Misbehaving) -> None:
    """Those that met no fault are there, at the price of one request each."""
    assert {catalog.id(name) for name in _FINE} <= set(result.tables)
    for name in _FINE:
        assert sum(name.encode() in request for request in server.requests) == 1, name


@cells(*ANY, right=True)
async def test_a_fault_spoils_no_other_table(fault: Fault, impl: str) -> None:
    catalog, cell = CATALOGS[impl](), fault.cells[impl]
    async with Misbehaving(catalog, cell.deed, at=WICKED.encode()) as server:
        # A connection that ends after its answer may have been given to the next request.
        repeats = 9 if cell.expected is None else 0
        async with connect(catalog, server.url, repeats=repeats) as ns:
            result = await _describe_all(catalog, ns)
    if cell.expected is not None:
        assert {catalog.id(name, WICKED) for name in _WICKED} <= set(result.errors)
        assert {type(error) for error in result.errors.values()} == {cell.expected.error}
    if cell.expected is None or cell.expected.error is not UnauthenticatedError:
        # Where nobody knows who asks, the rest is not asked for.
        _check_fine(catalog, result, server)


@cells("again", "reads")
async def test_a_fault_that_passes_costs_no_more_than_itself(fault: Fault, impl: str) -> None:
    catalog, (deed, _) = CATALOGS[impl](), fault.on(impl)
    async with Misbehaving(catalog, deed, at=WICKED.encode(), times=3) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            result = await _describe_all(catalog, ns)
    assert not result.errors
    _check_fine(catalog, result, server)


@pytest.mark.parametrize("impl", ("iceberg", "polaris", "unity", "hive3", "glue"))
async def test_an_answer_that_is_none_spoils_the_tables_it_was_for(impl: str) -> None:
    catalog = CATALOGS[impl]()
    async with Misbehaving(catalog, NONSENSE, at=WICKED.encode(), times=3) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            result = await _describe_all(catalog, ns)
    # A shared answer is one of the three: then each of its tables is asked for by itself.
    assert len(result.errors) == (3 if impl in HTTP else 2)
    assert {type(error) for error in result.errors.values()} == {InternalError}
    _check_fine(catalog, result, server)


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
async def test_who_is_refused_midway_asks_no_more(impl: str) -> None:
    catalog = CATALOGS[impl]()
    async with Misbehaving(catalog, answer(401), at=WICKED.encode()) as server:
        async with connect(catalog, server.url, more={"max_in_flight": "1"}) as ns:
            result = await _describe_all(catalog, ns)
    assert {type(error) for error in result.errors.values()} == {UnauthenticatedError}
    assert sum(WICKED.encode() in request for request in server.table_requests) == 1


@pytest.mark.parametrize("impl", CATALOGS)
@pytest.mark.parametrize("then", ["hang", "drip"])
async def test_a_server_that_keeps_one_waiting_holds_up_no_other_table(impl: str, then: End) -> None:
    catalog = CATALOGS[impl]()
    async with Misbehaving(catalog, Deed(lambda right: right[:100], then), at=WICKED.encode()) as server:
        async with connect(catalog, server.url) as ns:
            result = await _describe_all(catalog, ns)
    assert set(result.errors) == {catalog.id(name, WICKED) for name in _WICKED}
    assert {type(error) for error in result.errors.values()} == {ServiceUnavailableError}
    _check_fine(catalog, result, server)

"""Bulk describes of twenty tables, eight of them with a fault: each has an outcome, without unnecessary calls."""

from __future__ import annotations

import pytest
from lance_namespace.errors import InternalError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async import AsyncNamespace, BulkResult, Table
from tests.fakes.sockets import http
from tests.faults.backends import FAULTY, Catalog, location
from tests.faults.operations import ANY, check_text, connect, for_faults, outcome
from tests.faults.responses import answer
from tests.faults.server import Action, End, FaultyServer
from tests.faults.table import CATALOGS, HTTP, Fault

NONSENSE = Action(lambda right: http(200, "nonsense").data, "close")
"""A response that is invalid in every protocol."""

_FINE = [f"good{i:02}" for i in range(12)]
_FAULTY = [f"odd{i}" for i in range(8)]


async def _describe_all(catalog: Catalog, ns: AsyncNamespace) -> BulkResult[Table]:
    """Describes all twenty tables in mixed order; asserts that each has an outcome."""
    ids = [*(catalog.id(name) for name in _FINE), *(catalog.id(name, FAULTY) for name in _FAULTY)]
    ids_in_turn = sorted(ids, key=lambda id: id.name[-1])
    result = await outcome(ns.describe_tables(ids_in_turn))
    assert isinstance(result, BulkResult), result
    assert sorted([*result.tables, *result.errors]) == sorted(ids)
    for id, table in result.tables.items():
        assert (table.id, table.location) == (id, location(id.parent.name, id.name))
    for error in result.errors.values():
        check_text(error)
    return result


def _check_fine(catalog: Catalog, result: BulkResult[Table], server: FaultyServer) -> None:
    """Asserts that the tables without faults were found, with one request each."""
    assert {catalog.id(name) for name in _FINE} <= set(result.tables)
    for name in _FINE:
        assert sum(name.encode() in request for request in server.requests) == 1, name


@for_faults(*ANY, right=True, one_of_each=True)
async def test_a_fault_does_not_affect_other_tables(fault: Fault, impl: str) -> None:
    catalog, case = CATALOGS[impl](), fault.cases[impl]
    async with FaultyServer(catalog, case.action, at=FAULTY.encode()) as server:
        # A connection that is closed after its response may already be in use for the next request.
        repeats = 9 if case.expected is None else 0
        async with connect(catalog, server.url, repeats=repeats) as ns:
            result = await _describe_all(catalog, ns)
    if case.expected is not None:
        assert {catalog.id(name, FAULTY) for name in _FAULTY} <= set(result.errors)
        assert {type(error) for error in result.errors.values()} == {case.expected.error}
    if case.expected is None or case.expected.error is not UnauthenticatedError:
        # After a 401, the remaining tables are not requested.
        _check_fine(catalog, result, server)


@for_faults("again", "reads", one_of_each=True)
async def test_a_temporary_fault_costs_only_its_retries(fault: Fault, impl: str) -> None:
    catalog, (action, _) = CATALOGS[impl](), fault.on(impl)
    async with FaultyServer(catalog, action, at=FAULTY.encode(), times=3) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            result = await _describe_all(catalog, ns)
    assert not result.errors
    _check_fine(catalog, result, server)


@pytest.mark.parametrize("impl", ("iceberg", "polaris", "unity", "hive3", "glue"))
async def test_an_invalid_response_fails_only_its_tables(impl: str) -> None:
    catalog = CATALOGS[impl]()
    async with FaultyServer(catalog, NONSENSE, at=FAULTY.encode(), times=3) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            result = await _describe_all(catalog, ns)
    # One of the three responses is for several tables; each of these is then described individually.
    assert len(result.errors) == (3 if impl in HTTP else 2)
    assert {type(error) for error in result.errors.values()} == {InternalError}
    _check_fine(catalog, result, server)


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
async def test_after_a_401_nothing_more_is_requested(impl: str) -> None:
    catalog = CATALOGS[impl]()
    async with FaultyServer(catalog, answer(401), at=FAULTY.encode()) as server:
        async with connect(catalog, server.url, more={"max_in_flight": "1"}) as ns:
            result = await _describe_all(catalog, ns)
    assert {type(error) for error in result.errors.values()} == {UnauthenticatedError}
    assert sum(FAULTY.encode() in request for request in server.table_requests) == 1


@pytest.mark.parametrize("impl", CATALOGS)
@pytest.mark.parametrize("then", ["hang", "drip"])
async def test_a_slow_response_does_not_delay_other_tables(impl: str, then: End) -> None:
    catalog = CATALOGS[impl]()
    async with FaultyServer(catalog, Action(lambda right: right[:100], then), at=FAULTY.encode()) as server:
        async with connect(catalog, server.url) as ns:
            result = await _describe_all(catalog, ns)
    assert set(result.errors) == {catalog.id(name, FAULTY) for name in _FAULTY}
    assert {type(error) for error in result.errors.values()} == {ServiceUnavailableError}
    _check_fine(catalog, result, server)

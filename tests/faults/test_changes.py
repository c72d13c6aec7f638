"""Declarations with a faulty response: executed once, or reported as in doubt."""

from __future__ import annotations

from lance_namespace import DeclareTableResponse

from tests.faults.operations import ATTEMPTS, connect, declare, describe, for_faults, in_doubt, place_of
from tests.faults.server import FaultyServer
from tests.faults.table import CATALOGS, Fault


@for_faults("reads", "doubt", "void", right=True)
async def test_a_change_that_took_effect_is_found_and_not_repeated(fault: Fault, impl: str) -> None:
    catalog = CATALOGS[impl]()
    new = catalog.id("new")
    async with FaultyServer(catalog, fault.cases[impl].action, only=catalog.is_write, acts=True) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            response = await declare(ns, new)
            assert isinstance(response, DeclareTableResponse), response
            assert response.location == place_of(new) == await describe(ns, new)
        assert server.writes == 1


@for_faults("reads", "doubt")
async def test_a_change_with_a_lost_response_is_in_doubt(fault: Fault, impl: str) -> None:
    catalog, (action, expected) = CATALOGS[impl](), fault.on(impl)
    async with FaultyServer(catalog, action, only=catalog.is_write) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            result = await declare(ns, catalog.id("new"))
        assert type(result) is expected.error and in_doubt(result), repr(result)
        assert expected.message in str(result) and server.writes == 1


@for_faults("reads", "doubt")
async def test_a_change_whose_lookup_fails_is_in_doubt(fault: Fault, impl: str) -> None:
    catalog, (action, expected) = CATALOGS[impl](), fault.on(impl)
    async with FaultyServer(catalog, action, acts=True) as server:
        async with connect(catalog, server.url) as ns:
            result = await declare(ns, catalog.id("new"))
        assert type(result) is expected.error and in_doubt(result), repr(result)
        assert server.writes == 1 and len(server.table_requests) == 2


@for_faults("never")
async def test_a_rejected_change_is_not_in_doubt(fault: Fault, impl: str) -> None:
    catalog, (action, expected) = CATALOGS[impl](), fault.on(impl)
    async with FaultyServer(catalog, action, only=catalog.is_write) as server:
        async with connect(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            result = await declare(ns, catalog.id("new"))
        assert type(result) is (expected.declares or expected.error), repr(result)
        assert not in_doubt(result)
        lookups = 1 if type(result) is catalog.ambiguous else 0
        assert server.writes == 1 and len(server.table_requests) == 1 + lookups


@for_faults("again")
async def test_a_throttled_change_is_retried(fault: Fault, impl: str) -> None:
    catalog, (action, expected) = CATALOGS[impl](), fault.on(impl)
    new = catalog.id("new")
    async with FaultyServer(catalog, action, only=catalog.is_write, times=ATTEMPTS) as server:
        async with connect(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            result = await declare(ns, new)
            assert type(result) is expected.error and not in_doubt(result), repr(result)
            assert server.writes == ATTEMPTS
            response = await declare(ns, new)
            assert isinstance(response, DeclareTableResponse), response
        assert server.writes == ATTEMPTS + 1

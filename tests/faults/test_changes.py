"""Declarations with a faulty response: executed once, or reported as in doubt."""

from __future__ import annotations

from lance_namespace import DeclareTableResponse

from tests.faults.operations import ATTEMPTS, cells, connect, declare, describe, in_doubt, place_of
from tests.faults.server import Misbehaving
from tests.faults.table import CATALOGS, Fault


@cells("reads", "doubt", "void", right=True)
async def test_a_change_that_was_made_is_found_and_not_made_again(fault: Fault, impl: str) -> None:
    catalog = CATALOGS[impl]()
    new = catalog.id("new")
    async with Misbehaving(catalog, fault.cells[impl].deed, only=catalog.is_write, acts=True) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            response = await declare(ns, new)
            assert isinstance(response, DeclareTableResponse), response
            assert response.location == place_of(new) == await describe(ns, new)
        assert server.writes == 1


@cells("reads", "doubt")
async def test_a_change_that_may_have_been_made_is_in_doubt(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    async with Misbehaving(catalog, deed, only=catalog.is_write) as server:
        async with connect(catalog, server.url, repeats=9) as ns:
            result = await declare(ns, catalog.id("new"))
        assert type(result) is expected.error and in_doubt(result), repr(result)
        assert expected.words in str(result) and server.writes == 1


@cells("reads", "doubt")
async def test_a_change_that_nobody_can_look_up_is_in_doubt(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    async with Misbehaving(catalog, deed, acts=True) as server:
        async with connect(catalog, server.url) as ns:
            result = await declare(ns, catalog.id("new"))
        assert type(result) is expected.error and in_doubt(result), repr(result)
        assert server.writes == 1 and len(server.table_requests) == 2


@cells("never")
async def test_a_change_that_was_turned_away_is_not_made_and_not_in_doubt(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    async with Misbehaving(catalog, deed, only=catalog.is_write) as server:
        async with connect(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            result = await declare(ns, catalog.id("new"))
        assert type(result) is (expected.declares or expected.error), repr(result)
        assert not in_doubt(result)
        lookups = 1 if type(result) is catalog.ambiguous else 0
        assert server.writes == 1 and len(server.table_requests) == 1 + lookups


@cells("again")
async def test_a_change_that_was_put_off_is_sent_again(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    new = catalog.id("new")
    async with Misbehaving(catalog, deed, only=catalog.is_write, times=ATTEMPTS) as server:
        async with connect(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            result = await declare(ns, new)
            assert type(result) is expected.error and not in_doubt(result), repr(result)
            assert server.writes == ATTEMPTS
            response = await declare(ns, new)
            assert isinstance(response, DeclareTableResponse), response
        assert server.writes == ATTEMPTS + 1

"""Reads with a faulty response."""

from __future__ import annotations

import pytest
from lance_namespace.errors import TableNotFoundError

from tests.faults.backends import FINE, location
from tests.faults.operations import ANY, ATTEMPTS, cells, check, connect, describe, list_tables
from tests.faults.responses import answer
from tests.faults.server import Misbehaving
from tests.faults.table import CATALOGS, HTTP, Fault


@cells(right=True)
async def test_what_is_odd_is_understood(fault: Fault, impl: str) -> None:
    catalog = CATALOGS[impl]()
    async with Misbehaving(catalog, fault.cells[impl].deed) as server, connect(catalog, server.url) as ns:
        assert await describe(ns, catalog.id("t0")) == location(FINE, "t0")


@cells(*ANY)
async def test_a_read_says_what_is_wrong(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    # What cannot help is not sent again, whatever the limits.
    repeats = 0 if expected.then in ("again", "reads") else 9
    async with Misbehaving(catalog, deed) as server:
        async with connect(catalog, server.url, repeats=repeats) as ns:
            check(await describe(ns, catalog.id("t0")), expected)
            # A table that Polaris misses might be in replacement: its note is looked for, and then the table again.
            misses = impl == "polaris" and expected.error is TableNotFoundError
            assert len(server.table_requests) == (3 if misses else 1)
            if fault.lists:
                result = await list_tables(ns, catalog.id("t0"))
                assert type(result) is expected.error, repr(result)


@cells("again", "reads")
async def test_a_read_is_sent_again_where_that_may_help(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    async with Misbehaving(catalog, deed) as server:
        async with connect(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            check(await describe(ns, catalog.id("t0")), expected, attempts=ATTEMPTS)
        assert len(server.table_requests) == ATTEMPTS


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
@pytest.mark.parametrize("status", [429, 503])
async def test_nobody_waits_longer_than_an_operation_may_take(impl: str, status: int) -> None:
    catalog = CATALOGS[impl]()
    async with Misbehaving(catalog, answer(status, headers={"Retry-After": "86400"})) as server:
        async with connect(catalog, server.url, repeats=2) as ns:
            result = str(await describe(ns, catalog.id("t0")))
        assert "not sent again within the operation's time, because the server asks to wait 86400 s" in result
        assert len(server.table_requests) == 1

"""What becomes of a read whose answer is not what it should be."""

from __future__ import annotations

import pytest
from lance_namespace.errors import TableNotFoundError

from tests.faults.answers import answer
from tests.faults.asking import ANY, ATTEMPTS, cells, check, connected, described, listed
from tests.faults.backends import FINE, location
from tests.faults.server import Misbehaving
from tests.faults.table import CATALOGS, HTTP, Fault


@cells(right=True)
async def test_what_is_odd_is_understood(fault: Fault, impl: str) -> None:
    catalog = CATALOGS[impl]()
    async with Misbehaving(catalog, fault.cells[impl].deed) as server, connected(catalog, server.url) as ns:
        assert await described(ns, catalog.id("t0")) == location(FINE, "t0")


@cells(*ANY)
async def test_a_read_says_what_is_wrong(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    # What cannot help is not sent again, whatever the limits.
    repeats = 0 if expected.then in ("again", "reads") else 9
    async with Misbehaving(catalog, deed) as server:
        async with connected(catalog, server.url, repeats=repeats) as ns:
            check(await described(ns, catalog.id("t0")), expected)
            # A table that Polaris misses might be in replacement: its note is looked for, and then the table again.
            misses = impl == "polaris" and expected.error is TableNotFoundError
            assert len(server.asked) == (3 if misses else 1)
            if fault.lists:
                found = await listed(ns, catalog.id("t0"))
                assert type(found) is expected.error, repr(found)


@cells("again", "reads")
async def test_a_read_is_sent_again_where_that_may_help(fault: Fault, impl: str) -> None:
    catalog, (deed, expected) = CATALOGS[impl](), fault.on(impl)
    async with Misbehaving(catalog, deed) as server:
        async with connected(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            check(await described(ns, catalog.id("t0")), expected, attempts=ATTEMPTS)
        assert len(server.asked) == ATTEMPTS


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
@pytest.mark.parametrize("status", [429, 503])
async def test_nobody_waits_longer_than_an_operation_may_take(impl: str, status: int) -> None:
    catalog = CATALOGS[impl]()
    async with Misbehaving(catalog, answer(status, headers={"Retry-After": "86400"})) as server:
        async with connected(catalog, server.url, repeats=2) as ns:
            found = str(await described(ns, catalog.id("t0")))
        assert "not sent again within the operation's time, for the server asks to wait 86400 s" in found
        assert len(server.asked) == 1

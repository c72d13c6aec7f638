"""Reads with a faulty response."""

from __future__ import annotations

import pytest
from lance_namespace.errors import ThrottlingError

from tests.faults.backends import FINE, location
from tests.faults.operations import ANY, ATTEMPTS, check, connect, describe, for_faults, list_tables
from tests.faults.responses import answer
from tests.faults.server import FaultyServer
from tests.faults.table import CATALOGS, HTTP, Fault


@for_faults(right=True)
async def test_unusual_responses_are_understood(fault: Fault, impl: str) -> None:
    catalog = CATALOGS[impl]()
    async with FaultyServer(catalog, fault.cases[impl].action) as server, connect(catalog, server.url) as ns:
        assert await describe(ns, catalog.id("t0")) == location(FINE, "t0")


@for_faults(*ANY)
async def test_the_error_of_a_read_describes_the_fault(fault: Fault, impl: str) -> None:
    catalog, (action, expected) = CATALOGS[impl](), fault.on(impl)
    # A call is not retried if that cannot help, even if retries are left.
    repeats = 0 if expected.then in ("again", "reads") else 9
    async with FaultyServer(catalog, action) as server:
        async with connect(catalog, server.url, repeats=repeats) as ns:
            check(await describe(ns, catalog.id("t0")), expected)
            assert len(server.table_requests) == 1
            if fault.lists:
                result = await list_tables(ns, catalog.id("t0"))
                assert type(result) is expected.error, repr(result)


@for_faults("again", "reads")
async def test_a_read_is_retried_if_that_may_help(fault: Fault, impl: str) -> None:
    catalog, (action, expected) = CATALOGS[impl](), fault.on(impl)
    async with FaultyServer(catalog, action) as server:
        async with connect(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            check(await describe(ns, catalog.id("t0")), expected, attempts=ATTEMPTS)
        assert len(server.table_requests) == ATTEMPTS


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_long_retry_after_ends_the_operation(impl: str, status: int) -> None:
    catalog = CATALOGS[impl]()
    async with FaultyServer(catalog, answer(status, headers={"Retry-After": "86400"})) as server:
        async with connect(catalog, server.url, repeats=2) as ns:
            result = str(await describe(ns, catalog.id("t0")))
        assert "not sent again within the operation's time, because the server asks to wait 86400 s" in result
        assert len(server.table_requests) == 1


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
    catalog = CATALOGS[impl]()
    async with FaultyServer(catalog, answer(429, _OTHER_CODES[impl])) as server:
        async with connect(catalog, server.url, repeats=ATTEMPTS - 1) as ns:
            error = await describe(ns, catalog.id("t0"))
        assert isinstance(error, ThrottlingError) and "busy" in str(error), repr(error)
        assert len(server.table_requests) == ATTEMPTS

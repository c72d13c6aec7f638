"""Servers with invalid certificates: each gets one request, and the error says how to trust it."""

from __future__ import annotations

from datetime import datetime

import pytest
from lance_namespace.errors import ServiceUnavailableError

from tests.fakes.certificates import LONG_AGO, authority
from tests.faults.operations import connect, declare, describe, in_doubt
from tests.faults.server import FaultyServer
from tests.faults.table import CATALOGS


@pytest.mark.parametrize("impl", CATALOGS)
@pytest.mark.parametrize(
    ("who", "host", "until"),
    [("others", "127.0.0.1", None), ("ours", "example.com", None), ("ours", "127.0.0.1", LONG_AGO)],
)
async def test_a_certificate_that_proves_nothing_is_looked_at_once(
    impl: str, who: str, host: str, until: datetime | None
) -> None:
    catalog = CATALOGS[impl]()
    more = {"ca_bundle": authority().bundle, **({"use_ssl": "true"} if impl == "hive3" else {})}
    outcomes: list[str] = []
    async with FaultyServer(catalog, tls=authority(who).server(host, until=until)) as server:
        async with connect(catalog, server.url, repeats=3, more=more) as ns:
            with ns.observe(lambda call: outcomes.append(call.outcome)):
                for ask in (describe, declare):
                    result = await ask(ns, catalog.id("new"))
                    assert type(result) is ServiceUnavailableError and not in_doubt(result), repr(result)
                    assert "certificate verify failed" in str(result) and "ca_bundle" in str(result)
                    assert "attempts" not in str(result)
        assert not server.requests
    assert outcomes == ["untrusted"] * 2

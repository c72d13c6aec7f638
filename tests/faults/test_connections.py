"""Calls without a server, or with another server: nothing was sent, so all may be repeated."""

from __future__ import annotations

import pytest
from lance_namespace.errors import ServiceUnavailableError

from lance_ns_async import BulkResult
from tests.fakes.certificates import authority
from tests.faults.backends import Catalog
from tests.faults.operations import ATTEMPTS, connect, declare, describe, in_doubt, outcome
from tests.faults.places import PLACES, Unreachable
from tests.faults.table import CATALOGS
from tests.support.budget import thorough


def _tls_properties(catalog: Catalog, url: str, unreachable: Unreachable) -> dict[str, str]:
    properties = {"connect_timeout": unreachable.connect_timeout}
    if url.startswith("https:") and catalog.impl != "glue":
        properties["ca_bundle"] = authority().bundle
        if catalog.impl == "hive3":
            properties["use_ssl"] = "true"
    return properties


_USUAL = ("iceberg", "glue", "hive3")
"""One catalog of each transport."""

ALL = [
    pytest.param(name, impl, id=f"{impl}: {name}", marks=[] if impl in _USUAL else [thorough])
    for name in PLACES
    for impl in CATALOGS
]


@pytest.mark.parametrize(("name", "impl"), ALL)
async def test_unsent_calls_are_not_in_doubt_and_are_retried(name: str, impl: str) -> None:
    catalog, unreachable = CATALOGS[impl](), PLACES[name]
    outcomes: list[str] = []
    again = unreachable.then == "again"
    async with unreachable.place(catalog) as url:
        async with connect(catalog, url, repeats=ATTEMPTS - 1, more=_tls_properties(catalog, url, unreachable)) as ns:
            with ns.observe(lambda call: outcomes.append(call.outcome)):
                for ask in (describe, declare):
                    result = await ask(ns, catalog.id("new"))
                    assert type(result) is ServiceUnavailableError and not in_doubt(result), repr(result)
                    assert unreachable.expected(impl).message in str(result)
                    assert (f"{ATTEMPTS} attempts" if again else "ca_bundle") in str(result)
    assert outcomes == (["refused"] * 2 * ATTEMPTS if again else ["untrusted"] * 2)


@pytest.mark.parametrize(("name", "impl"), ALL)
async def test_each_table_of_a_bulk_describe_gets_the_connection_error(name: str, impl: str) -> None:
    catalog, unreachable = CATALOGS[impl](), PLACES[name]
    ids = [catalog.id(f"t{i}") for i in range(20)]
    async with unreachable.place(catalog) as url:
        async with connect(catalog, url, more=_tls_properties(catalog, url, unreachable)) as ns:
            result = await outcome(ns.describe_tables(ids))
            assert isinstance(result, BulkResult)
            assert list(result.errors) == ids
            for error in result.errors.values():
                assert unreachable.expected(impl).message in str(error), error

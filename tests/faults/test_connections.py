"""Calls without a server, with another server, or with a failed login: nothing was sent, so all may be repeated."""

from __future__ import annotations

import struct

import pytest
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async import BulkResult
from tests.fakes.certificates import authority
from tests.fakes.thrift_sasl import BAD, COMPLETE, ERROR, OK, sasl_message
from tests.fakes.thrift_wire import EXCEPTION, Message
from tests.faults.catalogs import CATALOGS, SECRET, Catalog
from tests.faults.faults import PLACES, Unreachable
from tests.faults.operations import ATTEMPTS, check_text, connect, declare, describe, in_doubt, outcome
from tests.faults.proxy import FixedResponseServer
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
    catalog, unreachable = Catalog(impl), PLACES[name]
    outcomes: list[str] = []
    again = unreachable.then == "again"
    async with unreachable.place() as url:
        async with connect(catalog, url, repeats=ATTEMPTS - 1, more=_tls_properties(catalog, url, unreachable)) as ns:
            with ns.observe(lambda call: outcomes.append(call.outcome)):
                new = catalog.new()
                for result in (await describe(ns, new), await declare(ns, new, catalog.place(new))):
                    assert type(result) is ServiceUnavailableError and not in_doubt(result), repr(result)
                    assert unreachable.expected(impl).message in str(result)
                    assert (f"{ATTEMPTS} attempts" if again else "ca_bundle") in str(result)
                    assert again == ("attempts" in str(result))
    assert outcomes == (["refused"] * 2 * ATTEMPTS if again else ["untrusted"] * 2)


@pytest.mark.parametrize(("name", "impl"), ALL)
async def test_each_table_of_a_bulk_describe_gets_the_connection_error(name: str, impl: str) -> None:
    catalog, unreachable = Catalog(impl), PLACES[name]
    ids = [catalog.id(f"t{i}") for i in range(20)]
    async with unreachable.place() as url:
        async with connect(catalog, url, more=_tls_properties(catalog, url, unreachable)) as ns:
            result = await outcome(ns.describe_tables(ids))
            assert isinstance(result, BulkResult)
            assert list(result.errors) == ids
            for error in result.errors.values():
                assert unreachable.expected(impl).message in str(error), error


_LOGIN = {"auth": "plain", "user": "us", "password": f"password-{SECRET}"}


@pytest.mark.parametrize(
    ("response", "error", "text"),
    [
        (b"", ServiceUnavailableError, "no connection within 0.1 s"),
        (sasl_message(COMPLETE)[:3], ServiceUnavailableError, "the connection was lost"),
        (Message(EXCEPTION, "x", 0).encoded(), ServiceUnavailableError, "not a SASL message"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ServiceUnavailableError, "not a SASL message"),
        (struct.pack(">BI", OK, 2**31 - 1), ServiceUnavailableError, "not a SASL message"),
        (sasl_message(COMPLETE) * 2, ServiceUnavailableError, "not a SASL message"),
        (sasl_message(BAD, b"who are you?"), UnauthenticatedError, "SASL PLAIN: who are you?"),
        (sasl_message(ERROR, b"\xff\xfe"), UnauthenticatedError, "SASL PLAIN: "),
        (sasl_message(BAD), UnauthenticatedError, "SASL PLAIN: the server ends the login, status 3"),
        (sasl_message(BAD, f"no password-{SECRET}".encode()), UnauthenticatedError, "SASL PLAIN: no ***"),
    ],
    ids=["silence", "half", "no SASL", "HTTP", "huge", "twice", "refused", "no text", "no reason", "secret"],
)
async def test_a_failed_login_has_no_effect(response: bytes, error: type[LanceNamespaceError], text: str) -> None:
    catalog = Catalog("hive3")
    # Only the server that says nothing is not waited for.
    login = _LOGIN if response else {**_LOGIN, "connect_timeout": "100ms"}
    async with FixedResponseServer(response) as server, connect(catalog, server.url, more=login) as ns:
        new = catalog.new()
        for result in (await describe(ns, new), await declare(ns, new, catalog.place(new))):
            assert type(result) is error and text in str(result) and not in_doubt(result), repr(result)
            check_text(result)

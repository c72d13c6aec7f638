"""Calls without a server, with another server, or with a failed login: nothing was sent, so all may be repeated."""

from __future__ import annotations

import asyncio
import logging
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async import BulkResult, Call
from tests.documentation.pages import Page
from tests.fakes.certificates import authority
from tests.fakes.sockets import Script, http
from tests.fakes.thrift import BAD, COMPLETE, ERROR, OK, sasl_message
from tests.fakes.thrift_wire import EXCEPTION, Message
from tests.faults.catalogs import ALL, CATALOGS, HTTP, SECRET, Catalog, open_catalog, properties
from tests.faults.error_responses import answer
from tests.faults.faults import PLACES, Fault, Unreachable
from tests.faults.operations import (
    ATTEMPTS,
    CASES,
    check_text,
    connect,
    connect_by_proxy,
    declare,
    describe,
    in_doubt,
    outcome,
)
from tests.faults.proxy import FixedResponseServer, Proxy
from tests.faults.trial import PAGE, Report, faults_for, render, run_trial
from tests.support.budget import rounds, thorough, with_usual
from tests.support.processes import receive, started


def _tls_properties(catalog: Catalog, url: str, unreachable: Unreachable) -> dict[str, str]:
    properties = {"connect_timeout": unreachable.connect_timeout}
    if url.startswith("https:") and catalog.impl != "glue":
        properties["ca_bundle"] = authority().bundle
        if catalog.impl == "hive3":
            properties["use_ssl"] = "true"
    return properties


_USUAL = ("iceberg", "glue", "hive3")  # One catalog of each transport


@pytest.mark.parametrize(
    ("name", "impl"),
    [
        pytest.param(name, impl, id=f"{impl}: {name}", marks=[] if impl in _USUAL else [thorough])
        for name in PLACES
        for impl in CATALOGS
    ],
)
async def test_unsent_calls_are_not_in_doubt_and_are_retried(name: str, impl: str) -> None:
    catalog, unreachable = Catalog(impl), PLACES[name]
    outcomes: list[str] = []
    again, message = unreachable.then == "again", unreachable.expected(impl).message
    ids = [catalog.id(f"t{i}") for i in range(20)]
    async with unreachable.place() as url:
        more = _tls_properties(catalog, url, unreachable)
        async with connect(catalog, url, repeats=ATTEMPTS - 1, more=more) as ns:
            with ns.observe(lambda call: outcomes.append(call.outcome)):
                new = catalog.new()
                for result in (await describe(ns, new), await declare(ns, new, catalog.place(new))):
                    assert type(result) is ServiceUnavailableError and not in_doubt(result), repr(result)
                    assert message in str(result)
                    assert (f"{ATTEMPTS} attempts" if again else "ca_bundle") in str(result)
                    assert again == ("attempts" in str(result))
        async with connect(catalog, url, more=more) as ns:
            described = await outcome(ns.describe_tables(ids))
            assert isinstance(described, BulkResult) and list(described.errors) == ids
            assert all(message in str(error) for error in described.errors.values())
    assert outcomes == (["refused"] * 2 * ATTEMPTS if again else ["untrusted"] * 2)


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


BY_HTTP = with_usual([*HTTP, "glue"], "iceberg", "glue")


@pytest.mark.parametrize("impl", BY_HTTP)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_to_another_host_are_not_followed(impl: str, status: int) -> None:
    async with Script() as other:
        fault = Fault("a redirect", answer(status, "", {"Location": f"{other.url}/there"}), forwards=False)
        async with connect_by_proxy(impl, fault, repeats=2) as (proxy, ns):
            new = proxy.catalog.new()
            for result in (await describe(ns, new), await declare(ns, new, proxy.catalog.place(new))):
                assert isinstance(result, InternalError), repr(result)
                assert f"redirects are not followed; it points to {other.url}/there" in str(result)
            assert isinstance(result, LanceNamespaceError) and in_doubt(result)
            assert proxy.writes == 1
        assert (other.connections, other.requests) == (0, [])


@pytest.mark.parametrize("impl", BY_HTTP)
@pytest.mark.parametrize("form", ["page", "text", "error of its own", "kind of error", "cause of an error"])
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_secrets_that_a_server_repeats_are_redacted(
    impl: str, form: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = " ".join(value for value in properties(impl, "").values() if SECRET in value and "storage" not in value)
    assert secrets
    forms = {
        "page": f"<html><body>You said {secrets}</body></html>",
        "text": f"You said {secrets}",
        "error of its own": {
            "error": {"type": "Odd", "message": f"You said {secrets}"},
            "error_code": "ODD",
            "__type": "Odd",
            "message": f"You said {secrets}",
        },
        "kind of error": {
            "error": {"type": f"Odd {secrets}", "message": "no"},
            "error_code": f"ODD {secrets}",
            "__type": f"Odd {secrets}",
            "message": "no",
        },
        "cause of an error": {"__type": "FederationSourceException", "FederationSourceErrorCode": f"Odd {secrets}"},
    }
    calls: list[Call] = []
    async with connect_by_proxy(impl, Fault("secrets", answer(status, forms[form]))) as (proxy, ns):
        with ns.observe(calls.append):
            result = await describe(ns, proxy.catalog.id("t0"))
    assert isinstance(result, LanceNamespaceError)
    check_text(result)
    assert SECRET not in caplog.text and calls and SECRET not in repr(calls)


async def test_a_secret_that_a_token_endpoint_repeats_is_redacted() -> None:
    catalog = open_catalog("iceberg")
    for status in (200, 400, 500):
        response = http(status, f"You said client_secret=client-{SECRET}")
        async with Script(*[response] * 9) as tokens, Proxy(catalog) as server:
            more = {"credential": f"us:client-{SECRET}", "oauth2_server_uri": f"{tokens.url}/token"}
            async with connect(catalog, server.url, without=["auth_token"], more=more) as ns:
                result = await describe(ns, catalog.id("t0"))
            assert isinstance(result, LanceNamespaceError) and not server.requests
            assert len(tokens.requests) == 1


_MOST_MB = 64  # Maximum memory for all faults together, with responses of up to 64 KiB
_TIMEOUT = 300  # Seconds after which the child is ended; it takes about 10


def _run(connection: Connection, impl: str, tmp: Path, every: int) -> None:
    # The process ends without removing its temporary files.
    tempfile.tempdir = str(tmp)
    connection.send(asyncio.run(run_trial(impl, every=every)))


@pytest.mark.long
@pytest.mark.parametrize("impl", with_usual(ALL, "iceberg", "hive3"))
def test_faults_cause_no_wrong_results_and_no_hangs(
    impl: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """It runs in a separate process, because the maximum memory of a process is measured."""
    every = rounds(3, 1)
    with started(_run, impl, tmp_path, every) as (_, connection):
        assert connection.poll(_TIMEOUT), f"no report within {_TIMEOUT} s"
        report: Report = receive(connection)
    record_property("report", asdict(report))
    assert report.wrong == [] and report.hangs == []
    assert report.faults == len(faults_for(impl)[::every]) and report.injected > report.faults
    assert report.peak_mb < _MOST_MB


@pytest.mark.long
@pytest.mark.parametrize("impl", ALL)
def test_faults_are_many_and_have_unique_names(impl: str) -> None:
    names = Counter(fault.name for fault in faults_for(impl))
    assert len(names) > 80 and max(names.values()) == 1, names.most_common(3)
    assert impl not in CATALOGS or sum(result == impl for _, result in CASES) > 20


@pytest.mark.long
def test_the_documentation_is_current() -> None:
    assert Page(PAGE).text == render(), "run: python -m tests.faults page"

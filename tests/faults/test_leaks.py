"""Servers cannot redirect calls to other hosts or reveal secrets."""

from __future__ import annotations

import logging

import pytest
from lance_namespace.errors import InternalError, LanceNamespaceError

from lance_ns_async import Call
from tests.fakes.sockets import Script, http
from tests.faults.catalogs import HTTP, SECRET, open_catalog, properties
from tests.faults.error_responses import answer
from tests.faults.faults import Fault
from tests.faults.operations import check_text, connect, connect_by_proxy, declare, describe, in_doubt
from tests.faults.proxy import Proxy, always
from tests.support.budget import with_usual

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


NOWHERE = Fault("nowhere", always(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"))


@pytest.mark.parametrize("impl", BY_HTTP)
async def test_a_redirect_without_location_is_an_error(impl: str) -> None:
    async with connect_by_proxy(impl, NOWHERE) as (proxy, ns):
        result = await describe(ns, proxy.catalog.id("t0"))
    assert isinstance(result, InternalError) and "it points to nowhere" in str(result)

"""Names in requests are data and cannot change the form of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from datetime import datetime
from urllib.parse import unquote

import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async import TableId
from tests.fakes.certificates import LONG_AGO, authority
from tests.faults.backends import FINE, Catalog
from tests.faults.operations import connect, declare, describe, in_doubt, list_tables
from tests.faults.server import FaultyServer
from tests.faults.table import CATALOGS, HTTP

PLAIN = "plain"
WICKED = [
    *("..", "../../admin", "/admin", "//evil.example.com/x", "http://evil.example.com/x", "a/b", "a\\b", "a?x=1"),
    *("a&max_results=1", "a#b", "a;b=c", "a b", "a HTTP/1.1\r\nX-Injected: 1\r\n\r\n", "a\r\nX-Injected: 1"),
    *("a\nX-Injected: 1", "a\rX-Injected: 1", "a\0b", "%2e%2e%2fadmin", "%0d%0aX-Injected:%201", "%", "\x1f"),
    *("é\u2028", "*", "a|b", "'; drop table t; --", '","Name":"b', "{}", "${jndi:x}"),
]


def form(request: bytes) -> tuple[object, ...]:
    """Returns the parts of a request that are not names: method, depth of the path, keys, names of headers."""
    first, *lines = request.partition(b"\r\n\r\n")[0].decode("ascii").split("\r\n")
    method, target, version = first.split(" ")
    path, _, query = target.partition("?")
    assert re.fullmatch(r"[!-~]+", target) and "#" not in target
    assert not {".", ".."} & {unquote(part) if part.lower().startswith("%2e") else part for part in path.split("/")[1:]}
    keys = [pair.partition("=")[0] for pair in query.split("&")]
    return method, path.count("/"), keys, version, [line.partition(":")[0].lower() for line in lines]


async def send_all(catalog: Catalog, id: TableId) -> list[bytes]:
    """Returns the requests with a table's id; none if it is refused before."""
    async with FaultyServer(catalog) as server, connect(catalog, server.url) as ns:
        for ask in (describe, declare, list_tables):
            result = await ask(ns, id)
            if isinstance(result, LanceNamespaceError) and not server.table_requests:
                assert isinstance(result, InvalidInputError) or "not found" in str(result), result
        return [request for request in server.requests if not catalog.is_aside(request)]


_usual: dict[str, Set[str]] = {}
"""The forms of requests with plain names, by implementation."""


async def usual_forms(impl: str) -> Set[str]:
    """Returns the forms of requests with plain names, which are sent once."""
    if impl not in _usual:
        catalog = CATALOGS[impl]()
        ids = (catalog.id(PLAIN), catalog.id("new"), catalog.id("new", "other"))
        _usual[impl] = {str(form(request)) for id in ids for request in await send_all(CATALOGS[impl](), id)}
    return _usual[impl]


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
@pytest.mark.parametrize("name", WICKED)
async def test_a_name_changes_nothing_of_a_requests_form(impl: str, name: str) -> None:
    catalog, usual = CATALOGS[impl](), await usual_forms(impl)
    for id in (catalog.id(name), catalog.id(PLAIN, name)):
        for request in await send_all(CATALOGS[impl](), id):
            assert str(form(request)) in usual, request


@pytest.mark.parametrize("name", WICKED)
async def test_to_glue_a_name_is_a_text_in_json(name: str) -> None:
    catalog = CATALOGS["glue"]()
    for request in await send_all(catalog, catalog.id(name)):
        body = json.loads(request.partition(b"\r\n\r\n")[2])
        named = body.get("Name") or body.get("TableInput", {}).get("Name")
        # A request for a database has its name alone; a folder of a requested location may have the name of one.
        expected = (None, name.lower()) if "DatabaseName" in body else (None, FINE, *name.lower().split("/"))
        assert body.get("DatabaseName", FINE) == FINE and named in expected


@pytest.mark.parametrize("impl", CATALOGS)
@pytest.mark.parametrize(
    ("who", "host", "until"),
    [("others", "127.0.0.1", None), ("ours", "example.com", None), ("ours", "127.0.0.1", LONG_AGO)],
)
async def test_an_invalid_certificate_is_read_once(impl: str, who: str, host: str, until: datetime | None) -> None:
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

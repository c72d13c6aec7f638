"""Names in requests are data and cannot change the form of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from urllib.parse import unquote

import pytest
from lance_namespace import DescribeNamespaceRequest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async import TableId
from tests.faults.catalogs import FINE, HTTP, Catalog, open_catalog
from tests.faults.operations import connect_by_proxy, declare, describe, list_tables, outcome

PLAIN = "t0"

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
    async with connect_by_proxy(catalog.impl) as (proxy, ns):
        namespace = outcome(ns.describe_namespace(DescribeNamespaceRequest(id=list(id.parent))))
        for work in (describe(ns, id), declare(ns, id, catalog.place(id)), list_tables(ns, id), namespace):
            result: object = await work
            if isinstance(result, LanceNamespaceError) and not proxy.table_requests:
                assert isinstance(result, InvalidInputError) or "not found" in str(result), result
        return proxy.table_requests


_usual: dict[str, Set[str]] = {}
"""The forms of requests with plain names, by implementation."""


async def usual_forms(impl: str) -> Set[str]:
    """Returns the forms of requests with plain names, which are sent once."""
    if impl not in _usual:
        catalog = open_catalog(impl)
        ids = (catalog.id(PLAIN), catalog.new(), catalog.id("new", "other"))
        _usual[impl] = {str(form(request)) for id in ids for request in await send_all(catalog, id)}
    return _usual[impl]


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
@pytest.mark.parametrize("name", WICKED)
async def test_a_name_changes_nothing_of_a_requests_form(impl: str, name: str) -> None:
    catalog, usual = open_catalog(impl), await usual_forms(impl)
    for id in (catalog.id(name), catalog.id(PLAIN, name)):
        for request in await send_all(catalog, id):
            assert str(form(request)) in usual, request


@pytest.mark.parametrize("name", WICKED)
async def test_to_glue_a_name_is_a_text_in_json(name: str) -> None:
    catalog = open_catalog("glue")
    for request in await send_all(catalog, catalog.id(name)):
        body = json.loads(request.partition(b"\r\n\r\n")[2])
        named = body.get("Name") or body.get("TableInput", {}).get("Name")
        # A request for a database has its name alone; a folder of a requested location may have the name of one.
        expected = (None, name.lower()) if "DatabaseName" in body else (None, FINE, *name.lower().split("/"))
        assert body.get("DatabaseName", FINE) == FINE and named in expected

"""The fake Unity Catalog server: requests to a real Unity Catalog 0.6.0, and its responses.

The real server received 381 requests; these are the ones in which the fake once differed. Differences and assumptions:

- messages of errors, of which only the code is known;
- the columns of the three refused declarations are unknown: here they are a text, an object and a list of texts;
- the declaration that failed with 500 is assumed to have columns that are null;
- a null in the response to a creation is assumed to repeat the request: a table or schema that is read has `{}`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.raw import Reply
from tests.fakes.unity import FakeUnity
from tests.fakes.unity.requests import LIST, TABLE, call, page

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
CREDENTIALS = "/temporary-table-credentials"


@pytest.fixture
def server() -> Iterator[FakeUnity]:
    """Provides a server with the schema `s1`, which contains a table, in the catalog `c1`."""
    with FakeUnity(catalog="c1") as running:
        running.add_table("c1", "s1", "there", location="file:///data/there")
        yield running


def new(**changes: Any) -> dict[str, Any]:
    """Returns the body that creates a table, with some fields changed, and without those that are changed to `...`."""
    return {key: value for key, value in {**TABLE, **changes}.items() if value is not ...}


def code(reply: Reply) -> str | None:
    """Returns the code of an error."""
    is_error = reply.status >= 400 and reply.headers["Content-Type"] == JSON
    return reply.json["error_code"] if is_error and reply.body else None


INVALID = (400, "INVALID_ARGUMENT", JSON)
INTERNAL = (500, "INTERNAL", JSON)
OK = (200, None, JSON)


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("GET", "/schemas/c1.", None, INVALID),
        ("GET", "/schemas/c1.s1.", None, OK),
        ("GET", "/schemas/%00", None, (400, None, TEXT)),
        ("POST", "/tables", new(columns=None), INTERNAL),
        ("POST", "/tables", new(table_type=...), INTERNAL),
        ("POST", "/tables", new(data_source_format=...), OK),
        ("POST", "/tables", new(properties=None), OK),
        ("POST", "/tables", new(storage_location="file:///x/%"), INVALID),
        ("POST", "/tables", new(columns="x"), INVALID),
        ("POST", "/tables", new(columns={}), INVALID),
        ("POST", "/tables", new(columns=["x"]), INVALID),
        ("GET", "/tables/c1.s1.", None, INVALID),
        ("HEAD", "/tables/c1.s1.", None, (400, None, JSON)),
        ("GET", f"{LIST}&max_results=99999999999", None, INVALID),
        ("POST", CREDENTIALS, {"table_id": "x", "operation": "READ"}, INVALID),
        ("POST", CREDENTIALS, {"operation": "READ"}, INTERNAL),
        ("POST", CREDENTIALS, {"table_id": "x"}, INVALID),
        ("POST", CREDENTIALS, {}, INTERNAL),
        ("DELETE", "/schemas/c1.s1?force=x", None, INVALID),
        ("DELETE", "/catalogs/c1", None, (400, "FAILED_PRECONDITION", JSON)),
        ("DELETE", "/catalogs/c1?force=true", None, (200, None, TEXT)),
    ],
)
def test_answers_are_those_of_the_real_server(
    server: FakeUnity, method: str, path: str, body: Any, answer: tuple[Any, ...]
) -> None:
    reply = call(server, method, path, body)
    assert (reply.status, code(reply), reply.headers["Content-Type"]) == answer


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"),
    [
        ("POST", "/catalogs", {"name": "c2"}, {"storage_root": None, "storage_location": None}),
        ("GET", "/catalogs/c1", None, {"storage_root": None, "storage_location": None}),
        ("POST", "/schemas", {"name": "s2", "catalog_name": "c1", "properties": None}, {"properties": None}),
        ("PATCH", "/schemas/c1.s1", {"comment": "z"}, {"comment": "z", "properties": {}}),
        ("POST", "/tables", new(data_source_format=...), {"data_source_format": None}),
        ("POST", "/tables", new(properties=None), {"properties": None}),
        ("POST", "/tables", new(view_definition="x"), {"view_definition": "x"}),
    ],
)
def test_answers_have_the_fields_of_the_real_server(
    server: FakeUnity, method: str, path: str, body: Any, fields: dict[str, Any]
) -> None:
    reply = call(server, method, path, body).json
    assert {key: reply[key] for key in fields} == fields


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("relative/x", f"file://{os.getcwd()}/relative/x"),
        ("file://x/two", "file:///x/two"),
        ("file://localhost/x/x", "file:///localhost/x/x"),
        ("s3://b/a//b", "s3://b/a/b"),
    ],
)
def test_locations_are_moved(server: FakeUnity, sent: str, stored: str) -> None:
    assert call(server, "POST", "/tables", new(storage_location=sent)).json["storage_location"] == stored


def test_paths_with_a_null_are_refused_in_text(server: FakeUnity) -> None:
    assert call(server, "GET", "/schemas/%00").body == b"Status: 400\nDescription: Invalid request path"


def test_of_parameters_the_first_counts(server: FakeUnity) -> None:
    server.add_schema("c1", "s2")
    assert page(server, "/schemas?catalog_name=c1&max_results=1&max_results=3") == (["s1"], "s1")


@pytest.mark.parametrize("query", ["", "&", "&page_token=", "&omit_columns=true", "&omit_columns=TRUE"])
@pytest.mark.parametrize(("size", "number"), [(None, 4), (0, 4), (2, 2), (50, 4), (51, 4), (100, 4), (1000, 4)])
def test_refused_tables_are_in_no_list(server: FakeUnity, query: str, size: int | None, number: int) -> None:
    columns: list[Any] = ["x", {}, ["x"], None]
    assert {call(server, "POST", "/tables", new(columns=column)).status for column in columns} == {400, 500}
    assert code(call(server, "GET", "/tables/c1.s1.t1")) == "TABLE_NOT_FOUND"
    for name in ("T", "l10", "t8"):
        call(server, "POST", "/tables", new(name=name))
    limit = "" if size is None else f"&max_results={size}"
    names, token = page(server, f"{LIST}{limit}{query}")
    assert (names, token is None) == (["T", "l10", "t8", "there"][:number], number == 4)


@pytest.mark.parametrize("operation", ["READ", "READ_WRITE"])
def test_local_tables_get_their_url(server: FakeUnity, operation: str) -> None:
    id = call(server, "GET", "/tables/c1.s1.there").json["table_id"]
    reply = call(server, "POST", CREDENTIALS, {"table_id": id, "operation": operation}).json
    assert reply.pop("url") == "file:///data/there"
    assert set(reply.values()) == {None}


def test_a_dropped_catalog_is_gone(server: FakeUnity) -> None:
    call(server, "DELETE", "/catalogs/c1?force=true")
    assert code(call(server, "GET", "/tables/c1.s1.there")) == "CATALOG_NOT_FOUND"

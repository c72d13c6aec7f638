"""Requests to Unity Catalog 0.6.0, and its responses, which the fake repeats. Remaining differences: some messages of
errors; the columns of some refused declarations are unknown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fakes.http import Reply, ask, check
from tests.fakes.unity import API, FakeUnity

LIST = "/tables?catalog_name=c1&schema_name=s1"
JSON = {"Content-Type": "application/json"}
TABLE = {
    "name": "t1",
    "catalog_name": "c1",
    "schema_name": "s1",
    "table_type": "EXTERNAL",
    "data_source_format": "TEXT",
    "storage_location": "s3://bkt/t1.lance",
    "properties": {"table_type": "lance"},
    "columns": [],
}


def call(server: FakeUnity, method: str, path: str, body: Any = None, headers: Any = None) -> Reply:
    """Sends a request; the path is relative to the API's root."""
    return ask(server, method, API + path, body, {**(JSON if body is not None else {}), **(headers or {})})


def error(reply: Reply) -> tuple[int, str, str]:
    """Returns status, code and message of an error."""
    body = reply.json
    assert reply.headers["Content-Type"] == "application/json"
    assert body["details"][0]["reason"] == body["error_code"]
    return reply.status, body["error_code"], body["message"]


def page(server: FakeUnity, path: str, headers: Mapping[str, str] | None = None) -> tuple[list[str], str | None]:
    """Returns the names of a listing's page, and its token."""
    body = call(server, "GET", path, headers=headers).json
    token = body.pop("next_page_token")
    (entries,) = body.values()
    return [entry["name"] for entry in entries], token


def column(name: str = "id", **changes: Any) -> dict[str, Any]:
    """Returns a column; parts that are `...` are omitted."""
    usual = {
        "name": name,
        "type_text": "bigint",
        "type_json": json.dumps({"name": name, "type": "long", "nullable": True, "metadata": {}}),
        "type_name": "LONG",
        "position": 0,
        "nullable": True,
    }
    return {key: value for key, value in {**usual, **changes}.items() if value is not ...}


INVALID, INTERNAL, PRECONDITION = "INVALID_ARGUMENT", "INTERNAL", "FAILED_PRECONDITION"
NO_CATALOG, NO_SCHEMA, NO_TABLE = "CATALOG_NOT_FOUND", "SCHEMA_NOT_FOUND", "TABLE_NOT_FOUND"
VEND, VEND_PATH = "/temporary-table-credentials", "/temporary-path-credentials"
NO_PATH, NO_METHOD = "Status: 404\nDescription: Not Found\n", "Status: 405\nDescription: Method Not Allowed\n"
WRONG_COLUMNS: tuple[Any, ...] = ("x", {}, ["x"])
EMPTY = dict.fromkeys(("aws_temp_credentials", "azure_user_delegation_sas", "gcp_oauth_token", "expiration_time"))
UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def server() -> Iterator[FakeUnity]:
    """Provides a server with the schema `s1`, which contains a table, in the catalog `c1`."""
    with FakeUnity(catalog="c1") as running:
        running.add_table("c1", "s1", "t0", location="file:///data/t0")
        yield running


def new(**changes: Any) -> dict[str, Any]:
    """Returns the body that creates a table, with some fields changed, and without those that are `...`."""
    return {key: value for key, value in {**TABLE, **changes}.items() if value is not ...}


def schema(name: Any = "s2", **more: Any) -> dict[str, Any]:
    """Returns the body that creates a schema."""
    return {"name": name, "catalog_name": "c1", **more}


def at(location: Any, stored: str) -> tuple[str, str, Any, int, Any]:
    return "POST", "/tables", new(storage_location=location), 200, {"storage_location": stored}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "expected"),
    [
        # Paths and methods.
        *(("GET", path, None, 404, NO_PATH) for path in ("/tables/a/b", "/tables/", "/table-summaries")),
        *(("PUT", path, None, 405, NO_METHOD) for path in ("/tables", "/tables/c1.s1.t0", "/schemas/c1.s1")),
        ("GET", VEND, None, 405, NO_METHOD),
        ("GET", "/schemas/%00", None, 400, "Status: 400\nDescription: Invalid request path"),
        # Catalogs.
        ("POST", "/catalogs", {"name": "c2"}, 200, {"storage_root": None, "storage_location": None}),
        ("POST", "/catalogs", {"name": "c1"}, 400, "CATALOG_ALREADY_EXISTS"),
        ("GET", "/catalogs/c1", None, 200, {"name": "c1", "storage_root": None, "storage_location": None}),
        ("GET", "/catalogs/zz", None, 404, NO_CATALOG),
        ("DELETE", "/catalogs/c1", None, 400, PRECONDITION),
        ("DELETE", "/catalogs/c1?force=true", None, 200, "200 OK"),
        # Schemas.
        ("POST", "/schemas", schema(), 200, {"full_name": "c1.s2", "properties": {}, "storage_root": None}),
        ("POST", "/schemas", schema(1), 200, {"name": "1"}),
        ("POST", "/schemas", schema("s1"), 400, "SCHEMA_ALREADY_EXISTS"),
        ("POST", "/schemas", schema("s1", catalog_name="zz"), 404, NO_CATALOG),
        ("POST", "/schemas", schema("a b", catalog_name="zz"), 400, INVALID),
        ("POST", "/schemas", {"name": "s2"}, 404, NO_CATALOG),
        ("POST", "/schemas", schema(properties=None), 200, {"properties": None}),
        ("GET", "/schemas/c1.s1.", None, 200, {"name": "s1"}),
        *(("GET", it, None, 400, INVALID) for it in ("/schemas/c1.", "/schemas/c1")),
        ("GET", "/schemas/c1.zz", None, 404, NO_SCHEMA),
        ("GET", "/schemas/zz.s1", None, 404, NO_CATALOG),
        ("HEAD", "/schemas/c1.s1", None, 200, None),
        ("HEAD", "/schemas/c1.zz", None, 404, None),
        ("PATCH", "/schemas/c1.s1", {"comment": "z"}, 200, {"comment": "z", "properties": {}}),
        ("PATCH", "/schemas/c1.s1", {"properties": {"x": 1}}, 200, {"properties": {"x": "1"}}),
        ("PATCH", "/schemas/c1.s1", {"new_name": "n"}, 200, {"name": "n", "full_name": "c1.n"}),
        ("DELETE", "/schemas/c1.s1", None, 400, PRECONDITION),
        ("DELETE", "/schemas/c1.s1?force=x", None, 400, INVALID),
        ("DELETE", "/schemas/c1.s1?force=True", None, 200, "200 OK"),
        ("GET", "/schemas", None, 400, INVALID),
        # Tables.
        ("POST", "/tables", new(unknown=1), 200, {**TABLE, "comment": None, "view_definition": None}),
        ("POST", "/tables", new(data_source_format=...), 200, {"data_source_format": None}),
        ("POST", "/tables", new(properties=None), 200, {"properties": None}),
        ("POST", "/tables", new(view_definition="x"), 200, {"view_definition": "x"}),
        ("POST", "/tables", new(table_type=...), 500, INTERNAL),
        ("POST", "/tables", new(table_type="external"), 400, INVALID),
        ("POST", "/tables", new(data_source_format="LANCE"), 400, INVALID),
        ("POST", "/tables", new(name="t0", table_type="MANAGED"), 400, "TABLE_ALREADY_EXISTS"),
        ("POST", "/tables", new(catalog_name="zz", schema_name="zz"), 404, NO_CATALOG),
        ("POST", "/tables", new(schema_name="zz"), 404, NO_SCHEMA),
        ("POST", "/tables", "{nonsense", 400, INVALID),
        ("POST", "/tables", [], 400, INVALID),
        ("GET", "/tables/c1.s1.t0", None, 200, {"name": "t0", "storage_location": "file:///data/t0"}),
        *(("GET", it, None, 404, NO_TABLE) for it in ("/tables/c1.s1.T0", "/tables/c1.s1.a%2Fb")),
        ("GET", "/tables/c1.zz.t0", None, 404, NO_SCHEMA),
        ("GET", "/tables/zz.s1.t0", None, 404, NO_CATALOG),
        *(("GET", f"/tables/{name}", None, 400, INVALID) for name in ("c1.s1", "c1.s1.", "c1.s1.a.b", "c1.s1.a%2Eb")),
        ("HEAD", "/tables/c1.s1.t0", None, 200, None),
        ("HEAD", "/tables/c1.s1.", None, 400, None),
        ("DELETE", "/tables/c1.s1.t0", None, 200, "200 OK"),
        ("DELETE", "/tables/c1.s1.zz", None, 404, NO_TABLE),
        *(("GET", it, None, 400, INVALID) for it in ("/tables?catalog_name=c1", f"{LIST}&omit_columns=yes")),
        *(("GET", f"{LIST}&max_results={size}", None, 400, INVALID) for size in ("99999999999", "-1", "x")),
        # Names.
        *(("POST", "/schemas", schema(name), 200, {"name": name}) for name in ("a-b_c@d", "-x", "S1", "x" * 255)),
        *(("POST", "/tables", new(name=f"a{c}b"), 400, INVALID) for c in ". /$%\té\x1f"),
        *(("POST", "/schemas", schema(name), 400, INVALID) for name in ("", "x" * 256, "a.b")),
        # Properties.
        ("POST", "/schemas", schema(properties={"n": 1.5, "b": True}), 200, {"properties": {"n": "1.5", "b": "true"}}),
        ("POST", "/schemas", schema(properties={"x": {}}), 400, INVALID),
        ("POST", "/schemas", schema(properties={"x": None}), 500, INTERNAL),
        ("POST", "/schemas", schema(properties={"k": "v" * 256}), 500, INTERNAL),
        ("POST", "/schemas", schema(properties={"k": "🎉" * 255}), 500, INTERNAL),
        # Locations.
        at("file:/x", "file:///x"),
        at("file:///x/", "file:///x"),
        at("file://localhost/x", "file:///localhost/x"),
        at("relative/x", f"file://{os.getcwd()}/relative/x"),
        at("s3://b/a//b", "s3://b/a/b"),
        at("s3://b/a/./c/../d/", "s3://b/a/d"),
        at("s3://b/../x", "s3://b/../x"),
        at("s3://b/a%20b?c#é", "s3://b/a%20b?c#é"),
        at("gs://b/a", "gs://b/a"),
        at("abfss://c@h/a", "abfss://c@h/a"),
        *(
            ("POST", "/tables", new(storage_location=place), 400, INVALID)
            for place in ("", "s3://b/a b", "s3://b/", "file:///x/%", "s3a://b/a", "S3://b/a", "hdfs://b/a", "az://b/a")
        ),
        ("POST", "/tables", new(storage_location=...), 500, INTERNAL),
        ("POST", "/tables", new(storage_location="s3://b/" + "x" * 2042), 500, INTERNAL),
        # Columns.
        ("POST", "/tables", new(columns=None), 500, INTERNAL),
        *(("POST", "/tables", new(columns=columns), 400, INVALID) for columns in WRONG_COLUMNS),
        ("POST", "/tables", new(columns=[column(), column()]), 500, INTERNAL),
        ("POST", "/tables", new(columns=[column(), column("x", position=1)]), 200, ...),
        ("POST", "/tables", new(columns=[column(position=...)]), 500, INTERNAL),
        ("POST", "/tables", new(columns=[column(type_text=...)]), 500, INTERNAL),
        *(
            ("POST", "/tables", new(columns=[column(**changes)]), 400, INVALID)
            for changes in (
                {"type_name": "VARCHAR"},
                {"nullable": False},
                {"type_json": ""},
                {"type_json": "3"},
                {"type_json": json.dumps({"name": "id", "type": "long", "nullable": True})},
                {"type_json": json.dumps({"name": "ID", "type": "long", "nullable": True, "metadata": {}})},
                {"type_json": json.dumps({"name": "id", "type": 3, "nullable": True, "metadata": {}})},
            )
        ),
        # Credentials.
        ("POST", VEND, {"table_id": "x", "operation": "READ"}, 400, INVALID),
        ("POST", VEND, {"operation": "READ"}, 500, INTERNAL),
        ("POST", VEND, {"table_id": "x"}, 400, INVALID),
        ("POST", VEND, {}, 500, INTERNAL),
        ("POST", VEND, {"table_id": UNKNOWN, "operation": "READ"}, 404, NO_TABLE),
        ("POST", VEND, {"table_id": UNKNOWN, "operation": "WRITE"}, 400, INVALID),
        ("POST", VEND_PATH, {"url": "file:///x", "operation": "PATH_READ"}, 200, {**EMPTY, "url": "file:///x"}),
        ("POST", VEND_PATH, {"url": "s3://b/x", "operation": "PATH_READ"}, 400, PRECONDITION),
    ],
)
def test_requests(server: FakeUnity, method: str, path: str, body: Any, status: int, expected: Any) -> None:
    check(call(server, method, path, body), status, expected)


def test_messages(server: FakeUnity) -> None:
    for method, path, body, message in (
        ("POST", "/schemas", {"name": "s2"}, "Catalog not found: null"),
        ("GET", f"{LIST}&max_results=x", None, 'For input string: "x"'),
        ("DELETE", "/tables/c1.s1.zz", None, "Table not found: zz"),
        ("GET", "/tables/c1.s1.zz", None, "Table not found: c1.s1.zz"),
    ):
        assert error(call(server, method, path, body))[2] == message
    assert ask(server, "GET", "/tables").body.decode() == NO_PATH


def test_a_schema_is_renamed_with_its_tables(server: FakeUnity) -> None:
    call(server, "PATCH", "/schemas/c1.s1", {"new_name": "n"})
    check(call(server, "GET", "/schemas/c1.s1"), 404, NO_SCHEMA)
    check(call(server, "GET", "/tables/c1.n.t0"), 200, {"name": "t0", "schema_name": "n"})


def test_a_schema_with_a_root_has_a_location(server: FakeUnity) -> None:
    made = call(server, "POST", "/schemas", schema(storage_root="s3://b/r")).json
    place = f"s3://b/r/__unitystorage/schemas/{made['schema_id']}"
    assert (made["storage_root"], made["storage_location"]) == ("s3://b/r", place)


def test_columns_are_stored(server: FakeUnity) -> None:
    field = {"name": "id", "type": {"type": "array", "elementType": "float", "containsNull": True}}
    sent = column(type_json=json.dumps({**field, "nullable": True, "metadata": {}}), type_text="ARRAY<Float>", mask={})
    optional = ("type_precision", "type_scale", "type_interval_type", "comment", "partition_index")
    stored = {**dict.fromkeys(optional), **sent, "type_text": "array<float>"}
    del stored["mask"]
    assert call(server, "POST", "/tables", new(columns=[sent])).json["columns"] == [stored]
    assert call(server, "GET", "/tables/c1.s1.t1").json["columns"] == [stored]


@pytest.mark.parametrize("credentials", [None, {"aws_temp_credentials": {"access_key_id": "k"}, "expiration_time": 5}])
def test_credentials_of_tables(credentials: dict[str, Any] | None) -> None:
    with FakeUnity(catalog="c1", credentials=credentials) as server:
        for name, location in (("local", "file:///x"), ("far", "s3://b/x")):
            server.add_table("c1", "s1", name, location=location)
            id = call(server, "GET", f"/tables/c1.s1.{name}").json["table_id"]
            reply = call(server, "POST", VEND, {"table_id": id, "operation": "READ_WRITE"})
            if credentials is None and name == "far":
                check(reply, 400, PRECONDITION)
            else:
                vended = credentials if name == "far" else {}
                check(reply, 200, {**EMPTY, **(vended or {}), "url": location})
            call(server, "DELETE", f"/tables/c1.s1.{name}")
            check(call(server, "POST", VEND, {"table_id": id, "operation": "READ"}), 404, NO_TABLE)


def test_pages(server: FakeUnity) -> None:
    """The token of a full page is its last name, also if nothing follows; the first of repeated parameters counts."""
    server.add_lance_tables("c1", "s1", 100)
    for query, size, token in (
        *((it, 100, "t0098") for it in ("", "&max_results=0", "&max_results=1000")),
        ("&max_results=2", 2, "t0000"),
        ("&max_results=1&max_results=3", 1, "t0"),
        ("&page_token=", 100, "t0098"),
        ("&page_token=t0098", 1, None),
        ("&page_token=t0097&max_results=2", 2, "t0099"),
        ("&omit_columns=TRUE&max_results=2", 2, "t0000"),
    ):
        names, more = page(server, LIST + query)
        assert (len(names), more) == (size, token), query


@pytest.mark.parametrize("query", ["omit_columns=true", "omit_columns=1&omit_properties=false", "omit_properties=true"])
def test_lists_omit_columns_or_properties(query: str) -> None:
    with FakeUnity(catalog="c1") as server:
        server.add_table("c1", "s1", "t", columns=[column()], properties={"a": "b"})
        (table,) = call(server, "GET", f"{LIST}&{query}").json["tables"]
        omitted: dict[str, Any] = {"columns": []} if "columns" in query else {"properties": {}}
        assert table == {**call(server, "GET", "/tables/c1.s1.t").json, **omitted}


@pytest.mark.parametrize(
    ("dialect", "exists", "missing", "fields"),
    [
        ("0.6", (400, "TABLE_ALREADY_EXISTS"), "TABLE_NOT_FOUND", set()),
        ("0.4.1", (400, "TABLE_ALREADY_EXISTS"), "NOT_FOUND", {"stack_trace"}),
        ("0.4.0", (409, "ALREADY_EXISTS"), "NOT_FOUND", {"stack_trace"}),
    ],
)
def test_older_servers(dialect: Any, exists: tuple[int, str], missing: str, fields: set[str]) -> None:
    """Older servers have other codes of errors, and do not check `type_json`."""
    with FakeUnity(catalog="c1", dialect=dialect) as server:
        server.add_table("c1", "s1", "t1")
        assert error(call(server, "POST", "/tables", TABLE))[:2] == exists
        reply = call(server, "GET", "/tables/c1.s1.zz")
        assert error(reply)[:2] == (404, missing)
        assert reply.json.keys() == {"error_code", "details", "message", *fields}
        wrong = call(server, "POST", "/tables", new(name="t2", columns=[column(type_json='{"type": "long"}')]))
        assert wrong.status == (400 if dialect == "0.6" else 200)


def test_concurrent_creations_leave_duplicates(server: FakeUnity) -> None:
    with server.hold("POST /.*/tables") as hold, ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(call, server, "POST", "/tables", TABLE) for _ in range(2)]
        hold.wait_for(2)
        hold.release()
        assert [reply.result().status for reply in replies] == [200, 200]
    assert page(server, LIST) == (["t0", "t1", "t1"], None)
    for method, path in (("GET", "/tables/c1.s1.t1"), ("DELETE", "/schemas/c1.s1?force=true")):
        status, code, message = error(call(server, method, path))
        assert (status, code) == (500, INTERNAL) and message.endswith("unique result: 2 results were returned")


def test_of_concurrent_removals_one_succeeds(server: FakeUnity) -> None:
    with server.hold("DELETE") as hold, ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(call, server, "DELETE", "/tables/c1.s1.t0") for _ in range(2)]
        hold.wait_for(2)
        hold.release()
        ended = sorted((reply.result() for reply in replies), key=lambda reply: reply.status)
    assert ended[0].status == 200
    assert "Row was updated or deleted by another transaction" in error(ended[1])[2]


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        *((it, (401, "UNAUTHENTICATED")) for it in ({}, {"Authorization": "Basic cm9vdDpwdw=="}, bearing("junk"))),
        *((it, (403, "PERMISSION_DENIED")) for it in (bearing("unknown"), bearing("nobody"))),
    ],
)
def test_users_need_a_token(headers: dict[str, str], expected: tuple[int, str]) -> None:
    with FakeUnity(catalog="c1", authorization=["all"]) as server:
        server.add_table("c1", "s1", "t1")
        server.allow("nobody")
        server.disown("unknown")
        assert error(call(server, "GET", "/tables/c1.s1.t1", headers=headers))[:2] == expected
        assert call(server, "GET", "/tables/c1.s1.t1", headers=bearing("all")).status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/tables/c1.s1.t1", None, 200),
        ("GET", "/tables/c1.s1.t0", None, 403),
        ("GET", "/tables/c1.s1.zz", None, 404),
        ("GET", "/schemas/c1.s2", None, 403),
        ("DELETE", "/tables/c1.s1.t1", None, 403),
        ("DELETE", "/tables/c1.s1.zz", None, 404),
        ("DELETE", "/schemas/c1.s1", None, 403),
        ("PATCH", "/schemas/c1.s1", {"properties": {}}, 403),
        ("POST", "/tables", TABLE, 403),
        ("POST", "/schemas", schema("x"), 403),
    ],
)
def test_rights_of_users(method: str, path: str, body: Any, status: int) -> None:
    """Lists are filtered after paging."""
    with FakeUnity(catalog="c1", authorization=[]) as server:
        for name in ("t0", "t1"):
            server.add_table("c1", "s1", name)
        server.add_schema("c1", "s2")
        server.allow("some", "c1.s1.t1")
        assert call(server, method, path, body, bearing("some")).status == status
        assert page(server, f"{LIST}&max_results=1", bearing("some")) == ([], "t0")


def test_the_owner_cannot_declare_at_a_location_in_use() -> None:
    with FakeUnity(catalog="c1", authorization=["all"]) as server:
        server.add_table("c1", "s1", "t1", location=str(TABLE["storage_location"]))
        for changes, expected in (
            *((it, (403, "PERMISSION_DENIED")) for it in ({}, {"name": "t2"})),
            ({"storage_location": "s3://bkt/other"}, (400, "TABLE_ALREADY_EXISTS")),
        ):
            assert error(call(server, "POST", "/tables", new(**changes), bearing("all")))[:2] == expected

"""The fake Unity Catalog server: routes, schemas, tables and errors as raw requests and responses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fakes.raw import ask
from tests.fakes.unity import API, FakeUnity
from tests.fakes.unity.requests import JSON, LIST, TABLE, call, create, error, page

SCHEMA = {"name": "s2", "catalog_name": "c1"}
NO_NAME = "Name cannot contain a period, space, forward-slash, or control characters"


def wrong(message: str) -> tuple[int, str, str]:
    return (400, "INVALID_ARGUMENT", message)


def missing(kind: str, name: str) -> tuple[int, str, str]:
    return (404, f"{kind.upper()}_NOT_FOUND", f"{kind} not found: {name}")


@pytest.fixture
def server() -> Iterator[FakeUnity]:
    """Provides a server with the table `c1.s1.t0`."""
    with FakeUnity(catalog="c1") as running:
        running.add_table("c1", "s1", "t0")
        yield running


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/tables/a/b", 404),
        ("GET", "/tables/", 404),
        ("GET", "/tables/x/exists", 404),
        ("GET", "/table-summaries", 404),
        ("POST", "/table-summaries", 404),
        ("PATCH", "/tables/c1.s1.t0", 405),
        ("PUT", "/tables/c1.s1.t0", 405),
        ("DELETE", "/tables", 405),
        ("PUT", "/schemas/c1.s1", 405),
        ("GET", "/temporary-table-credentials", 405),
    ],
)
def test_the_server_refuses_in_plain_text(server: FakeUnity, method: str, path: str, status: int) -> None:
    reply = call(server, method, path)
    phrase = {404: "Not Found", 405: "Method Not Allowed"}[status]
    assert (reply.status, reply.body.decode()) == (status, f"Status: {status}\nDescription: {phrase}")
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert ask(server, method, path).status == 404


def test_a_table_comes_with_all_its_fields(server: FakeUnity) -> None:
    reply = create(server, unknown="field")
    made = reply.json
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    assert made["created_at"] == made["updated_at"] and len(made["table_id"]) == 36
    nulls = ("comment", "owner", "created_by", "updated_by", "view_definition", "view_dependencies")
    times = {key: made[key] for key in ("created_at", "updated_at", "table_id")}
    assert made == {**TABLE, **dict.fromkeys(nulls), **times}
    result = call(server, "GET", "/tables/c1.s1.t1", headers={"Accept-Encoding": "gzip"})
    assert (result.json, "Content-Encoding" in result.headers) == (made, False)
    head = call(server, "HEAD", "/tables/c1.s1.t1")
    assert (head.status, head.body) == (200, b"")
    dropped = call(server, "DELETE", "/tables/c1.s1.t1")
    assert (dropped.status, dropped.body) == (200, b"200 OK")
    assert dropped.headers["Content-Type"].startswith("text/plain")
    assert (call(server, "HEAD", "/tables/c1.s1.t1").status, page(server, LIST)) == (404, (["t0"], None))


def test_a_schema_comes_with_all_its_fields(server: FakeUnity) -> None:
    reply = call(server, "POST", "/schemas", {**SCHEMA, "properties": {"owner": "me", "n": 1, "b": False}})
    made = reply.json
    nulls = ("comment", "owner", "created_by", "updated_by", "storage_root", "storage_location")
    times = {key: made[key] for key in ("created_at", "updated_at", "schema_id")}
    properties = {"owner": "me", "n": "1", "b": "false"}
    assert made == {**SCHEMA, "full_name": "c1.s2", "properties": properties, **dict.fromkeys(nulls), **times}
    assert call(server, "GET", "/schemas/c1.s2").json == made
    assert call(server, "PATCH", "/schemas/c1.s2", {"properties": {"x": "y"}}).json["properties"] == {"x": "y"}
    assert call(server, "GET", "/schemas/c1.s2").json["properties"] == {"x": "y"}
    assert page(server, "/schemas?catalog_name=c1") == (["s1", "s2"], None)
    assert call(server, "DELETE", "/schemas/c1.s2").body == b"200 OK"
    assert page(server, "/schemas?catalog_name=c1") == (["s1"], None)


@pytest.mark.parametrize(("force", "gone"), [("", False), ("?force=false", False), ("?force=True", True)])
def test_a_schema_with_tables_is_dropped_by_force(server: FakeUnity, force: str, gone: bool) -> None:
    reply = call(server, "DELETE", f"/schemas/c1.s1{force}")
    if gone:
        assert (reply.status, reply.body) == (200, b"200 OK")
    else:
        assert error(reply) == (400, "FAILED_PRECONDITION", "Cannot delete schema with tables")
    assert call(server, "GET", "/tables/c1.s1.t0").status == (404 if gone else 200)


def test_catalogs_are_made_and_listed(server: FakeUnity) -> None:
    made = call(server, "POST", "/catalogs", {"name": "c2", "properties": {"a": "b"}}).json
    assert (made["name"], made["properties"]) == ("c2", {"a": "b"})
    assert call(server, "GET", "/catalogs/c2").json == made
    assert page(server, "/catalogs") == (["c1", "c2"], None)
    again = call(server, "POST", "/catalogs", {"name": "c2"})
    assert error(again) == (400, "CATALOG_ALREADY_EXISTS", "Catalog already exists: c2")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/catalogs/zz", missing("Catalog", "zz")),
        ("GET", "/schemas/c1", wrong("Invalid schema full name: c1")),
        ("DELETE", "/schemas/c1.s1.t0", wrong("Invalid schema full name: c1.s1.t0")),
        ("GET", "/schemas/zz.s1", missing("Catalog", "zz")),
        ("GET", "/schemas/c1.zz", missing("Schema", "c1.zz")),
        ("DELETE", "/schemas/c1.zz", missing("Schema", "c1.zz")),
        ("GET", "/schemas", wrong("Mandatory parameter/header is missing: catalog_name")),
        ("GET", "/schemas?catalog_name=zz", missing("Catalog", "zz")),
        ("GET", "/tables/c1.s1", wrong("Invalid table name: c1.s1")),
        ("GET", "/tables/c1.s1.a.b", wrong("Invalid table name: c1.s1.a.b")),
        ("GET", "/tables/c1.s1.a%2Eb", wrong("Invalid table name: c1.s1.a.b")),
        ("GET", "/tables/c1.s1.a%2Fb", missing("Table", "c1.s1.a/b")),
        ("GET", "/tables/c1.s1.a%252Fb", missing("Table", "c1.s1.a%2Fb")),
        ("GET", "/tables/c1.s1.a%3Fb", missing("Table", "c1.s1.a?b")),
        ("GET", "/tables/c1.s1.%C3%A9", missing("Table", "c1.s1.é")),
        ("GET", "/tables/c1.s1.T0", missing("Table", "c1.s1.T0")),
        ("GET", "/tables/zz.zz.zz", missing("Catalog", "zz")),
        ("GET", "/tables/c1.zz.zz", missing("Schema", "c1.zz")),
        ("DELETE", "/tables/c1.zz.zz", missing("Schema", "c1.zz")),
        ("DELETE", "/tables/c1.s1.zz", missing("Table", "zz")),
        ("GET", "/tables?catalog_name=c1", wrong("Mandatory parameter/header is missing: schema_name")),
        ("GET", "/tables?schema_name=c1", wrong("Mandatory parameter/header is missing: catalog_name")),
        ("GET", "/tables?catalog_name=zz&schema_name=s1", missing("Catalog", "zz")),
        ("GET", "/tables?catalog_name=c1&schema_name=zz", missing("Schema", "c1.zz")),
    ],
)
def test_what_is_missing_is_distinguished(
    server: FakeUnity, method: str, path: str, expected: tuple[int, str, str]
) -> None:
    assert error(call(server, method, path)) == expected


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a-b_c@d", None),
        ("-x", None),
        ("T0", None),
        ("x" * 255, None),
        ("", "Name cannot be empty"),
        (..., "Name cannot be empty"),
        ("x" * 256, "Name cannot be longer than 255 characters"),
        *((f"a{c}b", NO_NAME) for c in ". /$%\té\x1f"),
    ],
)
def test_names_are_checked_alike(server: FakeUnity, name: Any, problem: str | None) -> None:
    schema = {**SCHEMA, "name": name} if name is not ... else {"catalog_name": "c1"}
    replies = [create(server, name=name), call(server, "POST", "/schemas", schema)]
    for reply in replies:
        if problem is None:
            assert (reply.status, reply.json["name"]) == (200, name)
        else:
            assert error(reply) == wrong(problem)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "a.b", "columns": [{}], "catalog_name": "zz"}, wrong(NO_NAME)),
        (
            {"columns": [{"name": "x"}], "catalog_name": "zz"},
            wrong("Invalid type_json for column x: Column x has null/empty typeJson"),
        ),
        ({"catalog_name": "zz", "schema_name": "zz"}, missing("Catalog", "zz")),
        ({"schema_name": "zz"}, missing("Schema", "c1.zz")),
        ({"name": "t0", "table_type": "MANAGED"}, (400, "TABLE_ALREADY_EXISTS", "Table already exists: c1.s1.t0")),
        ({"table_type": "MANAGED", "storage_location": ""}, wrong("Cannot create a table of type MANAGED here")),
        ({"storage_location": "", "properties": {"x": None}}, wrong("Path cannot be null or empty")),
    ],
)
def test_tables_are_checked_in_order(server: FakeUnity, changes: Any, expected: tuple[int, str, str]) -> None:
    assert error(create(server, **changes)) == expected
    assert page(server, LIST) == (["t0"], None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": "a b", "catalog_name": "zz"}, wrong(NO_NAME)),
        ({"name": "s1", "catalog_name": "zz"}, missing("Catalog", "zz")),
        ({"name": "s1", "catalog_name": "c1"}, (400, "SCHEMA_ALREADY_EXISTS", "Schema already exists: s1")),
    ],
)
def test_schemas_are_checked_in_order(server: FakeUnity, body: Any, expected: tuple[int, str, str]) -> None:
    assert error(call(server, "POST", "/schemas", body)) == expected


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({**TABLE, "data_source_format": "LANCE"}, {}),
        ({**TABLE, "table_type": "external"}, {}),
        ({**TABLE, "columns": [{"type_name": "VARCHAR"}]}, {}),
        ("{nonsense", {}),
        ("[]", {}),
        (TABLE, {"Content-Type": "text/plain"}),
        ({**TABLE, "properties": {"x": {}}}, {}),
    ],
)
def test_what_cannot_be_read_is_a_bad_request(server: FakeUnity, body: Any, headers: dict[str, str]) -> None:
    reply = call(server, "POST", "/tables", body, headers)
    assert error(reply)[:2] == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("properties", "outcome"),
    [
        (..., {}),
        (None, None),
        ({"n": 1, "f": 1.5, "b": True, "é": "ü"}, {"n": "1", "f": "1.5", "b": "true", "é": "ü"}),
        ({"k" * 255: "v" * 255}, {"k" * 255: "v" * 255}),
        ({"x": {}}, 400),
        ({"x": None}, 500),
        ({"k" * 256: "v"}, 500),
        ({"k": "v" * 256}, 500),
    ],
)
def test_properties_are_short_strings(server: FakeUnity, properties: Any, outcome: Any) -> None:
    schema = SCHEMA if properties is ... else {**SCHEMA, "properties": properties}
    for reply in (create(server, properties=properties), call(server, "POST", "/schemas", schema)):
        if isinstance(outcome, int):
            assert error(reply)[:2] == (outcome, {400: "INVALID_ARGUMENT", 500: "INTERNAL"}[outcome])
        else:
            assert reply.json["properties"] == outcome


@pytest.mark.parametrize(
    ("dialect", "exists", "lost", "extra"),
    [
        ("0.6", (400, "_ALREADY_EXISTS"), "_NOT_FOUND", set()),
        ("0.4.1", (400, "_ALREADY_EXISTS"), None, {"stack_trace"}),
        ("0.4.0", (409, None), None, {"stack_trace"}),
    ],
)
def test_dialects_differ_in_codes(dialect: Any, exists: tuple[int, str | None], lost: str | None, extra: Any) -> None:
    with FakeUnity(catalog="c1", dialect=dialect) as server:
        server.add_table("c1", "s1", "t1")
        for kind, name, reply in (
            ("TABLE", "c1.s1.t1", create(server)),
            ("SCHEMA", "s1", call(server, "POST", "/schemas", {**SCHEMA, "name": "s1"})),
            ("CATALOG", "c1", call(server, "POST", "/catalogs", {"name": "c1"})),
        ):
            code = f"{kind}{exists[1]}" if exists[1] else "ALREADY_EXISTS"
            assert error(reply) == (exists[0], code, f"{kind.title()} already exists: {name}")
        for kind, name in (("TABLE", "c1.s1.zz"), ("SCHEMA", "c1.zz"), ("CATALOG", "zz")):
            reply = call(server, "GET", f"/{kind.lower()}s/{name}")
            code = f"{kind}{lost}" if lost else "NOT_FOUND"
            assert error(reply) == (404, code, f"{kind.title()} not found: {name}")
            assert reply.json.keys() == {"error_code", "details", "message", *extra}
            assert ("metadata" in reply.json["details"][0]) == bool(extra)
        reply = call(server, "DELETE", "/schemas/c1.s1")
        assert error(reply) == (400, "FAILED_PRECONDITION", "Cannot delete schema with tables")


def test_a_service_may_take_delta_alone() -> None:
    with FakeUnity(catalog="c1", delta_only=True) as server:
        server.add_schema("c1", "s1")
        assert error(create(server))[:2] == (400, "INVALID_PARAMETER_VALUE")
        assert create(server, data_source_format="DELTA").status == 200


def test_errors_on_demand_have_the_catalogs_form_or_a_gateways(server: FakeUnity) -> None:
    for status, code in ((429, "RESOURCE_EXHAUSTED"), (500, "INTERNAL"), (503, "TEMPORARILY_UNAVAILABLE")):
        server.fail(status, headers={"Retry-After": "1"})
        reply = call(server, "GET", LIST)
        assert (error(reply)[:2], reply.headers["Retry-After"]) == ((status, code), "1")
    server.fail(502)
    gateway = call(server, "GET", LIST)
    assert (gateway.status, gateway.headers["Content-Type"]) == (502, "text/html;charset=utf-8")
    assert call(server, "GET", LIST).status == 200


def twice(reply: Any) -> bool:
    status, code, message = error(reply)
    return (status, code) == (500, "INTERNAL") and message.endswith(
        "Query did not return a unique result: 2 results were returned"
    )


def test_two_creations_at_once_leave_what_only_lists_show(server: FakeUnity) -> None:
    server.race("c1.s1.t0")
    assert create(server, name="t0").status == 200
    server.add_table("c1", "s1", "t2")
    assert page(server, LIST) == (["t0", "t0", "t2"], None)
    for method, path, body in (
        ("GET", "/tables/c1.s1.t0", None),
        ("DELETE", "/tables/c1.s1.t0", None),
        ("POST", "/tables", {**TABLE, "name": "t0"}),
        ("DELETE", "/schemas/c1.s1?force=true", None),
    ):
        assert twice(call(server, method, path, body))
    assert call(server, "GET", "/tables/c1.s1.t2").status == 200
    server.race("c1.s1")
    assert call(server, "POST", "/schemas", {**SCHEMA, "name": "s1"}).status == 200
    assert page(server, "/schemas?catalog_name=c1") == (["s1", "s1"], None)
    # Of several schemas, it uses the first it finds.
    assert call(server, "GET", "/schemas/c1.s1").status == 200
    assert twice(call(server, "DELETE", "/schemas/c1.s1?force=true"))


def test_duplicates_can_be_planted(server: FakeUnity) -> None:
    server.duplicate("c1.s1.t0")
    assert twice(call(server, "GET", "/tables/c1.s1.t0"))
    server.duplicate("c1.s1")
    assert page(server, "/schemas?catalog_name=c1") == (["s1", "s1"], None)
    assert call(server, "GET", "/schemas/c1.s1").status == 200


def test_creations_that_overlap_are_both_carried_out(server: FakeUnity) -> None:
    with server.hold("POST") as hold, ThreadPoolExecutor() as pool:
        replies = [pool.submit(create, server, name="both") for _ in range(2)]
        hold.wait_for(2)
        hold.release()
        assert [reply.result().status for reply in replies] == [200, 200]
    assert twice(call(server, "GET", "/tables/c1.s1.both"))
    assert create(server, name="alone").status == 200
    assert create(server, name="alone").status == 400


def test_the_path_of_the_api_is_needed(server: FakeUnity) -> None:
    for path in ("/", "/tables/c1.s1.t0", API, f"{API}x/tables/c1.s1.t0"):
        assert ask(server, "GET", path, headers=JSON).status == 404

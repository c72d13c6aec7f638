"""Errors of a Unity server: their classes, and which calls are retried or only checked."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListTablesRequest,
)
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async import AsyncNamespace, NamespaceId
from lance_ns_async.backends.unity.wire import ERRORS
from lance_ns_async.errors import COMMON_ERRORS
from tests.fakes.unity import FakeUnity
from tests.support.unity import connected, declared, described, list_requests

ROOT = {"root": "s3://b/r"}
TABLE = ["main", "a", "t"]

Work = Callable[[AsyncNamespace], Awaitable[Any]]

OPERATIONS: dict[str, Work] = {
    "describe_namespace": lambda ns: ns.describe_namespace(DescribeNamespaceRequest(id=["main", "a"])),
    "create_namespace": lambda ns: ns.create_namespace(CreateNamespaceRequest(id=["main", "a"])),
    "drop_namespace": lambda ns: ns.drop_namespace(DropNamespaceRequest(id=["main", "a"])),
    "list_tables": lambda ns: ns.list_tables(ListTablesRequest(id=["main", "a"])),
    "describe_table": lambda ns: described(ns, *TABLE),
    "declare_table": lambda ns: declared(ns, *TABLE),
}

CASES: list[tuple[int, str | None, str, type[LanceNamespaceError], str]] = [
    (404, "CATALOG_NOT_FOUND", "describe_namespace", NamespaceNotFoundError, "Catalog not found: main"),
    (404, "SCHEMA_NOT_FOUND", "describe_namespace", NamespaceNotFoundError, "Schema not found: main.a"),
    (404, "SCHEMA_NOT_FOUND", "describe_table", NamespaceNotFoundError, "Schema not found: main.a"),
    (404, "TABLE_NOT_FOUND", "describe_table", TableNotFoundError, "Table not found: main.a.t"),
    (404, "TABLE_NOT_FOUND", "list_tables", InternalError, "Table not found: main.a.t"),
    (404, "NOT_FOUND", "describe_namespace", NamespaceNotFoundError, "Catalog not found: main"),
    (404, "NOT_FOUND", "describe_table", NamespaceNotFoundError, "Schema not found: main.a"),
    (404, "NOT_FOUND", "describe_table", TableNotFoundError, "Table not found: main.a.t"),
    (404, "NOT_FOUND", "describe_table", InternalError, "Volume not found: main.a.t"),
    (404, "CATALOG_DOES_NOT_EXIST", "describe_namespace", NamespaceNotFoundError, "Catalog 'main' does not exist."),
    (404, "SCHEMA_DOES_NOT_EXIST", "declare_table", NamespaceNotFoundError, "Schema 'main.a' does not exist."),
    (404, "TABLE_DOES_NOT_EXIST", "describe_table", TableNotFoundError, "Table 'main.a.t' does not exist."),
    (400, "SCHEMA_ALREADY_EXISTS", "create_namespace", NamespaceAlreadyExistsError, "Schema already exists: a"),
    (400, "TABLE_ALREADY_EXISTS", "declare_table", TableAlreadyExistsError, "Table already exists: main.a.t"),
    (409, "ALREADY_EXISTS", "create_namespace", NamespaceAlreadyExistsError, "Schema already exists: a"),
    (409, "ALREADY_EXISTS", "declare_table", TableAlreadyExistsError, "Table already exists: main.a.t"),
    (409, "ALREADY_EXISTS", "describe_table", InternalError, "what?"),
    (400, "FAILED_PRECONDITION", "drop_namespace", NamespaceNotEmptyError, "Cannot delete schema with tables"),
    (400, "FAILED_PRECONDITION", "describe_table", InvalidInputError, "no such state"),
    (400, "INVALID_ARGUMENT", "declare_table", InvalidInputError, "Name cannot be empty"),
    (422, "INVALID_ARGUMENT", "declare_table", InvalidInputError, "Name cannot be empty"),
    (400, "OUT_OF_RANGE", "describe_table", InvalidInputError, "too far"),
    (400, None, "describe_table", InvalidInputError, ""),
    (401, "UNAUTHENTICATED", "describe_table", UnauthenticatedError, "No authorization found."),
    (401, None, "describe_table", UnauthenticatedError, ""),
    (407, None, "describe_table", UnauthenticatedError, ""),
    (403, "PERMISSION_DENIED", "describe_table", PermissionDeniedError, "Access denied."),
    (403, None, "describe_table", PermissionDeniedError, ""),
    (408, None, "describe_table", ServiceUnavailableError, ""),
    (429, "RESOURCE_EXHAUSTED", "describe_table", ThrottlingError, "slowly"),
    (400, "REQUEST_LIMIT_EXCEEDED", "describe_table", ThrottlingError, "slowly"),
    (429, None, "describe_table", ThrottlingError, ""),
    (500, "INTERNAL", "describe_table", InternalError, "not-null property"),
    (500, None, "describe_table", InternalError, ""),
    (501, "UNIMPLEMENTED", "declare_table", UnsupportedOperationError, "not here"),
    (502, None, "describe_table", ServiceUnavailableError, ""),
    (503, None, "describe_table", ServiceUnavailableError, ""),
    (504, None, "describe_table", ServiceUnavailableError, ""),
    (400, "UNSUPPORTED_TABLE_FORMAT", "declare_table", UnsupportedOperationError, "only Delta is supported"),
    (404, "RESOURCE_NOT_KNOWN", "describe_table", InternalError, "what?"),
    (405, None, "describe_table", InternalError, ""),
    (418, "TEAPOT", "describe_table", InternalError, "short and stout"),
]


def body(code: str, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "details": [{"reason": code, "@type": "google.rpc.ErrorInfo"}], "message": message}


@pytest.mark.parametrize(("status", "code", "operation", "error", "message"), CASES)
async def test_errors_are_reported_by_their_code_first(
    status: int, code: str | None, operation: str, error: type[LanceNamespaceError], message: str
) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        server.fail(status, times=None, body=body(code, message) if code else "<html><b>gateway</b> says no</html>")
        async with connected(server, max_retries="1", **ROOT) as ns:
            with pytest.raises(error, match=f"HTTP {status}: .*{message if code else 'gateway says no'}") as caught:
                await OPERATIONS[operation](ns)
        assert type(caught.value) is error


def test_every_entry_of_the_table_has_a_case() -> None:
    cases = {(code, operation) for _, code, operation, *_ in CASES} | {
        (s, operation) for s, c, operation, *_ in CASES if not c
    }
    cases |= {(status, operation) for status, _, operation, *_ in CASES}
    derived = {"NOT_UNIQUE", ("DELTA_ONLY", "declare_table")}
    for entry in ERRORS.keys() - COMMON_ERRORS.keys() - derived:
        code, context = entry if isinstance(entry, tuple) else (entry, "")
        assert any(code == known and context in ("", "table", operation) for known, operation in cases), entry


async def test_a_path_that_is_not_served_is_no_missing_table() -> None:
    with FakeUnity() as server:
        server.add_table(*TABLE)
        async with connected(server, api_path="/api/2.0/unity") as ns:
            with pytest.raises(InternalError, match=r"HTTP 404: Status: 404 .*is the endpoint right\?"):
                await described(ns, *TABLE)


async def test_a_message_that_is_missing_or_huge_does_not_hide_the_code() -> None:
    with FakeUnity(dialect="0.4.0") as server:
        async with connected(server, **ROOT) as ns:
            server.fail(404, body=body("TABLE_NOT_FOUND", None))
            with pytest.raises(TableNotFoundError):
                await described(ns, *TABLE)
            with pytest.raises(NamespaceNotFoundError) as caught:
                await described(ns, *TABLE)
            assert "Frame.java" not in str(caught.value)


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}])
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_reads_are_sent_again(status: int, headers: dict[str, str]) -> None:
    with FakeUnity() as server:
        server.add_table(*TABLE)
        server.fail(status, times=3, headers=headers)
        async with connected(server) as ns:
            assert (await described(ns, *TABLE)).location
        assert len(list_requests(server)) == 4


@pytest.mark.parametrize("status", [429, 400])
async def test_a_throttled_creation_did_nothing_and_is_sent_again(status: int) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        error_body = body("RESOURCE_EXHAUSTED" if status == 429 else "REQUEST_LIMIT_EXCEEDED", "slowly")
        server.fail(status, times=2, match="POST", body=error_body)
        async with connected(server, **ROOT) as ns:
            assert (await declared(ns, *TABLE)).location
        assert list_requests(server) == ["POST tables"] * 3 + ["GET tables/main.a.t"]


LOST: list[Callable[[FakeUnity, str], None]] = [
    lambda server, when: server.cut(match="POST", when=when),  # type: ignore[arg-type]
    lambda server, when: server.fail(502, match="POST", when=when),  # type: ignore[arg-type]
    lambda server, when: server.fail(503, match="POST", when=when),  # type: ignore[arg-type]
    lambda server, when: server.fail(500, match="POST", when=when),  # type: ignore[arg-type]
    lambda server, when: server.reply("{", match="POST", when=when),  # type: ignore[arg-type]
]
creations = pytest.mark.parametrize("operation", ["declare_table", "create_namespace"])


@creations
@pytest.mark.parametrize("lose", LOST)
async def test_a_creation_whose_answer_was_lost_is_looked_up_and_not_sent_again(
    lose: Callable[[FakeUnity, str], None], operation: str
) -> None:
    with FakeUnity() as server:
        if operation == "declare_table":
            server.add_schema("main", "a")
        lose(server, "after")
        async with connected(server, **ROOT) as ns:
            made = await OPERATIONS[operation](ns)
        assert made.properties == ({"table_type": "lance"} if operation == "declare_table" else {})
        assert [request.partition(" ")[0] for request in list_requests(server)] == ["POST", "GET"]


async def test_a_lost_schema_is_ours_though_the_server_gave_it_a_place() -> None:
    with FakeUnity(storage_root="s3://managed/main") as server:
        server.cut(match="POST", when="after")
        async with connected(server) as ns:
            assert (await ns.create_namespace(CreateNamespaceRequest(id=["main", "a"]))).properties == {}
        assert list_requests(server) == ["POST schemas", "GET schemas/main.a"]


@creations
@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_creation_that_did_not_arrive_is_reported_as_unknown(status: int, operation: str) -> None:
    with FakeUnity() as server:
        if operation == "declare_table":
            server.add_schema("main", "a")
        server.fail(status, match="POST")
        async with connected(server, **ROOT) as ns:
            error = InternalError if status == 500 else ServiceUnavailableError
            with pytest.raises(error, match=rf"HTTP {status}: .*whether it took effect is unknown"):
                await OPERATIONS[operation](ns)
        assert sum(request.startswith("POST") for request in list_requests(server)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"location": "s3://b/elsewhere"},
        {"properties": {"table_type": "lance", "k": "v"}},
        {"properties": {}},
        {"columns": [{"name": "x", "type_json": '"long"', "type_name": "LONG"}]},
    ],
)
async def test_a_lost_creation_that_somebody_else_won_is_not_ours(other: dict[str, Any]) -> None:
    with FakeUnity() as server:
        server.add_table(*TABLE, **{"location": "s3://b/r/main/a/t", **other})
        server.cut(match="POST", when="before")
        async with connected(server, **ROOT) as ns:
            with pytest.raises(TableAlreadyExistsError, match="created by another"):
                await declared(ns, *TABLE)


@creations
async def test_a_lost_creation_of_what_was_there_long_before_is_not_ours(operation: str) -> None:
    is_table = operation == "declare_table"
    old: dict[str, Any] = {
        "name": "t" if is_table else "a",
        "table_type": "EXTERNAL",
        "storage_location": "s3://b/r/main/a/t" if is_table else None,
        "properties": {"table_type": "lance"} if is_table else {},
        "columns": [],
        "created_at": 1_600_000_000_000,
    }
    with FakeUnity() as server:
        server.cut(match="POST", when="before")
        server.reply(json.dumps(old), match="GET")
        async with connected(server, **ROOT) as ns:
            taken = TableAlreadyExistsError if is_table else NamespaceAlreadyExistsError
            with pytest.raises(taken, match="created by another"):
                await OPERATIONS[operation](ns)


async def test_a_refused_connection_did_nothing_and_is_not_looked_up() -> None:
    with FakeUnity() as server:
        server.stop()
        async with connected(server, max_retries="1", **ROOT) as ns:
            with pytest.raises(ServiceUnavailableError, match="2 attempts"):
                await declared(ns, *TABLE)
        assert list_requests(server) == []


@pytest.mark.parametrize("what", ["table", "namespace"])
async def test_a_deletion_whose_answer_was_lost_is_looked_up_and_not_sent_again(what: str) -> None:
    with FakeUnity() as server:
        server.add_table(*TABLE)
        server.add_schema("main", "empty")
        server.cut(match="DELETE", when="after")
        async with connected(server) as ns:
            await deleted(ns, what)
        assert sum(request.startswith("DELETE") for request in list_requests(server)) == 1
        assert list_requests(server)[-1].startswith("GET")


@pytest.mark.parametrize("what", ["table", "namespace"])
async def test_a_deletion_that_did_not_arrive_is_reported(what: str) -> None:
    with FakeUnity() as server:
        server.add_table(*TABLE)
        server.add_schema("main", "empty")
        server.fail(503, match="DELETE")
        async with connected(server) as ns:
            with pytest.raises(ServiceUnavailableError, match="whether it took effect is unknown"):
                await deleted(ns, what)
            server.fail(503, match="DELETE", when="after")
            server.fail(403, match="GET .*(main.a.t|main.empty)$", times=None)
            with pytest.raises((ServiceUnavailableError, PermissionDeniedError)):
                await deleted(ns, what)


async def deleted(ns: AsyncNamespace, what: str) -> None:
    if what == "table":
        await ns.deregister_table(DeregisterTableRequest(id=TABLE))
    else:
        await ns.drop_namespace(DropNamespaceRequest(id=["main", "empty"]))
        assert not await ns.exists(NamespaceId(["main", "empty"]))


async def test_denied_is_distinguished_from_missing() -> None:
    with FakeUnity(authorization=["root"]) as server:
        server.add_table(*TABLE)
        server.allow("user")
        server.disown("stranger")
        async with connected(server, auth_token="user") as ns:
            with pytest.raises(PermissionDeniedError, match=r"Access denied\."):
                await described(ns, *TABLE)
            with pytest.raises(TableNotFoundError):
                await described(ns, "main", "a", "none")
        async with connected(server, auth_token="stranger") as ns:
            with pytest.raises(PermissionDeniedError, match="User not allowed: "):
                await described(ns, *TABLE)


async def test_a_slow_server_is_not_waited_for_for_ever() -> None:
    with FakeUnity() as server:
        server.add_table(*TABLE)
        async with connected(server, connect_timeout="400ms", read_timeout="100ms", max_retries="1") as ns:
            with (
                server.hold("GET"),
                pytest.raises(ServiceUnavailableError, match=r"no answer within 0\.5 s; 2 attempts"),
            ):
                await described(ns, *TABLE)

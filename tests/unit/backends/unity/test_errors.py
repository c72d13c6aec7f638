"""Errors of a Unity server: their classes, and which calls are retried or only checked."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.unity.wire import ERRORS
from lance_ns_async.errors import COMMON_ERRORS
from tests.fakes.unity import FakeUnity
from tests.support.errors import catch
from tests.support.unity import connected, declared, described, list_requests

ROOT = {"root": "s3://b/r"}
TABLE = ["main", "a", "t"]
LANCE = {"table_type": "lance"}

Work = Callable[[AsyncNamespace], Awaitable[Any]]

OPERATIONS: dict[str, Work] = {
    "describe_namespace": lambda ns: ns.describe_namespace(["main", "a"]),
    "create_namespace": lambda ns: ns.create_namespace(["main", "new"]),
    "drop_namespace": lambda ns: ns.drop_namespace(["main", "a"]),
    "list_tables": lambda ns: ns.list_tables(["main", "a"]),
    "describe_table": lambda ns: described(ns, *TABLE),
    "declare_table": lambda ns: declared(ns, *TABLE),
}

CASES: list[tuple[int, str | None, str, type[err.LanceNamespaceError], str]] = [
    (404, "CATALOG_NOT_FOUND", "describe_namespace", err.NamespaceNotFoundError, "Catalog not found: main"),
    (404, "SCHEMA_NOT_FOUND", "describe_namespace", err.NamespaceNotFoundError, "Schema not found: main.a"),
    (404, "SCHEMA_NOT_FOUND", "describe_table", err.NamespaceNotFoundError, "Schema not found: main.a"),
    (404, "TABLE_NOT_FOUND", "describe_table", err.TableNotFoundError, "Table not found: main.a.t"),
    (404, "TABLE_NOT_FOUND", "list_tables", err.InternalError, "Table not found: main.a.t"),
    (404, "NOT_FOUND", "describe_namespace", err.NamespaceNotFoundError, "Catalog not found: main"),
    (404, "NOT_FOUND", "describe_table", err.NamespaceNotFoundError, "Schema not found: main.a"),
    (404, "NOT_FOUND", "describe_table", err.TableNotFoundError, "Table not found: main.a.t"),
    (404, "NOT_FOUND", "describe_table", err.InternalError, "Volume not found: main.a.t"),
    (404, "CATALOG_DOES_NOT_EXIST", "describe_namespace", err.NamespaceNotFoundError, "Catalog 'main' does not exist."),
    (404, "SCHEMA_DOES_NOT_EXIST", "declare_table", err.NamespaceNotFoundError, "Schema 'main.a' does not exist."),
    (404, "TABLE_DOES_NOT_EXIST", "describe_table", err.TableNotFoundError, "Table 'main.a.t' does not exist."),
    (400, "SCHEMA_ALREADY_EXISTS", "create_namespace", err.NamespaceAlreadyExistsError, "Schema already exists: a"),
    (400, "TABLE_ALREADY_EXISTS", "declare_table", err.TableAlreadyExistsError, "Table already exists: main.a.t"),
    (409, "ALREADY_EXISTS", "create_namespace", err.NamespaceAlreadyExistsError, "Schema already exists: a"),
    (409, "ALREADY_EXISTS", "declare_table", err.TableAlreadyExistsError, "Table already exists: main.a.t"),
    (409, "ALREADY_EXISTS", "describe_table", err.InternalError, "what?"),
    (400, "FAILED_PRECONDITION", "drop_namespace", err.NamespaceNotEmptyError, "Cannot delete schema with tables"),
    (400, "FAILED_PRECONDITION", "describe_table", err.InvalidInputError, "no such state"),
    (400, "INVALID_ARGUMENT", "declare_table", err.InvalidInputError, "Name cannot be empty"),
    (422, "INVALID_ARGUMENT", "declare_table", err.InvalidInputError, "Name cannot be empty"),
    (400, "OUT_OF_RANGE", "describe_table", err.InvalidInputError, "too far"),
    (400, None, "describe_table", err.InvalidInputError, ""),
    (401, "UNAUTHENTICATED", "describe_table", err.UnauthenticatedError, "No authorization found."),
    (401, None, "describe_table", err.UnauthenticatedError, ""),
    (407, None, "describe_table", err.UnauthenticatedError, ""),
    (403, "PERMISSION_DENIED", "describe_table", err.PermissionDeniedError, "Access denied."),
    (403, None, "describe_table", err.PermissionDeniedError, ""),
    (408, None, "describe_table", err.ServiceUnavailableError, ""),
    (429, "RESOURCE_EXHAUSTED", "describe_table", err.ThrottlingError, "slowly"),
    (400, "REQUEST_LIMIT_EXCEEDED", "describe_table", err.ThrottlingError, "slowly"),
    (429, None, "describe_table", err.ThrottlingError, ""),
    (500, "INTERNAL", "describe_table", err.InternalError, "not-null property"),
    (500, None, "describe_table", err.InternalError, ""),
    (501, "UNIMPLEMENTED", "declare_table", err.UnsupportedOperationError, "not here"),
    (502, None, "describe_table", err.ServiceUnavailableError, ""),
    (503, None, "describe_table", err.ServiceUnavailableError, ""),
    (504, None, "describe_table", err.ServiceUnavailableError, ""),
    (400, "UNSUPPORTED_TABLE_FORMAT", "declare_table", err.UnsupportedOperationError, "only Delta is supported"),
    (404, "RESOURCE_NOT_KNOWN", "describe_table", err.InternalError, "what?"),
    (405, None, "describe_table", err.InternalError, ""),
    (418, "TEAPOT", "describe_table", err.InternalError, "short and stout"),
]


def body(code: str, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "details": [{"reason": code, "@type": "google.rpc.ErrorInfo"}], "message": message}


@pytest.mark.parametrize(("status", "code", "operation", "error", "message"), CASES)
async def test_error_of_each_code(
    server: FakeUnity, status: int, code: str | None, operation: str, error: type[err.LanceNamespaceError], message: str
) -> None:
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


async def test_a_path_that_is_not_served_is_no_missing_table(server: FakeUnity) -> None:
    server.add_table(*TABLE)
    async with connected(server, api_path="/api/2.0/unity") as ns:
        await catch(err.InternalError, described(ns, *TABLE), r"HTTP 404: Status: 404 .*is the endpoint right\?")


async def test_a_message_that_is_missing_or_huge_does_not_hide_the_code() -> None:
    with FakeUnity(dialect="0.4.0") as server:
        async with connected(server, **ROOT) as ns:
            server.fail(404, body=body("TABLE_NOT_FOUND", None))
            await catch(err.TableNotFoundError, described(ns, *TABLE))
            caught = await catch(err.NamespaceNotFoundError, described(ns, *TABLE))
            assert "Frame.java" not in str(caught.value)


@pytest.mark.parametrize("status", [429, 400])
async def test_throttled_creation_is_retried(server: FakeUnity, ns: AsyncNamespace, status: int) -> None:
    error_body = body("RESOURCE_EXHAUSTED" if status == 429 else "REQUEST_LIMIT_EXCEEDED", "slowly")
    server.fail(status, times=2, match="POST", body=error_body)
    assert (await declared(ns, *TABLE)).location
    assert list_requests(server) == ["POST tables"] * 3 + ["GET tables/main.a.t"]


async def test_a_lost_schema_is_ours_though_the_server_gave_it_a_place() -> None:
    with FakeUnity(storage_root="s3://managed/main") as server:
        server.cut(match="POST", when="after")
        async with connected(server) as ns:
            assert (await ns.create_namespace(["main", "a"])).properties == {}
        assert list_requests(server) == ["POST schemas", "GET schemas/main.a"]


@pytest.mark.parametrize("columns", [[], [{"name": "x", "type_json": '"long"', "type_name": "LONG"}]])
async def test_lost_creation_of_another_client(
    server: FakeUnity, ns: AsyncNamespace, columns: list[dict[str, Any]]
) -> None:
    server.add_table(*TABLE, location="s3://b/r/main/a/t", properties={} if not columns else LANCE, columns=columns)
    server.cut(match="POST", when="before")
    await catch(err.TableAlreadyExistsError, declared(ns, *TABLE), "created by another")


@pytest.mark.parametrize("operation", ["declare_table", "create_namespace"])
async def test_lost_creation_of_an_older_object(server: FakeUnity, ns: AsyncNamespace, operation: str) -> None:
    is_table = operation == "declare_table"
    old: dict[str, Any] = {
        "name": "t" if is_table else "a",
        "table_type": "EXTERNAL",
        "storage_location": "s3://b/r/main/a/t" if is_table else None,
        "properties": {"table_type": "lance"} if is_table else {},
        "columns": [],
        "created_at": 1_600_000_000_000,
    }
    server.cut(match="POST", when="before")
    server.reply(json.dumps(old), match="GET")
    taken = err.TableAlreadyExistsError if is_table else err.NamespaceAlreadyExistsError
    await catch(taken, OPERATIONS[operation](ns), "created by another")


async def test_denied_is_distinguished_from_missing() -> None:
    with FakeUnity(authorization=["root"]) as server:
        server.add_table(*TABLE)
        server.allow("user")
        server.disown("stranger")
        async with connected(server, auth_token="user") as ns:
            await catch(err.PermissionDeniedError, described(ns, *TABLE), r"Access denied\.")
            await catch(err.TableNotFoundError, described(ns, "main", "a", "none"))
        async with connected(server, auth_token="stranger") as ns:
            await catch(err.PermissionDeniedError, described(ns, *TABLE), "User not allowed: ")

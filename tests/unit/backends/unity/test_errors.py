"""Errors of a Unity server, lost creations, and concurrent ones, which are made in turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import anyio
import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.backends.unity.wire import ERRORS
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.errors import COMMON_ERRORS
from tests.fakes.clock import idle, run_past
from tests.fakes.unity import FakeUnity
from tests.support.errors import catch, outcomes_of
from tests.support.running import running
from tests.support.unity import connected, declared, described, list_requests, opened

ROOT = {"root": "s3://b/r"}
TABLE = ["main", "a", "t"]
LANCE = {"table_type": "lance"}

Error = type[err.LanceNamespaceError]
Work = Callable[[AsyncNamespace], Awaitable[Any]]

OPERATIONS: dict[str, Work] = {
    "describe_namespace": lambda ns: ns.describe_namespace(["main", "a"]),
    "create_namespace": lambda ns: ns.create_namespace(["main", "new"]),
    "drop_namespace": lambda ns: ns.drop_namespace(["main", "a"]),
    "list_tables": lambda ns: ns.list_tables(["main", "a"]),
    "describe_table": lambda ns: described(ns, *TABLE),
    "declare_table": lambda ns: declared(ns, *TABLE),
}

CASES: list[tuple[int, str | None, str, Error, str]] = [
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
    *((it, "INVALID_ARGUMENT", "declare_table", err.InvalidInputError, "Name cannot be empty") for it in (400, 422)),
    (400, "OUT_OF_RANGE", "describe_table", err.InvalidInputError, "too far"),
    (400, None, "describe_table", err.InvalidInputError, ""),
    (401, "UNAUTHENTICATED", "describe_table", err.UnauthenticatedError, "No authorization found."),
    *((it, None, "describe_table", err.UnauthenticatedError, "") for it in (401, 407)),
    (403, "PERMISSION_DENIED", "describe_table", err.PermissionDeniedError, "Access denied."),
    (403, None, "describe_table", err.PermissionDeniedError, ""),
    (408, None, "describe_table", err.ServiceUnavailableError, ""),
    (429, "RESOURCE_EXHAUSTED", "describe_table", err.ThrottlingError, "slowly"),
    (400, "REQUEST_LIMIT_EXCEEDED", "describe_table", err.ThrottlingError, "slowly"),
    (429, None, "describe_table", err.ThrottlingError, ""),
    (500, "INTERNAL", "describe_table", err.InternalError, "not-null property"),
    (500, None, "describe_table", err.InternalError, ""),
    (501, "UNIMPLEMENTED", "declare_table", err.UnsupportedOperationError, "not here"),
    *((it, None, "describe_table", err.ServiceUnavailableError, "") for it in (502, 503, 504)),
    (400, "UNSUPPORTED_TABLE_FORMAT", "declare_table", err.UnsupportedOperationError, "only Delta is supported"),
    (404, "RESOURCE_NOT_KNOWN", "describe_table", err.InternalError, "what?"),
    (405, None, "describe_table", err.InternalError, ""),
    (418, "TEAPOT", "describe_table", err.InternalError, "short and stout"),
]


def body(code: str, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "details": [{"reason": code, "@type": "google.rpc.ErrorInfo"}], "message": message}


@pytest.mark.parametrize(("status", "code", "operation", "error", "message"), CASES)
async def test_error_of_each_code(
    server: FakeUnity, status: int, code: str | None, operation: str, error: Error, message: str
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
    async with running(connected, FakeUnity(dialect="0.4.0"), **ROOT) as (server, ns):
        server.fail(404, body=body("TABLE_NOT_FOUND", None))
        await catch(err.TableNotFoundError, described(ns, *TABLE))
        caught = await catch(err.NamespaceNotFoundError, described(ns, *TABLE))
        assert "Frame.java" not in str(caught.value)


async def test_a_lost_schema_is_ours_though_the_server_gave_it_a_place() -> None:
    async with running(connected, FakeUnity(storage_root="s3://managed/main")) as (server, ns):
        server.cut(match="POST", when="after")
        assert (await ns.create_namespace(["main", "a"])).properties == {}
        assert list_requests(server) == ["POST schemas", "GET schemas/main.a"]


@pytest.mark.parametrize("columns", [[], [{"name": "x", "type_json": '"long"', "type_name": "LONG"}]])
async def test_lost_creation_of_another(server: FakeUnity, ns: AsyncNamespace, columns: list[dict[str, Any]]) -> None:
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


TAKEN = (err.TableAlreadyExistsError, err.NamespaceAlreadyExistsError)


async def create_table(ns: AsyncNamespace) -> None:
    await declared(ns, *TABLE)


async def create_namespace(ns: AsyncNamespace) -> None:
    await ns.create_namespace(["main", "new"])


creations = pytest.mark.parametrize(
    ("create", "name", "taken"),
    [(create_table, "main.a.t", TAKEN[0]), (create_namespace, "main.new", TAKEN[1])],
    ids=["table", "namespace"],
)
Create = Callable[[AsyncNamespace], Awaitable[None]]


async def test_after_a_failed_create_the_next_one_is_sent(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.fail(403, match="POST", times=2)
    outcomes = await outcomes_of(*(create_table(ns) for _ in range(4)))
    assert outcomes.count(err.PermissionDeniedError) == 2
    assert outcomes.count(None) == 1 and outcomes.count(err.TableAlreadyExistsError) == 1
    assert sum(request.startswith("POST") for request in list_requests(server)) == 3
    assert server.most_in_flight == 1


async def test_different_tables_are_made_side_by_side(server: FakeUnity, ns: AsyncNamespace) -> None:
    with server.hold("POST") as hold:
        async with anyio.create_task_group() as group:
            for i in range(8):
                group.start_soon(declared, ns, "main", "a", f"t{i}")
            await hold.reached(8)
            hold.release()


async def test_a_cancelled_create_does_not_block_others(server: FakeUnity, ns: AsyncNamespace) -> None:
    with server.hold("POST") as hold:
        async with anyio.create_task_group() as group:
            group.start_soon(declared, ns, *TABLE)
            await hold.reached()
            group.cancel_scope.cancel()
    await declared(ns, "main", "a", "u")
    assert set(await outcomes_of(*(create_table(ns) for _ in range(2)))) <= {None, err.TableAlreadyExistsError}


async def test_waiting_for_another_has_an_end(server: FakeUnity) -> None:
    async with opened(server) as backend:
        with server.hold("POST") as hold:
            async with anyio.create_task_group() as group:
                group.start_soon(backend.declare_table, TableId(TABLE), "s3://b/t", {})
                await hold.reached()
                with (
                    deadline(60),
                    pytest.raises(err.ServiceUnavailableError, match="while another call was creating it"),
                ):
                    await run_past(backend.declare_table(TableId(TABLE), "s3://b/t", {}), idle(), 60)
                hold.release()
    assert [request for request in list_requests(server) if request.startswith("POST")] == ["POST tables"]


@creations
@pytest.mark.parametrize("other", [{}, {"auth_token": "another"}], ids=["one", "two"])
async def test_concurrent_creates_take_turns(
    server: FakeUnity, create: Create, name: str, taken: Error, other: dict[str, str]
) -> None:
    # If both requests were sent, both would succeed.
    server.race(name)
    more = {"endpoint": f"{server.endpoint}/api/2.1/unity-catalog/", **other}
    async with connected(server, **ROOT) as one, connected(server, **ROOT, **more) as two:
        namespaces = cycle((one, two) if other else (one,))
        outcomes = await outcomes_of(*(create(next(namespaces)) for _ in range(8)))
    assert outcomes.count(None) == 1 and outcomes.count(taken) == 7
    assert sum(request.startswith("POST") for request in list_requests(server)) == 1


@creations
async def test_two_threads_take_turns(server: FakeUnity, create: Create, name: str, taken: Error) -> None:

    async def one() -> Error | None:
        async with connected(server, **ROOT) as ns:
            try:
                await create(ns)
            except err.LanceNamespaceError as e:
                return type(e)
            return None

    with ThreadPoolExecutor(3) as pool, server.hold("POST") as hold:
        futures = [pool.submit(asyncio.run, one()) for _ in range(3)]
        await hold.reached()
        hold.release()
        outcomes = [future.result() for future in futures]
    assert outcomes.count(None) == 1 and outcomes.count(taken) == 2
    async with connected(server) as ns:
        id = name.split(".")
        assert await ns.exists(TableId(id) if len(id) == 3 else NamespaceId(id))


async def test_race_of_two_processes(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.add_table("main", "a", "t")
    server.race("main.a.t")
    await catch(err.InternalError, create_table(ns), "has that name twice, because two processes creat")


async def test_of_two_processes_that_create_a_schema_one_fails(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.add_schema("main", "new")
    server.race("main.new")
    await catch(err.NamespaceAlreadyExistsError, create_namespace(ns), "another process created it at the same time")
    await ns.create_namespace(["main", "new"], mode="ExistOk")


@pytest.mark.parametrize("status", [403, 503])
async def test_a_look_afterwards_that_fails_spoils_nothing(server: FakeUnity, status: int) -> None:
    server.fail(status, match=r"GET .*main\.a\.t$", times=None)
    async with connected(server, max_retries="0", **ROOT) as ns:
        await create_table(ns)

"""Concurrent creations of one object: the server would create two, so they are made in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import anyio
import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.backends.unity.backend import server_key
from lance_ns_async.calls.deadline import deadline
from tests.fakes.clock import idle, run_past
from tests.fakes.unity import FakeUnity
from tests.support.errors import catch
from tests.support.unity import connected, declared, list_requests, opened

TABLE = ["main", "a", "t"]
ROOT = {"root": "s3://b/r"}


async def create_table(ns: AsyncNamespace) -> None:
    await declared(ns, *TABLE)


async def create_namespace(ns: AsyncNamespace) -> None:
    await ns.create_namespace(["main", "new"])


creations = pytest.mark.parametrize(
    ("create", "name", "taken"),
    [
        (create_table, "main.a.t", err.TableAlreadyExistsError),
        (create_namespace, "main.new", err.NamespaceAlreadyExistsError),
    ],
    ids=["table", "namespace"],
)
Create = Callable[[AsyncNamespace], Awaitable[None]]


async def side_by_side(count: int, work: Callable[[], Awaitable[Any]]) -> list[type[err.LanceNamespaceError] | None]:
    """Returns the error of each call; None for one that succeeded."""
    outcomes: list[type[err.LanceNamespaceError] | None] = []

    async def one() -> None:
        try:
            await work()
            outcomes.append(None)
        except err.LanceNamespaceError as e:
            outcomes.append(type(e))

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(one)
    return outcomes


@creations
async def test_one_of_concurrent_creates_is_sent(
    server: FakeUnity, ns: AsyncNamespace, create: Create, name: str, taken: type[err.LanceNamespaceError]
) -> None:
    # If both requests were sent, both would succeed.
    server.race(name)
    outcomes = await side_by_side(8, lambda: create(ns))
    assert outcomes.count(None) == 1 and outcomes.count(taken) == 7
    assert sum(request.startswith("POST") for request in list_requests(server)) == 1


@creations
async def test_sequential_creates_are_sent(
    server: FakeUnity, ns: AsyncNamespace, create: Create, name: str, taken: type[err.LanceNamespaceError]
) -> None:
    await create(ns)
    await catch(taken, create(ns), "HTTP 400")
    assert sum(request.startswith("POST") for request in list_requests(server)) == 2


async def test_after_a_failed_create_the_next_one_is_sent(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.fail(403, match="POST", times=2)
    outcomes = await side_by_side(4, lambda: create_table(ns))
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
    outcomes = await side_by_side(2, lambda: create_table(ns))
    assert set(outcomes) <= {None, err.TableAlreadyExistsError}


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


async def test_what_was_removed_can_be_made_again(server: FakeUnity, ns: AsyncNamespace) -> None:
    for _ in range(3):
        await declared(ns, *TABLE)
        await ns.deregister_table(TABLE)
    answer = await ns.register_table(TABLE, location="s3://b/new", mode="Overwrite")
    assert answer.location == "s3://b/new"


@creations
async def test_two_namespaces_take_turns(
    server: FakeUnity, create: Create, name: str, taken: type[err.LanceNamespaceError]
) -> None:
    # If both requests were sent, both would succeed.
    server.race(name)
    other = {"endpoint": f"{server.endpoint}/api/2.1/unity-catalog/", "auth_token": "another"}
    async with connected(server, **ROOT) as one, connected(server, **ROOT, **other) as two:
        namespaces = cycle((one, two))
        outcomes = await side_by_side(8, lambda: create(next(namespaces)))
    assert outcomes.count(None) == 1 and outcomes.count(taken) == 7
    assert sum(request.startswith("POST") for request in list_requests(server)) == 1


@creations
async def test_two_threads_take_turns(
    server: FakeUnity, create: Create, name: str, taken: type[err.LanceNamespaceError]
) -> None:

    async def one() -> type[err.LanceNamespaceError] | None:
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


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("HTTP://Host:80", "/api"),
        ("http://host", "/api"),
        ("http://host/", "/api"),
        ("http://host/api", "/api"),
        ("http://host:80/api/", "/api"),
    ],
)
def test_one_server_has_one_key(endpoint: str, path: str) -> None:
    assert server_key(endpoint, path) == "http://host:80/api"

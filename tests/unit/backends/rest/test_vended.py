"""Credentials of tables from a REST server, requested by many readers at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from lance_namespace.errors import PermissionDeniedError

from lance_ns_async import AsyncNamespace, Namespace
from tests.fakes.rest import FakeRest

READERS = 64
HOUR = 3_600_000
TABLES = (["a", "t"], ["a", "u"])


def vending_server() -> FakeRest:
    """Returns a server with two tables, whose keys are valid for an hour."""
    expiry = str(int(time.time() * 1000) + HOUR)
    server = FakeRest(credentials={"aws_access_key_id": "key", "expires_at_millis": expiry})
    for id in TABLES:
        server.add_table(*id)
    return server


async def test_concurrent_refreshes_of_a_table_share_one_request() -> None:
    with vending_server() as server:
        async with AsyncNamespace.connect("rest", {"uri": server.url}) as ns:
            with server.hold("a%24t/") as hold, server.hold("a%24u/") as other_hold:
                async with asyncio.TaskGroup() as group:
                    requests = [{"id": id, "vend_credentials": True} for id in TABLES for _ in range(READERS)]
                    tasks = [group.create_task(ns.describe_table(request)) for request in requests]
                    await hold.reached()
                    await other_hold.reached()
                    hold.release()
                    other_hold.release()
    counts = Counter(request.path for request in server.requests)
    assert list(counts.values()) == [1, 1]
    assert {task.result().location for task in tasks} == {"s3://lake/a/t", "s3://lake/a/u"}
    assert all((task.result().storage_options or {})["aws_access_key_id"] == "key" for task in tasks)


def test_refreshes_in_threads_that_fail_share_one_request() -> None:
    with vending_server() as server, Namespace("rest", {"uri": server.url}) as ns:
        server.fail(403, times=None)
        start = Barrier(READERS)

        def refresh(_: int) -> str:
            start.wait()
            with pytest.raises(PermissionDeniedError) as caught:
                ns.describe_table({"id": TABLES[0], "vend_credentials": True})
            return str(caught.value)

        with ThreadPoolExecutor(READERS) as threads:
            assert len(set(threads.map(refresh, range(READERS)))) == 1
    assert len(server.requests) == 1

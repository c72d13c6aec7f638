"""The async namespace: closing, limits, messages, and its load."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pytest

from lance_ns_async import CallLoad, Namespace
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.model import NamespaceId, TableId
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.memory import MemoryBackend, over
from tests.support.errors import catch

pytestmark = [pytest.mark.bare, pytest.mark.environment]
SECRET = "hush-hush-4711"


@pytest.fixture
async def backend() -> AsyncIterator[MemoryBackend]:
    made = MemoryBackend.able(Capabilities(0, None, cascades=True))
    made.add_other_table([TableId(["a", "t"]), TableId(["a", "b", "t"]), TableId(["a", "b", "u"]), TableId(["r"])])
    yield made


async def test_a_closed_namespace_begins_nothing(backend: MemoryBackend) -> None:
    ns = over(backend)
    await ns.aclose()
    await ns.aclose()
    for operation in (
        lambda: ns.list_tables(spec.ListTablesRequest(id=[])),
        *(lambda: ns.describe_tables([["r"]]), lambda: ns.list_many([[]]), lambda: ns.exists(["r"])),
        *(lambda: anext(ns.iter_tables()), lambda: anext(ns.iter_namespaces(recursive=True))),
    ):
        await catch(err.InvalidInputError, operation(), "namespace memory: it is closed; connect anew")
    assert not backend.calls


async def test_tokens_of_one_listing_are_foreign_to_the_other(backend: MemoryBackend) -> None:
    ns = over(backend)
    deep = (await ns.list_all_tables(spec.ListTablesRequest(id=["a", "b"], limit=1))).page_token
    flat = (await ns.list_tables(spec.ListTablesRequest(id=["a", "b"], limit=1))).page_token
    with pytest.raises(err.InvalidInputError, match="not one of this listing"):
        await ns.list_tables(spec.ListTablesRequest(id=["a", "b"], page_token=deep))
    for start in (["a", "b"], ["other"]):
        with pytest.raises(err.InvalidInputError, match="not one of this listing"):
            await ns.list_all_tables(spec.ListTablesRequest(id=start, page_token=flat))
    with pytest.raises(err.InvalidInputError, match="not one of this listing"):
        await ns.list_namespaces(spec.ListNamespacesRequest(id=[], page_token="nonsense"))


async def test_concurrent_calls_are_limited_by_argument_and_policy() -> None:
    backend = MemoryBackend.able(Capabilities(0, None))
    ids = [TableId([f"t{i}"]) for i in range(20)]
    backend.add_other_table(ids)
    for limit, most in ((3, 3), (100, 5), (None, 5)):
        backend.most_in_flight, backend.turns = 0, 20
        described = await over(backend, Caller(Policy(max_in_flight=5), {})).describe_tables(ids, max_in_flight=limit)
        assert (len(described.tables), backend.most_in_flight) == (20, most)
    await catch(err.InvalidInputError, over(backend).list_many([[]], max_in_flight=0), "max_in_flight 0")
    await catch(err.InvalidInputError, over(backend).describe_tables([], max_in_flight=0), "max_in_flight 0")
    assert len(await over(backend).describe_tables([])) == 0


async def test_the_existence_of_what_is_denied_is_not_denied(backend: MemoryBackend) -> None:
    backend.faults["describe_table", TableId(["r"])] = err.PermissionDeniedError("Permission denied: r")
    await catch(err.PermissionDeniedError, over(backend).exists(["r"]))
    assert await over(backend).exists(["a", "t"])
    assert not await over(backend).exists(["a", "x"]) and not await over(backend).exists(["x", "y"])
    assert await over(backend).exists(NamespaceId(["a"])) and await over(backend).exists(NamespaceId())
    assert not await over(backend).exists(NamespaceId(["x"]))


@pytest.mark.parametrize("mode", ["ExistOk", "existok", "exist_ok", "EXIST-OK", "Exist_Ok"])
async def test_a_mode_may_be_spelled_as_one_likes(backend: MemoryBackend, mode: str) -> None:
    await over(backend).create_namespace(spec.CreateNamespaceRequest(id=["a"], mode=mode))


@pytest.mark.parametrize(
    ("mode", "hint"),
    [
        *(("", "known are create, exist_ok, overwrite"), ("ignore", "known are create, exist_ok, overwrite")),
        *(("Exist", "did you mean exist_ok?"), ("create ", "did you mean create?")),
        ("OverWrit", "did you mean overwrite?"),
    ],
)
async def test_an_unknown_mode_is_refused_with_those_there_are(backend: MemoryBackend, mode: str, hint: str) -> None:
    with pytest.raises(err.InvalidInputError, match=re.escape(f"mode {mode!r}: unknown, {hint}")):
        await over(backend).create_namespace(spec.CreateNamespaceRequest(id=["z"], mode=mode))
    assert not backend.calls


async def test_a_namespace_that_cannot_be_replaced_is_left_as_it_was(backend: MemoryBackend) -> None:
    ns, kept = over(backend), NamespaceId(["kept"])
    backend.namespaces[kept] = {"owner": "me"}
    with pytest.raises(err.NamespaceNotEmptyError):
        await ns.create_namespace(spec.CreateNamespaceRequest(id=["a"], mode="overwrite"))
    denied = err.PermissionDeniedError("Permission denied: kept")

    def once(operation: str, subject: object) -> None:
        if operation == "create_namespace" and [o for o, _ in backend.calls].count(operation) == 2:
            raise denied

    backend.calls.clear()
    backend.calls.append(("create_namespace", kept))
    backend.on_call = once
    with pytest.raises(err.PermissionDeniedError):
        await ns.create_namespace({"id": ["kept"], "mode": "overwrite", "properties": {"owner": "you"}})
    assert backend.namespaces[kept] == {"owner": "me"}


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (None, "DescribeTableRequest: a request must be a dict or an id, not NoneType"),
        (b"text", "DescribeTableRequest: a request must be a dict or an id, not bytes"),
        *((5, "DescribeTableRequest: "), ([["t"]], "DescribeTableRequest: id: 0: ")),
        *(("a..b", "every name must be a non-empty string"), ({"id": "text"}, "DescribeTableRequest: id: ")),
        ({"id": ["t"], "version": "1"}, "DescribeTableRequest: version: "),
        ({"id": ["t"], "identity": {"auth_token": [SECRET]}}, "DescribeTableRequest: identity: auth_token: "),
        ({"id": []}, "it needs at least the table's own name"),
        ({}, "it needs at least the table's own name"),
        ({"id": ["t"], "version": 1, "tag": "x"}, "tag 'x': a tag already has a version and a branch"),
    ],
)
async def test_malformed_requests_are_invalid_input(backend: MemoryBackend, request_: Any, problem: str) -> None:
    raised = await catch(err.InvalidInputError, over(backend).describe_table(request_))
    assert problem in str(raised.value) and SECRET not in str(raised.value)
    assert not backend.calls


async def test_depth_is_checked_before_any_call_and_told_alike() -> None:
    exactly, between = Capabilities(1, 1), Capabilities(1, 2)
    backend = MemoryBackend.able(exactly)
    with pytest.raises(err.InvalidInputError, match="requires exactly 1 namespace levels above a table, not 0"):
        await over(backend).describe_table(spec.DescribeTableRequest(id=["t"]))
    with pytest.raises(err.InvalidInputError, match="has at most 1 namespace levels, not 2"):
        await over(backend).list_tables(spec.ListTablesRequest(id=["a", "b"]))
    with pytest.raises(err.InvalidInputError, match="requires 1 to 2 namespace levels above a table, not 3"):
        await over(MemoryBackend.able(between)).describe_tables([["a", "t"], ["a", "b", "c", "t"]])
    assert not backend.calls


async def test_a_catalog_that_is_down_is_not_asked_by_everybody_in_turn() -> None:
    with FakeIceberg() as server:
        server.fail(503, times=None, match="config")
        properties = {"endpoint": server.endpoint, "max_retries": "1", "backoff_initial": "0"}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            described = await ns.describe_tables([["db", f"t{i}"] for i in range(300)])
            assert len(described.errors) == 300 and len(server.requests) < 100
            server.heal()
            assert not await ns.exists(["db", "t"])


TABLES = [["db", name] for name in "tuv"]
TABLE = spec.DescribeTableRequest(id=["db", "t"])


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        for _, name in TABLES:
            running.add_table(["db"], name)
        yield running


async def test_calls_in_flight_and_waiting_calls_are_counted(server: FakeIceberg) -> None:
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, "max_in_flight": "2"}) as ns:
        await ns.describe_table(TABLE)
        idle = ns.snapshot()
        assert idle == CallLoad(0, 0, 0, 2, 2, idle.retries_left, False, idle.slots_id, "free")
        assert idle.retries_left >= 100
        with server.hold("tables/") as hold:
            work = [asyncio.create_task(ns.describe_table(spec.DescribeTableRequest(id=id))) for id in TABLES]
            await hold.reached(2)
            busy = ns.snapshot()
            assert (busy.in_flight, busy.waiting, busy.limit) == (2, 1, 2)
        await asyncio.gather(*work)
        assert ns.snapshot() == idle
    assert ns.snapshot() == idle


def test_a_closed_sync_namespace_has_a_load_and_starts_nothing(server: FakeIceberg) -> None:
    ns = Namespace.connect("iceberg", {"endpoint": server.endpoint})
    ns.close()
    assert ns.snapshot().in_flight == 0

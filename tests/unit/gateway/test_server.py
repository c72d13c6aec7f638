"""A namespace behind a gateway responds as it does directly, to the client of the spec."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import lance_namespace as spec
import pytest
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError
from pydantic import BaseModel

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, serving
from tests.contract.sites import SITES
from tests.fakes.certificates import Certificates
from tests.support.gateway import MODELS, Remote, send_request
from tests.support.lake import ROWS, stream
from tests.support.operations import OPERATIONS

pytestmark = [pytest.mark.bare, pytest.mark.environment, pytest.mark.floors]


# The differences between two tables that are otherwise equal.
_RANDOM = re.compile(
    r"[0-9a-f]{8}_|-[0-9a-f]{12}\b|_size\W+\d+|[0-9a-f]{8}-[0-9a-f-]{27}|\d{9,}|datetime\(.*?tzinfo=[^)]*\)+|elapsed[^,\]]*|\d+(\.\d+)?[nµm]?s"
)
Step = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], bytes]


def steps(n: list[str], name: str) -> Sequence[Step]:
    """Returns all operations of the spec, most with a valid and an invalid request, on a table in namespace `n`."""
    t, missing = [*n, name], [*n, "missing"]
    query = {"id": t, "k": 2, "vector": {"single_vector": [0.0, 1.0]}, "vector_column": "v"}
    return [
        ("create_namespace", {"id": n, "properties": {"owner": "me"}}),
        *(("create_namespace", {"id": n}), ("create_namespace", {"id": n, "mode": "exist_ok"})),
        *(("describe_namespace", {"id": n}), ("namespace_exists", {"id": n})),
        *(("namespace_exists", {"id": [*n[:-1], "missing"]}), ("list_namespaces", {"id": n[:-1]})),
        ("list_namespaces", {"id": n[:-1], "limit": 0}),
        ("create_table", {"id": t, "properties": {"p": "q%&=+é"}}, stream(ROWS)),
        ("create_table", {"id": t}, stream(ROWS)),
        ("create_table", {"id": t, "mode": "ExistOk"}, stream(ROWS)),
        ("create_table", {"id": missing}, b"no rows"),
        ("describe_table", {"id": t, "load_detailed_metadata": True, "with_table_uri": True}),
        ("describe_table", {"id": t, "version": 1}),
        ("describe_table", {"id": t, "check_declared": True, "vend_credentials": True}),
        *(("describe_table", {"id": missing}), ("table_exists", {"id": t})),
        *(("table_exists", {"id": t, "version": 9}), ("declare_table", {"id": [*n, "declared"]})),
        *(("declare_table", {"id": t}), ("list_tables", {"id": n})),
        ("list_tables", {"id": n, "include_declared": False}),
        *(("list_tables", {"id": n, "limit": 1}), ("list_all_tables", {"id": None})),
        *(("list_all_tables", {"id": None, "limit": 1}), ("insert_into_table", {"id": t}, stream(ROWS))),
        ("insert_into_table", {"id": t, "mode": "overwrite"}, stream(ROWS)),
        ("merge_insert_into_table", {"id": t, "on": ["id"], "when_matched_update_all": True}, stream(ROWS.slice(0, 1))),
        ("merge_insert_into_table", {"id": t, "on": ["no", "no2"], "timeout": "9s"}, stream(ROWS)),
        ("update_table", {"id": t, "updates": [["text", "'new'"]], "predicate": "id = 1"}),
        ("delete_from_table", {"id": t, "predicate": "id = 3"}),
        *(("count_table_rows", {"id": t}), ("count_table_rows", {"id": t, "predicate": "no"})),
        ("query_table", query),
        ("query_table", {**query, "columns": {"column_names": ["id"]}, "filter": "id > 1", "version": 1}),
        ("explain_table_query_plan", {"id": t, "query": query, "verbose": True}),
        ("analyze_table_query_plan", query),
        ("create_table_scalar_index", {"id": t, "column": "id", "index_type": "BTREE", "name": "a/b é"}),
        ("create_table_index", {"id": t, "column": "no", "index_type": "IVF_FLAT"}),
        ("list_table_indices", {"id": t}),
        ("describe_table_index_stats", {"id": t, "index_name": "a/b é"}),
        ("describe_table_index_stats", {"id": t, "index_name": "no"}),
        ("drop_table_index", {"id": t, "index_name": "a/b é"}),
        ("drop_table_index", {"id": t, "index_name": "a/b é", "branch": "no"}),
        ("get_table_stats", {"id": t}),
        ("list_table_versions", {"id": t, "limit": 2, "descending": True}),
        ("describe_table_version", {"id": t, "version": 2}),
        ("create_table_version", {"id": t, "version": 9, "manifest_path": "9.manifest-x"}),
        ("batch_create_table_versions", {"entries": [{"id": t, "version": 9, "manifest_path": "9.manifest-x"}]}),
        ("batch_commit_tables", {"operations": [{"declare_table": {"id": t}}]}),
        ("batch_delete_table_versions", {"id": t, "ranges": [{"start_version": 0, "end_version": 1}]}),
        ("create_table_tag", {"id": t, "tag": "a tag", "version": 2}),
        ("create_table_tag", {"id": t, "tag": "tag", "version": 2}),
        ("update_table_tag", {"id": t, "tag": "tag", "version": 3}),
        *(("list_table_tags", {"id": t, "limit": 1}), ("get_table_tag_version", {"id": t, "tag": "tag"})),
        *(("get_table_tag_version", {"id": t, "tag": "no"}), ("delete_table_tag", {"id": t, "tag": "tag"})),
        *(("create_table_branch", {"id": t, "name": "side"}), ("create_table_branch", {"id": t, "name": "side"})),
        ("list_table_branches", {"id": t}),
        ("insert_into_table", {"id": t, "branch": "side"}, stream(ROWS)),
        ("delete_table_branch", {"id": t, "name": "side"}),
        ("alter_table_add_columns", {"id": t, "new_columns": [{"name": "z", "expression": "id + 1"}]}),
        ("alter_table_alter_columns", {"id": t, "alterations": [{"path": "z", "rename": "y"}]}),
        ("alter_table_drop_columns", {"id": t, "columns": ["y"]}),
        ("update_table_schema_metadata", {"id": t, "metadata": {"a": "b"}}),
        ("update_field_metadata", {"id": t, "updates": [{"path": "id", "metadata": {"unit": "1"}}]}),
        ("restore_table", {"id": t, "version": 1}),
        ("alter_table_backfill_columns", {"id": t, "column": "z"}),
        ("create_materialized_view", {"id": missing, "kind": "query", "source_query": "{}", "output_schema": "{}"}),
        *(("refresh_materialized_view", {"id": missing}), ("describe_transaction", {"id": [*t, "1"]})),
        ("alter_transaction", {"id": [*t, "1"], "actions": [{"setStatusAction": {"status": "Queued"}}]}),
        ("rename_table", {"id": t, "new_table_name": "other"}),
        *(("deregister_table", {"id": [*n, "declared"]}), ("register_table", {"id": t, "location": "nowhere"})),
        *(("drop_namespace", {"id": n}), ("drop_table", {"id": t}), ("drop_table", {"id": [*n, "other"]})),
        ("drop_table", {"id": missing}),
        ("drop_namespace", {"id": n, "mode": "Skip", "behavior": "Restrict"}),
    ]


@asynccontextmanager
async def remote(namespace: object) -> AsyncIterator[Remote]:
    async with serving(namespace) as gateway:
        client = Remote(gateway)
        try:
            yield client
        finally:
            await client.close()


async def outcome(namespace: Any, step: Step) -> Any:
    operation, fields, *data = step
    request = MODELS[operation].from_dict(fields)
    try:
        return await getattr(namespace, operation)(request, *data)
    except LanceNamespaceError as e:
        return type(e), str(e)


@pytest.mark.parametrize(("site", "name"), [("dir", "a b.c-d"), ("hive-fake-4.0.1", "a_1"), ("glue", "a b_1")])
async def test_every_operation_answers_as_it_does_directly(site: str, name: str, tmp_path: Path) -> None:
    served: list[str] = []
    with SITES[site](tmp_path / "one") as one, SITES[site](tmp_path / "two") as two:
        async with (
            AsyncNamespace.connect(one.impl, one.properties) as direct,
            AsyncNamespace.connect(two.impl, two.properties) as behind,
            remote(behind) as through,
        ):
            for step in steps([*one.above, "n"], name):
                result = await outcome(through, step)
                if hasattr(direct, step[0]):
                    expected = await outcome(direct, step)
                    assert _comparable(result, tmp_path / "two") == _comparable(expected, tmp_path / "one"), step
                else:
                    assert result[0] is UnsupportedOperationError, step
                served.append(step[0])
    assert set(served) == set(OPERATIONS)


async def test_operations_have_the_spec_s_paths_or_are_unsupported() -> None:
    async with remote(object()) as through:
        for step in steps(["n"], "t"):
            error, message = await outcome(through, step)
            assert error is UnsupportedOperationError and step[0] in message


def _comparable(result: Any, root: Path) -> str:
    # The `repr` of some models hides values.
    shown = repr(result.model_dump() if isinstance(result, BaseModel) else result)
    return _RANDOM.sub("~", shown.replace(str(root).removeprefix("/"), "root"))


HALF = b"POST /v1/table/t/describe HTTP/1.1\r\nHost: localhost\r\n"


class Describing:
    """A namespace with the operation of the requests; they never arrive whole."""

    async def describe_table(self, request: object) -> None:
        raise AssertionError(request)


@asynccontextmanager
async def connected(
    gateway: Gateway | str, source: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    place = urlsplit(gateway if isinstance(gateway, str) else gateway.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Returns that the server closes a connection without a response; fails if it keeps it open."""
    async with asyncio.timeout(30):
        with suppress(ConnectionError):
            return await reader.read() == b""
    return True


@pytest.mark.parametrize("head", [b"", b"G", HALF, HALF + b"x-more: "], ids=["nothing", "one byte", "lines", "header"])
async def test_a_connection_without_a_request_is_closed(head: bytes) -> None:
    async with serving(object(), idle=0.05) as gateway, connected(gateway) as (reader, writer):
        writer.write(head)
        assert await is_closed(reader)


async def test_a_half_sent_second_head_is_closed() -> None:
    async with serving(object(), idle=0.05) as gateway, connected(gateway) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF)
        async with asyncio.timeout(30):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")


async def test_a_body_in_drops_is_ended() -> None:
    async with serving(Describing(), idle=0.2) as gateway, connected(gateway) as (reader, writer):
        head = f"x-lance-token: {gateway.token}\r\nContent-Length: 1000000\r\n\r\n{{"
        writer.write(HALF + head.encode())
        answer = asyncio.create_task(reader.readline())
        while not answer.done():
            # Far more often than the idle time, but only 100 bytes a second.
            writer.write(b" ")
            await asyncio.wait([answer], timeout=0.01)
        assert b" 408 " in await answer


async def test_connections_from_one_address_are_limited() -> None:
    async with serving(object(), max_connections=2) as gateway:
        async with connected(gateway), connected(gateway) as (_, writer):
            async with connected(gateway) as (reader, _):
                assert await is_closed(reader)
            # Another address has its own limit.
            async with connected(gateway, "127.0.0.2") as (reader, other):
                other.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in await reader.readline()
            writer.close()
            await writer.wait_closed()
            while True:
                # The server learns of the end some time later.
                with suppress(ConnectionError, IndexError, ValueError):
                    if (await send_request(gateway, "GET", "/health")).status == 200:
                        break


async def test_connections_before_their_handshake_count(tmp_path: Path) -> None:
    async with serving(object(), tls=Certificates.made(tmp_path).server, max_connections=1) as gateway:
        async with connected(gateway), connected(gateway) as (reader, _):
            assert await is_closed(reader)


@dataclass
class Slow:
    """A namespace that responds on demand."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: str = ""

    async def describe_table(self, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
        await self._wait()
        return spec.DescribeTableResponse(location="here")

    async def drop_table(self, request: spec.DropTableRequest) -> spec.DropTableResponse:
        await self._wait()
        return spec.DropTableResponse(location="gone")

    async def _wait(self) -> None:
        self.begun.set()
        self.outcome = "cancelled"
        try:
            await self.go.wait()
            self.outcome = "done"
        finally:
            self.ended.set()


async def leave(gateway: Gateway, namespace: Slow, operation: str) -> None:
    """Sends a request, and disconnects while it is in progress."""
    async with connected(gateway) as (_, writer):
        head = f"POST /v1/table/t/{operation} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
        writer.write(f"{head}x-lance-token: {gateway.token}\r\n\r\n".encode())
        await namespace.begun.wait()


async def test_a_read_ends_with_its_client() -> None:
    slow = Slow()
    async with serving(slow) as gateway:
        await leave(gateway, slow, "describe")
        await slow.ended.wait()
        assert slow.outcome == "cancelled"
        metrics = (await send_request(gateway, "GET", "/metrics")).body.decode()
        assert 'lance_ns_requests_total{operation="describe_table",code="cancelled"} 1' in metrics


async def test_a_change_is_finished_though_its_client_left() -> None:
    slow = Slow()
    async with serving(slow) as gateway:
        await leave(gateway, slow, "drop")
        while 'code="cancelled"' not in (await send_request(gateway, "GET", "/metrics")).body.decode():
            pass
        assert not slow.ended.is_set()
        slow.go.set()
        await slow.ended.wait()
        assert slow.outcome == "done"


@pytest.mark.parametrize("operation", ["describe", "drop"])
async def test_what_is_under_way_is_finished_at_the_end(operation: str) -> None:
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        async with serving(slow) as gateway:
            request = group.create_task(send_request(gateway, "POST", f"/v1/table/t/{operation}"))
            await slow.begun.wait()
            asyncio.get_running_loop().call_later(0.05, slow.go.set)
        assert slow.outcome == "done" and (await request).status == 200
    assert gateway.cut_off == 0


@pytest.mark.parametrize("operation", ["describe", "drop"])
async def test_the_end_does_not_wait_for_ever(operation: str) -> None:
    slow = Slow()
    async with serving(slow, grace=0.05) as gateway:
        await leave(gateway, slow, operation)
    assert slow.outcome == "cancelled"
    # The client of a read has disconnected before.
    assert gateway.cut_off == (operation == "drop")
    slow = Slow()
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group, serving(slow, grace=0.05) as gateway:
            group.create_task(send_request(gateway, "POST", f"/v1/table/t/{operation}"))
            await slow.begun.wait()
    # The connection was closed without a response.
    assert raised.group_contains(IndexError) and slow.outcome == "cancelled"
    assert gateway.cut_off == 1


@pytest.mark.parametrize("sent", [b"", b"{"])
async def test_a_request_whose_body_does_not_come_is_cut_off(sent: bytes) -> None:
    async with serving(Slow(), grace=0.05) as gateway:
        place = urlsplit(gateway.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        head = "POST /v1/table/t/describe HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
        writer.write(f"{head}x-lance-token: {gateway.token}\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(sent)
    assert gateway.cut_off == 1
    writer.close()
    await writer.wait_closed()


async def test_no_request_gets_a_response_after_the_end() -> None:
    async with serving(Slow()) as gateway:
        # An idle connection does not delay the end.
        place = urlsplit(gateway.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    with pytest.raises(ConnectionError):
        await send_request(gateway, "GET", "/health")


async def test_an_error_inside_comes_out_as_it_is() -> None:
    slow = Slow()
    slow.go.set()
    with pytest.raises(KeyError, match="mine"):
        async with serving(slow) as gateway:
            await send_request(gateway, "POST", "/v1/table/t/drop")
            raise KeyError("mine")


async def test_cancelling_leaves_no_change_half_done() -> None:
    slow = Slow()
    with anyio.CancelScope() as scope:
        async with serving(slow) as gateway:
            await leave(gateway, slow, "drop")
            asyncio.get_running_loop().call_later(0.05, slow.go.set)
            scope.cancel()
            await anyio.sleep_forever()
    assert slow.outcome == "done"

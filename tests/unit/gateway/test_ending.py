"""Requests in progress when their client disconnects, or the gateway stops."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
import lance_namespace as spec
import pytest

from lance_ns_async.gateway import Gateway, serving
from tests.support.gateway import ask


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
    place = urlsplit(gateway.url)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    head = f"POST /v1/table/t/{operation} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    writer.write(f"{head}x-lance-token: {gateway.token}\r\n\r\n".encode())
    await namespace.begun.wait()
    writer.close()
    await writer.wait_closed()


async def test_a_read_ends_with_its_client() -> None:
    slow = Slow()
    async with serving(slow) as gateway:
        await leave(gateway, slow, "describe")
        await slow.ended.wait()
        assert slow.outcome == "cancelled"
        metrics = (await ask(gateway, "GET", "/metrics")).body.decode()
        assert 'lance_ns_requests_total{operation="describe_table",code="cancelled"} 1' in metrics


async def test_a_change_is_finished_though_its_client_left() -> None:
    slow = Slow()
    async with serving(slow) as gateway:
        await leave(gateway, slow, "drop")
        while 'code="cancelled"' not in (await ask(gateway, "GET", "/metrics")).body.decode():
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
            request = group.create_task(ask(gateway, "POST", f"/v1/table/t/{operation}"))
            await slow.begun.wait()
            asyncio.get_running_loop().call_later(0.05, slow.go.set)
        assert slow.outcome == "done"
        assert (await request).status == 200
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
        async with asyncio.TaskGroup() as group:
            async with serving(slow, grace=0.05) as gateway:
                group.create_task(ask(gateway, "POST", f"/v1/table/t/{operation}"))
                await slow.begun.wait()
    # The connection was closed without a response.
    assert raised.group_contains(IndexError)
    assert slow.outcome == "cancelled"
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
        await ask(gateway, "GET", "/health")


async def test_an_error_inside_comes_out_as_it_is() -> None:
    slow = Slow()
    slow.go.set()
    with pytest.raises(KeyError, match="mine"):
        async with serving(slow) as gateway:
            await ask(gateway, "POST", "/v1/table/t/drop")
            raise KeyError("mine")


async def test_cancelling_ends_it() -> None:
    slow = Slow()
    addresses: list[Gateway] = []

    async def run() -> None:
        async with serving(slow) as gateway:
            addresses.append(gateway)
            slow.begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(run())
    await slow.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConnectionError):
        await ask(addresses[0], "GET", "/health")


async def test_cancelling_leaves_no_change_half_done() -> None:
    slow = Slow()
    with anyio.CancelScope() as scope:
        async with serving(slow) as gateway:
            await leave(gateway, slow, "drop")
            asyncio.get_running_loop().call_later(0.05, slow.go.set)
            scope.cancel()
            await anyio.sleep_forever()
    assert slow.outcome == "done"

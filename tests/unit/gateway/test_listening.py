"""Limits of connections: time for heads and bodies, connections from one address, and descriptors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async.gateway import Gateway, serving
from tests.fakes.certificates import Certificates
from tests.support.gateway import ask

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
                    if (await ask(gateway, "GET", "/health")).status == 200:
                        break
    with pytest.raises(InvalidInputError, match="max_connections 0"):
        async with serving(object(), max_connections=0):
            pass


async def test_connections_before_their_handshake_count(tmp_path: Path) -> None:
    async with serving(object(), tls=Certificates.made(tmp_path).server, max_connections=1) as gateway:
        async with connected(gateway), connected(gateway) as (reader, _):
            assert await is_closed(reader)

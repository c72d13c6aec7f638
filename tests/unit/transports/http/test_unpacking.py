"""Decompression: one layer of gzip or deflate, whole and up to the limit; everything else is refused."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError

from lance_ns_async.calls.policy import Policy
from lance_ns_async.transports.http.wire import TooLongError, UnpackError, unpack
from tests.fakes.plain import plain
from tests.fakes.sockets import Said, Script, http

MB = 2**20


def raw_deflate(data: bytes) -> bytes:
    """Returns deflate data without the header and trailer of zlib, as some servers send it."""
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


PACKINGS = [("gzip", gzip.compress), ("X-GZIP ", gzip.compress), ("deflate", zlib.compress), ("Deflate", raw_deflate)]


@pytest.mark.parametrize(("encoding", "pack"), PACKINGS)
@pytest.mark.parametrize("size", [0, 1, 100, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 3 * MB])
async def test_one_layer_is_unpacked_up_to_the_limit(encoding: str, pack: Callable[[bytes], bytes], size: int) -> None:
    body = bytes(index % 251 for index in range(size % 1000)) + bytes(size - size % 1000)
    assert await unpack(pack(body), encoding, max(size, 1)) == body
    if size > 1:
        with pytest.raises(TooLongError):
            await unpack(pack(body), encoding, size - 1)


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
async def test_what_is_not_packed_stays_as_it_is(encoding: str) -> None:
    assert await unpack(b"{}", encoding, 1) == b"{}"


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,identity", "br", "zstd", "compress", "gzip;q=1", "nonsense"])
async def test_several_layers_and_other_methods_are_refused_unread(encoding: str) -> None:
    with pytest.raises(UnpackError, match="only gzip or deflate are read, once"):
        await unpack(b"whatever", encoding, MB)


@given(st.binary(max_size=300), st.integers(min_value=0, max_value=320))
def test_a_body_that_breaks_off_is_none(body: bytes, cut: int) -> None:
    packed = gzip.compress(body)
    if not 0 < cut < len(packed):
        return
    with pytest.raises(UnpackError):
        _now(packed[:cut])


def _now(packed: bytes) -> bytes:
    """Decompresses small data, without a wait."""
    work = unpack(packed, "gzip", MB)
    try:
        work.send(None)
    except StopIteration as done:
        result: bytes = done.value
        return result
    raise AssertionError("a small body was waited for")


@pytest.mark.parametrize("rest", [b"x", gzip.compress(b"more")], ids=["noise", "member"])
async def test_what_follows_a_packed_body_is_refused(rest: bytes) -> None:
    with pytest.raises(UnpackError, match="bytes follow its end"):
        await unpack(gzip.compress(b"{}") + rest, "gzip", MB)


@pytest.mark.parametrize("layers", [1, 2, 3])
async def test_a_bomb_takes_no_more_than_the_limit(layers: int) -> None:
    """Two layers of 1,719 bytes took 1.9 GB and 7 seconds."""
    packed = gzip.compress(bytes(40 * MB))
    for _ in range(layers - 1):
        packed = gzip.compress(packed)
    response = http(200, packed, {"Content-Encoding": ", ".join(["gzip"] * layers)})
    async with Script(response) as server:
        async with plain(server.url, {"max_response_bytes": str(MB)}, policy=Policy(max_retries=0)) as client:
            tracemalloc.start()
            try:
                with pytest.raises(InternalError):
                    await client.ask()
                assert tracemalloc.get_traced_memory()[1] < 8 * MB
            finally:
                tracemalloc.stop()


async def test_layers_in_several_headers_count_together() -> None:
    packed = gzip.compress(gzip.compress(b"{}"))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with Script(Said(head % len(packed) + packed)) as server:
        async with plain(server.url, policy=Policy(max_retries=0)) as client:
            with pytest.raises(InternalError, match="cannot be decompressed: its Content-Encoding is 'gzip, gzip'"):
                await client.ask()

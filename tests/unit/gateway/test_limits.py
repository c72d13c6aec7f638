"""Limits of the gateway: SQL, rows, searches; the process survives the attacks."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lance_namespace import CountTableRowsRequest, CountTableRowsResponse

from lance_ns_async import AsyncNamespace, Table, TableId
from lance_ns_async.gateway import Gateway, serving
from lance_ns_async.storage import threads
from tests.support.gateway import Response, send_request
from tests.unit.gateway.test_search import COSTLY
from tests.unit.storage.test_sql_bounds import DEADLY

ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": [f"name {i}" for i in range(100)],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(400, "float32")), 4),
    }
)
TABLE = "/v1/table/t"


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.write(["t"], ROWS)
        yield ns


@pytest.fixture
async def gateway(ns: AsyncNamespace) -> AsyncIterator[Gateway]:
    async with serving(ns, max_bytes=1 << 20, max_answer_bytes=1 << 20) as gateway:
        yield gateway


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def is_refused(response: Response, message: str) -> bool:
    return (response.status, response.code) == (400, 13) and message in response.json["error"]


EVIL = {**DEADLY, **COSTLY}


@pytest.mark.parametrize(
    "sql", [sql for sql in EVIL.values() if len(sql) < 4_000_000 and sql.count(",") < 200_000], ids=lambda sql: sql[:20]
)
async def test_evil_filters_are_refused(gateway: Gateway, sql: str) -> None:
    assert is_refused(await send_request(gateway, "POST", f"{TABLE}/count_rows", {"predicate": sql}), "predicate: ")
    assert (await send_request(gateway, "GET", "/health")).json == {"status": "ok"}


GROWING = f"concat({', '.join(['name'] * 120)})"


async def test_values_do_not_grow_from_request_to_request(ns: AsyncNamespace, gateway: Gateway) -> None:
    """Each update makes a value 120 times as long: after four, 6 bytes would be a gigabyte."""
    update = {"updates": [["name", GROWING]], "predicate": "id = 5"}
    sizes = []
    while (response := await send_request(gateway, "POST", f"{TABLE}/update", update)).status == 200:
        sizes.append(len((await ns.open(["t"])).to_table(columns=["name"], filter="id = 5")["name"][0].as_py()))
    message = "name: the values that the request builds for 8192 rows could have more than 1048576 bytes"
    assert is_refused(response, message)
    assert sizes == [6 * 120, 6 * 120**2]
    # Other requests that build values of these rows.
    built = f"length(concat({','.join(['target.name'] * 50)}))=9"
    merge = f"on=id&when_matched_update_all=true&when_matched_update_all_filt={built}"
    body: Any
    for operation, body in (
        ("query", {"k": 100, "vector": {}, "columns": {"column_aliases": {"c": GROWING}}}),
        ("query", {"k": 100, "vector": {}, "filter": f"length({GROWING}) > 5"}),
        ("analyze_plan", {"k": 100, "vector": {}, "columns": {"column_aliases": {"c": "||".join(["name"] * 50)}}}),
        ("query", {"k": 1, "vector": {"single_vector": [0.0] * 4}, "columns": {"column_aliases": {"c": GROWING}}}),
        ("count_rows", {"predicate": f"length({GROWING}) > 5"}),
        ("delete", {"predicate": f"length({GROWING}) > 5"}),
        ("update", {"updates": [["id", "1"]], "predicate": f"length({GROWING}) > 5"}),
        ("update", {"updates": [["name", f"replace(name, 'n', '{'n' * 100}')"]]}),
        ("add_columns", {"new_columns": [{"name": "c", "expression": GROWING}]}),
        (f"merge_insert?{merge}", stream(ROWS)),
    ):
        response = await send_request(gateway, "POST", f"{TABLE}/{operation}", body)
        assert is_refused(response, "name: the values"), operation
    # Rows without the large value, and columns of fixed width.
    for body in (
        {"updates": [["name", "concat(name, '!')"]]},
        {"updates": [["name", GROWING]], "predicate": "id = 6"},
        {"updates": [["id", "coalesce(id, id + 1)"]]},
    ):
        assert (await send_request(gateway, "POST", f"{TABLE}/update", body)).status == 200
    body = {"k": 5, "vector": {}, "columns": {"column_aliases": {"c": GROWING}}}
    assert (await send_request(gateway, "POST", f"{TABLE}/query", body)).status == 200
    assert (await ns.update_table({"id": ["t"], **update})).updated_rows == 1


async def test_a_dictionary_counts_for_each_row(ns: AsyncNamespace, gateway: Gateway) -> None:
    """A thousand rows of one value of 10 kB are few bytes, until SQL builds values of them."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), ["x" * 10_000])
    await ns.write(["dictionary"], pa.table({"w": words}))
    body = {"predicate": "length(concat(w, w)) > 5"}
    assert is_refused(await send_request(gateway, "POST", "/v1/table/dictionary/count_rows", body), "w: the values")


async def test_functions_are_bounded_in_every_operation(gateway: Gateway) -> None:
    call, costly = "repeat('a', 2000000000)", {"k": 1, "vector": {}, "filter": COSTLY["repeat"]}
    merge = "on=id&when_matched_update_all=true&when_matched_update_all_filt=length(repeat('a',9))=9"
    bodies: list[tuple[str, Any]] = [
        *(("query", costly), ("explain_plan", {"query": costly}), ("analyze_plan", costly)),
        ("query", {"k": 1, "vector": {}, "columns": {"column_aliases": {"c": call}}}),
        *(("delete", {"predicate": COSTLY["repeat"]}), ("update", {"updates": [["name", call]]})),
        ("add_columns", {"new_columns": [{"name": "c", "expression": call}]}),
        (f"merge_insert?{merge}", stream(ROWS)),
    ]
    for operation, body in bodies:
        response = await send_request(gateway, "POST", f"{TABLE}/{operation}", body)
        assert is_refused(response, "function 'repeat' is not allowed"), operation


async def test_functions_may_be_allowed(ns: AsyncNamespace) -> None:
    body = {"predicate": "length(repeat(name, 2)) > 5"}
    async with serving(ns, functions=["Repeat"]) as gateway:
        assert (await send_request(gateway, "POST", f"{TABLE}/count_rows", body)).json == 100
    assert (await ns.count_table_rows({"id": ["t"], "predicate": "length(repeat(name, 2)) > 5"})).count == 100


async def test_answers_are_bounded(ns: AsyncNamespace) -> None:
    everything = {"k": 2**31 - 1, "vector": {}}
    async with serving(ns, max_answer_bytes=2048) as gateway:
        response = await send_request(gateway, "POST", f"{TABLE}/query", everything)
        assert is_refused(response, "k: the response would have more than 2048 bytes; use a smaller k")
        many_times = {"columns": {"column_aliases": {f"c{i}": "vector" for i in range(2_000)}}}
        response = await send_request(gateway, "POST", f"{TABLE}/query", {"k": 100, "vector": {}, **many_times})
        assert is_refused(response, "k: the response would have more than")
        few = {"k": 10, "offset": 90, "vector": {}, "columns": {"column_names": ["id"]}}
        response = await send_request(gateway, "POST", f"{TABLE}/query", few)
        assert pa.ipc.open_file(response.body).read_all()["id"].to_pylist() == list(range(90, 100))
    async with serving(ns) as gateway:
        response = await send_request(gateway, "POST", f"{TABLE}/query", {**everything, "offset": 2**31 - 1})
        assert pa.ipc.open_file(response.body).read_all().num_rows == 0


async def test_a_large_answer_arrives_whole(ns: AsyncNamespace) -> None:
    rows = pa.table({"id": pa.array(range(1_000_000), pa.int64())})
    await ns.write(["large"], rows)
    async with serving(ns) as gateway:
        response = await send_request(gateway, "POST", "/v1/table/large/query", {"k": 2_000_000, "vector": {}})
        assert int(response.headers["content-length"]) == len(response.body) > 8_000_000
        assert response.headers["server"] == "lance-ns"
        assert pa.ipc.open_file(response.body).read_all() == rows


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("operation", ["create", "insert", "merge_insert"])
async def test_compressed_rows_count_decompressed(gateway: Gateway, operation: str, compression: str) -> None:
    target = f"{TABLE if 'insert' in operation else '/v1/table/new'}/{operation}"
    target += "?on=id&when_not_matched_insert_all=true" if operation == "merge_insert" else ""
    bomb = stream(pa.table({"id": pa.array(np.zeros(10_000_000, "int64"))}), compression)
    assert len(bomb) < 1 << 20
    assert is_refused(await send_request(gateway, "POST", target, bomb), "more than 1048576 bytes")
    few = stream(pa.table({"id": pa.array(np.zeros(100_000, "int64"))}), compression)
    assert (await send_request(gateway, "POST", "/v1/table/few/create", few)).status == 200


@cache
def nulls() -> pa.Array:
    return pa.nulls(2**31 - 2)


BOMBS: dict[str, Callable[[], pa.Table]] = {
    "nulls": lambda: pa.table({"a": nulls()}),
    "lists of nulls": lambda: pa.table({"a": pa.ListArray.from_arrays(pa.array([0, 2**31 - 2], pa.int32()), nulls())}),
    "long lists of nulls": lambda: pa.table({"a": pa.FixedSizeListArray.from_arrays(nulls().slice(0, 2**30), 2**20)}),
    "empty structs": lambda: pa.table({"a": pa.StructArray.from_arrays([nulls()], ["b"])}),
    "columns": lambda: pa.table({f"c{i}": pa.nulls(1) for i in range(6_000)}),
    "views": lambda: pa.table({"a": views()}),
    "views in lists": lambda: pa.table({"a": pa.ListArray.from_arrays(pa.array([0, 1_000], pa.int32()), views())}),
}


def views() -> pa.Array:
    """Returns a thousand views of the same ten thousand bytes."""
    _, view, *data = pa.array(["x" * 10_000], pa.string_view()).buffers()
    return pa.Array.from_buffers(pa.string_view(), 1_000, [None, pa.py_buffer(view.to_pybytes()[:16] * 1_000), *data])


@pytest.mark.parametrize("made", BOMBS.values(), ids=BOMBS)
async def test_rows_that_become_many_are_refused(gateway: Gateway, made: Callable[[], pa.Table]) -> None:
    data = stream(made())
    assert len(data) < 1 << 20
    assert is_refused(await send_request(gateway, "POST", "/v1/table/new/create", data), "request_data: ")


async def test_streams_of_many_batches_are_refused(ns: AsyncNamespace) -> None:
    batches = pa.Table.from_batches([pa.record_batch({"id": [1]})] * 10_001)
    async with serving(ns) as gateway:
        response = await send_request(gateway, "POST", "/v1/table/many/create", stream(batches))
        assert is_refused(response, "request_data: more than 10000 batches"), response.json


async def test_broken_streams_are_reported(gateway: Gateway) -> None:
    data = bytearray(stream(ROWS, "zstd"))
    for at in range(8, len(data), 97):
        broken = bytes(data[:at]) + bytes([data[at] ^ 0xFF]) + bytes(data[at + 1 :])
        response = await send_request(gateway, "POST", f"/v1/table/new{at}/create", broken)
        assert response.status in (200, 400), response.body


@pytest.mark.parametrize("target", [f"{TABLE}/describe", "/v1/table/new/create"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_bodies_are_bounded(gateway: Gateway, target: str, encoding: str) -> None:
    packed = gzip.compress(bytes(50 << 20)) if encoding == "gzip" else zlib.compress(bytes(50 << 20))
    response = await send_request(gateway, "POST", target, packed, {"Content-Encoding": encoding})
    assert (response.status, response.code) == (413, 13)


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", gzip.compress(b"{}"), 200),
        ("GZip", gzip.compress(b"{") + gzip.compress(b"}"), 200),
        *(("deflate", zlib.compress(b"{}"), 200), ("identity", b"{}", 200), ("gzip", gzip.compress(b"{}")[:-4], 400)),
        *(("gzip", b"{}", 400), ("gzip", b"", 400), ("deflate", b"\x78\x9c{}", 400)),
        ("gzip, gzip", gzip.compress(gzip.compress(b"{}")), 415),
        *(("br", b"{}", 415), ("zstd", b"{}", 415)),
    ],
    # A compressed body contains its time of compression, and processes that share the tests must use equal parameters.
    ids=["gzip", "two", "deflate", "plain", "cut", "no-gzip", "empty", "no-deflate", "nested", "br", "zstd"],
)
async def test_one_layer_of_compression_is_read(gateway: Gateway, encoding: str, body: bytes, status: int) -> None:
    response = await send_request(gateway, "POST", f"{TABLE}/describe", body, {"Content-Encoding": encoding})
    assert response.status == status


async def test_all_requests_together_are_bounded(ns: AsyncNamespace) -> None:
    async with serving(ns, max_bytes=4096, max_answer_bytes=4096, max_held_bytes=8192) as gateway:
        readers = []
        head = f"POST {TABLE}/insert HTTP/1.1\r\nHost: localhost\r\nx-lance-token: {gateway.token}\r\n"
        port = int(gateway.url.rpartition(":")[2])
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{head}Content-Length: 4096\r\nExpect: 100-continue\r\n\r\n".encode() + b"x" * 4095)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            readers.append((reader, writer))
        # The sent rows are read at some time, and no more are accepted afterwards.
        small = {"context": {"more": "x" * 100}}
        while (response := await send_request(gateway, "POST", f"{TABLE}/describe", small)).status == 200:
            pass
        assert (response.status, response.code, response.headers["retry-after"]) == (503, 17, "1")
        for _, writer in readers:
            writer.close()
            await writer.wait_closed()
        while (response := await send_request(gateway, "POST", f"{TABLE}/describe", small)).status == 503:
            pass
        assert response.status == 200


async def test_answers_under_way_are_bounded_together(ns: AsyncNamespace) -> None:
    async with serving(ns, max_bytes=0, max_answer_bytes=4096, max_held_bytes=8192) as gateway:
        query = {"k": 100, "vector": {}}
        assert (await send_request(gateway, "POST", f"{TABLE}/query", {**query, "k": 50})).status == 200
        # Its JSON is counted 18 times, and its rows twice.
        for large in ({**query, "filter": "id >= 0" + " " * 100}, {**query, "filter": "id >= 0" + " " * 400}):
            response = await send_request(gateway, "POST", f"{TABLE}/query", large)
            assert (response.status, response.code) == (503, 17) and "8192 bytes" in response.json["error"]
        # Their memory is released.
        assert (await send_request(gateway, "POST", f"{TABLE}/query", {**query, "k": 50})).status == 200


def words(query: str, **more: Any) -> dict[str, Any]:
    return {"k": 5, "vector": {}, "full_text_query": {"string_query": {"query": query, **more}}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"k": 5, "vector": {"multi_vector": [[0.1] * 4] * 101}}, "multi_vector: 101 vectors"),
        ({"k": 2**31 - 1, "vector": {"single_vector": [0.1] * 4}}, "a search may find at most 1000000 rows"),
        ({"k": 1, "offset": 2**31, "vector": {"single_vector": [0.1] * 4}}, "a search may find at most 1000000 rows"),
        ({"k": 20_000, "vector": {"multi_vector": [[0.1] * 4] * 100}}, "a search may find at most 1000000 rows"),
        *((words("a " * 2_000), "more than 1000 words"), (words("a" * 70_000), "more than 65536 bytes")),
        (words("a", columns=["name"] * 101), "101 queries; at most"),
    ],
)
async def test_searches_are_bounded(gateway: Gateway, body: Any, message: str) -> None:
    assert is_refused(await send_request(gateway, "POST", f"{TABLE}/query", body), message)


def nested(depth: int) -> Any:
    query: Any = {"match": {"terms": "a"}}
    for _ in range(depth):
        query = {"boolean": {"must": [query], "must_not": [], "should": []}}
    return {"k": 5, "vector": {}, "full_text_query": {"structured_query": {"query": query}}}


@pytest.mark.parametrize("depth", [40, 100, 200, 250])
async def test_deep_queries_are_refused(gateway: Gateway, depth: int) -> None:
    response = await send_request(gateway, "POST", f"{TABLE}/query", nested(depth))
    assert (response.status, response.code) == (400, 13)


@pytest.mark.parametrize(
    "settings",
    [
        *({"ef_construction": 2**31 - 1}, {"m": 2**31 - 1}, {"num_partitions": 2**31 - 1}),
        *({"max_iterations": 2**31 - 1}, {"sample_rate": 2**31 - 1}),
    ],
)
async def test_settings_of_indexes_are_bounded(gateway: Gateway, settings: dict[str, int]) -> None:
    body = {"column": "vector", "index_type": "IVF_HNSW_SQ", **settings}
    assert is_refused(await send_request(gateway, "POST", f"{TABLE}/create_index", body), "must be at most")


async def test_tokenizers_and_json_are_bounded(gateway: Gateway) -> None:
    body: dict[str, Any] = {"column": "name", "index_type": "FTS", "base_tokenizer": "jieba/../../../etc"}
    assert is_refused(await send_request(gateway, "POST", f"{TABLE}/create_scalar_index", body), "base_tokenizer")
    body = {"k": 1, "vector": {"multi_vector": [[0.5]] * 60_000}}
    assert is_refused(await send_request(gateway, "POST", f"{TABLE}/query", body), "over 20000 lists and objects")
    response = await send_request(gateway, "POST", f"{TABLE}/query", {"k": 1, "vector": {}, "filter": "x" * (5 << 20)})
    assert response.status == 413


async def test_integers_may_be_written_as_numbers(gateway: Gateway) -> None:
    body: dict[str, Any] = {"k": 2.0, "offset": 1e0, "version": 1.0, "vector": {}}
    response = await send_request(gateway, "POST", f"{TABLE}/query", body)
    assert pa.ipc.open_file(response.body).read_all()["id"].to_pylist() == [1, 2]
    body = {"query": {"k": 2.0, "vector": {"single_vector": [1.0, 2.0, 3, 4.0]}, "nprobes": 1.0}}
    assert (await send_request(gateway, "POST", f"{TABLE}/explain_plan", body)).status == 200
    for wrong in (2.5, "2", True):
        response = await send_request(gateway, "POST", f"{TABLE}/query", {"k": wrong, "vector": {}})
        assert is_refused(response, "k: ")


class Stuck:
    """A namespace whose threads do not return until they are released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)

    async def count_table_rows(self, request: CountTableRowsRequest) -> CountTableRowsResponse:
        return CountTableRowsResponse(count=await threads.in_thread(Table(TableId(["t"]), "memory://t"), self._wait))

    def _wait(self) -> int:
        self.begun.release()
        self.go.wait()
        return 1


async def test_health_reports_when_no_thread_is_free() -> None:
    stuck = Stuck()
    try:
        async with serving(stuck) as gateway:
            calls = [send_request(gateway, "POST", f"{TABLE}/count_rows") for _ in range(threads.THREADS)]
            left = [asyncio.create_task(call) for call in calls]
            for _ in left:
                await asyncio.to_thread(stuck.begun.acquire)
            response = await send_request(gateway, "GET", "/health", token=False)
            assert response.status == 503 and response.headers["retry-after"] == "10"
            assert response.json == {"status": "busy", "threads": 16, "running": 16, "given_up": 0}
            # Clients that disconnect do not release resources for others.
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            while (response := await send_request(gateway, "GET", "/health")).json["given_up"] < threads.THREADS:
                assert response.status == 503
            response = await send_request(gateway, "POST", f"{TABLE}/count_rows")
            assert (response.status, response.code) == (503, 17)
            assert "16 abandoned operations on data" in response.json["error"]
            stuck.go.set()
            while (await send_request(gateway, "GET", "/health")).status != 200:
                pass
            assert (await send_request(gateway, "POST", f"{TABLE}/count_rows")).json == 1
    finally:
        stuck.go.set()

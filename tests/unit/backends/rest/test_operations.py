"""Operations on rows: on the server, or with `data_operations=auto` in this process if the server lacks them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.namespace import RestAdapter

from lance_ns_async import AsyncNamespace, Call
from lance_ns_async.operations import rows as row_operations
from tests.documentation.pages import Page
from tests.fakes.rest import FakeRest, RestDialect
from tests.fakes.server import Answer, Received
from tests.support import rest_wire
from tests.support.errors import catch
from tests.support.gateway import served
from tests.support.lake import stream

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
T = ["sales", "t"]


@contextmanager
def gateway_to(root: Path) -> Iterator[dict[str, str]]:
    with served("dir", {"root": str(root)}) as gateway:
        yield dict(gateway.properties)


@contextmanager
def pylance_at(root: Path) -> Iterator[dict[str, str]]:
    with RestAdapter("dir", {"root": str(root)}, port=0) as server:
        yield {"uri": f"http://127.0.0.1:{server.port}"}


@pytest.fixture(params=[gateway_to, pylance_at])
def properties(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    with request.param(tmp_path) as result:
        yield result


@asynccontextmanager
async def connect(properties: dict[str, str]) -> AsyncIterator[tuple[AsyncNamespace, list[Call]]]:
    calls: list[Call] = []
    async with AsyncNamespace.connect("rest", {**properties, "data_operations": "remote"}) as ns:
        with ns.observe(calls.append):
            yield ns, calls


def rows(file: object) -> list[Any]:
    assert isinstance(file, bytes)
    with pa.ipc.open_file(file) as reader:
        return sorted(reader.read_all()["id"].to_pylist())


async def test_rows_are_written_and_read_by_the_server(properties: dict[str, str]) -> None:
    async with connect(properties) as (ns, calls):
        await ns.create_namespace({"id": ["sales"]})
        calls.clear()
        table = await ns.create_table({"id": T}, stream(ROWS))
        await ns.insert_into_table({"id": T}, stream(ROWS.slice(0, 1)))
        merge = {"id": T, "on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
        await ns.merge_insert_into_table(merge, stream(pa.table({"id": [3, 4], "name": ["x", "y"]})))
        assert (await ns.count_table_rows({"id": T})).count == 5
        await ns.update_table({"id": T, "updates": [["name", "'z'"]], "predicate": "id = 4"})
        await ns.delete_from_table({"id": T, "predicate": "id = 1"})
        assert (await ns.count_table_rows({"id": T, "predicate": "name = 'z'"})).count == 1
        response = await ns.query_table({"id": T, "k": 10, "vector": {}, "filter": "id > 2", "columns": None})
        assert rows(response.data) == [3, 4]
        await ns.drop_table({"id": T})
        await catch(err.TableNotFoundError, ns.count_table_rows({"id": T}))
    assert table.location is not None
    assert [call.operation for call in calls] == [
        *("create_table", "insert_into_table", "merge_insert_into_table", "count_table_rows", "update_table"),
        *("delete_from_table", "count_table_rows", "query_table", "describe_table", "drop_table", "count_table_rows"),
    ]


async def test_more_rows_than_a_server_accepts_are_an_invalid_input(tmp_path: Path) -> None:
    with pylance_at(tmp_path) as properties:
        async with connect(properties) as (ns, _):
            with pytest.raises(err.InvalidInputError, match="length limit exceeded"):
                await ns.create_table({"id": T}, stream(pa.table({"id": range(500_000)})))


async def test_indexes_tags_and_versions_are_those_of_the_server(properties: dict[str, str]) -> None:
    async with connect(properties) as (ns, calls):
        await ns.create_namespace({"id": ["sales"]})
        await ns.create_table({"id": T}, stream(ROWS))
        calls.clear()
        await ns.create_table_scalar_index({"id": T, "column": "id", "index_type": "BTREE", "name": "by_id"})
        assert [it.index_name for it in (await ns.list_table_indices({"id": T})).indexes] == ["by_id"]
        assert (await ns.describe_table_index_stats({"id": T, "index_name": "by_id"})).num_indexed_rows == 3
        await ns.drop_table_index({"id": T, "index_name": "by_id"})
        await ns.create_table_tag({"id": T, "tag": "first", "version": 1})
        assert (await ns.get_table_tag_version({"id": T, "tag": "first"})).version == 1
        assert list((await ns.list_table_tags({"id": T})).tags) == ["first"]
        await catch(err.TableTagNotFoundError, ns.delete_table_tag({"id": T, "tag": "none"}))
        assert len((await ns.list_table_versions({"id": T, "descending": True, "limit": 1})).versions) == 1
        assert (await ns.get_table_stats({"id": T})).num_rows == 3
        details = await ns.describe_table({"id": T, "load_detailed_metadata": True})
        assert details.var_schema is not None and [it.name for it in details.var_schema.fields] == ["id", "name"]
        assert "id" in await ns.explain_table_query_plan({"id": T, "query": {"k": 1, "vector": {}, "filter": "id > 2"}})
        await ns.alter_table_add_columns({"id": T, "new_columns": [{"name": "twice", "expression": "id * 2"}]})
        await ns.update_table_schema_metadata({"id": T, "metadata": {"k": "v"}})
        assert (await ns.list_tables({"id": ["sales"], "include_declared": False})).tables == ["t"]
    assert not {"declare_table", "register_table"} & {call.operation for call in calls}
    assert [call.operation for call in calls].count("describe_table") == 1


async def test_rows_stay_with_this_process_by_default(tmp_path: Path) -> None:
    with gateway_to(tmp_path) as properties:
        async with AsyncNamespace.connect("rest", properties) as ns:
            await ns.create_namespace({"id": ["sales"]})
            calls: list[Call] = []
            with ns.observe(calls.append):
                await ns.create_table({"id": T}, stream(ROWS))
                assert (await ns.count_table_rows({"id": T})).count == 3
    assert {call.operation for call in calls} == {"declare_table", "describe_table"}


@pytest.mark.parametrize("mode", ["local", "remote"])
async def test_what_only_a_server_can_do_is_asked_of_it(server: FakeRest, mode: str) -> None:
    server.add_table("sales", "t")
    server.reply('{"job_id": "7"}', match="backfill_column")
    async with AsyncNamespace.connect("rest", {"uri": server.url, "data_operations": mode}) as ns:
        job = await ns.alter_table_backfill_columns({"id": T, "column": "c"})
        with pytest.raises(err.UnsupportedOperationError, match=r"^Not supported: sales\$t\$1 \(describe_transaction"):
            await ns.describe_transaction({"id": [*T, "1"]})
        with pytest.raises(err.InvalidInputError, match="AlterTableBackfillColumnsRequest"):
            await ns.alter_table_backfill_columns({"id": T})
    assert job.job_id == "7"
    assert server.operations() == ["table/backfill_column", "transaction/describe"]


async def test_scan_reads_parts_of_one_version(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_operations, "_PART_BYTES", 4000)
    table = pa.table({"id": range(40), "name": ["x" * 100] * 40})
    async with connect(properties) as (ns, calls):
        await ns.create_namespace({"id": ["sales"]})
        await ns.create_table({"id": T}, stream(table))
        calls.clear()
        scanned: list[pa.RecordBatch] = []
        async for batch in ns.scan(T):
            if not scanned:
                await ns.delete_from_table({"id": T, "predicate": "id > 5"})
            scanned.append(batch)
        assert pa.Table.from_batches(scanned) == table
        assert 3 < [call.operation for call in calls].count("query_table") < 15
        assert [it async for batch in ns.scan(T, filter="id % 2 = 0") for it in batch["id"].to_pylist()] == [0, 2, 4]
        await catch(err.TableNotFoundError, anext(ns.scan(["sales", "none"])))


async def test_a_scan_asks_for_fewer_rows_if_a_response_is_too_long(properties: dict[str, str]) -> None:
    table = pa.table({"id": range(208), "name": ["x"] * 8 + ["x" * 1000] * 200})
    async with connect({**properties, "max_response_bytes": "65536"}) as (ns, calls):
        await ns.create_namespace({"id": ["sales"]})
        await ns.create_table({"id": T}, stream(table))
        calls.clear()
        assert pa.Table.from_batches([batch async for batch in ns.scan(T)]) == table
        assert "unreadable" in {call.outcome for call in calls}
        # pylance's server returns another class.
        with pytest.raises((err.InvalidInputError, err.InternalError), match="Error parsing statement"):
            await anext(ns.scan(T, filter="id >"))


async def test_rows_are_the_body_and_the_other_fields_the_query(server: FakeRest) -> None:
    server.reply('{"location": "s3://lake/t", "version": 1}', match="create")
    async with AsyncNamespace.connect("rest", {"uri": server.url, "data_operations": "remote"}) as ns:
        request = {"id": T, "mode": "Overwrite", "properties": {"a": "b c"}, "storage_options": {"k": "hush"}}
        response = await ns.create_table(request, stream(ROWS))
    (wire_request,) = server.requests
    assert response.version == 1 and wire_request.body == stream(ROWS)
    assert wire_request.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert wire_request.path == (
        "/v1/table/sales%24t/create?delimiter=%24&mode=Overwrite&properties=%7B%22a%22%3A%22b+c%22%7D"
        "&storage_options=%7B%22k%22%3A%22hush%22%7D"
    )


def batches(count: int, held: list[int]) -> pa.RecordBatchReader:
    """Returns a reader of batches of 1 MiB; for each, it records the bytes that Arrow holds."""
    schema = pa.schema({"id": pa.int64(), "data": pa.binary()})

    def generate() -> Iterator[pa.RecordBatch]:
        for number in range(count):
            held.append(pa.total_allocated_bytes())
            yield pa.record_batch({"id": [number], "data": [b"x" * 2**20]}, schema)

    return pa.RecordBatchReader.from_batches(schema, generate())


async def test_rows_of_a_reader_are_sent_while_they_are_read(tmp_path: Path) -> None:
    def fail() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise ValueError("the source is gone")

    with gateway_to(tmp_path) as properties:
        async with connect(properties) as (ns, _):
            await ns.create_namespace({"id": ["sales"]})
            await ns.create_table({"id": T}, batches(3, []))
            held: list[int] = []
            await ns.insert_into_table({"id": T}, batches(64, held))
            assert (await ns.count_table_rows({"id": T})).count == 67
            await ns.create_table({"id": ["sales", "u"]}, stream(ROWS))
            with pytest.raises(err.InvalidInputError, match="the source is gone"):
                failing = pa.RecordBatchReader.from_batches(ROWS.schema, fail())
                await ns.insert_into_table({"id": ["sales", "u"]}, failing)
            assert (await ns.count_table_rows({"id": ["sales", "u"]})).count == 3
    # The server reads the rows only after the last one has arrived.
    assert max(held) - held[0] < 16 * 2**20


async def test_streamed_rows_are_sent_once(server: FakeRest) -> None:
    held: list[int] = []
    server.add_table("sales", "t")
    server.fail(429, match="insert")
    async with connect({"uri": server.url}) as (ns, calls):
        await catch(err.ThrottlingError, ns.insert_into_table({"id": T}, batches(2, held)))
    assert [call.operation for call in calls] == ["insert_into_table"]
    assert 1 <= len(held) <= 2


def test_the_page_shows_which_operations_a_server_receives() -> None:
    assert Page(rest_wire.PAGE).text == rest_wire.written(), "run: python -m tests.documentation"


NUMBERS = pa.table({"id": [1, 2, 3]})
ROW = NUMBERS.slice(0, 1)
COUNT, INSERT, DESCRIBE = "table/count_rows", "table/insert", "table/describe"


class RowServer(FakeRest):
    """A server that inserts count_rows into the dataset of its table, and has no other operation on data."""

    def handle(self, request: Received) -> Answer:
        if "/insert?" in request.path:
            with pa.ipc.open_stream(request.body) as reader:
                lance.write_dataset(reader, self.tables["sales", "t"]["location"], mode="append")
            return Answer.of({"transaction_id": None})
        return super().handle(request)


@pytest.fixture
def location(tmp_path: Path) -> str:
    lance.write_dataset(NUMBERS, tmp_path / "t")
    return str(tmp_path / "t")


def connect_auto(server: FakeRest, location: str, **properties: str) -> AsyncNamespace:
    server.add_table(*T, location=location)
    usual = {"uri": server.url, "data_operations": "auto", "backoff_initial": "0"}
    return AsyncNamespace.connect("rest", {**usual, **properties})


def count_rows(location: str) -> int:
    return lance.dataset(location).count_rows()


@pytest.mark.parametrize("body", ["", '{"error": "not here", "code": 0}'])
@pytest.mark.parametrize("status", [404, 405, 406, 501])
async def test_an_operation_that_the_server_lacks_is_asked_for_once(location: str, status: int, body: str) -> None:
    with RowServer() as server:
        server.fail(status, match="insert", body=body)
        async with connect_auto(server, location) as ns:
            await ns.insert_into_table({"id": T}, stream(ROW))
            await ns.insert_into_table({"id": T}, stream(ROW))
            assert count_rows(location) == 5
        async with connect_auto(server, location) as ns:
            await ns.insert_into_table({"id": T}, stream(ROW))
    assert server.operations() == [INSERT, DESCRIBE, DESCRIBE, INSERT] and count_rows(location) == 6


@pytest.mark.parametrize("dialect", ["spec", "gravitino-1.1"])
async def test_each_operation_is_asked_for_by_itself(location: str, dialect: RestDialect) -> None:
    with FakeRest(dialect=dialect, lacks=[INSERT]) as server:
        async with connect_auto(server, location) as ns:
            for _ in range(2):
                await ns.insert_into_table({"id": T}, stream(ROW))
                assert (await ns.count_table_rows({"id": T})).count == count_rows(location)
    assert count_rows(location) == 5
    assert server.operations() == [INSERT, DESCRIBE, COUNT, DESCRIBE, DESCRIBE, DESCRIBE]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, '{"error": "Not supported: in the middle", "code": 18}', err.UnsupportedOperationError),
        (500, '{"error": "not supported", "code": 0}', err.UnsupportedOperationError),
        (500, "", err.InternalError),
        (503, "", err.ServiceUnavailableError),
        (408, "", err.ServiceUnavailableError),
    ],
)
async def test_change_in_doubt_is_not_repeated(location: str, status: int, body: str, error: type[Exception]) -> None:
    with RowServer() as server:
        server.fail(status, match="insert", when="after", times=2, body=body)
        async with connect_auto(server, location) as ns:
            for _ in range(2):
                await catch(error, ns.insert_into_table({"id": T}, stream(ROW)))
    assert server.operations() == [INSERT, INSERT] and count_rows(location) == 5


async def test_a_reader_is_sent_only_to_a_server_that_has_the_operation(location: str) -> None:
    with RowServer() as server:
        async with connect_auto(server, location) as ns:
            await ns.insert_into_table({"id": T}, ROW.to_reader())
            await ns.insert_into_table({"id": T}, stream(ROW))
            await ns.insert_into_table({"id": T}, ROW.to_reader())
            assert count_rows(location) == 6
            server.fail(404, match="insert", body="")
            await catch(err.UnsupportedOperationError, ns.insert_into_table({"id": T}, ROW.to_reader()))
            await ns.insert_into_table({"id": T}, ROW.to_reader())
    assert server.operations() == [DESCRIBE, INSERT, INSERT, INSERT, DESCRIBE] and count_rows(location) == 7


async def test_what_servers_may_ignore_stays_here(server: FakeRest, location: str) -> None:
    """A server that ignores a version in a describe would return another one."""
    async with connect_auto(server, location) as ns:
        await ns.insert_into_table({"id": T}, ROW.to_reader())
        details = await ns.describe_table({"id": T, "version": 1})
        await ns.table_exists({"id": T, "version": 2})
        tables: Any = await ns.list_tables({"id": ["sales"], "include_declared": False})
        await catch(err.UnsupportedOperationError, ns.alter_table_backfill_columns({"id": T, "column": "c"}))
    assert details.version == 1 and tables.tables == ["t"]
    assert server.operations()[-1] == "table/backfill_column"

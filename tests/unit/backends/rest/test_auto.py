"""Operations on data with `data_operations=auto`: on the server if it has them, or else in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.namespace import RestAdapter
from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableTagNotFoundError,
    UnsupportedOperationError,
)

from lance_ns_async import AsyncNamespace, Call
from tests.fakes.rest import FakeRest, RestDialect
from tests.fakes.server import Answer, Received
from tests.support.gateway import served
from tests.support.lake import stream

ROWS = pa.table({"id": [1, 2, 3]})
ROW = ROWS.slice(0, 1)
T = ["sales", "t"]
COUNT, INSERT, DESCRIBE = "table/count_rows", "table/insert", "table/describe"


class RowServer(FakeRest):
    """A server that inserts rows into the dataset of its table, and has no other operation on data."""

    def handle(self, request: Received) -> Answer:
        if "/insert?" in request.path:
            with pa.ipc.open_stream(request.body) as reader:
                lance.write_dataset(reader, self.tables["sales", "t"]["location"], mode="append")
            return Answer.of({"transaction_id": None})
        return super().handle(request)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """Provides the location of a table with three rows."""
    lance.write_dataset(ROWS, tmp_path / "t")
    return str(tmp_path / "t")


def connect(server: FakeRest, location: str, **properties: str) -> AsyncNamespace:
    server.add_table(*T, location=location)
    usual = {"uri": server.url, "data_operations": "auto", "backoff_initial": "0"}
    return AsyncNamespace.connect("rest", {**usual, **properties})


def reader() -> pa.RecordBatchReader:
    return ROW.to_reader()


def rows(location: str) -> int:
    return lance.dataset(location).count_rows()


@pytest.fixture(params=["gateway", "pylance"])
def properties(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Provides the properties of each server, in front of a directory."""
    if request.param == "gateway":
        with served("dir", {"root": str(tmp_path)}) as gateway:
            yield {"uri": gateway.url, **{f"header.{name}": value for name, value in gateway.headers.items()}}
    else:
        with RestAdapter("dir", {"root": str(tmp_path)}, port=0) as server:
            yield {"uri": f"http://127.0.0.1:{server.port}"}


async def test_a_server_performs_the_operations_that_it_has(properties: dict[str, str]) -> None:
    calls: list[Call] = []
    async with AsyncNamespace.connect("rest", {**properties, "data_operations": "auto"}) as ns:
        await ns.create_namespace({"id": ["sales"]})
        with ns.observe(calls.append):
            await ns.create_table({"id": T}, stream(ROWS))
            await ns.insert_into_table({"id": T}, stream(ROW))
            await ns.create_table_tag({"id": T, "tag": "first", "version": 1})
            with pytest.raises(TableTagNotFoundError):
                await ns.delete_table_tag({"id": T, "tag": "none"})
            assert (await ns.count_table_rows({"id": T})).count == 4
    assert [call.operation for call in calls] == [
        *("create_table", "insert_into_table", "create_table_tag", "delete_table_tag", "count_table_rows")
    ]


@pytest.mark.parametrize("body", ["", '{"error": "not here", "code": 0}'])
@pytest.mark.parametrize("status", [404, 405, 406, 501])
async def test_an_operation_that_the_server_lacks_is_asked_for_once(location: str, status: int, body: str) -> None:
    with RowServer() as server:
        server.fail(status, match="insert", body=body)
        async with connect(server, location) as ns:
            await ns.insert_into_table({"id": T}, stream(ROW))
            await ns.insert_into_table({"id": T}, stream(ROW))
            assert rows(location) == 5
        async with connect(server, location) as ns:
            await ns.insert_into_table({"id": T}, stream(ROW))
    assert server.operations() == [INSERT, DESCRIBE, DESCRIBE, INSERT] and rows(location) == 6


@pytest.mark.parametrize("dialect", ["spec", "gravitino-1.1"])
async def test_each_operation_is_asked_for_by_itself(location: str, dialect: RestDialect) -> None:
    with FakeRest(dialect=dialect, lacks=[INSERT]) as server:
        async with connect(server, location) as ns:
            for _ in range(2):
                await ns.insert_into_table({"id": T}, stream(ROW))
                assert (await ns.count_table_rows({"id": T})).count == rows(location)
    assert rows(location) == 5
    assert server.operations() == [INSERT, DESCRIBE, COUNT, DESCRIBE, DESCRIBE, DESCRIBE]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, '{"error": "Not supported: in the middle", "code": 18}', UnsupportedOperationError),
        (500, '{"error": "not supported", "code": 0}', UnsupportedOperationError),
        (500, "", InternalError),
        (503, "", ServiceUnavailableError),
        (408, "", ServiceUnavailableError),
    ],
)
async def test_a_change_that_may_have_happened_is_not_repeated(
    location: str, status: int, body: str, error: type[LanceNamespaceError]
) -> None:
    with RowServer() as server:
        server.fail(status, match="insert", when="after", times=2, body=body)
        async with connect(server, location) as ns:
            for _ in range(2):
                with pytest.raises(error):
                    await ns.insert_into_table({"id": T}, stream(ROW))
    assert server.operations() == [INSERT, INSERT] and rows(location) == 5


async def test_a_change_whose_response_is_lost_is_not_repeated(location: str) -> None:
    with RowServer() as server:
        server.cut(match="insert", when="after")
        async with connect(server, location) as ns:
            with pytest.raises(ServiceUnavailableError):
                await ns.insert_into_table({"id": T}, stream(ROW))
    assert server.operations() == [INSERT] and rows(location) == 4


async def test_a_reader_is_sent_only_to_a_server_that_has_the_operation(location: str) -> None:
    with RowServer() as server:
        async with connect(server, location) as ns:
            await ns.insert_into_table({"id": T}, reader())
            await ns.insert_into_table({"id": T}, stream(ROW))
            await ns.insert_into_table({"id": T}, reader())
            assert rows(location) == 6
            server.fail(404, match="insert", body="")
            with pytest.raises(UnsupportedOperationError):
                await ns.insert_into_table({"id": T}, reader())
            await ns.insert_into_table({"id": T}, reader())
    assert server.operations() == [DESCRIBE, INSERT, INSERT, INSERT, DESCRIBE] and rows(location) == 7


async def test_what_servers_may_ignore_stays_here(location: str) -> None:
    """A server that ignores a version in a describe would return another one."""
    with FakeRest() as server:
        async with connect(server, location) as ns:
            await ns.insert_into_table({"id": T}, reader())
            details = await ns.describe_table({"id": T, "version": 1})
            await ns.table_exists({"id": T, "version": 2})
            tables: Any = await ns.list_tables({"id": ["sales"], "include_declared": False})
            with pytest.raises(UnsupportedOperationError):
                await ns.alter_table_backfill_columns({"id": T, "column": "c"})
    assert details.version == 1 and tables.tables == ["t"]
    assert server.operations()[-1] == "table/backfill_column"

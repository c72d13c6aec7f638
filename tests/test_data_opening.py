"""Tables as Python has them: opened, written, many at once; and who is asked for credentials and versions."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateNamespaceRequest,
    CreateTableBranchRequest,
    CreateTableRequest,
    CreateTableTagRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    InsertIntoTableRequest,
    ListTableTagsRequest,
    RestoreTableRequest,
    UpdateTableRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
    UnsupportedOperationError,
)

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.model import Table
from lance_ns_async.policy import Caller, Policy
from lance_ns_async.tables import opening
from tests.fakes.faults import Answer, Received
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.memory import MemoryBackend
from tests.fakes.polaris import FakePolaris
from tests.fakes.s3 import FakeS3
from tests.lake import ID, ROWS, Lake, lake, stream
from tests.polaris import QUICK, connected

VENDING = "polaris-generic-table-access-delegation"
LATER = 4_000_000_000_000


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        yield opened


async def test_a_table_is_written_and_opened(here: Lake) -> None:
    made = await here.ns.write(ID, ROWS)
    assert (made.version, made.to_table()) == (1, ROWS)
    assert (await here.ns.write(ID, ROWS, mode="append")).version == 2
    assert (await here.ns.write(ID, pa.table({"x": [1]}), mode="overwrite")).version == 3
    assert (await here.ns.open(ID)).schema.names == ["x"]
    assert (await here.ns.open(ID, version=2)).count_rows() == 6
    await here.ns.create_table_tag(CreateTableTagRequest(id=ID, tag="first", version=1))
    assert (await here.ns.open(ID, version="first")).to_table() == ROWS
    assert (await here.ns.write(["n", "new"], ROWS, mode="overwrite")).version == 1


async def test_a_table_that_cannot_be_opened_or_written_is_told(here: Lake) -> None:
    await here.ns.declare_table(DeclareTableRequest(id=["n", "declared"]))
    await here.create()
    for id in (["n", "none"], ["n", "declared"]):
        with pytest.raises(TableNotFoundError, match=rf"^Table not found: n\${id[1]} "):
            await here.ns.open(id)
    with pytest.raises(TableNotFoundError):
        await here.ns.write(["n", "none"], ROWS, mode="append")
    with pytest.raises(TableVersionNotFoundError):
        await here.ns.open(ID, version=9)
    with pytest.raises(TableTagNotFoundError):
        await here.ns.open(ID, version="no")
    with pytest.raises(TableAlreadyExistsError):
        await here.ns.write(ID, ROWS)
    mode: Any = "insert"
    with pytest.raises(InvalidInputError, match=r"^mode 'insert': unknown; it is one of create, append, overwrite"):
        await here.ns.write(ID, ROWS, mode=mode)
    assert (await here.ns.write(["n", "declared"], ROWS, mode="append")).version == 1


class Frame:
    """What a data frame of any library is to Arrow."""

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return ROWS.__arrow_c_stream__(schema)


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        ROWS.to_batches()[0],
        pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()),
        pa.dataset.dataset(ROWS),
        Frame(),
    ],
    ids=["table", "batch", "reader", "dataset", "frame"],
)
async def test_data_may_be_of_any_kind_that_arrow_knows(here: Lake, data: Any) -> None:
    assert (await here.ns.write(ID, data)).to_table() == ROWS


async def test_a_dataset_may_be_copied(here: Lake) -> None:
    await here.create()
    assert (await here.ns.write(["n", "copy"], await here.ns.open(ID))).to_table() == ROWS


@pytest.mark.parametrize("data", [None, [{"id": 1}], "rows", b"rows"])
async def test_data_that_arrow_does_not_know_is_refused_before_anything_is_done(here: Lake, data: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"^data: {type(data).__name__} is no Arrow data; give"):
        await here.ns.write(ID, data)
    assert not await here.ns.exists(ID)


async def test_many_are_opened_and_one_that_fails_spoils_no_other(here: Lake) -> None:
    names = [f"t{n}" for n in range(20)]
    for name in names:
        await here.create(["n", name], pa.table({"name": [name]}))
    await here.ns.declare_table(DeclareTableRequest(id=["n", "declared"]))
    settled: list[int] = []
    ids = [["n", name] for name in [*names, "declared", "none", "t0"]]
    found = await here.ns.open_many(ids, max_in_flight=4, progress=settled.append)
    assert [id.name for id in found.datasets] == names and sum(settled) == len(found) == 22
    assert all(it.to_table().to_pylist() == [{"name": id.name}] for id, it in found.datasets.items())
    assert {id.name: type(e) for id, e in found.errors.items()} == {
        "declared": TableNotFoundError,
        "none": TableNotFoundError,
    }
    with pytest.raises(TableNotFoundError, match="and 1 more errors among 22 tables"):
        found.raise_for_errors()
    good = await here.ns.open_many([["n", "t1"]])
    assert good.raise_for_errors() is good
    with pytest.raises(TableNotFoundError, match="none"):
        (await here.ns.open_many([["n", "none"]])).raise_for_errors()
    with pytest.raises(InvalidInputError, match="max_in_flight 0"):
        await here.ns.open_many([ID], max_in_flight=0)
    assert len(await here.ns.open_many([])) == 0


async def test_a_table_made_anew_at_the_same_place_is_not_taken_for_the_old_one(here: Lake) -> None:
    for n in range(3):
        location = await here.location() if n else None
        rows = pa.table({f"c{n}": [n]})
        if location:
            lance.LanceDataset.drop(location)
            lance.write_dataset(rows, location)
        else:
            await here.create(rows=rows)
        assert (await here.ns.open(ID)).to_table() == rows


async def test_caches_are_shared_and_let_go(here: Lake) -> None:
    await here.create()
    await here.create(["n", "other"])
    one, other = await here.ns.open(ID), await here.ns.open(["n", "other"])
    caches: Any = one.session()
    assert caches.is_same_as(other.session())
    await here.ns.aclose()
    assert one.count_rows() == 3
    with pytest.raises(InvalidInputError, match="it is closed"):
        await here.ns.open(ID)


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as running:
        yield running


async def test_waiting_for_a_storage_ends_with_the_operations_time(s3: FakeS3) -> None:
    backend, id = MemoryBackend(), TableId(["t"])
    backend.tables[id] = Table(id, "s3://lake/t", storage_options=s3.options)
    ns = AsyncNamespace(backend, Caller(Policy(operation_timeout=0.2), {}), "memory")
    with s3.hold():
        with pytest.raises(ServiceUnavailableError, match=r"^Service unavailable: t \(.*operation's time\)$"):
            await ns.count_table_rows(CountTableRowsRequest(id=["t"]))
        with pytest.raises(ServiceUnavailableError, match=r"whether it took effect is unknown\)$"):
            await ns.update_table(UpdateTableRequest(id=["t"], updates=[["a", "1"]]))
        found = await ns.open_many([["t"]], timeout=0.2)
        assert isinstance(found.errors[id], ServiceUnavailableError)


def vended(s3: FakeS3, expires_at_millis: int | None = None) -> list[dict[str, Any]]:
    """Credentials for the bucket, as Polaris gives them out."""
    config = {
        "s3.access-key-id": "key",
        "s3.secret-access-key": "hush",
        "s3.endpoint": s3.url,
        "s3.path-style-access": "true",
        "client.region": "us-east-1",
    }
    if expires_at_millis is not None:
        config["s3.session-token-expires-at-ms"] = str(expires_at_millis)
    return [{"prefix": "s3://lake", "config": config}]


async def test_credentials_that_the_catalog_gives_out_are_used(s3: FakeS3) -> None:
    with FakePolaris(credential=None, vends=vended(s3)) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://lake/t")
        async with connected(server) as ns:
            id = ["cat", "a", "t"]
            await ns.insert_into_table(InsertIntoTableRequest(id=id), stream(ROWS))
            assert (await ns.count_table_rows(CountTableRowsRequest(id=id))).count == 3
            assert (await ns.open(id)).to_table() == ROWS
        assert [VENDING in request.headers for request in server.requests] == [True, True, True]


async def test_a_catalog_that_refuses_to_give_out_any_is_asked_without(s3: FakeS3) -> None:
    stored = {f"storage.{key}": value for key, value in s3.options.items()}
    with FakePolaris(credential=None, refuses_delegation=True) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://lake/t")
        async with connected(server, **stored) as ns:
            await ns.insert_into_table(InsertIntoTableRequest(id=["cat", "a", "t"]), stream(ROWS))
        assert [VENDING in request.headers for request in server.requests] == [True, False]


async def test_lance_asks_for_new_credentials_itself(s3: FakeS3) -> None:
    soon = int(time.time() * 1000) + 1000
    with FakePolaris(credential=None, vends=vended(s3, soon)) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://lake/t")
        async with connected(server) as ns:
            written = await ns.write(["cat", "a", "t"], ROWS, mode="append")
            opened = await ns.open(["cat", "a", "t"])
        server.requests.clear()
        # In the very thread of the loop that the namespace lived on.
        assert opened.to_table() == written.to_table() == ROWS
        assert server.requests and all(VENDING in request.headers for request in server.requests)


async def test_lance_asks_for_none_while_those_it_has_last(s3: FakeS3) -> None:
    with FakePolaris(credential=None, vends=vended(s3, LATER)) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://lake/t")
        async with connected(server) as ns:
            await ns.write(["cat", "a", "t"], ROWS, mode="append")
            dataset = await ns.open(["cat", "a", "t"])
            assert dataset.to_table() == ROWS
            assert len(server.requests) == 2


async def test_a_storage_that_denies_is_told_from_one_that_is_gone(s3: FakeS3) -> None:
    class Denying(FakeS3):
        def handle(self, request: Received) -> Answer:
            if request.method == "PUT":
                return super().handle(request)
            return Answer.of(b"<Error><Code>AccessDenied</Code></Error>", 403)

    with Denying() as s3:
        once = {"client_max_retries": "0", "client_retry_timeout": "1"}
        stored = {f"storage.{key}": value for key, value in {**s3.options, **once}.items()}
        with FakeIceberg() as server:
            server.add_namespace(("a",))
            properties = {"endpoint": server.endpoint, "root": "s3://lake", **stored, **QUICK}
            async with AsyncNamespace.connect("iceberg", properties) as ns:
                with pytest.raises(PermissionDeniedError, match=r"^Permission denied: a\$t .*403"):
                    await ns.create_table(CreateTableRequest(id=["a", "t"]), stream(ROWS))
                assert not await ns.exists(["a", "t"])


async def test_options_of_a_request_go_before_those_of_the_catalog(s3: FakeS3) -> None:
    wrong = {**s3.options, "aws_endpoint": "http://127.0.0.1:1"}
    stored = {f"storage.{key}": value for key, value in wrong.items()}
    with FakeIceberg() as server:
        server.add_namespace(("a",))
        properties = {"endpoint": server.endpoint, "root": "s3://lake", **stored, **QUICK}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            for mode in ("create", "overwrite"):
                request = CreateTableRequest(id=["a", "t"], mode=mode, storage_options=s3.options)
                made = await ns.create_table(request, stream(ROWS))
                assert made.storage_options == wrong
    assert lance.dataset("s3://lake/a/t", storage_options=s3.options).version == 2


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """A catalog that commits the versions of its tables."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl", **QUICK}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.create_namespace(CreateNamespaceRequest(id=["n"]))
            yield ns


async def test_a_catalog_that_commits_versions_commits_ours(managed: AsyncNamespace) -> None:
    async def version() -> int | None:
        return (await managed.describe_table(DescribeTableRequest(id=ID))).version

    await managed.create_table(CreateTableRequest(id=ID), stream(ROWS))
    await managed.insert_into_table(InsertIntoTableRequest(id=ID), stream(ROWS))
    assert await version() == 2
    await managed.create_table(CreateTableRequest(id=ID, mode="overwrite"), stream(ROWS))
    await managed.update_table(UpdateTableRequest(id=ID, updates=[["id", "id + 1"]]))
    assert await version() == 4
    await managed.restore_table(RestoreTableRequest(id=ID, version=2))
    assert (await managed.count_table_rows(CountTableRowsRequest(id=ID))).count == 6
    assert (await managed.count_table_rows(CountTableRowsRequest(id=ID, version=3))).count == 3
    await managed.create_table_tag(CreateTableTagRequest(id=ID, tag="kept", version=1))
    assert list((await managed.list_table_tags(ListTableTagsRequest(id=ID))).tags) == ["kept"]
    assert (await managed.write(ID, ROWS, mode="append")).version == await version() == 6
    with pytest.raises(TableVersionNotFoundError, match=r"^Table version not found: n\$t \(version 9"):
        await managed.open(ID, version=9)


async def test_such_a_catalog_has_no_branches(managed: AsyncNamespace) -> None:
    await managed.create_table(CreateTableRequest(id=ID), stream(ROWS))
    with pytest.raises(UnsupportedOperationError, match=r"^Not supported: branches of n\$t"):
        await managed.create_table_branch(CreateTableBranchRequest(id=ID, name="dev"))


async def test_such_a_catalogs_tables_are_not_registered_anew(managed: AsyncNamespace) -> None:
    await managed.create_table(CreateTableRequest(id=ID), stream(ROWS))
    with pytest.raises(InvalidInputError, match=r"^table n\$t: its catalog commits its versions, and would forget"):
        request = CreateTableRequest(id=ID, mode="overwrite", properties={"k": "v"})
        await managed.create_table(request, stream(ROWS))
    assert (await managed.describe_table(DescribeTableRequest(id=ID))).version == 1


async def test_many_writers_of_such_a_table_are_all_served(managed: AsyncNamespace) -> None:
    await managed.create_table(CreateTableRequest(id=ID), stream(ROWS))
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(managed.insert_into_table, InsertIntoTableRequest(id=ID), stream(ROWS))
    assert (await managed.count_table_rows(CountTableRowsRequest(id=ID))).count == 15


async def test_a_dataset_goes_on_when_its_namespace_is_closed(managed: AsyncNamespace) -> None:
    await managed.create_table(CreateTableRequest(id=ID), stream(ROWS))
    dataset = await managed.open(ID)
    await managed.aclose()
    dataset.insert(ROWS)
    assert dataset.version == 2 and dataset.count_rows() == 6


async def test_only_a_namespace_made_by_connect_can_be_asked_by_lance() -> None:
    backend, id = MemoryBackend(), TableId(["t"])
    backend.tables[id] = Table(id, "/nowhere", managed_versioning=True)
    ns = AsyncNamespace(backend, Caller(Policy(), {}), "memory")
    with pytest.raises(UnsupportedOperationError, match=r"^Not supported: t \(its catalog commits its versions"):
        await ns.open(["t"])


def test_a_sync_namespace_opens_and_writes_alike(tmp_path: Path) -> None:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        assert ns.write(["t"], ROWS).to_table() == ROWS
        assert ns.open(["t"], version=1).count_rows() == 3
        assert list(ns.open_many(iter([["t"], ["none"]])).datasets) == [TableId(["t"])]
        # From threads that have no loop, as Lance's own.
        counts: list[int | None] = []

        def count() -> None:
            counts.append(ns.count_table_rows(CountTableRowsRequest(id=["t"])).count)

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [3] * 8


def test_caches_are_bounded() -> None:
    assert opening.INDEX_CACHE_BYTES + opening.METADATA_CACHE_BYTES < 2**29

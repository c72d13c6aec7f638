"""Storage access of Lance: options, vended credentials, and their renewal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import CountTableRowsRequest, CreateTableRequest, InsertIntoTableRequest, UpdateTableRequest

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.model import Table
from lance_ns_async.storage.options import merge_options
from tests.fakes.clock import run_past
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.memory import MemoryBackend, over
from tests.fakes.polaris import FakePolaris
from tests.fakes.s3 import FakeS3, KeyedS3, RenewingPolaris
from tests.fakes.server import Answer, Received
from tests.support.lake import ROWS, stream
from tests.support.polaris import QUICK, connected

pytestmark = pytest.mark.environment
VENDING = "polaris-generic-table-access-delegation"
LATER = 4_000_000_000_000


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as running:
        yield running


async def test_waiting_for_a_storage_ends_with_the_operations_time(s3: FakeS3) -> None:
    backend, id = MemoryBackend(), TableId(["t"])
    backend.tables[id] = Table(id, "s3://lake/t", storage_options=s3.options)
    ns = over(backend, Caller(Policy(operation_timeout=60), {}))
    message = r"^Service unavailable: t \(.*operation's time\)$"
    with s3.hold() as hold, pytest.raises(err.ServiceUnavailableError, match=message):
        await run_past(ns.count_table_rows(CountTableRowsRequest(id=["t"])), hold.reached(), 60)
    message = r"whether it took effect is unknown\)$"
    with s3.hold() as hold, pytest.raises(err.ServiceUnavailableError, match=message):
        await run_past(ns.update_table(UpdateTableRequest(id=["t"], updates=[["a", "1"]])), hold.reached(), 60)
    with s3.hold() as hold:
        result = await run_past(ns.open_many([["t"]], timeout=60), hold.reached(), 60)
    assert isinstance(result.errors[id], err.ServiceUnavailableError)


def vended(s3: FakeS3, expires_at_millis: int | None = None) -> list[dict[str, Any]]:
    """Returns credentials for the bucket, in the form of Polaris."""
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


async def test_iceberg_gives_out_credentials_and_renews_them_at_their_endpoint(s3: FakeS3) -> None:
    soon = int(time.time() * 1000) + 1000
    with FakeIceberg(vends=vended(s3, soon), renews=vended(s3, soon)) as server:
        server.add_table(("a",), "t", location="s3://lake/t")
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, **QUICK}) as ns:
            written = await ns.write(["a", "t"], ROWS, mode="append")
            opened = await ns.open(["a", "t"])
        server.requests.clear()
        assert opened.to_table() == written.to_table() == ROWS
        endpoints = [request.path.rpartition("/")[2] for request in server.requests if "/tables/" in request.path]
        assert endpoints and set(endpoints) == {"t?snapshots=refs", "credentials"}


async def test_a_catalog_that_denies_credentials_is_called_without(s3: FakeS3) -> None:
    stored = {f"storage.{key}": value for key, value in s3.options.items()}
    with FakePolaris(credential=None, refuses_delegation=True) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://lake/t")
        async with connected(server, **stored) as ns:
            await ns.insert_into_table(InsertIntoTableRequest(id=["cat", "a", "t"]), stream(ROWS))
        assert [VENDING in request.headers for request in server.requests] == [True, False]


async def test_after_a_401_no_other_table_is_opened(s3: FakeS3) -> None:
    with FakePolaris(credential=None, vends=vended(s3)) as server:
        server.add_lance_tables("cat", ("a",), 3)
        server.fail(401, times=None)
        async with connected(server) as ns:
            result = await ns.open_many([["cat", "a", f"t000{n}"] for n in range(3)], max_in_flight=1)
        assert {type(error) for error in result.errors.values()} == {err.UnauthenticatedError}
        assert len(result) == 3 and len(server.requests) == 1


async def test_lance_requests_new_credentials_itself(s3: FakeS3) -> None:
    with FakePolaris(credential=None, vends=vended(s3, int(time.time() * 1000) + 1000)) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://lake/t")
        async with connected(server) as ns:
            written = await ns.write(["cat", "a", "t"], ROWS, mode="append")
            opened = await ns.open(["cat", "a", "t"])
        server.requests.clear()
        # In the thread of the namespace's loop.
        assert opened.to_table() == written.to_table() == ROWS
        assert server.requests and all(VENDING in request.headers for request in server.requests)


async def test_lance_requests_none_while_those_it_has_last(s3: FakeS3) -> None:
    with FakePolaris(credential=None, vends=vended(s3, LATER)) as server:
        server.add_table("cat", ("a",), "t", base_location="s3://lake/t")
        async with connected(server) as ns:
            await ns.write(["cat", "a", "t"], ROWS, mode="append")
            assert (await ns.open(["cat", "a", "t"])).to_table() == ROWS and len(server.requests) == 2


async def test_the_first_version_is_committed_with_new_keys() -> None:
    with KeyedS3() as storage, RenewingPolaris(storage) as server:
        server.lasts = 1
        server.add_namespace("cat", ("a",))
        async with connected(server) as ns:
            reader = slow_reader(storage, server)
            assert (await ns.write(["cat", "a", "t"], reader)).to_table() == ROWS
            await ns.declare_table({"id": ["cat", "a", "u"]})
            reader = slow_reader(storage, server)
            assert (await ns.write(["cat", "a", "u"], reader, mode="append")).to_table() == ROWS


async def test_a_failed_write_is_taken_back_with_new_keys() -> None:
    with KeyedS3() as storage, RenewingPolaris(storage) as server:
        server.lasts = 1
        server.add_namespace("cat", ("a",))
        async with connected(server) as ns:
            with pytest.raises(err.InvalidInputError, match="no more rows"):
                await ns.write(["cat", "a", "t"], slow_reader(storage, server, ValueError("no more rows")))
            assert (await ns.write(["cat", "a", "t"], ROWS)).to_table() == ROWS


def slow_reader(storage: KeyedS3, server: RenewingPolaris, error: Exception | None = None) -> pa.RecordBatchReader:
    """Returns a reader after whose rows the storage refuses all keys that the catalog has vended so far."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        storage.revoked.update(server.issued)
        if error is not None:
            raise error

    return pa.RecordBatchReader.from_batches(ROWS.schema, batches())


async def test_a_storage_that_denies_is_distinguished_from_a_missing_one(s3: FakeS3) -> None:
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
                with pytest.raises(err.PermissionDeniedError, match=r"^Permission denied: a\$t .*403") as caught:
                    await ns.create_table(CreateTableRequest(id=["a", "t"]), stream(ROWS))
                # Another client may have written to it, which cannot be seen here.
                assert any("table a$t stays registered" in note for note in caught.value.__notes__)


async def test_options_of_a_request_go_before_those_of_the_catalog(s3: FakeS3) -> None:
    wrong = {**s3.options, "aws_endpoint": "http://127.0.0.1:1"}
    stored = {f"storage.{key}": value for key, value in wrong.items()}
    with FakeIceberg() as server:
        server.add_namespace(("a",))
        properties = {"endpoint": server.endpoint, "root": "s3://lake", **stored, **QUICK}
        async with AsyncNamespace.connect("iceberg", {**properties, "unique_locations": "false"}) as ns:
            for mode in ("create", "overwrite"):
                request = CreateTableRequest(id=["a", "t"], mode=mode, storage_options=s3.options)
                assert (await ns.create_table(request, stream(ROWS))).storage_options == wrong
    assert lance.dataset("s3://lake/a/t", storage_options=s3.options).version == 2


async def test_a_first_version_whose_answer_was_lost_is_written() -> None:
    class Losing(FakeS3):
        """Performs each request, but answers each upload of a manifest with an error."""

        lost = 0

        def handle(self, request: Received) -> Answer:
            answer = super().handle(request)
            if request.method == "PUT" and request.path.endswith(".manifest"):
                self.lost += 1
                return Answer.of(b"", 500)
            return answer

    with Losing() as s3, FakeIceberg() as server:
        server.add_namespace(("a",))
        stored = {f"storage.{key}": value for key, value in s3.options.items()}
        # Lance repeats the request, but not for long.
        properties = {"endpoint": server.endpoint, "root": "s3://lake", **stored, "storage.client_max_retries": "1"}
        async with AsyncNamespace.connect("iceberg", {**properties, **QUICK}) as ns:
            assert (await ns.create_table(CreateTableRequest(id=["a", "t"]), stream(ROWS))).version == 1 and s3.lost > 1
            assert (await ns.open(["a", "t"])).to_table() == ROWS


AWS = ("access_key_id", "secret_access_key", "session_token", "token", "skip_signature", "role_arn")
GOOGLE = ("service_account", "service_account_key", "application_credentials", "bearer_token", "storage_token")
AZURE = ("account_key", "access_key", "master_key", "sas_key", "sas_token", "token", "client_id", "client_secret")
KEYS = [
    *(f"{prefix}{key}" for prefix in ("", "aws_") for key in AWS),
    *(f"google_{key}" for key in GOOGLE),
    *(f"{prefix}{key}" for prefix in ("", "azure_", "azure_storage_") for key in AZURE),
    "oss_security_token",
    "expires_at_millis",
]
STORAGE = {"region": "eu", "aws_endpoint": "e", "google_base_url": "b", "azure_storage_account_name": "n", "k": "v"}


@pytest.mark.parametrize(
    "vended",
    [
        {"aws_access_key_id": "new", "aws_secret_access_key": "new"},
        *({"Access_Key_Id": "new", "SECRET_ACCESS_KEY": "new"}, {"google_storage_token": "new"}),
        *({"azure_storage_sas_token": "new"}, {"sas_key": "new"}),
    ],
    ids=lambda vended: next(iter(vended)),
)
def test_credentials_replace_others_as_a_whole(vended: Mapping[str, str]) -> None:
    own = dict.fromkeys((*KEYS, *map(str.upper, KEYS)), "old")
    assert merge_options({**own, **STORAGE}, vended) == {**STORAGE, **vended}


@pytest.mark.parametrize(
    ("own", "others", "merged"),
    [
        ({"Region": "r", "k": "v"}, {"aws_region": "n"}, {"k": "v"}),
        ({"aws_region": "r"}, {"REGION": "n"}, {}),
        ({"aws_endpoint_url_s3": "e", "ENDPOINT_URL": "e"}, {"aws_endpoint": "n"}, {}),
        ({"google_bucket_name": "b"}, {"aws_bucket": "n"}, {"google_bucket_name": "b"}),
        ({"account_name": "a", "sas_token": "s"}, {"azure_storage_account_name": "n"}, {"sas_token": "s"}),
        ({"access_key_id": "own"}, {"client_id": "a property", "region": "r"}, {"access_key_id": "own"}),
        *(({"k": "v"}, {}, {"k": "v"}), ({"k": "v"}, None, {"k": "v"}), (None, {"k": "v"}, {})),
    ],
)
def test_other_options_replace_one(
    own: Mapping[str, str] | None, others: Mapping[str, str] | None, merged: Mapping[str, str]
) -> None:
    assert merge_options(own, others) == {**merged, **(others or {})}

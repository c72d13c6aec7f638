"""Errors of a gateway: the status and the body of each code, and its own refusals."""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pytest
from lance_namespace import errors
from lance_namespace_urllib3_client.models.error_response import ErrorResponse

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.errors import Failure, with_failure
from lance_ns_async.gateway import Gateway, serving
from lance_ns_async.gateway.access import hash_of
from tests.fakes.iceberg import FakeIceberg
from tests.support.gateway import Remote, send_request

STATUSES = {
    **dict.fromkeys((13, 20), 400) | {16: 401, 15: 403, 0: 406, 21: 429, 18: 500, 17: 503},
    **dict.fromkeys((1, 4, 6, 8, 10, 11, 12, 22), 404),
    **dict.fromkeys((2, 3, 5, 7, 9, 14, 19, 23), 409),
}


@dataclass
class Failing:
    """A namespace that fails on demand."""

    error: Exception

    async def describe_table(self, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
        raise self.error

    async def drop_table(self, request: spec.DropTableRequest) -> spec.DropTableResponse:
        raise self.error

    async def insert_into_table(
        self, request: spec.InsertIntoTableRequest, request_data: bytes
    ) -> spec.InsertIntoTableResponse:
        return spec.InsertIntoTableResponse(num_inserted_rows=len(request_data))


@pytest.mark.parametrize("code", err.ErrorCode)
async def test_every_code_has_its_status_and_is_the_same_error_again(code: err.ErrorCode) -> None:
    error = errors.from_error_code(code, f"Phrase: a$b 'é' ({code.name})")
    async with serving(Failing(error)) as gateway:
        # A read, and a change.
        for operation in ("describe", "drop"):
            response = await send_request(gateway, "POST", f"/v1/table/a%24b/{operation}")
            assert response.status == STATUSES[code] and response.headers["content-type"] == "application/json"
            assert response.json == {"error": str(error), "code": int(code)}
        client = Remote(gateway)
        with pytest.raises(err.LanceNamespaceError) as raised:
            await client.describe_table(spec.DescribeTableRequest(id=["a", "b"]))
        await client.close()
        assert type(raised.value) is type(error) and str(raised.value) == str(error)


async def test_unexpected_errors_are_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Failing(RuntimeError("secret inside"))) as gateway:
        for operation in ("describe", "drop"):
            caplog.clear()
            response = await send_request(gateway, "POST", f"/v1/table/t/{operation}")
            assert (response.status, response.code) == (500, 18)
            assert b"secret" not in response.body and b"Traceback" not in response.body
            body = ErrorResponse.from_json(response.body.decode())
            assert body is not None and body.instance is not None and body.instance in caplog.text
            assert "secret inside" in caplog.text


@pytest.mark.parametrize(
    ("message", "wait"), [("a name that is no UTF-8: \udc80", None), ("a wait without an end", math.inf)]
)
async def test_an_error_that_cannot_be_sent_does_not_end_the_server(message: str, wait: float | None) -> None:
    failure = Failure(503, message="busy", retry_after=wait)
    async with serving(Failing(with_failure(errors.ServiceUnavailableError(message), failure))) as gateway:
        for operation in ("drop", "describe"):
            response = await send_request(gateway, "POST", f"/v1/table/t/{operation}")
            assert (response.status, response.code) == (500, 18)


async def test_the_requested_pause_of_a_catalog_is_passed_on() -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "max_retries": "0"}
        async with AsyncNamespace.connect("iceberg", properties) as ns, serving(ns) as gateway:
            await ns.list_namespaces(spec.ListNamespacesRequest(id=[]))
            for status, code in ((429, 21), (503, 17)):
                server.fail(status, headers={"Retry-After": "7"})
                response = await send_request(gateway, "POST", "/v1/namespace/n/describe", {})
                assert (response.status, response.code, response.headers["retry-after"]) == (status, code, "7")


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/v1", "/v2/table", "/v1/table/t", "/v1/table/t/nothing", "/v1/table/t/describe/", "//v1/table"),
        *("/v1/table/../../etc/passwd", "/v1/table/t/../../../etc/passwd", "/..%2F..%2Fetc%2Fpasswd", "/health/"),
    ],
)
async def test_what_is_no_operation_is_not_found(target: str) -> None:
    async with serving(Failing(RuntimeError())) as gateway:
        for method in ("GET", "POST"):
            response = await send_request(gateway, method, target, {})
            assert (response.status, response.code) == (404, 0), response


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"])
async def test_another_method_is_not_allowed(method: str) -> None:
    async with serving(Failing(RuntimeError())) as gateway:
        response = await send_request(gateway, method, "/v1/table/t/describe")
        assert (response.status, response.headers["allow"]) == (405, "POST")


async def test_a_body_that_is_too_long_is_refused() -> None:
    async with serving(Failing(RuntimeError()), max_bytes=1000, idle=0.5) as gateway:
        longest = await send_request(gateway, "POST", "/v1/table/t/insert", b"x" * 1000)
        assert longest.json == {"num_inserted_rows": 1000}
        for body, headers in [
            (b"x" * 1001, {}),
            (b"", {"Content-Length": str(1 << 40)}),
            (b"", {"Content-Length": str(1 << 40), "Expect": "100-continue"}),
            # A small body may become a thousand times as long when it is decompressed.
            (gzip.compress(bytes(10 << 20)), {"Content-Encoding": "gzip"}),
        ]:
            response = await send_request(gateway, "POST", "/v1/table/t/insert", body, headers)
            assert (response.status, response.code) == (413, 13) and "1000 bytes" in response.json["error"]
        response = await send_request(gateway, "POST", "/v1/table/t/describe", b" " * (17 << 20))
        assert (response.status, response.code) == (413, 13)


async def test_bodies_are_awaited_for_a_time() -> None:
    async with serving(Failing(RuntimeError())) as gateway:
        response = await send_request(gateway, "POST", "/v1/table/t/insert", b"xyz", {"Expect": "100-continue"})
        assert response.status == 100 and response.body.endswith(b'{"num_inserted_rows":3}')
    async with serving(Failing(RuntimeError()), idle=0.05) as gateway:
        response = await send_request(gateway, "POST", "/v1/table/t/insert", b"only this", {"Content-Length": "100"})
        assert (response.status, response.code) == (408, 13)


@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\nab"])
async def test_a_body_that_is_sent_wrong_is_refused(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Failing(RuntimeError()), idle=0.5) as gateway:
        headers = {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"}
        assert (await send_request(gateway, "POST", "/v1/table/t/insert", body, headers)).status == 400
    assert [record for record in caplog.records if record.levelno >= logging.ERROR and record.exc_info] == []


class Panic(BaseException):
    """Like the error of pylance after a Rust panic, which is not an Exception."""


@dataclass
class Panicking:
    """A namespace in which one change takes a while and others panic."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def drop_table(self, request: spec.DropTableRequest) -> spec.DropTableResponse:
        self.begun.set()
        await self.go.wait()
        return spec.DropTableResponse(location="gone")

    async def deregister_table(self, request: spec.DeregisterTableRequest) -> spec.DeregisterTableResponse:
        raise Panic("secret")

    async def describe_table(self, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
        raise Panic("secret")


async def test_a_panic_ends_its_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    namespace = Panicking()
    async with serving(namespace) as gateway:
        other = asyncio.create_task(send_request(gateway, "POST", "/v1/table/t/drop"))
        await namespace.begun.wait()
        for operation in ("deregister", "describe"):
            response = await send_request(gateway, "POST", f"/v1/table/t/{operation}")
            assert (response.status, response.code) == (500, 18)
            assert "secret" not in response.json["error"] and response.json["instance"] in caplog.text
        namespace.go.set()
        assert (await other).status == 200


async def test_what_a_client_has_is_not_sent_again(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        await ns.create_namespace({"id": ["sales"]})
        await ns.declare_table({"id": ["sales", "a"]})
        listing, table = "/v1/namespace/sales/table/list", "/v1/table/sales$a/describe"
        tags = {}
        for method, target in (("GET", listing), ("POST", table)):
            body: object = {} if method == "POST" else None
            first = await send_request(gateway, method, target, body)
            tags[target] = tag = first.headers["etag"]
            for known in (tag, f"W/{tag}", f'"other", {tag}'):
                again = await send_request(gateway, method, target, body, {"If-None-Match": known})
                assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
            for known in ('"other"', tag[:-1], ""):
                again = await send_request(gateway, method, target, body, {"If-None-Match": known})
                assert (again.status, again.body) == (200, first.body)
        await ns.declare_table({"id": ["sales", "b"]})
        changed = await send_request(gateway, "GET", listing, headers={"If-None-Match": tags[listing]})
        assert changed.status == 200 and changed.headers["etag"] != tags[listing]
        wrong = await send_request(gateway, "POST", "/v1/table/sales$gone/describe", {}, {"If-None-Match": tags[table]})
        assert wrong.status == 404 and "etag" not in wrong.headers


TABLES, FROM = 1200, 20
"""Numbers of tables: for several batches, and the minimum for one."""

BATCH = "/v1/namespace/sales/table/batch-describe"


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    properties = {"root": str(tmp_path / "lake"), "storage.secret_access_key": "hush-hush"}
    async with AsyncNamespace.connect("dir", properties) as ns:
        await ns.create_namespace({"id": ["sales"]})
        for number in range(5):
            await ns.declare_table({"id": ["sales", f"t{number}"], "properties": {"n": str(number)}})
        yield ns


def connect(gateway: Gateway, token: str | None = None) -> AsyncNamespace:
    return AsyncNamespace.connect("rest", {"uri": gateway.url, "auth_token": token or gateway.token})


async def test_a_gateway_describes_many_tables_at_once(ns: AsyncNamespace) -> None:
    calls: list[str] = []
    async with serving(ns) as gateway, connect(gateway) as client:
        with client.observe(lambda call: calls.append(call.operation)):
            names = [f"t{number}" for number in range(TABLES)]
            result = await client.describe_tables([["sales", name] for name in names])
        assert sorted(id.name for id in result.tables) == [f"t{number}" for number in range(5)]
        assert all(isinstance(error, err.TableNotFoundError) for error in result.errors.values())
        assert len(result.errors) == TABLES - 5
        # Each table that is not in an answer is asked for, to tell why.
        assert calls.count("describe_tables") == 3 and calls.count("describe_table") == TABLES - 5
        alone = await client.describe_table({"id": ["sales", "t3"]})
        table = result.tables[next(id for id in result.tables if id.name == "t3")]
        assert (table.location, dict(table.properties or {})) == (alone.location, {"n": "3"})
        assert dict(table.storage_options or {}) == alone.storage_options == {"secret_access_key": "hush-hush"}
        missing = await client.describe_tables([["gone", name] for name in names[:FROM]])
        assert all(isinstance(error, err.NamespaceNotFoundError) for error in missing.errors.values())


async def test_other_servers_are_asked_once(ns: AsyncNamespace) -> None:
    class Foreign:
        """A namespace without the extension."""

        def __getattr__(self, name: str) -> Any:
            if name == "describe_tables":
                raise AttributeError(name)
            return getattr(ns, name)

    calls: list[str] = []
    async with serving(Foreign()) as gateway, connect(gateway) as client:
        with client.observe(lambda call: calls.append(call.operation)):
            for _ in range(2):
                # A batch of each namespace would be sent at the same time.
                ids = [[parent, f"t{number}"] for parent in ("sales", "gone") for number in range(FROM)]
                assert len((await client.describe_tables(ids)).tables) == 5
    assert calls.count("describe_tables") == 1 and calls.count("describe_table") == 4 * FROM


async def test_a_batch_has_what_its_client_may_use(ns: AsyncNamespace, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[ann]\nrights = "read"\nonly = ["sales.t[12]"]\nsha256 = ["{hash_of("ann")}"]\n')
    async with serving(ns, tokens=file) as gateway, connect(gateway, "ann") as client:
        body = {"names": [f"t{number}" for number in range(5)]}
        answer = await send_request(gateway, "POST", BATCH, body, {"x-lance-token": "ann"})
        assert answer.status == 200 and answer.json["tables"].keys() == {"t1", "t2"}
        assert b"hush-hush" not in answer.body
        result = await client.describe_tables([["sales", f"t{number}"] for number in range(FROM)])
        assert sorted(id.name for id in result.tables) == ["t1", "t2"] and len(result.errors) == FROM - 2
        assert all(isinstance(error, err.PermissionDeniedError) for error in result.errors.values())
        other = await send_request(gateway, "POST", BATCH.replace("sales", "other"), body, {"x-lance-token": "ann"})
        assert other.status == 403


async def test_one_client_describes_at_most_four_batches_at_once(ns: AsyncNamespace, tmp_path: Path) -> None:
    shares: dict[str, list[int]] = {"ann": [], "ben": []}
    running = {"ann": 0, "ben": 0}
    ann_is_full, ben_is_here = asyncio.Event(), asyncio.Event()

    class Slow:
        """A namespace whose batches wait for that of `ben`."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ns, name)

        async def describe_tables(self, ids: Sequence[TableId], *, max_in_flight: int, **more: Any) -> Any:
            client = {"t0": "ann", "t1": "ben"}[ids[0].name]
            shares[client].append(max_in_flight)
            running[client] += 1
            assert running[client] <= 4
            if running["ann"] == 4:
                ann_is_full.set()
            if client == "ben":
                ben_is_here.set()
            await ben_is_here.wait()
            running[client] -= 1
            return await ns.describe_tables(ids, max_in_flight=max_in_flight, **more)

    file = tmp_path / "tokens.toml"
    file.write_text("".join(f'[{it}]\nrights = "read"\nsha256 = ["{hash_of(it)}"]\n' for it in shares))
    async with serving(Slow(), tokens=file) as gateway:

        async def describe(client: str, name: str) -> int:
            return (await send_request(gateway, "POST", BATCH, {"names": [name]}, {"x-lance-token": client})).status

        sent = [asyncio.create_task(describe("ann", "t0")) for _ in range(6)]
        await ann_is_full.wait()
        assert await describe("ben", "t1") == 200 and await asyncio.gather(*sent) == [200] * 6
    # They divide eight calls among those that have begun.
    assert all(2 <= share <= 8 for share in shares["ann"]) and sum(shares["ann"][:4]) <= 8 + 4 + 2 + 2
    assert shares["ben"] == [8]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        *(({}, "names: it is missing"), ({"names": "t"}, "names"), ({"names": [1]}, "names")),
        *(({"names": ["t"] * 1001}, "names"), ({"names": [""]}, "empty")),
        ({"names": ["t"], "limit": 1}, "limit: unknown"),
    ],
)
async def test_a_malformed_batch_is_refused(ns: AsyncNamespace, body: Mapping[str, Any], message: str) -> None:
    async with serving(ns) as gateway:
        answer = await send_request(gateway, "POST", BATCH, body)
    assert (answer.status, answer.code) == (400, 13) and message in answer.json["error"]

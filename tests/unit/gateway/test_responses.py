"""Errors of a gateway: the status and the body of each code, and its own refusals."""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path

import lance_namespace as spec
import pytest
from lance_namespace import errors
from lance_namespace.errors import ErrorCode, LanceNamespaceError
from lance_namespace_urllib3_client.models.error_response import ErrorResponse

from lance_ns_async import AsyncNamespace
from lance_ns_async.errors import Failure, with_failure
from lance_ns_async.gateway import serving
from tests.fakes.iceberg import FakeIceberg
from tests.support.gateway import Remote, ask

STATUSES = {
    0: 406,
    1: 404,
    2: 409,
    3: 409,
    4: 404,
    5: 409,
    6: 404,
    7: 409,
    8: 404,
    9: 409,
    10: 404,
    11: 404,
    12: 404,
    13: 400,
    14: 409,
    15: 403,
    16: 401,
    17: 503,
    18: 500,
    19: 409,
    20: 400,
    21: 429,
    22: 404,
    23: 409,
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


@pytest.mark.parametrize("code", ErrorCode)
async def test_every_code_has_its_status_and_is_the_same_error_again(code: ErrorCode) -> None:
    error = errors.from_error_code(code, f"Phrase: a$b 'é' ({code.name})")
    async with serving(Failing(error)) as gateway:
        # A read, and a change.
        for operation in ("describe", "drop"):
            response = await ask(gateway, "POST", f"/v1/table/a%24b/{operation}")
            assert response.status == STATUSES[code] and response.headers["content-type"] == "application/json"
            assert response.json == {"error": str(error), "code": int(code)}
        client = Remote(gateway)
        with pytest.raises(LanceNamespaceError) as raised:
            await client.describe_table(spec.DescribeTableRequest(id=["a", "b"]))
        await client.close()
        assert type(raised.value) is type(error) and str(raised.value) == str(error)


def test_every_code_is_reported() -> None:
    assert list(STATUSES) == list(ErrorCode)


async def test_unexpected_errors_are_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Failing(RuntimeError("secret inside"))) as gateway:
        for operation in ("describe", "drop"):
            caplog.clear()
            response = await ask(gateway, "POST", f"/v1/table/t/{operation}")
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
    error = with_failure(errors.ServiceUnavailableError(message), failure)
    async with serving(Failing(error)) as gateway:
        for operation in ("drop", "describe"):
            response = await ask(gateway, "POST", f"/v1/table/t/{operation}")
            assert (response.status, response.code) == (500, 18)


async def test_the_requested_pause_of_a_catalog_is_passed_on() -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "max_retries": "0"}
        async with AsyncNamespace.connect("iceberg", properties) as ns, serving(ns) as gateway:
            await ns.list_namespaces(spec.ListNamespacesRequest(id=[]))
            for status, code in ((429, 21), (503, 17)):
                server.fail(status, headers={"Retry-After": "7"})
                response = await ask(gateway, "POST", "/v1/namespace/n/describe", {})
                assert (response.status, response.code, response.headers["retry-after"]) == (status, code, "7")


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v1",
        "/v2/table",
        "/v1/table/t",
        "/v1/table/t/nothing",
        "/v1/table/t/describe/",
        "//v1/table",
        "/v1/table/../../etc/passwd",
        "/v1/table/t/../../../etc/passwd",
        "/..%2F..%2Fetc%2Fpasswd",
        "/health/",
    ],
)
async def test_what_is_no_operation_is_not_found(target: str) -> None:
    async with serving(Failing(RuntimeError())) as gateway:
        for method in ("GET", "POST"):
            response = await ask(gateway, method, target, {})
            assert (response.status, response.code) == (404, 0), response


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"])
async def test_another_method_is_not_allowed(method: str) -> None:
    async with serving(Failing(RuntimeError())) as gateway:
        response = await ask(gateway, method, "/v1/table/t/describe")
        assert (response.status, response.headers["allow"]) == (405, "POST")


async def test_a_body_that_is_too_long_is_refused() -> None:
    async with serving(Failing(RuntimeError()), max_bytes=1000, idle=0.5) as gateway:
        fits = await ask(gateway, "POST", "/v1/table/t/insert", b"x" * 1000)
        assert fits.json == {"num_inserted_rows": 1000}
        for body, headers in [
            (b"x" * 1001, {}),
            (b"", {"Content-Length": str(1 << 40)}),
            (b"", {"Content-Length": str(1 << 40), "Expect": "100-continue"}),
            # A small body may become a thousand times as long when it is decompressed.
            (gzip.compress(bytes(10 << 20)), {"Content-Encoding": "gzip"}),
        ]:
            response = await ask(gateway, "POST", "/v1/table/t/insert", body, headers)
            assert (response.status, response.code) == (413, 13) and "1000 bytes" in response.json["error"]
        response = await ask(gateway, "POST", "/v1/table/t/describe", b" " * (17 << 20))
        assert (response.status, response.code) == (413, 13)


async def test_a_client_that_expects_100_continue_sends_its_body() -> None:
    async with serving(Failing(RuntimeError())) as gateway:
        response = await ask(gateway, "POST", "/v1/table/t/insert", b"xyz", {"Expect": "100-continue"})
        assert response.status == 100 and response.body.endswith(b'{"num_inserted_rows":3}')


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async with serving(Failing(RuntimeError()), idle=0.05) as gateway:
        response = await ask(gateway, "POST", "/v1/table/t/insert", b"only this", {"Content-Length": "100"})
        assert (response.status, response.code) == (408, 13)


@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\nab"])
async def test_a_body_that_is_sent_wrong_is_refused(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Failing(RuntimeError()), idle=0.5) as gateway:
        headers = {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"}
        response = await ask(gateway, "POST", "/v1/table/t/insert", body, headers)
        assert response.status == 400
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
        other = asyncio.create_task(ask(gateway, "POST", "/v1/table/t/drop"))
        await namespace.begun.wait()
        for operation in ("deregister", "describe"):
            response = await ask(gateway, "POST", f"/v1/table/t/{operation}")
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
            first = await ask(gateway, method, target, body)
            tags[target] = tag = first.headers["etag"]
            for known in (tag, f"W/{tag}", f'"other", {tag}'):
                again = await ask(gateway, method, target, body, {"If-None-Match": known})
                assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
            for known in ('"other"', tag[:-1], ""):
                again = await ask(gateway, method, target, body, {"If-None-Match": known})
                assert (again.status, again.body) == (200, first.body)
        await ns.declare_table({"id": ["sales", "b"]})
        changed = await ask(gateway, "GET", listing, headers={"If-None-Match": tags[listing]})
        assert changed.status == 200 and changed.headers["etag"] != tags[listing]
        wrong = await ask(gateway, "POST", "/v1/table/sales$gone/describe", {}, {"If-None-Match": tags[table]})
        assert wrong.status == 404 and "etag" not in wrong.headers

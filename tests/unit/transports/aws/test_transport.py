"""The AWS transport: its client, region, limits and messages."""

from __future__ import annotations

import asyncio
import logging
import traceback
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import orjson
import pytest
from aiobotocore.parsers import AioResponseParserFactory
from botocore.parsers import ResponseParserError
from botocore.session import Session

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.backends.glue.backend import GlueSettings
from lance_ns_async.calls.observers import Call
from lance_ns_async.transports.aws.wire import PlainJsonParsers
from tests.fakes.certificates import Certificates
from tests.fakes.glue import FakeGlue
from tests.fakes.sockets import Reply, Script, http
from tests.support.errors import catch
from tests.support.glue import QUICK, connected, described, opened

pytestmark = pytest.mark.floors
SECRETS = ("sEcReT-kEy-4711", "sEsSiOn-ToKeN-0815", "eXtErNaL-iD-42")
KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": SECRETS[0], "session_token": SECRETS[1]}
ROLE = {"assume_role_arn": "arn:aws:iam::123456789012:role/reader"}


@pytest.fixture
def server(shared: FakeGlue) -> FakeGlue:
    shared.reset()
    shared.add_database("", "db")
    shared.add_tables("", "db", ["t", *(f"t{i}" for i in range(32))])
    return shared


async def test_the_first_callers_share_one_client(server: FakeGlue) -> None:
    async with opened(server) as backend:
        tables = await asyncio.gather(*[backend.describe_table(_id(f"t{i}")) for i in range(32)])
    assert [table.location for table in tables] == [f"s3://bucket/db/t{i}.lance" for i in range(32)]
    assert server.calls == ["GetTable"] * 32 and server.connections <= 32


async def test_connections_are_kept_and_bounded(server: FakeGlue) -> None:
    async with connected(server, max_in_flight="4", bulk_strategy="get") as ns:
        with server.hold("GetTable") as held:
            describing = asyncio.ensure_future(ns.describe_tables(["db", f"t{i}"] for i in range(32)))
            await held.reached(4)
        (await describing).raise_for_errors()
    assert server.most_in_flight == 4 and server.connections == 4


@pytest.mark.parametrize("retries", [0, 2])
async def test_repetitions_are_the_policy_s_alone(server: FakeGlue, retries: int) -> None:
    server.fail("ThrottlingException", times=retries + 1)
    calls: list[Call] = []
    async with connected(server, max_retries=str(retries)) as ns:
        with ns.observe(calls.append):
            with pytest.raises(err.ThrottlingError, match="3 attempts" if retries else "Throttled: "):
                await described(ns, "db", "t")
            await described(ns, "db", "t")
    assert server.requests[0].headers["user-agent"].startswith("lance-ns-async")
    assert len(server.calls) == retries + 2
    outcomes = [("describe_table", "ThrottlingException", 400)] * (retries + 1) + [("describe_table", "ok", 200)]
    assert [(call.operation, call.outcome, call.http_status) for call in calls] == outcomes


async def test_the_region_is_a_property_or_a_variable(server: FakeGlue, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, region in (("", "eu-west-1"), ("AWS_REGION", "eu-west-2"), ("AWS_DEFAULT_REGION", "eu-west-3")):
        if variable:
            monkeypatch.setenv(variable, region)
        properties = {} if variable else {"region": region}
        async with connected(server, *(("region",) if variable else ()), **properties) as ns:
            assert not await ns.exists(["none", "t"])
        assert server.requests[-1].region == region


async def test_a_region_or_profile_that_is_unknown_is_reported(
    server: FakeGlue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server, "region") as ns:
        for _ in range(2):
            with pytest.raises(err.InvalidInputError, match="region of glue: unknown; set the property region"):
                await described(ns, "db", "t")
    assert server.calls == []
    monkeypatch.setenv("AWS_PROFILE", "gone")
    async with connected(server) as ns:
        await catch(err.InvalidInputError, described(ns, "db", "t"), r"glue client: .*\(gone\)")


@pytest.mark.parametrize("calls", [0, 1])
async def test_a_closed_client_makes_no_calls(server: FakeGlue, calls: int) -> None:
    async with opened(server) as backend:
        for _ in range(calls):
            await backend.describe_table(_id("t"))
        await backend.aclose()
        await backend.aclose()
        await catch(err.InvalidInputError, backend.describe_table(_id("t")), "glue client: it is closed; connect anew")
    assert server.calls == ["GetTable"] * calls


async def test_a_client_closed_while_it_is_built_is_not_used(server: FakeGlue) -> None:
    async with opened(server) as backend:
        call = asyncio.ensure_future(backend.describe_table(_id("t")))
        await asyncio.sleep(0)
        await backend.aclose()
        await catch(err.InvalidInputError, call, "it is closed")
    assert server.calls == []


async def test_a_call_whose_client_is_closed_meanwhile_fails(server: FakeGlue) -> None:
    async with opened(server, max_retries="0") as backend:
        await backend.describe_table(_id("t"))
        with server.hold("GetTable") as held:
            call = asyncio.ensure_future(backend.describe_table(_id("t")))
            await held.reached()
            await backend.aclose()
            await catch(err.LanceNamespaceError, call)


@pytest.mark.parametrize("time", ["read_timeout", "attempt_timeout"])
async def test_a_server_that_does_not_answer_is_unavailable(server: FakeGlue, time: str) -> None:
    async with connected(server, **{time: "50ms", "max_retries": "1"}) as ns:
        with server.hold("GetTable"), pytest.raises(err.ServiceUnavailableError, match="2 attempts"):
            await described(ns, "db", "t")


async def test_errors_contain_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    message = f"No match.\n\nThe Canonical String was\nx-amz-security-token:{SECRETS[1]}"
    body = orjson.dumps({"__type": "InvalidSignatureException", "message": message})
    async with Script(http(400, body, {"Content-Type": "application/x-amz-json-1.1"})) as script:
        async with AsyncNamespace.connect("glue", at(script.url, **KEYS, max_retries="0")) as ns:
            raised = await catch(err.UnauthenticatedError, described(ns, "db", "t"))
    assert script.header("x-amz-security-token") == [SECRETS[1]]
    properties = {**KEYS, **ROLE, "assume_role_external_id": SECRETS[2]}
    settings = GlueSettings.parse(properties)
    async with AsyncNamespace.connect("glue", properties) as ns:
        texts = [repr(ns), ns.namespace_id(), repr(settings), str(settings), settings.identity(), repr(vars(ns))]
    texts += traceback.format_exception(raised.value)
    assert not [secret for secret in SECRETS for text in (*texts, caplog.text) if secret in text]
    assert ns.namespace_id().startswith(f"lance_ns_async:glue:{ROLE['assume_role_arn']}|AKIAEXAMPLE#")


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"access_key_id": "a"}, "access_key_id and secret_access_key: give both or none"),
        ({"session_token": "a"}, "session_token: give access_key_id and secret_access_key with it"),
        ({"access_key_id": "", "secret_access_key": "s"}, "access_key_id: "),
        ({"region": "eu west"}, "region: "),
        ({"endpoint": "glue.example.com"}, "endpoint: not a URL"),
        *(({"sts_endpoint": "sts"}, "sts_endpoint: not a URL"), ({"assume_role_arn": "reader"}, "assume_role_arn: ")),
        ({**ROLE, "assume_role_timeout_sec": "899"}, "assume_role_timeout_sec: .* 900"),
        ({**ROLE, "assume_role_timeout_sec": "13h"}, "assume_role_timeout_sec: .* 43200"),
        ({**ROLE, "assume_role_timeout_sec": "soon"}, "assume_role_timeout_sec: not a duration"),
        ({**ROLE, "assume_role_session_name": "x"}, "assume_role_session_name: "),
        ({**ROLE, "assume_role_external_id": "x"}, "assume_role_external_id: "),
        ({**ROLE, "assume_role_region": "?"}, "assume_role_region: "),
        ({"assume_role_region": "us-east-1"}, "assume_role_region: give assume_role_arn with it"),
        ({"connect_timeout": "0"}, "connect_timeout: "),
        ({"bulk_strategy": "guess"}, "bulk_strategy: Input should be 'auto', 'get' or 'list'"),
        *(({"catalogs": "on"}, "catalogs: "), ({"catalog_id": ""}, "catalog_id: ")),
        ({"ca_bundle": "/no/such.pem"}, "ca_bundle: there is no file /no/such.pem"),
    ],
)
def test_a_property_that_cannot_be_meant_is_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(err.InvalidInputError, match=f"^glue properties: .*{text}"):
        AsyncNamespace.connect("glue", properties)


def test_times_are_seconds_and_bound_an_attempt() -> None:
    settings = GlueSettings.parse({"connect_timeout": "2", "read_timeout": "500ms", **ROLE})
    assert (settings.connect_timeout, settings.read_timeout, settings.policy().attempt_timeout) == (2.0, 0.5, 2.5)
    assert settings.assume_role_timeout_sec == 3600 and settings.identity() == ROLE["assume_role_arn"]
    assert GlueSettings.parse({}).policy().attempt_timeout == 18.0 and GlueSettings.parse({}).identity() == "aws"


async def test_the_plain_parser_gives_what_botocore_s_own_does() -> None:
    shape = Session().get_service_model("glue").operation_model("GetTable").output_shape
    table = {"Name": "t", "Parameters": {"table_type": "lance"}, "StorageDescriptor": {"Location": "s3://x"}}
    answer = {
        "status_code": 200,
        "headers": {"x-amzn-requestid": "r-1"},
        "body": orjson.dumps({"Table": table}),
        "context": {"operation_name": "GetTable"},
    }
    plain, own = PlainJsonParsers().create_parser("json"), AioResponseParserFactory().create_parser("json")
    assert await plain.parse(answer, shape) == await own.parse(answer, shape)
    assert await plain.parse({**answer, "body": _awaited(answer["body"])}, shape) == await own.parse(answer, shape)
    refused = {**answer, "status_code": 400, "body": b'{"__type": "X", "message": "why"}'}
    assert await plain.parse(refused, shape) == await own.parse(refused, shape)
    for body in (b"{", b"[]"):
        await catch(ResponseParserError, plain.parse({**answer, "body": body}, shape))
    assert type(PlainJsonParsers().create_parser("query")) is type(AioResponseParserFactory().create_parser("query"))


async def _awaited(value: Any) -> Any:
    return value


def _id(name: str) -> TableId:
    return TableId(["db", name])


GIVEN = {"region": "us-east-1", "access_key_id": "AKIAEXAMPLE", "secret_access_key": "hush", **QUICK}
TABLE = {
    "Name": "t",
    "Parameters": {"table_type": "lance", "comment": "x" * 2000},
    "StorageDescriptor": {"Location": "s3://b/t"},
}
LONG = orjson.dumps({"Table": TABLE})


def at(endpoint: str, **more: str) -> dict[str, str]:
    return {**GIVEN, "endpoint": endpoint, **more}


@pytest.mark.parametrize("body", ['{"Table": null}', '{"Table": {"Name": "t", "Parameters": {"table_type": 1}}}'])
async def test_an_answer_of_unknown_form_is_an_error(body: str) -> None:
    async with Script(http(body=body)) as script, AsyncNamespace.connect("glue", at(script.url)) as ns:
        await catch(err.InternalError, described(ns, "db", "t"), "unknown form")


async def test_an_answer_of_the_limit_is_read() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(LONG), LONG)
    for answer in (http(body=LONG), Reply(chunked)):
        async with Script(answer) as script:
            async with AsyncNamespace.connect("glue", at(script.url, max_response_bytes=str(len(LONG)))) as ns:
                assert (await described(ns, "db", "t")).location == "s3://b/t"


async def test_cookies_are_not_kept() -> None:
    answer = http(body=LONG, headers={"Set-Cookie": "session=1; Path=/"})
    async with Script(answer, answer) as script:
        # Cookies of bare IP addresses are not kept in any case.
        async with AsyncNamespace.connect("glue", at(script.url.replace("127.0.0.1", "localhost"))) as ns:
            for _ in range(2):
                assert (await described(ns, "db", "t")).location == "s3://b/t"
    assert len(script.requests) == 2 and script.header("cookie") == []


async def test_no_variable_disables_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Script(tls=Certificates.made(tmp_path).server) as server:
        for name, value in {"AWS_CA_BUNDLE": "", "REQUESTS_CA_BUNDLE": "", "PYTHONHTTPSVERIFY": "0"}.items():
            with monkeypatch.context() as patched:
                patched.setenv(name, value)
                async with AsyncNamespace.connect("glue", at(server.url, max_retries="0")) as ns:
                    errors = (err.InvalidInputError, err.ServiceUnavailableError)
                    await catch(errors, described(ns, "db", "t"), r"(?i)CA bundle|certificate")
        assert not server.requests

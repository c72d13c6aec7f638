"""Calls to AWS on the wire: only to the configured endpoint, and responses of limited length."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from lance_namespace.errors import InternalError, InvalidInputError, ServiceUnavailableError

from lance_ns_async import AsyncNamespace
from tests.fakes.certificates import Certificates
from tests.fakes.sockets import Said, Script, http
from tests.support.glue import QUICK, declared, described

GIVEN = {"region": "us-east-1", "access_key_id": "AKIAEXAMPLE", "secret_access_key": "hush", **QUICK}
TABLE = {
    "Name": "t",
    "Parameters": {"table_type": "lance", "comment": "x" * 2000},
    "StorageDescriptor": {"Location": "s3://b/t"},
}
LONG = orjson.dumps({"Table": TABLE})


def at(endpoint: str, **more: str) -> dict[str, str]:
    """Returns the properties of a catalog at that endpoint."""
    return {**GIVEN, "endpoint": endpoint, **more}


@pytest.mark.parametrize(
    "answer",
    [
        http(body=LONG),
        http(headers={"Content-Length": "1000000000"}, then="hang"),
        Said(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b" " * 1024 + b"\r\n1\r\n \r\n",
            "hang",
        ),
        Said(b"HTTP/1.1 500 Sorry\r\n\r\n" + b" " * 1025, "hang"),
    ],
)
async def test_an_answer_over_the_limit_is_not_read_nor_requested_again(answer: Said) -> None:
    async with Script(answer) as script:
        async with AsyncNamespace.connect("glue", at(script.url, max_response_bytes="1024")) as ns:
            for ask in (described, declared):
                with pytest.raises(InternalError, match=r"the answer is longer than 1024 bytes \(max_response_bytes\)"):
                    await ask(ns, "db", "t")
                script.answers.append(answer)
    assert len(script.requests) == 2


async def test_an_answer_of_the_limit_is_read() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(LONG), LONG)
    for answer in (http(body=LONG), Said(chunked)):
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


async def test_no_variable_turns_the_verification_of_certificates_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Script(tls=Certificates.made(tmp_path).server) as server:
        for name, value in {"AWS_CA_BUNDLE": "", "REQUESTS_CA_BUNDLE": "", "PYTHONHTTPSVERIFY": "0"}.items():
            with monkeypatch.context() as patched:
                patched.setenv(name, value)
                async with AsyncNamespace.connect("glue", at(server.url, max_retries="0")) as ns:
                    with pytest.raises(
                        (InvalidInputError, ServiceUnavailableError), match=r"(?i)CA bundle|certificate"
                    ):
                        await described(ns, "db", "t")
        assert not server.requests

"""Signed requests of the HTTP transport, verified by botocore's signer, and the messages about rejected ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import UnauthenticatedError

from lance_ns_async.backends.shared.signing import open_signer
from lance_ns_async.calls.caller import Caller
from lance_ns_async.errors import HTTP_ERRORS
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS, rejection
from lance_ns_async.transports.http.transport import encode_form, open_http
from tests.fakes.http import FakeServer
from tests.fakes.plain import EAGER, Plain, read_error
from tests.fakes.server import Answer, Received
from tests.fakes.sigv4 import Signatures
from tests.support.glue import forget_aws

pytestmark = pytest.mark.floors
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
PATHS = [
    *("/", "/a%20b", "/a+b", "/a%2Bb", "/a%2Fb", "/a%252Fb", "/%25", "/%E6%BC%A2%C3%A9%F0%9F%8E%89", "/a%1Fb%00"),
    *("/a//b/", "/~.-_%7E", "/$'()*!,;:@=&", "/%24%27%28%29%2A%21", "/" + "x" * 2000),
]
QUERIES = """
    a=b b=2&a=1&a=0 a a=&b parent=a%1Fb name=a%20b&other=a+b&third=a%2Bb name=%E6%BC%A2&%C3%A9=1
    name=%25&other=a%2Fb&third=a/b token=YWJj%3D%3D&pageSize=1 x=~.-_&y=$'()*!,:@
""".split()
BODIES: list[Any] = [{}, [], {"name": "漢é🎉", "k": "a+b %2F"}, {"k": "x" * 100_000}, "text", 0]


class Checking(FakeServer):
    """A service that answers requests with a correct signature."""

    def __init__(self, signatures: Signatures) -> None:
        super().__init__()
        self.signatures = signatures

    def handle(self, request: Received) -> Answer:
        return self.signatures.refusal(request) or Answer.of({"done": True})


class Settings(SigningSettings):
    """The properties of a backend that can sign."""

    backend = "plain"


@asynccontextmanager
async def signing(server: Checking, **more: str) -> AsyncIterator[Plain]:
    """Provides a transport that signs each request to the server."""
    properties = {
        "endpoint": server.url,
        "proxy": "none",
        "rest.sigv4-enabled": "true",
        "rest.signing-region": "eu-central-1",
        "rest.access-key-id": "AKIDEXAMPLE",
        "rest.secret-access-key": "sesame-secret",
    }
    settings = Settings.parse({**properties, **more})
    caller = Caller(EAGER, {**HTTP_ERRORS, **SIGNING_ERRORS})
    http = open_http(settings, caller, path="", read_error=read_error, signer=open_signer(settings, caller))
    try:
        yield Plain(http)
    finally:
        await http.aclose()


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_aws(monkeypatch, tmp_path)


@pytest.mark.parametrize("method", METHODS)
async def test_paths_queries_and_bodies_are_signed_as_they_are_sent(method: str) -> None:
    requests: list[Mapping[str, Any]] = [{"path": path} for path in PATHS]
    requests += [{"path": path, "query": query} for path in ("/", "/a%2Fb+c") for query in QUERIES]
    if method != "HEAD":
        requests += [{"path": "/a%20b", "query": "a=b", "body": body} for body in BODIES]
        requests.append({"path": "/", "content": encode_form({"name": "a+b %2F 漢", "k": ""})})
        requests.append({"path": "/", "body": {}, "headers": {"X-Odd": "  two   words ", "If-Match": '"a,b"'}})
    with Checking(Signatures()) as server:
        async with signing(server) as service:
            for request in requests:
                assert (await service.ask(method, **request)) == (None if method == "HEAD" else {"done": True}), request
        assert len(server.signatures.accepted) == len(server.requests) == len(requests)
        assert {request.method for request in server.requests} == {method}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("minutes", "direction"), [(20, "behind"), (-20, "ahead of")])
async def test_a_wrong_clock_is_reported_for_every_kind_of_request(method: str, minutes: int, direction: str) -> None:
    hint = rf"this machine's clock is 1[12]\d\d s {direction} the server's: synchronize it"
    with Checking(Signatures(ahead=timedelta(minutes=minutes))) as server:
        async with signing(server) as service:
            with pytest.raises(UnauthenticatedError, match=hint):
                await service.ask(method, "/a%20b")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("code", "text", "seconds", "hint"),
    [
        ("RequestTimeTooSkewed", "The difference is too large", 900, "900 s behind the server's: synchronize it"),
        ("InvalidSignatureException", "does not match", -90, "90 s ahead of the server's: synchronize it"),
        ("InvalidSignatureException", "does not match", 50, "and the keys right?"),
        ("InvalidSignatureException", "Signature expired: x", None, "is this machine's clock right?"),
        ("InvalidSignatureException", "Signature not yet current: x", None, "is this machine's clock right?"),
        ("RequestExpired", "Request expired", None, "is this machine's clock right?"),
        ("RequestTimeTooSkewed", "The time is too skewed", None, "is this machine's clock right?"),
        ("SignatureDoesNotMatch", "does not match", None, "and the keys right?"),
    ],
)
def test_the_cause_of_a_rejection_is_read_from_the_clocks(code: str, text: str, seconds: int | None, hint: str) -> None:
    """`seconds` is how far the server's clock is ahead; None if its response has no date."""
    server_time = datetime.now(UTC) + timedelta(seconds=seconds or 0, milliseconds=500)
    date = {} if seconds is None else {"date": format_datetime(server_time, usegmt=True)}
    codes, message = rejection({"x-amzn-errortype": code, **date}, {"message": f"{text}\n\nsecret"}, (), "")
    assert codes == (code,)
    assert message.startswith(f"{text}; ") and "secret" not in message
    assert hint in message or hint.replace("900 s", "899 s").replace("90 s", "91 s") in message


@pytest.mark.parametrize("date", ["", "soon", "Wed, 99 Nov 2026 10:00:00 GMT"])
def test_a_date_that_cannot_be_read_is_ignored(date: str) -> None:
    _, message = rejection({"x-amzn-errortype": "RequestExpired", "date": date}, {"message": "Request expired"}, (), "")
    assert message == "Request expired; is this machine's clock right? signatures are valid for a few minutes"


async def test_a_changed_request_is_rejected() -> None:
    """Verifies the check itself: a signature for one body, path or query is not accepted for another."""
    with Checking(Signatures()) as server:
        async with signing(server) as service:
            await service.ask("PUT", "/a%2Fb", query="a=b", body={"k": 1})
        request, headers = server.requests[0], server.requests[0].headers
        for changed in (
            Received("PUT", "/a/b?a=b", headers, request.body),
            Received("PUT", "/a%2Fb?a=c", headers, request.body),
            Received("POST", "/a%2Fb?a=b", headers, request.body),
            Received("PUT", "/a%2Fb?a=b", headers, b"{}"),
        ):
            assert server.signatures.refusal(changed) is not None
        assert server.signatures.refusal(request) is None

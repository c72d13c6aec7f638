"""Signatures of requests, as the fakes check them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.fakes.http import Reply, ask
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.sigv4 import Signatures

PATH, BODY = "/v1/namespaces?a=b", '{"namespace": ["a"], "properties": {}}'


def signed(
    server: FakeIceberg, path: str = PATH, body: str = BODY, *, secret: str = "sesame-secret", **more: str
) -> Mapping[str, str]:
    headers = {"Content-Type": "application/json", "X-Amz-Content-SHA256": sha256(body.encode()).hexdigest(), **more}
    request = AWSRequest("POST", server.url + path, data=body, headers=headers)
    SigV4Auth(Credentials("AKIDEXAMPLE", secret), "execute-api", "eu-central-1").add_auth(request)
    return dict(request.headers.items())


def sent(server: FakeIceberg, headers: Mapping[str, str], path: str = PATH, body: str = BODY) -> Reply:
    return ask(server, "POST", path, body, headers)


def test_what_is_signed_is_accepted() -> None:
    with FakeIceberg(signatures=Signatures()) as server:
        assert sent(server, signed(server)).status == 200
        assert server.signatures and len(server.signatures.accepted) == 1


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        *((it, BODY, {}) for it in ("/v1/namespaces?a=c", "/v1/namespaces", "/v1/Namespaces?a=b")),
        (PATH, BODY.replace('"a"', '"b"'), {}),
        *((PATH, BODY, it) for it in ({"Content-Type": "text/plain"}, {"X-Amz-Date": "later"})),
        (PATH, BODY, {"X-Amz-Added": "unsigned"}),
    ],
    ids=["query", "no-query", "path", "body", "header", "date", "unsigned"],
)
def test_a_change_on_the_way_is_noticed(path: str, body: str, headers: Mapping[str, str]) -> None:
    with FakeIceberg(signatures=Signatures()) as server:
        original = signed(server)
        if "X-Amz-Date" in headers:
            last = original["X-Amz-Date"][-2]
            headers = {"X-Amz-Date": f"{original['X-Amz-Date'][:-2]}{(int(last) + 1) % 10}Z"}
        reply = sent(server, {**original, **headers}, path, body)
        assert reply.status == 403 and reply.json["message"].startswith("The request signature we calculated")
        assert server.signatures and not server.signatures.accepted


def test_another_secret_and_no_signature_are_refused() -> None:
    with FakeIceberg(signatures=Signatures()) as server:
        assert sent(server, signed(server, secret="another")).status == 403
        reply = sent(server, {})
        kind = reply.headers["x-amzn-ErrorType"].partition(":")[0]
        assert (reply.status, kind) == (403, "MissingAuthenticationTokenException")

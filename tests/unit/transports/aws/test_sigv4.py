"""Requests signed by SigV4: verified by botocore's signer on the other side, for each kind of request."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.iceberg.catalog import Quirks
from tests.fakes.sigv4 import Signatures
from tests.support.errors import catch
from tests.support.running import running

KEY, SECRET = "AKIDEXAMPLE", "sesame-secret"
STATIC = {"rest.access-key-id": KEY, "rest.secret-access-key": SECRET}
ODD = [
    *("plain", "a b", "a+b", "a%2Fb", "a/b", "a//b", "é漢字", "a=b&c?d#e", "~.-_", "..a", "a:b@c;d,e", "$'()*!"),
    "x" * 200,
]


def signing(signatures: Signatures | None = None, **options: Any) -> FakeIceberg:
    """Provides a catalog that accepts all names, and only signed requests."""
    server = FakeIceberg(Quirks(separator=None, jetty=False), signatures=signatures or Signatures(), **options)
    server.add_table(("a",), "t")
    return server


@asynccontextmanager
async def connected(server: FakeIceberg, keys: str = "static", **more: str) -> AsyncIterator[AsyncNamespace]:
    """Provides a namespace with static keys and region, or with those of AWS's chain."""
    usual = {
        "endpoint": server.endpoint,
        "rest.sigv4-enabled": "true",
        **({"rest.signing-region": "eu-central-1"} if keys == "static" else {}),
        "root": "s3://bucket",
        "backoff_initial": "1ms",
        "backoff_max": "2ms",
    }
    async with AsyncNamespace.connect("iceberg", {**usual, **(STATIC if keys == "static" else {}), **more}) as ns:
        yield ns


async def described(ns: AsyncNamespace, *id: str) -> None:
    await ns.describe_table(spec.DescribeTableRequest(id=list(id or ("a", "t"))))


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("base", ["", "/catalog/v%201"])
async def test_every_kind_of_request_is_signed_whatever_the_names(name: str, base: str) -> None:
    with signing(base=base, page_size=1, prefix="arn%3Aaws%3As3tables%3Aeu%3A1%3Abucket%2Fb") as server:
        async with connected(server, **{"warehouse": f"arn:aws/{name}", "header.X-Tenant": "  two  words "}) as ns:
            await ns.create_namespace(spec.CreateNamespaceRequest(id=[name], properties={name: name}))
            await ns.create_namespace(spec.CreateNamespaceRequest(id=[name, "sub"]))
            await ns.describe_namespace(spec.DescribeNamespaceRequest(id=[name]))
            assert (await ns.list_namespaces(spec.ListNamespacesRequest(id=[name]))).namespaces == ["sub"]
            location = "s3://bucket/odd"
            await ns.declare_table(spec.DeclareTableRequest(id=[name, name], location=location, properties={"k": name}))
            assert (await ns.list_tables(spec.ListTablesRequest(id=[name], limit=1))).tables == [name]
            await ns.rename_table(spec.RenameTableRequest(id=[name, name], new_table_name="new"))
            await described(ns, name, "new")
            await ns.deregister_table(spec.DeregisterTableRequest(id=[name, "new"]))
            await ns.drop_namespace(spec.DropNamespaceRequest(id=[name, "sub"]))
            await catch(err.TableNotFoundError, described(ns, name, "new"))
        assert {request.method for request in server.requests} == {"GET", "POST", "HEAD", "DELETE"}
        assert server.signatures and len(server.signatures.accepted) == len(server.requests)
        always = {"host", "x-amz-date", "x-amz-content-sha256", "x-tenant"}
        assert all(signed >= always for signed in server.signatures.accepted)
        assert any("content-type" in signed for signed in server.signatures.accepted)


async def test_the_etag_of_a_known_table_is_signed_too() -> None:
    async with running(connected, signing(), **{"rest-table-cache.max-entries": "5"}) as (server, ns):
        await described(ns)
        await described(ns)
        assert ns.table_cache().hits == 1
        assert server.signatures is not None
        assert "if-none-match" in server.signatures.accepted[-1]


async def test_a_session_token_is_signed_and_what_proxies_change_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with signing(Signatures(keys={KEY: (SECRET, "sesame-token")})) as server:
        async with connected(server, **{"rest.session-token": "sesame-token"}) as ns:
            await described(ns)
        assert server.signatures and all("x-amz-security-token" in names for names in server.signatures.accepted)
        # Proxies may change these.
        assert all({"accept", "user-agent"}.isdisjoint(names) for names in server.signatures.accepted)
    assert caplog.records and "sesame" not in caplog.text


async def test_the_service_and_the_region_are_those_of_the_properties() -> None:
    with signing(Signatures(name="s3tables", region="us-west-2")) as server:
        async with connected(server, **{"rest.signing-name": "s3tables", "rest.signing-region": "us-west-2"}) as ns:
            await described(ns)
        async with connected(server) as ns:
            await catch(err.UnauthenticatedError, described(ns), r"correct service.*rest\.signing-name.*keys right\?")


async def test_a_bearer_token_goes_along_under_another_name() -> None:
    async with running(connected, signing(client=("me", "s3cret")), credential="me:s3cret") as (server, ns):
        await described(ns)
        server.expire_tokens()
        await described(ns)
        assert server.requests[-1].headers["Original-Authorization"].startswith("Bearer client-credentials-token")
        assert server.signatures and all("original-authorization" in names for names in server.signatures.accepted)


async def test_new_keys_of_the_chain_take_the_place_of_those_that_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    async with running(connected, signing(), keys="chain") as (server, ns):
        assert server.signatures
        await described(ns)
        server.signatures.expired.add(KEY)
        await catch(err.UnauthenticatedError, described(ns), "security token included in the request is expired")
        server.signatures.keys["AKIDNEW"] = ("sesame-new", None)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEW")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame-new")
        await ns.create_namespace(spec.CreateNamespaceRequest(id=["b"]))


@pytest.mark.parametrize(
    ("properties", "error", "text"),
    [
        (
            {"rest.signing-region": "eu-central-1"},
            err.UnauthenticatedError,
            "set rest.access-key-id and rest.secret-access-key",
        ),
        (STATIC, err.InvalidInputError, r"rest\.signing-region: unknown; set it, or AWS_REGION"),
    ],
)
async def test_missing_keys_and_regions_are_reported(
    properties: Mapping[str, str], error: type[Exception], text: str
) -> None:
    with signing() as server:
        usual = {"endpoint": server.endpoint, "rest.sigv4-enabled": "true"}
        async with AsyncNamespace.connect("iceberg", {**usual, **properties}) as ns:
            await catch(error, described(ns), text)
        assert not server.requests


async def test_a_wrong_secret_is_reported_without_the_request() -> None:
    with signing(Signatures(keys={KEY: ("another", "sesame-token")})) as server:
        async with connected(server, **{"rest.session-token": "sesame-token"}) as ns:
            caught = await catch(err.UnauthenticatedError, described(ns), r"does not match .*keys right\?")
        assert "sesame" not in str(caught.value) and "Canonical" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind", "body", "error", "text"),
    [
        (403, "AccessDeniedException:http://x/", {"Message": "User: x may not"}, err.PermissionDeniedError, "User"),
        (403, "com.amazon.coral.service#UnrecognizedClientException", {}, err.UnauthenticatedError, "keys right"),
        (400, "ThrottlingException", {"message": "Rate exceeded"}, None, ""),
        (503, "ServiceUnavailable", {"message": "later"}, err.ServiceUnavailableError, "later"),
        (403, "", {"error": {"message": "no", "type": "Forbidden", "code": 403}}, err.PermissionDeniedError, "no"),
        (403, "IncompleteSignatureException", "<html>no</html>", err.UnauthenticatedError, "keys right"),
    ],
)
async def test_errors_of_aws(status: int, kind: str, body: Any, error: type[Exception] | None, text: str) -> None:
    async with running(connected, signing(), max_retries="1" if error is None else "0") as (server, ns):
        server.fail(status, match="tables", headers={"x-amzn-ErrorType": kind} if kind else {}, body=body)
        with nullcontext() if error is None else pytest.raises(error, match=text):
            await described(ns)


def test_the_package_that_is_lacking_is_reported() -> None:
    script = """
import sys
sys.modules["aiobotocore"] = None
from lance_ns_async import AsyncNamespace
AsyncNamespace.connect("iceberg", {"endpoint": "http://127.0.0.1"})
AsyncNamespace.connect("iceberg", {"endpoint": "http://127.0.0.1", "rest.sigv4-enabled": "true"})
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    expected = "rest.sigv4-enabled needs: pip install 'lance-ns-async[glue]' (no module named aiobotocore"
    assert run.returncode and expected in run.stderr

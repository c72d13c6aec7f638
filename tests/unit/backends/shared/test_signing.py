"""Requests to Polaris with signatures by SigV4, with static keys or those of a role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)
from lance_namespace.errors import InvalidInputError, PermissionDeniedError, UnauthenticatedError

from lance_ns_async import AsyncNamespace
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.fakes.sigv4 import FakeSts, Signatures
from tests.support.glue import forget_aws

KEY, SECRET = "AKIDEXAMPLE", "sesame-secret"
ARN = "arn:aws:iam::123456789012:role/catalog"


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_aws(monkeypatch, tmp_path)


def signing(**options: Any) -> FakePolaris:
    server = FakePolaris(base="s3://lake", **{"credential": None, "signatures": Signatures(), **options})
    server.add_namespace("lake", ("a",))
    server.add_table("lake", ("a",), "t")
    return server


@asynccontextmanager
async def connected(server: FakePolaris | FakeIceberg, **more: str) -> AsyncIterator[AsyncNamespace]:
    usual = {
        "endpoint": server.endpoint,
        "rest.sigv4-enabled": "true",
        "rest.signing-region": "eu-central-1",
        "rest.access-key-id": KEY,
        "rest.secret-access-key": SECRET,
        "backoff_initial": "1ms",
        "backoff_max": "2ms",
    }
    impl = "polaris" if isinstance(server, FakePolaris) else "iceberg"
    async with AsyncNamespace.connect(impl, {**usual, **more}) as ns:
        yield ns


async def described(ns: AsyncNamespace, *id: str) -> None:
    await ns.describe_table(DescribeTableRequest(id=list(id or ("lake", "a", "t"))))


@pytest.mark.parametrize("name", ["plain", "a+b", "é漢字", "a=b&c", "~.-_", "$'()*!"])
async def test_every_kind_of_request_is_signed(name: str) -> None:
    with signing(realm="north") as server:
        async with connected(server, realm="north", **{"header.X-Tenant": " two "}) as ns:
            await ns.create_namespace(CreateNamespaceRequest(id=["lake", name], properties={"k": name}))
            assert (await ns.list_namespaces(ListNamespacesRequest(id=["lake", name]))).namespaces == []
            await ns.declare_table(DeclareTableRequest(id=["lake", name, f"{name}/t"], location="s3://lake/odd"))
            assert (await ns.list_tables(ListTablesRequest(id=["lake", name]))).tables == [f"{name}/t"]
            await described(ns, "lake", name, f"{name}/t")
            await ns.deregister_table(DeregisterTableRequest(id=["lake", name, f"{name}/t"]))
            await ns.drop_namespace(DropNamespaceRequest(id=["lake", name]))
        assert server.signatures and len(server.signatures.accepted) == len(server.requests)
        always = {"host", "x-amz-date", "x-amz-content-sha256", "x-tenant", "polaris-realm"}
        assert all(signed >= always for signed in server.signatures.accepted)


async def test_a_token_of_polaris_is_sent_beside_the_signature() -> None:
    with signing(credential=("me", "s3cret")) as server:
        async with connected(server, credential="me:s3cret") as ns:
            await described(ns)
            server.expire_tokens()
            await described(ns)
        assert server.signatures and all("original-authorization" in names for names in server.signatures.accepted)


async def test_rejected_signatures_and_denials_are_explained() -> None:
    with signing() as server:
        async with connected(server, **{"rest.signing-name": "glue"}) as ns:
            with pytest.raises(UnauthenticatedError, match=r"correct service.*rest\.signing-name.*keys right\?"):
                await described(ns)
        server.fail(403, headers={"x-amzn-ErrorType": "AccessDeniedException"}, body={"Message": "User: x may not"})
        async with connected(server) as ns:
            with pytest.raises(PermissionDeniedError, match="User: x may not"):
                await described(ns)


@pytest.fixture
def polaris() -> Iterator[FakePolaris]:
    with signing(signatures=Signatures(keys={})) as server:
        yield server


@pytest.fixture
def sts(polaris: FakePolaris) -> Iterator[FakeSts]:
    assert polaris.signatures
    own = Signatures("sts", "eu-central-1", must_sign=frozenset({"host", "x-amz-date"}))
    with FakeSts(own, polaris.signatures) as server:
        yield server


async def test_the_keys_of_a_role_sign(polaris: FakePolaris, sts: FakeSts) -> None:
    role = {
        "assume_role_arn": ARN,
        "assume_role_external_id": "lance",
        "assume_role_timeout_sec": "30m",
        "sts_endpoint": sts.url,
    }
    async with connected(polaris, **role) as ns:
        await described(ns)
        await described(ns)
    parameters = {name: value for name, value in sts.roles[0].items() if name not in ("Action", "Version")}
    assert parameters == {
        "RoleArn": ARN,
        "RoleSessionName": "lance-ns-async",
        "DurationSeconds": "1800",
        "ExternalId": "lance",
    }
    assert len(sts.roles) == 1
    assert "Credential=ASIAROLE1/" in polaris.requests[-1].headers["Authorization"]
    assert polaris.requests[-1].headers["X-Amz-Security-Token"] == "sesame-token-1"


async def test_rejected_keys_of_a_role_are_replaced(polaris: FakePolaris, sts: FakeSts) -> None:
    async with connected(polaris, assume_role_arn=ARN, sts_endpoint=sts.url) as ns:
        await described(ns)
        assert polaris.signatures
        polaris.signatures.expired.add("ASIAROLE1")
        await described(ns)
    assert len(sts.roles) == 2


async def test_iceberg_signs_with_a_role_too() -> None:
    signatures = Signatures(keys={})
    own = Signatures("sts", "us-east-1", must_sign=frozenset({"host", "x-amz-date"}))
    with FakeIceberg(signatures=signatures) as server, FakeSts(own, signatures) as sts:
        server.add_table(("a",), "t")
        role = {"assume_role_arn": ARN, "assume_role_region": "us-east-1", "sts_endpoint": sts.url}
        async with connected(server, **role) as ns:
            await described(ns, "a", "t")
        assert len(sts.roles) == 1 and len(signatures.accepted) == len(server.requests)


async def test_a_role_that_cannot_be_assumed_is_an_error(polaris: FakePolaris, sts: FakeSts) -> None:
    sts.fail(403, times=None)
    async with connected(polaris, assume_role_arn=ARN, sts_endpoint=sts.url) as ns:
        with pytest.raises(PermissionDeniedError, match="assume_role"):
            await described(ns)
    assert not polaris.requests


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"assume_role_arn": ARN}, "assume_role_arn: set rest.sigv4-enabled"),
        ({"rest.sigv4-enabled": "true", "assume_role_region": "eu-west-1"}, "give assume_role_arn"),
        ({"rest.signing-name": "glue"}, "rest_signing_name: set rest.sigv4-enabled to true with it"),
    ],
)
def test_properties_that_do_not_fit_together(properties: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        AsyncNamespace.connect("polaris", {"endpoint": "http://127.0.0.1", **properties})

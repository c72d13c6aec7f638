"""Vended credentials from end to end: Apache's Iceberg REST catalog, and moto's S3, which verifies the keys."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest
from lance_namespace.errors import UnauthenticatedError

from lance_ns_async import AsyncNamespace
from tests.fakes.http import Forwarder
from tests.fakes.server import Answer, Received
from tests.servers.iceberg_rest import IcebergRest, iceberg_rest
from tests.servers.process import KEY, REGION, S3, SECRET, s3
from tests.support.glue import forget_aws
from tests.support.lake import ROWS

_HOP_BY_HOP = frozenset({"content-length", "transfer-encoding", "connection", "keep-alive", "content-encoding"})


def _policy(action: str, **scope: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, **scope}]})


class StorageKeys:
    """Issues keys for a bucket of moto's S3, and withdraws them. From its creation on, moto checks each request."""

    def __init__(self, storage: S3) -> None:
        self._storage = storage
        self._roles: list[str] = []
        iam = self._client("iam", KEY, SECRET)
        iam.create_user(UserName="admin")
        iam.put_user_policy(UserName="admin", PolicyName="all", PolicyDocument=_policy("*", Resource="*"))
        admin = iam.create_access_key(UserName="admin")["AccessKey"]
        keys = admin["AccessKeyId"], admin["SecretAccessKey"]
        self._iam, self._sts = self._client("iam", *keys), self._client("sts", *keys)
        # The number of requests that moto still accepts with any key.
        url = f"{storage.endpoint}/moto-api/reset-auth"
        httpx.post(url, content="0", trust_env=False).raise_for_status()

    def issue(self) -> Mapping[str, str]:
        """Returns new keys of a new role, in Iceberg's spelling."""
        role = f"reader{len(self._roles)}"
        self._roles.append(role)
        trust = _policy("sts:AssumeRole", Principal={"AWS": "*"})
        arn = self._iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        bucket = f"arn:aws:s3:::{self._storage.bucket}"
        rights = _policy("s3:*", Resource=[bucket, f"{bucket}/*"])
        self._iam.put_role_policy(RoleName=role, PolicyName="all", PolicyDocument=rights)
        keys = self._sts.assume_role(RoleArn=arn, RoleSessionName="table")["Credentials"]
        return {
            "s3.access-key-id": keys["AccessKeyId"],
            "s3.secret-access-key": keys["SecretAccessKey"],
            "s3.session-token": keys["SessionToken"],
            "s3.endpoint": self._storage.endpoint,
            "s3.path-style-access": "true",
            "client.region": REGION,
        }

    def withdraw(self) -> None:
        for role in self._roles:
            if self._iam.list_role_policies(RoleName=role)["PolicyNames"]:
                self._iam.delete_role_policy(RoleName=role, PolicyName="all")

    def _client(self, service: str, key: str, secret: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self._storage.endpoint,
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )


class VendingCatalog(Forwarder):
    """Passes requests to an Iceberg REST catalog, and adds keys to each table that is loaded with the header for it."""

    def __init__(self, endpoint: str, keys: StorageKeys) -> None:
        super().__init__(endpoint)
        self._keys = keys
        self.seconds = 3600.0  # The validity of the next keys, as the catalog announces it
        self.issued: list[str] = []  # The ids of the issued keys

    def handle(self, request: Received) -> Answer:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in {*_HOP_BY_HOP, "host"}}
        response = self._target.request(request.method, request.path, headers=kept, content=request.body)
        headers = {name: value for name, value in response.headers.items() if name.lower() not in _HOP_BY_HOP}
        answer = Answer(response.status_code, response.content, headers)
        if "X-Iceberg-Access-Delegation" not in request.headers or not response.is_success or not response.content:
            return answer
        body = response.json()
        if "metadata" not in body:
            return answer
        keys = self._keys.issue()
        self.issued.append(keys["s3.access-key-id"])
        expiry = str(int((time.time() + self.seconds) * 1000))
        body["storage-credentials"] = [
            {"prefix": "s3://", "config": {**keys, "s3.session-token-expires-at-ms": expiry}}
        ]
        return Answer.of(body, response.status_code)


pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3"), "lake") as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with iceberg_rest(tmp_path_factory.mktemp("iceberg")) as running:
        yield running


@pytest.fixture(scope="module")
def keys(storage: S3) -> StorageKeys:
    return StorageKeys(storage)


@pytest.fixture
def catalog(
    server: IcebergRest, keys: StorageKeys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[VendingCatalog]:
    forget_aws(monkeypatch, tmp_path)
    with VendingCatalog(server.endpoint, keys) as running:
        yield running


async def declare(ns: AsyncNamespace, server: IcebergRest, name: str) -> list[str]:
    """Declares a table in the bucket; its Iceberg metadata stays in the folder of the server, which has no S3."""
    await ns.create_namespace(CreateNamespaceRequest(id=["db"], mode="ExistOk"))
    id = ["db", name]
    properties = {"write.metadata.path": f"file://{server.warehouse}/metadata-{name}"}
    await ns.declare_table(DeclareTableRequest(id=id, location=f"s3://lake/{name}", properties=properties))
    return id


async def test_data_is_written_and_read_with_vended_keys_alone(catalog: VendingCatalog, server: IcebergRest) -> None:
    async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as ns:
        id = await declare(ns, server, "orders")
        await ns.write(id, ROWS, mode="append")
        await ns.write(id, ROWS, mode="append")
        assert (await ns.open(id)).count_rows() == 2 * ROWS.num_rows
        assert (await ns.open(id)).to_table().slice(0, ROWS.num_rows) == ROWS
    assert len(catalog.issued) >= 2 and len(set(catalog.issued)) == len(catalog.issued)


async def test_other_keys_are_refused(catalog: VendingCatalog, server: IcebergRest, storage: S3) -> None:
    own = {f"storage.{name}": value for name, value in storage.storage.items()}
    async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as ns:
        id = await declare(ns, server, "secret")
        await ns.write(id, ROWS, mode="append")
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, **own}) as ns:
        with pytest.raises(UnauthenticatedError):
            await ns.open(id)


async def test_a_read_goes_on_after_its_keys_were_withdrawn(
    catalog: VendingCatalog, server: IcebergRest, keys: StorageKeys
) -> None:
    catalog.seconds = 1.0
    async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as ns:
        id = await declare(ns, server, "long")
        for _ in range(2):
            await ns.write(id, ROWS, mode="append")
        first, second = (await ns.open(id)).get_fragments()
        assert first.to_table() == ROWS
        before = len(catalog.issued)
        keys.withdraw()
        assert second.to_table() == ROWS
        assert len(catalog.issued) > before

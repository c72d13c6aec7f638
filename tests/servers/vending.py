"""Vended credentials on real servers: a proxy in front of an Iceberg REST catalog adds keys that moto's STS issues."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import boto3
import httpx

from tests.fakes.faults import Answer, Received
from tests.fakes.http import FakeServer
from tests.servers.s3 import KEY, REGION, S3, SECRET

_DELEGATION = "X-Iceberg-Access-Delegation"
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
        """Takes the rights from all keys that were issued so far."""
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


class VendingCatalog(FakeServer):
    """Passes requests to an Iceberg REST catalog, and adds keys to each table that is loaded with the header for it."""

    def __init__(self, endpoint: str, keys: StorageKeys) -> None:
        super().__init__()
        self._catalog = httpx.Client(base_url=endpoint, trust_env=False)
        self._keys = keys
        self.seconds = 3600.0
        """The validity of the next keys, as the catalog announces it."""
        self.issued: list[str] = []
        """The ids of the issued keys."""

    def stop(self) -> None:
        super().stop()
        self._catalog.close()

    def handle(self, request: Received) -> Answer:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in {*_HOP_BY_HOP, "host"}}
        response = self._catalog.request(request.method, request.path, headers=kept, content=request.body)
        headers = {name: value for name, value in response.headers.items() if name.lower() not in _HOP_BY_HOP}
        answer = Answer(response.status_code, response.content, headers)
        if _DELEGATION not in request.headers or not response.is_success or not response.content:
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

"""An S3 with one bucket by moto over a real socket; and a catalog that vends different keys of it each time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import httpx
import lance
import pyarrow as pa

from tests.fakes.glue.moto import StockMoto
from tests.fakes.http import FakeServer
from tests.fakes.polaris import FakePolaris
from tests.fakes.polaris.routes import VENDING
from tests.fakes.server import Answer, Received


class FakeS3(FakeServer):
    """It is empty after a stop."""

    def __init__(self) -> None:
        super().__init__()
        self._moto = StockMoto()

    @property
    def options(self) -> dict[str, str]:
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "hush", "aws_region": "us-east-1"}
        return {"aws_endpoint": self.url, "allow_http": "true", **keys}

    def start(self) -> None:
        super().start()
        httpx.put(f"{self.url}/lake", trust_env=False).raise_for_status()

    def stop(self) -> None:
        super().stop()
        self._moto.reset()

    def handle(self, request: Received) -> Answer:
        return self._moto.answer(request)


_KEY, _EXPIRY = b"<key>", b"<expiry>"
EXPIRED = Answer.of(b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>", 400)


class KeyedS3(FakeS3):
    """An S3 that refuses the access keys on its list, and accepts all others."""

    def __init__(self) -> None:
        super().__init__()
        self.revoked: set[str] = set()

    def handle(self, request: Received) -> Answer:
        signed = request.headers.get("Authorization", "")
        if any(f"Credential={key}/" in signed for key in self.revoked):
            return EXPIRED
        return super().handle(request)


class RenewingPolaris(FakePolaris):
    """A Polaris whose tables are in an S3, with a different vended key each time: `KEY1`, `KEY2` ..."""

    def __init__(self, s3: FakeS3, credential: tuple[str, str] | None = None, secret: str = "hush") -> None:
        config: dict[str, Any] = {
            "s3.access-key-id": _KEY.decode(),
            "s3.secret-access-key": secret,
            "s3.session-token-expires-at-ms": _EXPIRY.decode(),
            "s3.endpoint": s3.url,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }
        super().__init__(credential=credential, base="s3://lake", vends=[{"prefix": "s3://lake", "config": config}])
        self._s3 = s3
        self.lasts = 3600.0  # Announced lifetime of the next keys, in seconds
        self.issued: list[str] = []  # The vended keys

    def write_tables(self, number: int, rows: pa.Table, namespace: str = "shop.db", **options: Any) -> None:
        """Adds the tables `t0000`, `t0001`, ..., and writes the rows to each, with further options of Lance."""
        catalog, child = namespace.split(".")
        for name in self.add_lance_tables(catalog, (child,), number):
            lance.write_dataset(
                rows, f"s3://lake/{catalog}/{child}/{name}", storage_options=self._s3.options, **options
            )

    def handle(self, request: Received) -> Answer:
        answer = super().handle(request)
        if VENDING not in request.headers or _KEY not in answer.body:
            return answer
        key, until = self.give()
        return replace(answer, body=answer.body.replace(_KEY, key.encode()).replace(_EXPIRY, str(until).encode()))

    def give(self) -> tuple[str, int]:
        """Returns the id of a new key, and its expiry in milliseconds."""
        self.issued.append(f"KEY{len(self.issued) + 1}")
        return self.issued[-1], int((time.time() + self.lasts) * 1000)

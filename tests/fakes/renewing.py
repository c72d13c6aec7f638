"""A catalog that vends different keys each time, and a storage that refuses some of them later."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from .faults import Answer, Received
from .polaris import FakePolaris
from .polaris.routes import VENDING
from .s3 import FakeS3

_KEY, _EXPIRY = b"<key>", b"<expiry>"

_DENIED = Answer.of(b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>", 400)


class KeyedS3(FakeS3):
    """An S3 that refuses the access keys on its list, and accepts all others."""

    def __init__(self) -> None:
        super().__init__()
        self.revoked: set[str] = set()

    def handle(self, request: Received) -> Answer:
        signed = request.headers.get("Authorization", "")
        if any(f"Credential={key}/" in signed for key in self.revoked):
            return _DENIED
        return super().handle(request)


class RenewingPolaris(FakePolaris):
    """A Polaris whose tables are in an S3, with a different vended key each time: `KEY1`, `KEY2` ..."""

    def __init__(self, s3: FakeS3) -> None:
        config: dict[str, Any] = {
            "s3.access-key-id": _KEY.decode(),
            "s3.secret-access-key": "hush",
            "s3.session-token-expires-at-ms": _EXPIRY.decode(),
            "s3.endpoint": s3.url,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }
        super().__init__(credential=None, base="s3://lake", vends=[{"prefix": "s3://lake", "config": config}])
        self.lasts = 3600.0
        """Announced lifetime of the next keys, in seconds."""
        self.issued: list[str] = []
        """The vended keys."""

    def handle(self, request: Received) -> Answer:
        answer = super().handle(request)
        if VENDING not in request.headers or _KEY not in answer.body:
            return answer
        self.issued.append(f"KEY{len(self.issued) + 1}")
        expiry = str(int((time.time() + self.lasts) * 1000))
        return replace(
            answer, body=answer.body.replace(_KEY, self.issued[-1].encode()).replace(_EXPIRY, expiry.encode())
        )

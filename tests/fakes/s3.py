"""An S3 with one bucket, `lake`, by moto over a real socket."""

from __future__ import annotations

import httpx

from .faults import Answer, Received
from .glue.moto import StockMoto
from .http import FakeServer


class FakeS3(FakeServer):
    """It is empty after a stop."""

    def __init__(self) -> None:
        super().__init__()
        self._moto = StockMoto()

    @property
    def options(self) -> dict[str, str]:
        """The storage options for it."""
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

"""Requests to a fake server without conversions by a client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .http import FakeServer


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    server: FakeServer, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """Sends a path unchanged over a separate connection; text is also sent unchanged, other bodies as JSON."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    raw = body if isinstance(body, str | None) else json.dumps(body)
    try:
        connection.request(method, path, raw, dict(headers or {}))
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()

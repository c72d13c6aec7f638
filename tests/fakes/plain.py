"""An HTTP transport to a plain JSON service, opened in the same way as by a backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import HTTP_ERRORS, Code
from lance_ns_async.model import TableId
from lance_ns_async.settings import HttpSettings
from lance_ns_async.transports.http.token_sources import Tokens
from lance_ns_async.transports.http.transport import HttpTransport, open_http

TABLE = TableId(["db", "t"])
EAGER = Policy(max_retries=3, attempt_timeout=10.0, backoff_initial=0.0, backoff_max=0.0)


class PlainSettings(HttpSettings):
    """The settings of all backends with HTTP."""

    backend = "plain"


def read_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns code and message of an error such as `{"type": ..., "message": ...}`."""
    return (body["type"],), body["message"]


def as_it_is(body: Any) -> Any:
    return body


class Plain:
    """Calls a service, and records each attempt."""

    def __init__(self, http: HttpTransport) -> None:
        self.http = http
        self.calls: list[Call] = []

    @property
    def outcomes(self) -> list[str]:
        return [call.outcome for call in self.calls]

    async def ask(
        self, method: str = "GET", path: str = "/", *, decode: Callable[[Any], Any] = as_it_is, **more: Any
    ) -> Any:
        return await self.http.request(method, path, subject=TABLE, operation="op", decode=decode, **more)


@asynccontextmanager
async def plain(
    endpoint: str,
    properties: Mapping[str, str] | None = None,
    *,
    policy: Policy = EAGER,
    tokens: Tokens | None = None,
    by_environment: bool = False,
) -> AsyncIterator[Plain]:
    """Provides a transport to the service at `endpoint`; by a proxy only if the environment is to be read."""
    usual = {} if by_environment else {"proxy": "none"}
    settings = PlainSettings.parse({"endpoint": endpoint, **usual, **(properties or {})})
    caller = Caller(policy, HTTP_ERRORS)
    http = open_http(settings, caller, path="", read_error=read_error, tokens=lambda wire: tokens)
    client = Plain(http)
    try:
        with caller.observe(client.calls.append):
            yield client
    finally:
        await http.aclose()


def over(wire: httpx.AsyncBaseTransport, policy: Policy = EAGER) -> Plain:
    base = "http://catalog.example.com/api"
    return Plain(HttpTransport(wire, Caller(policy, HTTP_ERRORS), base=base, headers={}, read_error=read_error))

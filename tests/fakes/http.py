"""Base of the fake HTTP catalogs: recorded requests and faults on demand."""

from __future__ import annotations

import asyncio
import html
import http.client
import json
import re
import socket
import struct
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httpx
from aiohttp import web

from tests.fakes.server import Answer, Fault, RateLimit, Received, ThreadedServer, When


class FakeServer(ThreadedServer[Fault]):
    """An HTTP server with recorded requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Received] = []
        self._carried_out = 0

    @abstractmethod
    def handle(self, request: Received) -> Answer:
        """Performs a request; called with the lock held, in the server's thread."""

    def error(self, status: int) -> Answer:
        return Answer.of(HTTPStatus(status).phrase, status)

    @property
    def url(self) -> str:
        """Scheme, host and port; they stay the same after a restart."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def endpoint(self) -> str:
        return self.url

    def add_lance_tables(self: Any, *place: Any, stem: str = "t") -> list[str]:
        """Adds many Lance tables and returns their names: `t0000`, `t0001` ... Their number comes after the arguments
        of `add_table` above the name."""
        *above, count = place
        names = [f"{stem}{i:04}" for i in range(count)]
        for name in names:
            self.add_table(*above, name)
        return names

    def clear(self) -> None:
        self.requests.clear()
        self.connections = 0
        self.most_in_flight = self._in_flight

    def fail(
        self,
        status: int,
        *,
        times: int | None = 1,
        match: str = "",
        when: When = "before",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> None:
        """Answers with an error status: text and bytes as HTML, other values as JSON, None for the body of `error`."""
        answer = self.error(status) if body is None else Answer.of(body, status)
        self._add(Fault(match, times, when, answer.with_headers(headers or {})))

    def limit_rate(self, rate: float, *, burst: float | None = None, match: str = "") -> RateLimit:
        """Answers with 429 without Retry-After beyond `rate` requests per second, after a burst of one second's worth.
        This is how the rate limiter of Apache Polaris works."""
        limit = RateLimit(rate, rate if burst is None else burst, match, self.error(429))
        self._add(limit)
        return limit

    def cut(self, *, times: int | None = 1, match: str = "", when: When = "before") -> None:
        self._add(Fault(match, times, when, None))

    def reply(
        self,
        body: bytes | str,
        *,
        status: int = 200,
        content_type: str = "application/json",
        times: int | None = 1,
        match: str = "",
        when: When = "before",
    ) -> None:
        raw = body.encode() if isinstance(body, str) else body
        self._add(Fault(match, times, when, Answer(status, raw, {"Content-Type": content_type})))

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    async def _listen(self) -> asyncio.Server:
        # The low-level server is used because a router would decode `%2F` and `%2E` in paths.
        self._web = web.Server(self._respond, access_log=None)

        def connection() -> asyncio.Protocol:
            self.connections += 1
            return self._web()

        return await self._loop.create_server(connection, "127.0.0.1", self._port)

    async def _end_connections(self) -> None:
        # aiohttp's handlers suppress the cancellation that ends the loop, unless they know that their connection is
        # lost.
        for open_connection in self._web.connections:
            _reset(open_connection.transport)

    async def _respond(self, wire: web.BaseRequest) -> web.StreamResponse:
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            request = Received(wire.method, wire.raw_path, wire.headers, await wire.content.read(), self._carried_out)
            self.requests.append(request)
            await self._wait(request)
            answer = self._answer(request)
            if answer is None:
                _reset(wire.transport)
                return web.Response()
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        finally:
            self._in_flight -= 1

    def _answer(self, request: Received) -> Answer | None:
        with self._lock:
            fault = next((fault for fault in self._faults if fault.takes(request)), None)
            if fault is None:
                return self._carried(request)
            if fault.when == "after":
                self._carried(request)
            return fault.answer

    def _carried(self, request: Received) -> Answer:
        try:
            return self.handle(request)
        finally:
            self._carried_out += 1


def _reset(transport: asyncio.BaseTransport | None) -> None:
    if not isinstance(transport, asyncio.Transport):
        return
    # A socket without lingering is closed with RST, which clients see as a reset and not as an end.
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Forwarder(FakeServer):
    """Passes requests to another server."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._target = httpx.Client(base_url=endpoint, trust_env=False)

    def stop(self) -> None:
        super().stop()
        self._target.close()


ERROR_TYPES = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    419: "AuthenticationTimeoutException",
    429: "TooManyRequestsException",
    503: "SlowDownException",
}
_JAVA_LANG = {"IllegalArgumentException", "NullPointerException", "NumberFormatException"}


class Refusal(Exception):
    """An error in the catalog's own form; the default type depends on the status."""

    def __init__(self, status: int, type: str | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.type = type or ERROR_TYPES.get(status, "InternalServerError")

    def answer(self, *, typed: bool = True, stack: bool = False) -> Answer:
        """Returns the response; an error without a type has the empty string for it."""
        error: dict[str, Any] = {"message": str(self), "type": self.type if typed else "", "code": self.status}
        if stack:
            package = "java.lang" if self.type in _JAVA_LANG else "org.apache.iceberg.exceptions"
            frames = [f"\tat org.apache.iceberg.rest.Frame.call(Frame.java:{line})" for line in range(33)]
            last = "\tat java.base/java.lang.Thread.run(Thread.java:840)"
            error["stack"] = [f"{package}.{self.type}: {self}", *frames, last]
        return Answer.of({"error": error}, self.status)


def error_in(reply: Reply) -> tuple[int, str, str]:
    """Returns status, type and message of such an error in a response."""
    error = reply.json["error"]
    assert error["code"] == reply.status
    return reply.status, error["type"], error["message"]


_NO_STORE = {"Cache-Control": "must-revalidate,no-cache,no-store"}


class JettyError(Exception):
    """An error of Jetty, which does not reach the catalog's error handling."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def check_jetty_path(path: str, separator: str) -> None:
    """Raises an error for a raw path that Jetty considers ambiguous or suspicious, except for `separator`."""
    rest = path.replace(separator, "")
    for pattern, message in (
        (r"(?i)%2f", "Ambiguous URI path separator"),
        (r"%25", "Ambiguous URI path encoding"),
        (r"//", "Ambiguous URI empty segment"),
        (r"(?i)%[01][0-9a-f]|%7f|%5c", "Suspicious Path Character"),
    ):
        if re.search(pattern, rest):
            raise JettyError(400, message)
    if re.search(r"(?i)/(%2e){1,2}(/|$)", path):
        raise JettyError(400, "Ambiguous URI path segment")
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise JettyError(400, "Bad UTF-8 encoding") from None


def jetty_page(error: JettyError, request: Received) -> Answer:
    """Returns HTML, or JSON without an `error` for clients that request JSON; nothing for DELETE and PUT."""
    if request.method not in ("GET", "HEAD", "POST"):
        return Answer(error.status, b"", _NO_STORE)
    url = f"http://{request.headers['Host']}{request.path.partition('?')[0]}"
    if request.headers.get("Accept", "").startswith("application/json"):
        return Answer.of({"message": str(error), "url": url, "status": str(error.status)}, error.status)
    message = html.escape(str(error))
    text = (
        '<html>\n<head>\n<meta http-equiv="Content-Type" content="text/html;charset=ISO-8859-1"/>\n'
        f"<title>Error {error.status} {message}</title>\n</head>\n<body>\n"
        f"<h2>HTTP ERROR {error.status} {message}</h2>\n<table>\n<tr><th>URI:</th><td>{url}</td></tr>\n"
        f"<tr><th>STATUS:</th><td>{error.status}</td></tr>\n<tr><th>MESSAGE:</th><td>{message}</td></tr>\n</table>\n"
        '<hr/><a href="https://jetty.org/">Powered by Jetty:// 12.1.8</a><hr/>\n\n</body>\n</html>\n'
    )
    headers = {**_NO_STORE, "Content-Type": "text/html;charset=iso-8859-1"}
    return Answer(error.status, text.encode("latin-1", "replace"), headers)


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


def content(reply: Reply) -> Any:
    """Returns the type or code of an error, other JSON as it is, other content as text; None for an empty body."""
    if not reply.body:
        return None
    if not reply.headers.get("Content-Type", "").startswith("application/json"):
        return reply.body.decode()
    match reply.json:
        case {"error": {"type": kind}} | {"error_code": kind} | {"error": _, "code": kind}:
            return kind
        case other:
            return other


def check(reply: Reply, status: int, expected: Any) -> None:
    """Checks a response: of an expected object, only the fields in it; `...` accepts any content."""
    actual = content(reply)
    if isinstance(expected, dict) and isinstance(actual, dict):
        actual = {key: actual.get(key, "missing") for key in expected}
    assert (reply.status, expected if expected is ... else actual) == (status, expected)

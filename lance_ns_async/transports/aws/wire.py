"""What replaces parts of botocore: its HTTP session, the parsers of responses, and its logs.

The session follows no redirect, keeps no cookie and limits the size of responses.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import orjson
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory, AioRestJSONParser
from botocore.exceptions import HTTPClientError
from botocore.parsers import ResponseParserError

from lance_ns_async.transports.http.reuse import Trust
from lance_ns_async.transports.http.wire import ResponseTooLargeError

T = TypeVar("T")


class DirectSession(AIOHTTPSession):  # type: ignore[misc]  # the package ships no types
    """aiobotocore's session without cookies and redirects; a redirect would send the session token to its target."""

    def __init__(self, *, max_bytes: int, trust: Trust, **how: Any) -> None:
        super().__init__(**how)
        self._max_bytes = max_bytes
        self._trust = trust

    async def send(self, request: Any) -> Any:
        """Sends a request and returns the response, which is read to its end."""
        try:
            return await super().send(request)
        except HTTPClientError as e:
            if isinstance(cause := e.kwargs["error"], ResponseTooLargeError):
                raise cause from None
            raise

    async def _get_session(self, proxy_url: str | None) -> _Direct:
        session = await super()._get_session(proxy_url)
        self._trust.watch(session.connector)
        return _Direct(session, self._max_bytes)


class _Direct:
    """The part of a session that is used; a redirect is returned as a response, and not followed."""

    def __init__(self, session: Any, max_bytes: int) -> None:
        self._session = session
        self._max_bytes = max_bytes

    async def request(self, method: str, **how: Any) -> _DirectResponse:
        self._session.cookie_jar.clear()
        return _DirectResponse(await self._session.request(method, allow_redirects=False, **how), self._max_bytes)


class _DirectResponse:
    """The part of a response that is used, with a size limit."""

    def __init__(self, answer: Any, max_bytes: int) -> None:
        self.url, self.status, self.raw_headers = answer.url, answer.status, answer.raw_headers
        self._answer = answer
        self._max_bytes = max_bytes

    async def read(self) -> bytes:
        """Returns the whole body."""
        body = bytearray()
        size = self._answer.content_length or 0
        # The context closes the connection if the response is not read to its end.
        async with self._answer:
            if size <= self._max_bytes:
                async for chunk in self._answer.content.iter_any():
                    body += chunk
                    if (size := len(body)) > self._max_bytes:
                        break
        if size > self._max_bytes:
            raise ResponseTooLargeError(f"the answer is longer than {self._max_bytes} bytes (max_response_bytes)")
        return bytes(body)


_TALKATIVE = (
    "aiobotocore.endpoint",
    "aiobotocore.parsers",
    "botocore.auth",
    "botocore.endpoint",
    "botocore.parsers",
    "botocore.utils",
)
"""Loggers that quote requests, which contain the session token, and responses, in which STS returns new keys."""

_ours: ContextVar[bool] = ContextVar("lance_ns_async_aws_call", default=False)


async def call_unlogged(call: Awaitable[T]) -> T:
    """Returns the result of a call of botocore whose requests and responses are not logged, whatever the log level.

    Other users of botocore in the process log as before.
    """
    with suppress_logs():
        return await call


@contextmanager
def suppress_logs() -> Iterator[None]:
    """Suppresses the log records of botocore's work in this context that quote requests or responses."""
    _silence()
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


@cache
def _silence() -> None:
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not _ours.get()


_ERROR_MEMBERS = ("__type", "message", "Message")


class _PlainJson:
    """Parses successful responses as plain JSON, with times as numbers and with unknown members.

    botocore parses the errors.
    """

    async def parse(self, response: Any, shape: Any) -> Any:
        if response["status_code"] != 200 or (shape is not None and shape.event_stream_name):
            return await super().parse(response, shape)  # type: ignore[misc]  # that of the parser
        body = response["body"]
        if not isinstance(body, bytes):
            body = await body
        try:
            content = orjson.loads(body) if body else {}
        except ValueError as e:
            raise ResponseParserError(str(e)) from e
        if not isinstance(content, dict):
            raise ResponseParserError(f"a {type(content).__name__} instead of an object")
        headers = response["headers"]
        content["ResponseMetadata"] = {
            "HTTPStatusCode": 200,
            "HTTPHeaders": headers,
            "RequestId": headers.get("x-amzn-requestid"),
        }
        return content

    def _parse_body_as_json(self, body_contents: bytes) -> Any:
        """Returns the members of an error, or its text if it is not a JSON object.

        botocore itself fails on error formats that no service of AWS uses.
        """
        try:
            members = orjson.loads(body_contents) if body_contents else {}
        except ValueError:
            members = None
        if not isinstance(members, dict):
            return {"message": body_contents.decode("utf-8", "replace")}
        return {name: value for name, value in members.items() if name not in _ERROR_MEMBERS or isinstance(value, str)}


class PlainJsonParser(_PlainJson, AioJSONParser):  # type: ignore[misc]  # the package ships no types
    """Parses responses of services like Glue."""


class PlainRestJsonParser(_PlainJson, AioRestJSONParser):  # type: ignore[misc]  # the package ships no types
    """Parses responses of services like Lake Formation, whose operations are paths; members in headers are omitted."""


class PlainJsonParsers(AioResponseParserFactory):  # type: ignore[misc]  # the package ships no types
    """Factory of parsers: plain JSON for JSON, botocore's parsers for all other protocols."""

    def create_parser(self, protocol_name: str) -> Any:
        if protocol_name == "json":
            return PlainJsonParser(**self._defaults)
        if protocol_name == "rest-json":
            return PlainRestJsonParser(**self._defaults)
        return super().create_parser(protocol_name)

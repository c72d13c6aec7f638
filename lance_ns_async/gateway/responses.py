"""HTTP responses of the gateway: results of the namespace, and errors in the form of the spec."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Mapping
from hashlib import blake2b
from traceback import format_exception
from typing import Any, TypeVar
from uuid import uuid4

import orjson
from aiohttp import web
from lance_namespace.errors import ErrorCode, LanceNamespaceError

from lance_ns_async.errors import http_status, one_line, retry_after, shortened
from lance_ns_async.spec.routes import Route

T = TypeVar("T")

ARROW_FILE = "application/vnd.apache.arrow.file"

# Responses hold credentials and may change at any time. The default Server header would show library versions.
HEADERS = {"Cache-Control": "no-store", "Server": "lance-ns", "X-Content-Type-Options": "nosniff"}


_LONGEST_MESSAGE = 10_000

_CODES = {  # The codes of other statuses below 500 are INVALID_INPUT, and those of others INTERNAL.
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.PERMISSION_DENIED,
    404: ErrorCode.UNSUPPORTED,
    405: ErrorCode.UNSUPPORTED,
    503: ErrorCode.SERVICE_UNAVAILABLE,
}


class RequestError(Exception):
    """A request that the gateway itself refuses, with its HTTP status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code: ErrorCode = _CODES.get(status, ErrorCode.INVALID_INPUT if status < 500 else ErrorCode.INTERNAL)
        self.headers: Mapping[str, str] = headers or {}


def unavailable(reason: str, headers: Mapping[str, str] | None = None) -> RequestError:
    """Returns the refusal of a request that may succeed later."""
    message = f"Service unavailable: {reason}; try again later"
    return RequestError(503, message, headers or {"Retry-After": "10"})


class EventStream(web.StreamResponse):
    """A response of server-sent events; an error before the first part would have been another response."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        # A proxy would otherwise hold back events until it has many.
        super().__init__(headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        self.first = first
        self.rest = rest


async def respond(work: Awaitable[T], log: logging.Logger) -> T | web.Response:
    """Returns the result of `work`, or the response for its error; raises only what ends tasks or the process."""
    try:
        try:
            return await work
        except (LanceNamespaceError, RequestError) as problem:
            return error(problem)
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # the outermost handler: unexpected errors, including panics of Rust, are logged
        return internal(log_unexpected(e, log))


def result(route: Route, answer: Any) -> web.Response:
    """Returns the result as an HTTP response, in the form that the route requires."""
    match route.answer:
        case "fields":
            return json_response(answer.to_dict())
        case "count":
            return json_response(answer.count)
        case "text":
            return json_response(answer)
        case "metadata":
            return json_response(answer.metadata or {})
        case "file":
            return web.Response(body=answer.data, content_type=ARROW_FILE, headers=HEADERS)
        case "events":
            raise AssertionError(f"{route.operation}: its events are sent as they happen")


def json_response(content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Returns a response with a JSON body."""
    return web.Response(
        body=orjson.dumps(content),
        status=status,
        content_type="application/json",
        headers={**HEADERS, **(headers or {})},
    )


def text_response(text: str) -> web.Response:
    """Returns a response with a text body in the Prometheus format."""
    return web.Response(body=text.encode(), headers={**HEADERS, "Content-Type": "text/plain; version=0.0.4"})


def unless_unchanged(response: web.Response, known: str | None) -> web.Response:
    """Returns a response with its ETag, or status 304 if the header `If-None-Match` of the request has it."""
    if not isinstance(response.body, bytes):
        return response
    etag = f'"{blake2b(response.body, digest_size=16).hexdigest()}"'
    response.headers["ETag"] = etag
    # A proxy may have compressed the response, and then marks the tag as weak.
    if known is not None and etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return web.Response(status=304, headers={**HEADERS, "ETag": etag})
    return response


def error(problem: LanceNamespaceError | RequestError) -> web.Response:
    """Returns the response for an error; the catalog's wait time becomes the Retry-After header."""
    if isinstance(problem, RequestError):
        return _error(problem.status, problem.code, str(problem), problem.headers)
    wait = retry_after(problem)
    headers = {} if wait is None else {"Retry-After": str(math.ceil(wait))}
    return _error(http_status(problem), problem.code, str(problem), headers)


def log_unexpected(error: BaseException, log: logging.Logger) -> str:
    """Writes an unexpected error with its traceback to a log; returns the id of the entry."""
    instance = uuid4().hex
    # The log gets neither control characters nor text that UTF-8 cannot encode.
    trace = "\n".join(map(one_line, "".join(format_exception(error)).splitlines()))
    log.error("gateway: %s\n%s", instance, trace)
    return instance


def internal(instance: str) -> web.Response:
    """Returns the response for an unexpected error: it contains only the id of the log entry."""
    message = f"Internal error: the gateway failed; its log has the details under {instance}"
    return _error(500, ErrorCode.INTERNAL, message, {}, instance=instance)


def _error(status: int, code: ErrorCode, message: str, headers: Mapping[str, str], **more: str) -> web.Response:
    # Some messages have a value of the client.
    return json_response(
        {"error": shortened(message, _LONGEST_MESSAGE), "code": int(code), **more}, status=status, headers=headers
    )

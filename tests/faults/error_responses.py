"""Faults of HTTP with another status than 200: errors of servers and proxies, and those of AWS."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import lance_namespace.errors as err
from lance_namespace.errors import LanceNamespaceError

from tests.fakes.sockets import http
from tests.faults.faults import OVER_HTTP, Expected, Fault, Then, fault
from tests.faults.proxy import Act, End, always

_PAGE = "<html><head><style>h1 {color: red}</style></head><body><h1>Bad day</h1></body></html>"


def answer(status: int, content: Any = _PAGE, headers: Mapping[str, str] | None = None) -> Act:
    """Returns an action that responds with this status and content, which is a text or JSON."""
    raw = content if isinstance(content, str | bytes) else json.dumps(content)
    return always(http(status, raw, headers).data)


def _error(name: str, act: Act, status: int, error: type[LanceNamespaceError], then: Then, **own: Expected) -> Fault:
    """Returns a fault with a status and a page, of whose text only the errors of AWS have nothing."""
    glue = own.pop("glue", Expected(error, f"{status}: ", then))
    return fault(name, act, Expected(error, f"HTTP {status}: Bad day", then), hive=False, lists=True, glue=glue, **own)


_PLAIN: Sequence[tuple[int, type[LanceNamespaceError], Then]] = (
    (400, err.InvalidInputError, "never"),
    (401, err.UnauthenticatedError, "never"),
    (403, err.PermissionDeniedError, "never"),
    (407, err.UnauthenticatedError, "never"),
    (408, err.ServiceUnavailableError, "reads"),
    (418, err.InternalError, "never"),
    (429, err.ThrottlingError, "again"),
    *((it, err.ServiceUnavailableError, "reads") for it in (502, 503, 504)),
)
_NO_CATALOG = "HTTP 404: Bad day"
_CONFLICT = Expected(err.InternalError, "HTTP 409: Bad day", "never", declares=err.TableAlreadyExistsError)
_GLUE_500 = Expected(err.ServiceUnavailableError, "500: ", "reads")
_BARE_500 = Expected(err.InternalError, "HTTP 500: ", "doubt")
_POLARIS_501 = Expected(err.InternalError, "HTTP 501: Bad day", "never")

STATUSES: Sequence[Fault] = (
    *(_error(f"HTTP {status}", answer(status), status, error, then) for status, error, then in _PLAIN),
    fault(
        "HTTP 404 that is not from the catalog",
        answer(404),
        Expected(err.TableNotFoundError, _NO_CATALOG, "never", declares=err.NamespaceNotFoundError),
        glue=Expected(err.InvalidInputError, "404: ", "never"),
        unity=Expected(err.InternalError, _NO_CATALOG, "never"),
        rest=Expected(err.UnsupportedOperationError, _NO_CATALOG, "never"),
        lists=False,
    ),
    _error("HTTP 409", answer(409), 409, err.InternalError, "never", iceberg=_CONFLICT, polaris=_CONFLICT),
    _error("HTTP 500", answer(500), 500, err.InternalError, "doubt", glue=_GLUE_500),
    _error("HTTP 501", answer(501), 501, err.UnsupportedOperationError, "never", polaris=_POLARIS_501),
    fault(
        "HTTP 503 without a body",
        answer(503, ""),
        Expected(err.ServiceUnavailableError, "HTTP 503: ", "reads"),
        glue=Expected(err.ServiceUnavailableError, "503: ", "reads"),
    ),
)
"""Statuses with an HTML page, which is not from the catalog."""

_RETRY_AFTER: Sequence[tuple[int, type[LanceNamespaceError], str, Then]] = (
    *((429, err.ThrottlingError, it, "again") for it in ("0", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", "-5")),
    (503, err.ServiceUnavailableError, "0", "reads"),
    (429, err.ThrottlingError, "86400", "never"),
    (503, err.ServiceUnavailableError, "86400", "doubt"),
)

WAITS: Sequence[Fault] = tuple(
    _error(
        f"HTTP {status}, `Retry-After: {seconds}`",
        answer(status, headers={"Retry-After": seconds}),
        *(status, error, then),
    )
    for status, error, seconds, then in _RETRY_AFTER
)
"""Values of `Retry-After`; invalid ones are ignored."""

_ODD: Mapping[str, Any] = {
    "null": None,
    "a list": [1],
    "a string": "no",
    "nulls instead of strings": {"error": None, "error_code": None, "__type": None, "message": None},
    "objects instead of strings": {"error": {"type": {}, "message": []}, "error_code": {}, "__type": {}, "message": {}},
    "numbers instead of strings": {"error": {"type": 7, "message": 8}, "error_code": 7, "__type": 7, "message": 8},
    "lists nested 20,000 deep": "[" * 20_000,
    "invalid UTF-8": b'{"message": "\xff\xfe"}',
    "an integer of 5,000 digits": "9" * 5000,
}

ERROR_FORMS: Sequence[Fault] = (
    *(
        fault(
            f"HTTP 403: {name}",
            answer(403, content),
            Expected(err.PermissionDeniedError, "HTTP 403: ", "never"),
            glue=Expected(err.PermissionDeniedError, "403: ", "never"),
        )
        for name, content in _ODD.items()
    ),
    *(
        fault(
            f"HTTP 500: {name}",
            answer(500, _ODD[name]),
            Expected(err.InternalError, "HTTP 500: ", "doubt"),
            glue=_GLUE_500,
        )
        for name in ("null", "objects instead of strings")
    ),
)
"""Errors whose body does not have a format of the catalog's API."""

_SKEW = "Signature expired: 20200101T000000Z is now earlier than 20260101T000000Z"

_CODES: Sequence[tuple[str, int, str, type[LanceNamespaceError], Then]] = (
    ("ExpiredTokenException", 400, "The security token is expired", err.UnauthenticatedError, "never"),
    ("UnrecognizedClientException", 400, "The security token is invalid", err.UnauthenticatedError, "never"),
    ("InvalidSignatureException", 400, _SKEW, err.UnauthenticatedError, "never"),
    ("RequestExpired", 400, "Request has expired", err.UnauthenticatedError, "never"),
    ("AccessDeniedException", 400, "User is not authorized", err.PermissionDeniedError, "never"),
    ("ThrottlingException", 400, "Rate exceeded", err.ThrottlingError, "again"),
    ("TooManyRequestsException", 429, "Too many", err.ThrottlingError, "again"),
    ("RequestLimitExceeded", 503, "Slow down", err.ThrottlingError, "again"),
    ("ConcurrentModificationException", 400, "Others were faster", err.ConcurrentModificationError, "again"),
    ("OperationTimeoutException", 400, "The operation timed out", err.ServiceUnavailableError, "reads"),
    ("InternalServiceException", 500, "An internal error", err.ServiceUnavailableError, "reads"),
    ("ServiceUnavailable", 503, "Not now", err.ServiceUnavailableError, "reads"),
    ("BrandNewException", 400, "Who knows", err.InvalidInputError, "never"),
)


def _aws(code: str, status: int, message: str, error: type[LanceNamespaceError], then: Then) -> Fault:
    headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "r-1"}
    act = answer(status, {"__type": f"com.amazonaws.glue#{code}", "Message": message}, headers)
    expected = {"glue": Expected(error, f"{code}: {message}", then)}
    return Fault(f"{code}, HTTP {status}", act, ("glue",), expected, forwards=then not in ("again", "never"))


AWS: Sequence[Fault] = tuple(_aws(*code) for code in _CODES)  # Errors of AWS


def _status(code: int, line: bytes = b"", end: End = "keep") -> Fault:
    lines = line + b"\r\n" if line else b""
    response = b"HTTP/1.1 %d Odd\r\n%sContent-Length: 0\r\n\r\n" % (code, lines)
    name = f"HTTP {code}, no body, {line.decode()}".removesuffix(", ")
    return Fault(name, always(response, end), OVER_HTTP, forwards=False)


OTHER_STATUSES: Sequence[Fault] = (
    *(_status(code, b"Location: http://127.0.0.1:1/there") for code in (301, 302, 303, 307, 308)),
    *(_status(code) for code in (300, 304, 305, 402, 405, 406, 410, 412, 413, 414, 415, 417)),
    *(_status(code) for code in (421, 423, 425, 426, 428, 431, 451, 505, 507, 508, 511, 520, 599)),
    _status(401, b"WWW-Authenticate: Negotiate"),
    _status(408, b"Connection: close", "close"),
    _status(503, b"Retry-After: never"),
)
"""Other statuses, without a body, which the trial tests."""

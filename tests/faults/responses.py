"""Faults of complete responses: statuses, headers, and errors in unknown formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from tests.fakes.sockets import http
from tests.faults.server import Action
from tests.faults.table import LOST, Expected, Fault, Then, fault

_PAGE = "<html><head><style>h1 {color: red}</style></head><body><h1>Bad day</h1></body></html>"


def answer(status: int, content: Any = _PAGE, headers: Mapping[str, str] | None = None) -> Action:
    """Returns an action that responds with this status and content, which is a text or JSON."""
    raw = content if isinstance(content, str | bytes) else json.dumps(content)
    response = http(status, raw, headers).data
    return Action(lambda right: response)


def _as_http_1_0(right: bytes) -> bytes:
    return right.replace(b"HTTP/1.1", b"HTTP/1.0", 1)


def _before(head: bytes) -> Action:
    return Action(lambda right: head + b"\r\n\r\n" + right)


def _wrong_content_type(right: bytes) -> bytes:
    return right.replace(b"\r\n", b"\r\nContent-Type: text/html; charset=klingon\r\n", 1)


def _latin(right: bytes) -> bytes:
    return right.replace(b"\r\n", b"\r\nX-Odd: \xff\r\n", 1)


RIGHT: Sequence[Fault] = (
    fault("`100 Continue` before the response", _before(b"HTTP/1.1 100 Continue"), None),
    fault("`103 Early Hints` before the response", _before(b"HTTP/1.1 103 Early Hints\r\nLink: </>"), None),
    fault("HTTP/1.0", Action(_as_http_1_0, "close"), None),
    fault("a wrong `Content-Type`", Action(_wrong_content_type), None),
    fault("a header that is not UTF-8", Action(_latin), None, glue=LOST),
)
"""Unusual responses that are understood."""


def _page(status: int, error: type[LanceNamespaceError], then: Then) -> Expected:
    return Expected(error, f"HTTP {status}: Bad day", then)


def _aws(status: int, error: type[LanceNamespaceError], then: Then) -> Expected:
    return Expected(error, f"{status}: ", then)


_NO_CATALOG = "HTTP 404: Bad day"

_PLAIN: Sequence[tuple[int, type[LanceNamespaceError], Then]] = (
    (400, InvalidInputError, "never"),
    (401, UnauthenticatedError, "never"),
    (403, PermissionDeniedError, "never"),
    (407, UnauthenticatedError, "never"),
    (408, ServiceUnavailableError, "reads"),
    (418, InternalError, "never"),
    (429, ThrottlingError, "again"),
    (502, ServiceUnavailableError, "reads"),
    (503, ServiceUnavailableError, "reads"),
    (504, ServiceUnavailableError, "reads"),
)

STATUSES: Sequence[Fault] = (
    *(
        fault(f"HTTP {status}", answer(status), _page(status, error, then), glue=_aws(status, error, then))
        for status, error, then in _PLAIN
    ),
    fault(
        "HTTP 404 that is not from the catalog",
        answer(404),
        Expected(TableNotFoundError, _NO_CATALOG, "never", declares=NamespaceNotFoundError),
        glue=_aws(404, InvalidInputError, "never"),
        unity=Expected(InternalError, _NO_CATALOG, "never"),
        rest=Expected(UnsupportedOperationError, _NO_CATALOG, "never"),
        lists=False,
    ),
    fault(
        "HTTP 409",
        answer(409),
        Expected(InternalError, "HTTP 409: Bad day", "never", declares=TableAlreadyExistsError),
        glue=_aws(409, InternalError, "never"),
        unity=_page(409, InternalError, "never"),
        rest=_page(409, InternalError, "never"),
    ),
    fault(
        "HTTP 500", answer(500), _page(500, InternalError, "doubt"), glue=_aws(500, ServiceUnavailableError, "reads")
    ),
    fault(
        "HTTP 501",
        answer(501),
        _page(501, UnsupportedOperationError, "never"),
        glue=_aws(501, UnsupportedOperationError, "never"),
        polaris=_page(501, InternalError, "never"),
    ),
    fault(
        "HTTP 503 without a body",
        answer(503, ""),
        Expected(ServiceUnavailableError, "HTTP 503: ", "reads"),
        glue=_aws(503, ServiceUnavailableError, "reads"),
    ),
)
"""Statuses with an HTML page, which is not from the catalog."""

_RETRY_AFTER: Sequence[tuple[int, type[LanceNamespaceError], str, Then]] = (
    (429, ThrottlingError, "0", "again"),
    (429, ThrottlingError, "Wed, 21 Oct 2015 07:28:00 GMT", "again"),
    (429, ThrottlingError, "soon", "again"),
    (429, ThrottlingError, "-5", "again"),
    (503, ServiceUnavailableError, "0", "reads"),
    (429, ThrottlingError, "86400", "never"),
    (503, ServiceUnavailableError, "86400", "doubt"),
)

WAITS: Sequence[Fault] = tuple(
    fault(
        f"HTTP {status}, `Retry-After: {retry_after}`",
        answer(status, headers={"Retry-After": retry_after}),
        _page(status, error, then),
        glue=_aws(status, error, then),
    )
    for status, error, retry_after, then in _RETRY_AFTER
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
            Expected(PermissionDeniedError, "HTTP 403: ", "never"),
            glue=_aws(403, PermissionDeniedError, "never"),
        )
        for name, content in _ODD.items()
    ),
    *(
        fault(
            f"HTTP 500: {name}",
            answer(500, _ODD[name]),
            Expected(InternalError, "HTTP 500: ", "doubt"),
            glue=_aws(500, ServiceUnavailableError, "reads"),
        )
        for name in ("null", "objects instead of strings")
    ),
)
"""Errors whose body does not have a format of the catalog's API."""

"""Errors of AWS."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)

from tests.fakes.sockets import http
from tests.faults.server import Action
from tests.faults.table import Expected, Fault, Then, alone

_SKEW = "Signature expired: 20200101T000000Z is now earlier than 20260101T000000Z"


def _error(code: str, status: int, message: str) -> Action:
    body = json.dumps({"__type": f"com.amazonaws.glue#{code}", "Message": message})
    answer = http(status, body, {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "r-1"}).data
    return Action(lambda right: answer)


_CODES: Sequence[tuple[str, int, str, type[LanceNamespaceError], Then]] = (
    ("ExpiredTokenException", 400, "The security token is expired", UnauthenticatedError, "never"),
    ("UnrecognizedClientException", 400, "The security token is invalid", UnauthenticatedError, "never"),
    ("InvalidSignatureException", 400, _SKEW, UnauthenticatedError, "never"),
    ("RequestExpired", 400, "Request has expired", UnauthenticatedError, "never"),
    ("AccessDeniedException", 400, "User is not authorized", PermissionDeniedError, "never"),
    ("ThrottlingException", 400, "Rate exceeded", ThrottlingError, "again"),
    ("TooManyRequestsException", 429, "Too many", ThrottlingError, "again"),
    ("RequestLimitExceeded", 503, "Slow down", ThrottlingError, "again"),
    ("ConcurrentModificationException", 400, "Others were faster", ConcurrentModificationError, "again"),
    ("OperationTimeoutException", 400, "The operation timed out", ServiceUnavailableError, "reads"),
    ("InternalServiceException", 500, "An internal error", ServiceUnavailableError, "reads"),
    ("ServiceUnavailable", 503, "Not now", ServiceUnavailableError, "reads"),
    ("BrandNewException", 400, "Who knows", InvalidInputError, "never"),
)

AWS: Sequence[Fault] = tuple(
    alone("glue", f"{code}, HTTP {status}", _error(code, status, message), Expected(error, f"{code}: {message}", then))
    for code, status, message, error, then in _CODES
)

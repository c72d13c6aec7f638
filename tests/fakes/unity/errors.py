"""Errors of Unity Catalog servers, in the form of each version."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

from ..faults import Answer

Dialect = Literal["0.6", "0.4.1", "0.4.0"]
"""The version of the error codes: 0.5.0 and later, 0.4.1 only, or 0.4.0 and earlier."""

CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "TEMPORARILY_UNAVAILABLE",
}


_STACK = (
    "io.unitycatalog.server.exception.BaseException\n" + "\tat io.unitycatalog.server.Frame.call(Frame.java:1)\n" * 33
)


class UnityError(Exception):
    """An error of the newest version: a status, a code and a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def answer(self, dialect: Dialect) -> Answer:
        """Returns the response."""
        status, code = self.status, self.code
        if dialect != "0.6" and code.endswith("_NOT_FOUND"):
            code = "NOT_FOUND"
        if dialect == "0.4.0" and code.endswith("_ALREADY_EXISTS"):
            status, code = 409, "ALREADY_EXISTS"
        info = {"reason": code, "@type": "google.rpc.ErrorInfo"}
        body: dict[str, Any] = {"error_code": code, "details": [info], "message": str(self)}
        if dialect != "0.6":
            body = {
                **body,
                "details": [{**info, "metadata": {}}],
                "stack_trace": _STACK if dialect == "0.4.0" else None,
            }
        return Answer.of(body, status)


class Unserved(Exception):
    """The server's own refusal of a path or method, which does not reach the catalog's error handling."""

    def __init__(self, status: int, description: str | None = None) -> None:
        super().__init__(str(status))
        self.status = status
        self._description = description or HTTPStatus(status).phrase

    def answer(self) -> Answer:
        """Returns the response as plain text."""
        end = "\n" if self.status in (404, 405) else ""
        return plain(f"Status: {self.status}\nDescription: {self._description}{end}", self.status)


def plain(text: str, status: int = 200) -> Answer:
    """Returns a response of plain text."""
    return Answer(status, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})


def invalid(message: str) -> UnityError:
    """Returns the error for an invalid request."""
    return UnityError(400, "INVALID_ARGUMENT", message)


def internal(message: str) -> UnityError:
    """Returns an internal error, which invalid requests often cause."""
    return UnityError(500, "INTERNAL", message)


def lost_race(kind: str) -> UnityError:
    """Returns the error for a removal during which another request removed or changed the object."""
    return internal(
        f"Failed to delete {kind}: Row was updated or deleted by another transaction (or unsaved-value mapping was "
        "incorrect) : [row]"
    )


def missing(kind: str, name: str) -> UnityError:
    """Returns the error for a missing catalog, schema or table."""
    return UnityError(404, f"{kind.upper()}_NOT_FOUND", f"{kind} not found: {name}")


def exists(kind: str, name: str) -> UnityError:
    """Returns the error for a name that is in use; since 0.4.1, it is a bad request."""
    return UnityError(400, f"{kind.upper()}_ALREADY_EXISTS", f"{kind} already exists: {name}")


def forbidden(message: str = "Access denied.") -> UnityError:
    """Returns the error for a user without the right."""
    return UnityError(403, "PERMISSION_DENIED", message)


def unauthenticated(message: str) -> UnityError:
    """Returns the error for an unknown user."""
    return UnityError(401, "UNAUTHENTICATED", message)

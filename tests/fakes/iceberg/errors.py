"""Errors in the form of Iceberg REST catalogs."""

from __future__ import annotations

from typing import Any

from ..faults import Answer
from ..raw import Reply

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

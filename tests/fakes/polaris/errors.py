"""Error responses of a Polaris server: JSON errors, and statuses without a body."""

from __future__ import annotations

from ..faults import Answer
from ..iceberg.errors import Refusal

ERROR_TYPES = {
    400: "IllegalArgumentException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "NotAllowedException",
    406: "NotAcceptableException",
    409: "AlreadyExistsException",
    415: "NotSupportedException",
    419: "AuthenticationTimeoutException",
    500: "RuntimeException",
}
_CHALLENGES = {401: {"WWW-Authenticate": "Bearer"}}


class Bare(Exception):
    """An error that Polaris sends as a status without a body."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status

    def answer(self) -> Answer:
        """Returns the empty response, which has no content type."""
        return Answer(self.status, b"", {"Content-Encoding": "identity", **_CHALLENGES.get(self.status, {})})


def no_namespace(levels: tuple[str, ...]) -> Refusal:
    """Returns the error for a missing namespace or catalog; dots within and between levels are not distinguished."""
    shown = ".".join(levels) or "''"
    return Refusal(404, "NoSuchNamespaceException", f"Namespace does not exist: {shown}")


def no_table(levels: tuple[str, ...], name: str) -> Refusal:
    """Returns the error for a missing table, or a missing object above it."""
    message = f"Generic table does not exist: {'.'.join((*levels, name))}"
    return Refusal(404, "NoSuchTableException", message)


def refused(message: str) -> Refusal:
    """Returns the error for an impossible request."""
    return Refusal(400, "IllegalArgumentException", message)


def exists(message: str) -> Refusal:
    """Returns the error for a name that is in use."""
    return Refusal(409, "AlreadyExistsException", message)


def no_route(message: str = "Unable to find matching target resource method") -> Refusal:
    """Returns the error for an unknown path or method."""
    return Refusal(404, "NotFoundException", message)


def violated(constraint: str) -> Refusal:
    """Returns the error for a parameter or body that violates a declared constraint."""
    return Refusal(400, "ResteasyReactiveViolationException", constraint)

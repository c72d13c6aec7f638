"""What a Polaris server answers when it does not do what was asked: JSON errors, and bare statuses."""

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
    """An error that Polaris answers with a status and no body."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status

    def answer(self) -> Answer:
        """The empty answer, which has no content type."""
        return Answer(self.status, b"", {"Content-Encoding": "identity", **_CHALLENGES.get(self.status, {})})


def no_namespace(levels: tuple[str, ...]) -> Refusal:
    """A namespace, or the catalog it would be in, is missing; levels look alike whether dots join or part them."""
    shown = ".".join(levels) or "''"
    return Refusal(404, "NoSuchNamespaceException", f"Namespace does not exist: {shown}")


def no_table(levels: tuple[str, ...], name: str) -> Refusal:
    """A table is missing, or anything above it."""
    message = f"Generic table does not exist: {'.'.join((*levels, name))}"
    return Refusal(404, "NoSuchTableException", message)


def refused(message: str) -> Refusal:
    """The request asks for what cannot be."""
    return Refusal(400, "IllegalArgumentException", message)


def exists(message: str) -> Refusal:
    """The name is taken."""
    return Refusal(409, "AlreadyExistsException", message)


def no_route(message: str = "Unable to find matching target resource method") -> Refusal:
    """Path or method lead nowhere."""
    return Refusal(404, "NotFoundException", message)


def violated(constraint: str) -> Refusal:
    """A parameter or body breaks a declared constraint."""
    return Refusal(400, "ResteasyReactiveViolationException", constraint)

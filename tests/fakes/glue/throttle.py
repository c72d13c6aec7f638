"""The calls to which a fault of the fake Glue server applies: by operation, all or each n-th."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..faults import Answer, Delay, Fault, Hold, Received, When
from .calls import operation_of

_MESSAGES: Mapping[str, str] = {
    "AccessDenied": "User: arn:aws:iam::123456789012:user/fake is not authorized to perform: {action}",
    "ConcurrentModification": "Update failed due to concurrent modifications.",
    "EntityNotFound": "Entity Not Found",
    "ExpiredToken": "The security token included in the request is expired",
    "InvalidSignature": "The request signature we calculated does not match the signature you provided.",
    "Throttling": "Rate exceeded",
    "UnrecognizedClient": "The security token included in the request is invalid.",
}


def format_message(code: str, action: str) -> str:
    """Returns AWS's message for an error code; the code itself if that is unknown."""
    return _MESSAGES.get(code.removesuffix("Exception"), code).format(action=action)


@dataclass(slots=True)
class Occasion:
    """Selects calls whose operation matches the regular expression as a whole; an empty one selects all."""

    operation: str
    times: int | None = None
    """Remaining number of calls; None for no limit."""
    every: int = 1
    """Selects each n-th of them."""
    _seen: int = field(default=0, init=False)

    def takes(self, request: Received) -> bool:
        """Returns whether it applies to this call, which is then counted."""
        if self.times == 0 or not self.means(request):
            return False
        self._seen += 1
        if self._seen % self.every:
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def means(self, request: Received) -> bool:
        """Returns whether the call has the operation, without counting it."""
        return not self.operation or re.fullmatch(self.operation, operation_of(request)) is not None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response to some calls."""

    occasion: Occasion
    code: str
    message: str
    status: int | None
    """None for the usual status of the service."""
    headers: Mapping[str, str]


class OperationFault(Fault):
    """A fault for some operations."""

    def __init__(self, occasion: Occasion, when: When, answer: Answer | None) -> None:
        super().__init__("", None, when, answer)
        self._occasion = occasion

    def takes(self, request: Received) -> bool:
        return self._occasion.takes(request)


class OperationDelay(Delay):
    """A delay for some operations."""

    def __init__(self, occasion: Occasion, seconds: float) -> None:
        super().__init__("", None, seconds)
        self._occasion = occasion

    def takes(self, request: Received) -> bool:
        return self._occasion.takes(request)


class OperationHold(Hold):
    """A hold for some operations."""

    def __init__(self, occasion: Occasion) -> None:
        super().__init__("")
        self._occasion = occasion

    async def pass_by(self, request: Received) -> None:
        if self._occasion.means(request):
            await super().pass_by(request)

"""One remote call as a value, and what may be done after each of its failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError, ThrottlingError, UnauthenticatedError

from lance_ns_async.calls.slots import Outcome
from lance_ns_async.errors import ErrorTable, Failure, error_class, error_for
from lance_ns_async.model import Id

T = TypeVar("T")

STALE = "stale"
"""Code of a failure on a reused connection that the server had closed meanwhile; it is no sign of load."""

_LASTING = ("circuit", "untrusted")  # Codes of lasting unavailability: such calls are not sent again.

Recover = Callable[[Failure], Awaitable[bool]]
"""Removes the cause of a failure, which is rejected credentials or a stale connection; returns whether it did.

The call is then sent again, at once and with the next attempt number. This happens once for each call, in addition to
the retries, and within the time of the operation.
"""


# A frozen dataclass takes four times as long to create, which would be a tenth of the caller's time for a call.
class RemoteCall(NamedTuple, Generic[T]):
    """One remote call; see `Caller.call` for its attributes."""

    send: Callable[[], Awaitable[T]]
    subject: Id
    operation: str
    errors: ErrorTable
    safe: bool
    repeatable: bool
    recover: Recover | None
    until: float
    """Time at which the operation ends, on the clock of `time.monotonic`."""

    def error_class(self, failure: Failure) -> type[LanceNamespaceError]:
        """Returns the error class that the error table has for a failure."""
        return error_class(failure, self.subject, self.operation, self.errors)

    def error(self, failure: Failure) -> LanceNamespaceError:
        """Returns the error to raise for a failure."""
        if not self.safe and failure.delivered is None:
            failure.message += "; whether it took effect is unknown"
        return error_for(failure, self.subject, self.operation, self.errors)

    def outcome(self, failure: Failure) -> Outcome:
        """Returns what a failure says about the load of the catalog."""
        error = self.error_class(failure)
        if failure.codes[0] == STALE:
            return Outcome.ABANDONED
        if issubclass(error, ThrottlingError):
            return Outcome.THROTTLED
        if 503 in failure.codes:
            return Outcome.REFUSED
        return Outcome.FAILED if issubclass(error, ServiceUnavailableError) else Outcome.ANSWERED

    def may_retry(self, failure: Failure) -> bool:
        """Returns whether sending the call again after a failure is useful and safe."""
        if failure.codes[0] in _LASTING or not self._is_harmless_after(failure):
            return False
        return failure.transient or issubclass(self.error_class(failure), ServiceUnavailableError | ThrottlingError)

    def may_recover(self, failure: Failure) -> bool:
        """Returns whether `recover` can perhaps remove the cause, and sending the call again is safe."""
        if self.recover is None or not self._is_harmless_after(failure):
            return False
        return failure.codes[0] == STALE or issubclass(self.error_class(failure), UnauthenticatedError)

    def _is_harmless_after(self, failure: Failure) -> bool:
        return not failure.is_final and (self.safe or self.repeatable or failure.delivered is False)

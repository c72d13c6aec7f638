"""The policy of remote calls, and the caller that applies it: retries, time-outs, concurrency and error mapping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import partial, wraps
from math import inf
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import anyio
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)

from lance_ns_async.calls.hedging import hedge
from lance_ns_async.calls.observers import Call, Observer, Observers
from lance_ns_async.calls.repetition import Repetition, TryAgainError, backoff
from lance_ns_async.calls.traffic import Outcome, Traffic, find_or_create
from lance_ns_async.errors import ErrorTable, Failure, error_class, error_for, shortened, spelled
from lance_ns_async.model import Id

P = ParamSpec("P")
T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)

_LASTING = ("circuit", "untrusted")
"""Codes of lasting unavailability: such calls are not sent again."""

_LONGEST_NOTE = 400

_UNDO_SECONDS = 30.0
"""Seconds that all calls of a rollback together may take, beyond the operation's own time."""

_UNDO_GRACE = 10.0
"""Seconds after that until a rollback is cancelled, and the same time again until it is no longer awaited."""

_LONGEST_PAUSE_IN_THREAD = 1.0
"""Maximum seconds of a pause that holds a slot and a worker thread."""

STALE = "stale"
"""Code of a failure on a reused connection that the server had closed meanwhile; it is no sign of load."""

Recover = Callable[[Failure], Awaitable[bool]]
"""Removes the cause of a failure, which is rejected credentials or a stale connection; returns whether it did.

The call is then sent again, at once and with the next attempt number. This happens once for each call, in addition to
the retries, and within the time of the operation.
"""

_deadline: ContextVar[float | None] = ContextVar("lance_ns_async_deadline", default=None)


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of every remote call. All times are in seconds.

    Raises:
        InvalidInputError: A limit is too small.
    """

    max_retries: int = 3
    """How many times a call is sent again after a transient failure."""
    attempt_timeout: float = 30.0
    """Maximum time of one attempt of a call, without the wait for a slot."""
    operation_timeout: float = 120.0
    """Maximum time of one operation: waits, attempts and pauses of all its calls together."""
    backoff_initial: float = 0.1
    """The longest pause before the first retry; it doubles with each further retry.

    With `adaptive`, a call is sent again sooner if the catalog responds quickly to other calls.
    """
    backoff_max: float = 5.0
    """The longest pause before any retry, unless the server asks for a longer one."""
    max_in_flight: int = 32
    """Maximum number of concurrent calls, shared by all namespaces with the same properties."""
    adaptive: bool = True
    """Whether the limit of concurrent calls follows the catalog's capacity; if not, it is always `max_in_flight`."""
    circuit_after: float = 30.0
    """Time without any response after which calls fail without being sent, except for occasional probe calls."""
    hedge_after: float | None = None
    """Time after which a read under way is sent a second time, concurrently; None disables this."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            least = 1 if limit.name == "max_in_flight" else 0
            if value is None and limit.name == "hedge_after":
                continue
            is_positive = limit.name.endswith(("timeout", "hedge_after"))
            if not value >= least or (value == 0 and is_positive):
                bound = "above 0" if is_positive else f"at least {least}"
                raise InvalidInputError(f"policy: {limit.name} is {value!r}; it must be {bound}")

    def traffic(self, key: Hashable | None = None) -> Traffic:
        """Returns the slots for calls: shared by all users of the same key, or separate ones if the key is None."""
        create = partial(Traffic if key is None else partial(find_or_create, key), self.max_in_flight)
        return create(adaptive=self.adaptive, patience=self.circuit_after)

    def pause(self, attempt: int, pace: float = inf) -> float:
        """Returns a random pause in seconds after `attempt` attempts; the first one is at most `pace`."""
        return backoff(attempt, min(self.backoff_initial, pace), self.backoff_max)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Limits all calls inside the context to `seconds` in total; None leaves the current limit unchanged."""
    if seconds is None:
        yield
        return
    now = _deadline.get()
    until = monotonic() + seconds
    token = _deadline.set(until if now is None else min(now, until))
    try:
        yield
    finally:
        _deadline.reset(token)


@asynccontextmanager
async def rollback(undo: Callable[[BaseException], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Runs `undo` if the block ends with any exception, including cancellation, and raises that exception.

    The rollback has its own bounded time, beyond the operation's. A cancellation during the rollback waits for its
    end. An error of `undo` becomes a note of the exception.

    Args:
        undo: Receives the exception, and adds notes to it about what it could not undo.
    """
    try:
        yield
    except GeneratorExit:
        # The coroutine is being closed: it cannot await anything any more.
        raise
    except BaseException as error:  # panics of Lance, interrupts and memory errors need a rollback, too
        try:
            await undoing(undo)(error)
        except asyncio.CancelledError as e:
            if not isinstance(error, asyncio.CancelledError):
                raise
            for note in getattr(e, "__notes__", ()):
                error.add_note(note)
        except Exception as e:  # it must not replace the original error
            error.add_note(_not_undone(e))
        raise


def undoing(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Returns the cleanup function with its own bounded time; a cancellation during the cleanup waits for its end.

    If the cleanup then fails, a note of the cancellation says so, and a warning is logged.
    """

    @wraps(work)
    async def lasting(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _deadline.set(monotonic() + _UNDO_SECONDS)
        try:
            # The task inherits the deadline. A task group would be cancelled together with this coroutine.
            task = asyncio.ensure_future(work(*args, **kwargs))
        finally:
            _deadline.reset(token)
        cancellation: asyncio.CancelledError | None = None
        until, ends = monotonic() + _UNDO_SECONDS + _UNDO_GRACE, False
        # The scope shields from anyio's cancellations, which repeat; the separate task from those of asyncio.
        with anyio.CancelScope(shield=True):
            while not task.done():
                try:
                    await asyncio.wait([task], timeout=max(0.0, until - monotonic()))
                except asyncio.CancelledError as e:
                    cancellation = e
                if not task.done() and monotonic() >= until:
                    if ends:
                        break
                    task.cancel()
                    until, ends = until + _UNDO_GRACE, True
        error: BaseException | None
        if not task.done():
            error = ServiceUnavailableError("Service unavailable: the rollback does not end")
        elif task.cancelled():
            error = ServiceUnavailableError("Service unavailable: the rollback took too long")
        else:
            error = task.exception()
        if cancellation is not None:
            if error is not None:
                note = _not_undone(error)
                cancellation.add_note(note)
                # The code that awaits a cancelled task may not get this exception object.
                log.warning("cancelled, %s", note)
            raise cancellation
        if error is not None:
            raise error
        return task.result()

    return lasting


def _not_undone(error: BaseException) -> str:
    return f"and the rollback failed ({type(error).__name__}: {shortened(str(error), _LONGEST_NOTE)})"


def _asked_pause(error: BaseException) -> float:
    return error.retry_after if isinstance(error, TryAgainError) else 0.0


def remaining() -> float | None:
    """Returns the seconds left for the current operation; None outside of any operation."""
    until = _deadline.get()
    return None if until is None else until - monotonic()


class Caller:
    """Makes remote calls within a policy; one caller serves all users of one catalog."""

    def __init__(
        self,
        policy: Policy,
        errors: ErrorTable,
        observers: Observers | None = None,
        *,
        traffic: Traffic | None = None,
    ) -> None:
        self.policy = policy
        self._errors = errors
        self._observers = observers or Observers()
        self._enough = min(policy.attempt_timeout, policy.operation_timeout) / 2
        """Seconds within which a working catalog would have responded."""
        self.traffic: Traffic = traffic or policy.traffic()

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Passes every call made while the context is open to `observer`."""
        return self._observers.with_one(observer)

    def trace_headers(self) -> Mapping[str, str]:
        """Returns the HTTP headers by which a server adds its spans to the trace of the current call."""
        return self._observers.trace_headers() if self._observers.all else {}

    def beside(self, errors: ErrorTable, policy: Policy | None = None) -> Caller:
        """Returns a caller with its own slots and the same observers, so that neither waits for the other.

        Args:
            errors: Its error table.
            policy: Its policy; None means the policy of this caller.
        """
        return Caller(policy or self.policy, errors, self._observers)

    async def call(
        self,
        send: Callable[[], Awaitable[T]],
        *,
        subject: Id,
        operation: str,
        safe: bool = True,
        repeatable: bool = False,
        recover: Recover | None = None,
    ) -> T:
        """Returns the result of `send`, which is sent again within the policy after transient failures.

        Args:
            send: Sends the call once.
            subject: The object of the call, for messages.
            operation: The name of the operation, for messages, the error table and the circuit breaker.
            safe: Whether the call changes nothing. An unsafe call is sent again only if it certainly had no effect.
            repeatable: Whether the server recognizes an unsafe call that is sent again, and does not act twice.
            recover: Removes the cause of a failure, such as an expired token; None if no cause can be removed.

        Raises:
            LanceNamespaceError: The error that the error table has for the failure, or an error of `recover`.
        """
        until = _deadline.get() or monotonic() + self.policy.operation_timeout
        once = partial(self._attempt, send, subject, operation, 1, until)
        try:
            if safe and self.policy.hedge_after is not None:
                sendings = iter((once, partial(once, hedge=True)))
                return await hedge(lambda: next(sendings)(), after=self.policy.hedge_after, may=self.traffic.may_hedge)
            return await once()
        except Failure as failure:
            harmless = safe or repeatable
            may_recover = recover is not None and self._may_recover(failure, subject, operation, harmless)
            if not (may_recover or self._may_pass(failure, subject, operation, harmless)):
                raise self._error(failure, subject, operation, safe) from failure
            first = failure
        return await self._persist(send, first, subject, operation, safe, repeatable, recover, until)

    async def repeat(self, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `work`, which runs again after each `TryAgainError`.

        For work of several calls whose end decides whether it has to be repeated, such as compare-and-set. The policy
        sets the number of attempts and the pauses; the time is that of the operation.

        Args:
            work: Makes one attempt.

        Raises:
            LanceNamespaceError: Any error of `work`, or the error in its last `TryAgainError`.
        """
        until = _deadline.get() or monotonic() + self.policy.operation_timeout
        repetition = Repetition(
            self.policy.max_retries + 1,
            until,
            repeats=lambda error: isinstance(error, TryAgainError),
            pause=lambda error, attempt: self.policy.pause(attempt) + _asked_pause(error),
        )
        try:
            return await repetition.run(work)
        except TryAgainError as last:
            raise last.error from last.error.__cause__

    def repeat_in_thread(self, work: Callable[[], T], *, attempts: int) -> T:
        """Does the same as `repeat` for blocking work inside of one call, in the call's worker thread.

        The call keeps its slot during the pauses, so they are short, and the work is repeated for at most half of the
        time of an attempt.

        Args:
            work: Makes one attempt.
            attempts: Maximum number of attempts.

        Raises:
            LanceNamespaceError: Any error of `work`, or the error in its last `TryAgainError`.
        """
        left = remaining()
        repetition = Repetition(
            attempts,
            monotonic() + (self._enough if left is None else min(left, self._enough)),
            repeats=lambda error: isinstance(error, TryAgainError),
            pause=lambda _, attempt: min(self.policy.pause(attempt), _LONGEST_PAUSE_IN_THREAD),
        )
        try:
            return repetition.run_in_thread(work)
        except TryAgainError as last:
            raise last.error from last.error.__cause__

    async def _attempt(
        self,
        send: Callable[[], Awaitable[T]],
        subject: Id,
        operation: str,
        attempt: int,
        until: float,
        hedge: bool = False,
    ) -> T:
        started_at = await self.traffic.enter(operation, subject, until=until)
        text, outcome = "failed", Outcome.ABANDONED
        try:
            limit = min(self.policy.attempt_timeout, until - started_at)
            async with asyncio.timeout(limit):
                result = await send()
            text, outcome = "ok", Outcome.ANSWERED
            return result
        except TimeoutError:
            text, outcome = "timeout", Outcome.FAILED if limit >= self._enough else Outcome.ABANDONED
            raise Failure("timeout", message=f"no answer within {max(limit, 0):.3g} s") from None
        except Failure as failure:
            text, outcome = str(failure.codes[0]), self._outcome(failure, subject, operation)
            # Throttled calls and lost races need the full pause.
            if issubclass(error_class(failure, subject, operation, self._errors), ServiceUnavailableError):
                failure.pace, failure.pauses_since = self.traffic.pace(started_at), monotonic()
            raise
        except LanceNamespaceError as error:
            text, outcome = type(error).__name__, Outcome.ANSWERED
            raise
        except asyncio.CancelledError:
            text = "cancelled"
            raise
        finally:
            self._notify(operation, subject, attempt, monotonic() - started_at, text, hedge)
            await self.traffic.leave(started_at, operation, subject, outcome, why=text, until=until)

    def _outcome(self, failure: Failure, subject: Id, operation: str) -> Outcome:
        error = error_class(failure, subject, operation, self._errors)
        if failure.codes[0] == STALE:
            return Outcome.ABANDONED
        if issubclass(error, ThrottlingError):
            return Outcome.THROTTLED
        if 503 in failure.codes:
            return Outcome.REFUSED
        return Outcome.FAILED if issubclass(error, ServiceUnavailableError) else Outcome.ANSWERED

    async def _persist(
        self,
        send: Callable[[], Awaitable[T]],
        first: Failure,
        subject: Id,
        operation: str,
        safe: bool,
        repeatable: bool,
        recover: Recover | None,
        until: float,
    ) -> T:
        """Continues a call after the failure of its first attempt."""
        harmless = safe or repeatable
        sent, may_recover = 1, recover is not None
        previous: Failure | None = first
        responses = self.traffic.responses

        async def attempt() -> T:
            nonlocal sent, previous
            if previous is not None:
                failure, previous = previous, None
                raise failure
            sent += 1
            return await self._attempt(send, subject, operation, sent, until)

        async def again() -> T:
            nonlocal may_recover
            try:
                return await attempt()
            except Failure as failure:
                if not may_recover or recover is None or not self._may_recover(failure, subject, operation, harmless):
                    raise
                if not await recover(failure):
                    raise
            may_recover = False
            return await attempt()

        def is_throttle(failure: BaseException) -> bool:
            return isinstance(failure, Failure) and issubclass(
                error_class(failure, subject, operation, self._errors), ThrottlingError
            )

        def spares(failure: BaseException) -> bool:
            # While other calls get responses, a throttled call was sent too early, and the catalog works.
            nonlocal responses
            before, responses = responses, self.traffic.responses
            return responses > before and is_throttle(failure)

        repetition = Repetition(
            self.policy.max_retries + 1,
            until,
            repeats=lambda failure: (
                isinstance(failure, Failure) and self._may_pass(failure, subject, operation, harmless)
            ),
            pause=self._pause,
            permits=lambda failure: self.traffic.may_repeat(is_throttle=is_throttle(failure)),
            spares=spares,
        )
        try:
            return await repetition.run(again)
        except Failure as last:
            last.attempts = sent
            if repetition.is_late:
                wait = f", because the server asks to wait {last.retry_after:g} s" if last.retry_after else ""
                last.message += f"; not sent again within the operation's time{wait}"
            if repetition.is_refused:
                last.message += "; not sent again, because most calls to this catalog fail"
            raise self._error(last, subject, operation, safe) from last

    def _may_pass(self, failure: Failure, subject: Id, operation: str, safe: bool) -> bool:
        """Returns whether sending the call again is useful and safe."""
        if failure.is_final or failure.codes[0] in _LASTING or not (safe or failure.delivered is False):
            return False
        error = error_class(failure, subject, operation, self._errors)
        return failure.transient or issubclass(error, ServiceUnavailableError | ThrottlingError)

    def _may_recover(self, failure: Failure, subject: Id, operation: str, safe: bool) -> bool:
        """Returns whether the cause of a failure can perhaps be removed, and sending the call again is safe."""
        if failure.is_final or not (safe or failure.delivered is False):
            return False
        error = error_class(failure, subject, operation, self._errors)
        return failure.codes[0] == STALE or issubclass(error, UnauthenticatedError)

    def _error(self, failure: Failure, subject: Id, operation: str, safe: bool) -> LanceNamespaceError:
        if not safe and failure.delivered is None:
            failure.message += "; whether it took effect is unknown"
        return error_for(failure, subject, operation, self._errors)

    def _pause(self, failure: BaseException, attempt: int) -> float:
        assert isinstance(failure, Failure)
        pause = self.policy.pause(attempt, failure.pace) + (failure.retry_after or 0.0)
        over = 0.0 if failure.pauses_since is None else monotonic() - failure.pauses_since
        return max(0.0, pause - over)

    def _notify(self, operation: str, subject: Id, attempt: int, seconds: float, outcome: str, hedge: bool) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s %s: %s in %.1f ms, attempt %d", operation, spelled(subject), outcome, seconds * 1e3, attempt)
        if self._observers.all:
            self._observers.notify(Call(operation, subject, attempt, seconds, outcome, hedge))

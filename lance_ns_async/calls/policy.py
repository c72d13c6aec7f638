"""The limits every remote call obeys, and the caller that applies them: retry, time-out, concurrency, errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import partial, wraps
from math import inf
from random import uniform
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import anyio
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError, ThrottlingError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from lance_ns_async.calls.hedging import hedged
from lance_ns_async.calls.observers import Call, Observer, Observers
from lance_ns_async.calls.traffic import Outcome, Traffic, shared
from lance_ns_async.errors import ErrorTable, Failure, error_class, error_for, shortened, spelled
from lance_ns_async.model import Id

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

_LASTING = ("circuit", "untrusted")
"""Failures of a server that is not available, and will not be soon: none of these calls is sent again."""

_LONGEST_NOTE = 400

_UNDO_SECONDS = 30.0
"""How long the calls of a rollback may take together, beyond the operation's own time."""

_UNDO_GRACE = 10.0
"""Seconds after that before a rollback that still goes on is cancelled, and again before nobody waits for it."""

_deadline: ContextVar[float | None] = ContextVar("lance_ns_async_deadline", default=None)


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits every remote call obeys. All times are seconds."""

    max_retries: int = 3
    """How often a call is sent again after it failed for a passing reason."""
    attempt_timeout: float = 30.0
    """How long one sending of a call may take; waiting for a slot does not count."""
    operation_timeout: float = 120.0
    """How long one operation may take in all: waiting, attempts and pauses of its calls together."""
    backoff_initial: float = 0.1
    """The longest pause before the first repetition; it doubles from one to the next.

    With `adaptive`, a call that failed by accident is sent again sooner where the catalog answers sooner.
    """
    backoff_max: float = 5.0
    """The longest pause of all, unless the server asks for a longer one."""
    max_in_flight: int = 32
    """How many calls may be under way at once, those of all namespaces with the same properties together."""
    adaptive: bool = True
    """Whether fewer are under way while the catalog bears no more; if not, `max_in_flight` may always be."""
    circuit_after: float = 30.0
    """How long a catalog may answer nothing at all before calls fail unsent, but for one now and then."""
    hedge_after: float | None = None
    """How long a read may take before it is sent a second time, beside the first; None for never."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            least = 1 if limit.name == "max_in_flight" else 0
            if value is None and limit.name == "hedge_after":
                continue
            if not value >= least or (value == 0 and limit.name.endswith(("timeout", "hedge_after"))):
                raise InvalidInputError(f"policy: {limit.name} is {value!r}, which is too little")

    def traffic(self, key: Hashable | None = None) -> Traffic:
        """Slots for calls: the same ones for the same key, and for None ones of their own."""
        made = partial(Traffic if key is None else partial(shared, key), self.max_in_flight)
        return made(adaptive=self.adaptive, patience=self.circuit_after)

    def pause(self, attempt: int, pace: float = inf) -> float:
        """How long to wait, by chance, before what was tried that often is tried again."""
        return uniform(0, min(self.backoff_max, min(self.backoff_initial, pace) * 2.0 ** min(attempt - 1, 64)))


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Bounds all calls made inside it to so many seconds together; None leaves the bound as it is."""
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
    """Runs `undo` if the block ends by any exception, cancellations and interrupts included, and raises that one.

    `undo` is given the exception, and adds notes to it about what it could not undo. It has time of its own, beyond
    the operation's, but a bounded one; whoever cancels it meanwhile waits for its end. What it raises itself becomes
    a note, too.
    """
    try:
        yield
    except GeneratorExit:
        # The coroutine is thrown away: nothing can be awaited in it any more.
        raise
    except BaseException as error:  # a panic of Lance, an interrupt or a lack of memory leave as much behind
        try:
            await undoing(undo)(error)
        except asyncio.CancelledError as e:
            if not isinstance(error, asyncio.CancelledError):
                raise
            for note in getattr(e, "__notes__", ()):
                error.add_note(note)
        except Exception as e:  # it must not take the place of what went wrong at first
            error.add_note(_not_undone(e))
        raise


def undoing(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Gives what puts a failure right some time of its own; whoever cancels it meanwhile waits for its end.

    Where it then fails, the cancellation has a note that says so, which is logged, too.
    """

    @wraps(work)
    async def lasting(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _deadline.set(monotonic() + _UNDO_SECONDS)
        try:
            # It takes the deadline with it. A group would be cancelled with whoever waits; this is waited for below.
            task = asyncio.ensure_future(work(*args, **kwargs))
        finally:
            _deadline.reset(token)
        cancelled: asyncio.CancelledError | None = None
        until, ends = monotonic() + _UNDO_SECONDS + _UNDO_GRACE, False
        # The scope keeps anyio's cancellations away, which would come again and again, and the task asyncio's.
        with anyio.CancelScope(shield=True):
            while not task.done():
                try:
                    await asyncio.wait([task], timeout=max(0.0, until - monotonic()))
                except asyncio.CancelledError as e:
                    cancelled = e
                if not task.done() and monotonic() >= until:
                    if ends:
                        break
                    task.cancel()
                    until, ends = until + _UNDO_GRACE, True
        failed: BaseException | None
        if not task.done():
            failed = ServiceUnavailableError("Service unavailable: undoing what failed does not end")
        elif task.cancelled():
            failed = ServiceUnavailableError("Service unavailable: undoing what failed took too long")
        else:
            failed = task.exception()
        if cancelled is not None:
            if failed is not None:
                note = _not_undone(failed)
                cancelled.add_note(note)
                # What awaits a cancelled task need not get to see this very error.
                log.warning("cancelled, %s", note)
            raise cancelled
        if failed is not None:
            raise failed
        return task.result()

    return lasting


def _not_undone(error: BaseException) -> str:
    return f"and to undo what was begun failed ({type(error).__name__}: {shortened(str(error), _LONGEST_NOTE)})"


def remaining() -> float | None:
    """Seconds left to the operation under way; None outside of any."""
    until = _deadline.get()
    return None if until is None else until - monotonic()


class Caller:
    """Makes remote calls within a policy; one caller serves all callers of one catalog."""

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
        """Seconds in which a catalog that is well would have answered."""
        self.traffic = traffic or policy.traffic()

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Tells `observer` of every call made while the context is open."""
        return self._observers.with_one(observer)

    def beside(self, errors: ErrorTable) -> Caller:
        """A caller with slots of its own, so that neither waits for the other, and the same observers."""
        return Caller(self.policy, errors, self._observers)

    async def call(self, send: Callable[[], Awaitable[T]], *, subject: Id, operation: str, safe: bool = True) -> T:
        """What `send` gives, sent again within the policy while it fails for a passing reason.

        A call that is not `safe` changes something: it is sent again only if it certainly did nothing so far.
        Raises the `lance_namespace.errors` error that the failure means.
        """
        until = _deadline.get() or monotonic() + self.policy.operation_timeout
        once = partial(self._attempt, send, subject, operation, 1, until)
        try:
            if safe and self.policy.hedge_after is not None:
                sendings = iter((once, partial(once, hedge=True)))
                return await hedged(lambda: next(sendings)(), after=self.policy.hedge_after, may=self.traffic.may_hedge)
            return await once()
        except Failure as failure:
            if not self._may_pass(failure, subject, operation, safe):
                raise self._error(failure, subject, operation, safe) from failure
            first = failure
        return await self._persist(send, first, subject, operation, safe, until)

    async def _attempt(
        self,
        send: Callable[[], Awaitable[T]],
        subject: Id,
        operation: str,
        attempt: int,
        until: float,
        hedge: bool = False,
    ) -> T:
        started = await self.traffic.enter(operation, subject, until=until)
        told, became = "failed", Outcome.ABANDONED
        try:
            limit = min(self.policy.attempt_timeout, until - started)
            async with asyncio.timeout(limit):
                result = await send()
            told, became = "ok", Outcome.ANSWERED
            return result
        except TimeoutError:
            told, became = "timeout", Outcome.FAILED if limit >= self._enough else Outcome.ABANDONED
            raise Failure("timeout", message=f"no answer within {max(limit, 0):.3g} s") from None
        except Failure as failure:
            told, became = str(failure.codes[0]), self._became(failure, subject, operation)
            # Those who are throttled, or lost a race, are to wait.
            if issubclass(error_class(failure, subject, operation, self._errors), ServiceUnavailableError):
                failure.pace, failure.pauses_since = self.traffic.pace(started), monotonic()
            raise
        except LanceNamespaceError as error:
            told, became = type(error).__name__, Outcome.ANSWERED
            raise
        except asyncio.CancelledError:
            told = "cancelled"
            raise
        finally:
            self._tell(operation, subject, attempt, monotonic() - started, told, hedge)
            await self.traffic.leave(started, operation, subject, became, why=told, until=until)

    def _became(self, failure: Failure, subject: Id, operation: str) -> Outcome:
        error = error_class(failure, subject, operation, self._errors)
        if issubclass(error, ThrottlingError) or 503 in failure.codes:
            return Outcome.REFUSED
        return Outcome.FAILED if issubclass(error, ServiceUnavailableError) else Outcome.ANSWERED

    async def _persist(
        self,
        send: Callable[[], Awaitable[T]],
        first: Failure,
        subject: Id,
        operation: str,
        safe: bool,
        until: float,
    ) -> T:
        attempt = 0

        async def again() -> T:
            nonlocal attempt
            attempt += 1
            if attempt == 1:
                raise first
            return await self._attempt(send, subject, operation, attempt, until)

        def passing(failure: BaseException) -> bool:
            return isinstance(failure, Failure) and self._may_pass(failure, subject, operation, safe)

        too_late = too_many = False

        def stop(state: RetryCallState) -> bool:
            nonlocal too_late, too_many
            if stop_after_attempt(self.policy.max_retries + 1)(state):
                return True
            too_late = monotonic() + state.upcoming_sleep >= until
            too_many = not too_late and not self.traffic.may_repeat()
            return too_late or too_many

        retrying = AsyncRetrying(
            sleep=asyncio.sleep,
            retry=retry_if_exception(passing),
            wait=self._pause,
            stop=stop,
            reraise=True,
        )
        try:
            return await retrying(again)
        except Failure as last:
            last.attempts = attempt
            if too_late:
                asked = f", for the server asks to wait {last.retry_after:g} s" if last.retry_after else ""
                last.message += f"; not sent again within the operation's time{asked}"
            if too_many:
                last.message += "; not sent again, as most calls to this catalog fail"
            raise self._error(last, subject, operation, safe) from last

    def _may_pass(self, failure: Failure, subject: Id, operation: str, safe: bool) -> bool:
        """Whether it is of use, and harmless, to send the call again."""
        if failure.codes[0] in _LASTING or not (safe or failure.delivered is False):
            return False
        error = error_class(failure, subject, operation, self._errors)
        return failure.transient or issubclass(error, ServiceUnavailableError | ThrottlingError)

    def _error(self, failure: Failure, subject: Id, operation: str, safe: bool) -> LanceNamespaceError:
        if not safe and failure.delivered is None:
            failure.message += "; whether it took effect is unknown"
        return error_for(failure, subject, operation, self._errors)

    def _pause(self, state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        assert isinstance(failure, Failure)
        pause = self.policy.pause(state.attempt_number, failure.pace) + (failure.retry_after or 0.0)
        over = 0.0 if failure.pauses_since is None else monotonic() - failure.pauses_since
        return max(0.0, pause - over)

    def _tell(self, operation: str, subject: Id, attempt: int, seconds: float, outcome: str, hedge: bool) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s %s: %s in %.1f ms, attempt %d", operation, spelled(subject), outcome, seconds * 1e3, attempt)
        if self._observers.all:
            self._observers.tell(Call(operation, subject, attempt, seconds, outcome, hedge))

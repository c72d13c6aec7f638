"""The caller, which makes remote calls within a policy: attempts, hedged calls, time-outs and error mapping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError, ThrottlingError, UnauthenticatedError

from lance_ns_async.calls.deadline import operation_end, remaining
from lance_ns_async.calls.observers import Call, Observer, Observers, http_status
from lance_ns_async.calls.policy import Policy, Repetition, TryAgainError
from lance_ns_async.calls.slots import CallOutcome, Slots
from lance_ns_async.calls.steps import begin_step, scheduler
from lance_ns_async.errors import ErrorTable, Failure, error_class, error_for, spelled
from lance_ns_async.model import Id

T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)

_MAX_PAUSE_SECONDS_IN_THREAD = 1.0  # Maximum seconds of a pause that holds a slot and a worker thread.
_WORKS_SECONDS = 1.0  # Seconds since a response in which a catalog that throttles certainly works.
_MAX_SURPLUS = 4  # Maximum number of attempts of a call that do not count because they may have been one too many.

on_open: list[Callable[[str, Caller], None]] = []
"""Functions that receive the id and the caller of each catalog that is opened in this process."""


class Caller:
    """Makes remote calls within a policy; one caller serves all users of one catalog."""

    def __init__(
        self, policy: Policy, errors: ErrorTable, observers: Observers | None = None, *, slots: Slots | None = None
    ) -> None:
        self.policy = policy
        self._errors = errors
        self.observers: Observers = observers or Observers()
        self._enough = min(policy.attempt_timeout, policy.operation_timeout) / 2
        """Seconds within which a working catalog would have responded."""
        self.slots: Slots = slots or policy.slots()

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Passes every call made while the context is open to `observer`."""
        return self.observers.with_one(observer)

    def beside(self, errors: ErrorTable, policy: Policy | None = None) -> Caller:
        """Returns a caller with its own slots and the same observers, so that neither waits for the other.

        Args:
            errors: Its error table.
            policy: Its policy; None means the policy of this caller.
        """
        return Caller(policy or self.policy, errors, self.observers)

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
        """
        until = operation_end.get() or monotonic() + self.policy.operation_timeout
        responses = self.slots.responses
        call = RemoteCall(send, subject, operation, self._errors, safe, repeatable, recover, until, responses)
        try:
            if scheduler.get() is not None:
                async with begin_step(operation, str(subject), changes=not safe, remote=True):
                    return await self._attempt(call, 1)
            if safe and self.policy.hedge_after is not None:
                once = partial(self._attempt, call, 1)
                return await hedge(once, after=self.policy.hedge_after, may=self.slots.may_hedge)
            return await self._attempt(call, 1)
        except Failure as failure:
            if not (call.may_recover(failure) or call.may_retry(failure)):
                raise call.error(failure) from failure
            attempts = _Attempts(
                call, partial(self._attempt, call), self.policy, self.slots, failure, self.slots.responses
            )
        return await attempts.run()

    async def repeat(self, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `work`, which runs again after each `TryAgainError`.

        For work of several calls whose end decides whether it has to be repeated, such as compare-and-set. The policy
        sets the number of attempts and the pauses; the time is that of the operation.

        Args:
            work: Makes one attempt.
        """
        repetition = Repetition(
            TryAgainError,
            self.policy.max_retries + 1,
            operation_end.get() or monotonic() + self.policy.operation_timeout,
            pause=lambda error, attempt: self.policy.pause(attempt) + error.retry_after,
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
        """
        left = remaining()
        repetition = Repetition(
            TryAgainError,
            attempts,
            monotonic() + (self._enough if left is None else min(left, self._enough)),
            pause=lambda _, attempt: min(self.policy.pause(attempt), _MAX_PAUSE_SECONDS_IN_THREAD),
        )
        try:
            return repetition.run_in_thread(work)
        except TryAgainError as last:
            raise last.error from last.error.__cause__

    async def _attempt(self, call: RemoteCall[T], attempt: int, hedge: bool = False) -> T:
        sent = await self.slots.enter(call.operation, call.subject, until=call.until)
        text, outcome = "failed", CallOutcome.ABANDONED
        try:
            limit = min(self.policy.attempt_timeout, call.until - sent.at)
            async with asyncio.timeout(limit):
                result = await call.send()
            text, outcome = "ok", CallOutcome.ANSWERED
            return result
        except TimeoutError:
            text, outcome = "timeout", CallOutcome.FAILED if limit >= self._enough else CallOutcome.ABANDONED
            raise Failure("timeout", message=f"no answer within {max(limit, 0):.3g} s") from None
        except Failure as failure:
            text, outcome = str(failure.codes[0]), call.outcome(failure)
            # Lost races need the full pause.
            if issubclass(call.error_class(failure), (ServiceUnavailableError, ThrottlingError)):
                failure.pace, failure.pauses_since = self.slots.pace(sent), asyncio.get_running_loop().time()
                failure.is_surplus = self.slots.is_surplus(sent)
            raise
        except LanceNamespaceError as error:
            text, outcome = type(error).__name__, CallOutcome.ANSWERED
            raise
        except asyncio.CancelledError:
            text = "cancelled"
            raise
        finally:
            if self.observers.all or log.isEnabledFor(logging.DEBUG):
                self._notify(call, attempt, monotonic() - sent.at, text, hedge)
            await self.slots.leave(sent, call.operation, call.subject, outcome, why=text, until=call.until)

    def _notify(self, call: RemoteCall[T], attempt: int, seconds: float, outcome: str, hedge: bool) -> None:
        operation, subject = call.operation, call.subject
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s %s: %s in %.1f ms, attempt %d", operation, spelled(subject), outcome, seconds * 1e3, attempt)
        status = http_status.get()
        http_status.set(None)
        self.observers.notify(Call(operation, subject, attempt, seconds, outcome, hedge, status))


@dataclass(slots=True)
class _Attempts(Generic[T]):
    """The attempts of one call after the failure of its first attempt."""

    call: RemoteCall[T]
    attempt: Callable[[int], Awaitable[T]]
    """Makes the nth attempt."""
    policy: Policy
    slots: Slots
    first: Failure | None
    """The failure of the first attempt, until it is handled."""
    responses: int
    """The responses to other calls by the time of the last failure."""
    own_responses: int = 0
    """The failures of this call that are responses."""
    sent: int = 1
    surplus: int = 0
    """The attempts that may have been one too many for the catalog."""

    async def run(self) -> T:
        """Sends the call again within the policy; returns its result."""
        repetition = Repetition(
            Failure,
            self.policy.max_retries + 1,
            self.call.until,
            repeats=self.call.may_retry,
            pause=self._pause,
            permits=lambda failure: self.slots.may_repeat(is_throttle=self._is_throttle(failure)),
            spares=self._spares if self.policy.max_retries else None,
        )
        try:
            return await repetition.run(self._send_or_recover)
        except Failure as last:
            last.attempts = self.sent
            if repetition.is_late:
                wait = f", because the server asks to wait {last.retry_after:g} s" if last.retry_after else ""
                last.message += f"; not sent again within the operation's time{wait}"
            if repetition.is_refused:
                last.message += "; not sent again, because most calls to this catalog fail"
            raise self.call.error(last) from last

    async def _send_or_recover(self) -> T:
        """Sends the call, and once more if the cause of its failure was removed."""
        try:
            return await self._send()
        except Failure as failure:
            recover = self.call.recover
            if recover is None or not self.call.may_recover(failure) or not await recover(failure):
                raise
        return await self._send()

    async def _send(self) -> T:
        try:
            if self.first is not None:
                failure, self.first = self.first, None
                raise failure
            self.sent += 1
            return await self.attempt(self.sent)
        except Failure as failure:
            self.own_responses += self.call.outcome(failure) is CallOutcome.ANSWERED
            raise

    def _other_responses(self) -> int:
        """Returns the number of responses to other calls so far."""
        return self.slots.responses - self.own_responses

    def _is_throttle(self, failure: Failure) -> bool:
        return issubclass(self.call.error_class(failure), ThrottlingError)

    def _spares(self, failure: Failure) -> bool:
        # While other calls get responses, the catalog works: the call was sent too early, or was one too many.
        before, self.responses = self.responses, self._other_responses()
        if self._is_throttle(failure):
            # Calls that are sent together are refused together, so that responses may have come only before.
            is_recent = self.slots.responded_at > monotonic() - _WORKS_SECONDS
            return is_recent and self.responses > self.call.responses
        if self.responses == before:
            return False
        self.surplus += failure.is_surplus
        return failure.is_surplus and self.surplus <= _MAX_SURPLUS

    def _pause(self, failure: Failure, attempt: int) -> float:
        # After two failures without a response to any call between them, a short pause would be too short again.
        is_alone = self.sent > 1 and self.responses == self._other_responses() and not self.slots.is_paced
        pace = inf if is_alone else failure.pace
        # A catalog that throttles all calls needs time; without luck, all repetitions would come within milliseconds.
        least = 0.5 if pace == inf and self._is_throttle(failure) else 0.0
        pause = self.policy.pause(attempt, pace, least=least) + (failure.retry_after or 0.0)
        since = failure.pauses_since
        over = 0.0 if since is None else asyncio.get_running_loop().time() - since
        return max(0.0, pause - over)


async def hedge(call: Callable[[bool], Awaitable[T]], *, after: float, may: Callable[[], bool]) -> T:
    """Returns the first result of `call`, which is sent a second time if it is slow.

    The slower call is cancelled. If one call fails, the other is awaited; if both fail, the first failure is raised.

    Args:
        call: Sends the call; receives whether this is the second sending.
        after: Seconds before the second call is sent.
        may: Returns whether the second call may be sent.
    """
    answers: list[T] = []
    errors: list[Failure | LanceNamespaceError] = []
    sendings = 1
    is_settled = asyncio.Event()

    async def run(is_second: bool) -> None:
        try:
            answers.append(await call(is_second))
        except LanceNamespaceError as e:
            # The error is the server's response; the other call would get the same one.
            errors.insert(0, e)
        except Failure as e:
            errors.append(e)
            if len(errors) < sendings:
                return
        is_settled.set()

    # An anyio task group could hide a cancellation that arrives in the iteration of the loop in which its scope ends.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(False))]
        with suppress(TimeoutError):
            async with asyncio.timeout(after):
                await is_settled.wait()
        if not is_settled.is_set() and may():
            sendings = 2
            tasks.append(group.create_task(run(True)))
        await is_settled.wait()
        for task in tasks:
            task.cancel()
    if answers:
        return answers[0]
    raise errors[0]


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
    responses: int
    """The number of responses that other calls had got before this one."""

    def error_class(self, failure: Failure) -> type[LanceNamespaceError]:
        """Returns the error class that the error table has for a failure."""
        return error_class(failure, self.subject, self.operation, self.errors)

    def error(self, failure: Failure) -> LanceNamespaceError:
        """Returns the error to raise for a failure."""
        if not self.safe and failure.delivered is None:
            failure.message += "; whether it took effect is unknown"
        return error_for(failure, self.subject, self.operation, self.errors)

    def outcome(self, failure: Failure) -> CallOutcome:
        """Returns what a failure says about the load of the catalog."""
        error = self.error_class(failure)
        if failure.codes[0] == STALE:
            return CallOutcome.ABANDONED
        if issubclass(error, ThrottlingError):
            return CallOutcome.THROTTLED
        if 503 in failure.codes:
            return CallOutcome.REFUSED
        return CallOutcome.FAILED if issubclass(error, ServiceUnavailableError) else CallOutcome.ANSWERED

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

"""Slots, circuit breaker and retry budget of one catalog, shared by all callers in a process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from math import inf
from threading import RLock
from time import monotonic

from lance_ns_async.calls.limiter import Limiter, Sent
from lance_ns_async.calls.shared import Shared, SharedByKey
from lance_ns_async.calls.waiting import Waiter, WaiterQueue
from lance_ns_async.errors import Failure
from lance_ns_async.model import Id

_MAX_NAP_SECONDS = 0.1  # Seconds after which a call that waits for the pace checks whether the pace has changed.

PROBE_INTERVAL = 5.0
"""Seconds between two probe calls while the circuit is open."""

_MIN_FAILURES = 10
"""Number of consecutive failures that open the circuit, and of failing subjects that block an operation."""

_LEAST_RESERVE, _PER_RESPONSE = 100.0, 0.5  # Retries that a budget has at first, at least, and gets by a response.

_MORE_TIME = "allow more time (operation_timeout or the argument timeout), or request less at a time"


class CallOutcome(Enum):
    """The outcome of a call, as a sign of the catalog's load."""

    ANSWERED = auto()
    """The catalog responded, possibly with an error."""
    REFUSED = auto()
    """The catalog is available and refused the call."""
    THROTTLED = auto()
    """The catalog refused the call because it gets too many."""
    FAILED = auto()
    """There was no response."""
    ABANDONED = auto()
    """The call was cancelled, or had too little time for a response."""


@dataclass(frozen=True, slots=True)
class CallLoad:
    """The load of a catalog's slots for calls at one moment."""

    in_flight: int
    """Calls that were sent and have not ended."""
    resting: int
    """Slots that stay empty for a moment after a failure or for the pace of calls; they count towards the limit."""
    waiting: int
    """Calls that wait for a slot."""
    limit: int
    """The current maximum of calls in flight. It follows the catalog's capacity, unless `adaptive` is off."""
    max_in_flight: int
    """The largest value that `limit` can have, from the policy."""
    retries_left: int
    """How many failed calls may be sent again now; each response adds to it."""
    circuit_open: bool
    """Whether calls fail without being sent, because the catalog does not respond."""
    slots_id: int
    """Identifies the slots in this process: namespaces with equal properties share them, and have equal loads."""
    reason: str
    """Why it is this: `fixed`, `free`, `capped at 50`, `paced at 40/s`, `12% refused whatever the load`, or two."""


class Circuit:
    """Opens after `patience` seconds of failures without a response; then sends one probe call per `PROBE_INTERVAL`.

    An open circuit also lets calls pass whose subject has not failed in the same operation, until `_MIN_FAILURES`
    subjects have failed in it. The failure of one table or one operation does not predict the failure of others.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.failures: int = 0
        self._failing: dict[str, set[Id]] = {}
        """The subjects that failed since the last response, by operation; at most `_MIN_FAILURES` for each."""
        self._failing_since = 0.0
        self.is_open: bool = False
        self._probe_at = 0.0
        """Time of the next probe call while the circuit is open."""
        self._why = ""

    def obstacle(self, now: float, operation: str, subject: Id) -> str | None:
        """Returns the reason why a call must not be sent; None if it may be sent, which counts it as sent."""
        if not self.is_open:
            return None
        failing = self._failing.get(operation, ())
        if subject not in failing and len(failing) < _MIN_FAILURES:
            return None
        if now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL
            return None
        return (
            f"not sent, because there was no response for {now - self._failing_since:.0f} s: {self._why}; "
            f"the catalog is tried again in {self._probe_at - now:.0f} s"
        )

    def record_response(self) -> None:
        """Records a response after failures, which closes the circuit."""
        self.failures = 0
        self._failing.clear()
        self.is_open = False

    def record_failure(self, now: float, operation: str, subject: Id, why: str) -> None:
        """Records a call that was refused or got no response."""
        if not self.failures:
            self._failing_since = now
        self.failures += 1
        failing = self._failing.setdefault(operation, set())
        if len(failing) < _MIN_FAILURES:
            failing.add(subject)
        self._why = why
        lasting = self.failures >= _MIN_FAILURES and now - self._failing_since > self._patience
        if lasting and not self.is_open:
            self.is_open, self._probe_at = True, now + PROBE_INTERVAL


class Budget:
    """Retry budget: starts at twice `most`, but at least 100; each response adds half a retry, up to the initial value.

    A failing catalog therefore receives at most half as many retries as it gives responses. The initial value covers a
    sudden loss of capacity: all calls in flight may be refused, and many of them again before the limit has adapted.
    """

    def __init__(self, most: int) -> None:
        self._left = self._reserve = max(_LEAST_RESERVE, 2.0 * most)

    @property
    def left(self) -> int:
        """The number of calls that may be sent again now."""
        return int(self._left)

    def record_response(self) -> None:
        """Records a response."""
        self._left = min(self._reserve, self._left + _PER_RESPONSE)

    def take(self) -> bool:
        """Returns whether a call may be sent again, and counts that retry."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Slots(Shared):
    """Slots for calls, granted to clients in turn, and to each one in order. Threads and event loops may share it."""

    def __init__(self, most: int, *, adaptive: bool, patience: float) -> None:
        self._id = next(_ids)
        self._most = most
        self._limiter = Limiter(most) if adaptive else None
        self._circuit = Circuit(patience)
        self._budget = Budget(most)
        self.responses: int = 0
        """The number of calls that got a response so far."""
        self.responded_at: float = -inf
        """Time of the last response, on the clock of `time.monotonic`."""
        super().__init__()

    @property
    def limit(self) -> int:
        """The current limit of calls in flight."""
        return self._most if self._limiter is None else int(self._limiter.limit)

    @property
    def has_room(self) -> bool:
        """Whether a call would get a slot immediately."""
        return self._used < self.limit and not self._waiting

    @property
    def is_paced(self) -> bool:
        """Whether calls are sent at the rate that the catalog accepts, because it throttles."""
        return self._limiter is not None and self._limiter.pacer.is_active

    def snapshot(self) -> CallLoad:
        """Returns the current load. Any thread may call it."""
        with self._lock:
            return CallLoad(
                in_flight=self._used - self._resting,
                resting=self._resting,
                waiting=self._waiting.count(),
                limit=self.limit,
                max_in_flight=self._most,
                retries_left=self._budget.left,
                circuit_open=self._circuit.is_open,
                slots_id=self._id,
                reason=self._reason,
            )

    @property
    def _reason(self) -> str:
        return "fixed" if self._limiter is None else self._limiter.reason

    def may_repeat(self, *, is_throttle: bool = False) -> bool:
        """Returns whether a failed call may be sent again, and counts that retry.

        Args:
            is_throttle: Whether the catalog throttled the call. Such a retry is not counted while calls are paced.
        """
        with self._lock:
            return (is_throttle and self.is_paced) or self._budget.take()

    def may_hedge(self) -> bool:
        """Returns whether a call under way may be sent a second time, and counts that."""
        with self._lock:
            is_busy = self._circuit.is_open or self.is_paced
            return self.has_room and not is_busy and self._budget.take()

    def pace(self, sent: Sent) -> float:
        """Returns `Limiter.pace`; inf without a limiter."""
        with self._lock:
            return inf if self._limiter is None else self._limiter.pace(sent)

    def is_surplus(self, sent: Sent) -> bool:
        """Whether a failed call that still has its slot may only have been one too many for the catalog."""
        with self._lock:
            is_capped = self._limiter is not None and self._limiter.plateau is not None
            return self._used - self._resting > 1 and (is_capped or sent.slot != "worked")

    async def enter(self, operation: str, subject: Id, *, until: float) -> Sent:
        """Waits for a slot, and for the pace of a catalog that throttles; returns what `leave` needs.

        Raises:
            Failure: The time `until` passed before the call could be sent, or the circuit is open.
        """
        now = monotonic()
        limiter = self._limiter
        with self._lock:
            # The usual case costs no further call.
            limit = self._most if limiter is None else limiter.limit
            has_room = self._used + 1 <= limit and not self._waiting
            if has_room and now < until and (limiter is None or limiter.pacer.rate == inf):
                self._used += 1
                if self._circuit.is_open:
                    return self._start_call(now, operation, subject)
                return Sent(now) if limiter is None else limiter.send(now)
        await self._take_slot(until)
        return await self._wait_for_pace(operation, subject, until)

    async def _take_slot(self, until: float) -> None:
        now = monotonic()
        if now >= until:
            message = f"the operation has no time left, so this call was not sent; {_MORE_TIME}"
            raise Failure("deadline", message=message, delivered=False)
        with self._lock:
            if self.has_room:
                self._used += 1
                return
            waiter = self._waiting.join()
        try:
            async with asyncio.timeout(until - now):
                await waiter.turn
        except TimeoutError:
            self._abandon(waiter)
            message = (
                f"the operation's time ended while this call waited for a slot, with {self.limit} other calls in "
                f"flight ({self._reason}); {_MORE_TIME}"
            )
            raise Failure("deadline", message=message, delivered=False) from None
        except (asyncio.CancelledError, GeneratorExit):
            self._abandon(waiter)
            raise

    async def _wait_for_pace(self, operation: str, subject: Id, until: float) -> Sent:
        """Waits with a slot until the call may be sent; returns what `leave` needs."""
        with self._lock:
            now = monotonic()
            if self._queue_start == self._queue_end and not self._delay(now, 0):
                return self._start_call(now, operation, subject)
            place = self._queue_end
            self._queue_end += 1
            self._resting += 1
        sent_at = None
        try:
            while sent_at is None:
                with self._lock:
                    now = monotonic()
                    # A place is only an estimate: calls that were cancelled leave the queue at any place.
                    delay = self._delay(now, max(0, place - self._queue_start))
                    if not delay:
                        sent_at = now
                        continue
                if now >= until:
                    raise Failure("deadline", message=self._pace_message(), delivered=False)
                await asyncio.sleep(min(delay, until - now, _MAX_NAP_SECONDS))
        finally:
            with self._lock:
                self._queue_start += 1
                self._resting -= 1
                if sent_at is None:
                    self._give_back()
        with self._lock:
            return self._start_call(sent_at, operation, subject)

    async def leave(
        self, sent: Sent, operation: str, subject: Id, outcome: CallOutcome, *, why: str, until: float
    ) -> None:
        """Records the outcome and returns the slot, which stays empty for a moment first after a failure."""
        with self._lock:
            now = monotonic()
            if outcome is CallOutcome.ANSWERED:
                self.responses, self.responded_at = self.responses + 1, now
                self._budget.record_response()
                if self._circuit.failures:
                    self._circuit.record_response()
                if self._limiter is not None:
                    self._limiter.record_response(now, sent, self._used - self._resting - 1)
                self._used -= 1
                if self._waiting:
                    self._grant()
                return
            rest = min(self._record_failure(now, sent, operation, subject, outcome, why), until - now)
            if rest <= 0:
                self._give_back()
                return
            self._resting += 1
        try:
            await asyncio.sleep(rest)
        finally:
            with self._lock:
                self._resting -= 1
                self._give_back()

    def reset(self) -> None:
        # A closed coroutine returns its slot where it is collected, which may be inside a locked block.
        self._lock = RLock()
        self._waiting = WaiterQueue()
        self._used = 0
        """Slots that are not free, including those that rest."""
        self._resting = 0
        self._queue_start = self._queue_end = 0
        """The numbers of the first and the next place in the queue of calls that wait for the pace."""

    def _delay(self, now: float, position: int) -> float:
        # An open circuit limits the calls itself, and most of them fail at once.
        if self._limiter is None or self._circuit.is_open:
            return 0.0
        return self._limiter.pacer.delay(now, position)

    def _pace_message(self) -> str:
        rate = self._limiter.pacer.rate if self._limiter is not None else inf
        return (
            "the operation's time ended while this call waited for its turn: the catalog throttles, and accepts about "
            f"{rate:.3g} calls per second; {_MORE_TIME}"
        )

    def _start_call(self, now: float, operation: str, subject: Id) -> Sent:
        if (obstacle := self._circuit.obstacle(now, operation, subject)) is not None:
            self._give_back()
            raise Failure("circuit", message=obstacle, delivered=False)
        return Sent(now) if self._limiter is None else self._limiter.send(now)

    def _record_failure(
        self, now: float, sent: Sent, operation: str, subject: Id, outcome: CallOutcome, why: str
    ) -> float:
        """Records a call without a response; returns the seconds for which its slot must stay empty."""
        if outcome is CallOutcome.ABANDONED:
            return 0.0
        self._circuit.record_failure(now, operation, subject, why)
        if self._limiter is None:
            return 0.0
        in_flight = self._used - self._resting - 1
        return self._limiter.record_refusal(now, sent, in_flight, is_throttle=outcome is CallOutcome.THROTTLED)

    def _give_back(self) -> None:
        self._used -= 1
        self._grant()

    def _grant(self) -> None:
        """Gives the free slots to calls that wait."""
        while self._waiting and self._used < self.limit and self._waiting.advance():
            self._used += 1

    def _abandon(self, waiter: Waiter) -> None:
        with self._lock:
            if waiter.has_turn:
                self._give_back()
            else:
                self._waiting.remove(waiter)


slots_by_key: SharedByKey[Slots] = SharedByKey()
"""The slots of each catalog and set of limits."""

_ids = count(1)

"""The pacer measures the rate that a catalog accepts; no call is lost, and few are sent in vain."""

from __future__ import annotations

import asyncio

import pytest
from lance_namespace.errors import ServiceUnavailableError, ThrottlingError

from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.limiter import GUESS, START, Limiter, Pacer
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import Failure
from lance_ns_async.model import TableId
from tests.fakes.calls import Script, Turnstile, call, caller, settle
from tests.fakes.clock import run, skipping_timers
from tests.fakes.polaris import FakePolaris


def paced() -> Limiter:
    """Returns the limiter of a catalog that has refused all calls."""
    limiter = Limiter(256)
    for _ in range(40):
        if not limiter.pacer.is_active:
            limiter.record_refusal(0.0, limiter.send(0.0), 0, is_throttle=True)
    assert limiter.reason == f"paced at {GUESS:.0f}/s"
    return limiter


def drive(
    limiter: Limiter, rate: float, seconds: float, *, now: float = 0.0, burst: float | None = None
) -> tuple[float, int, int]:
    """Sends calls that take 1 µs to a token bucket; returns the time, the accepted and the refused calls."""
    burst = rate if burst is None else burst
    end, tokens, filled_at, accepted, refused = now + seconds, 0.0, now, 0, 0
    while (now := now + limiter.pacer.delay(now) + 1e-6) < end:
        sent = limiter.send(now)
        tokens, filled_at = min(burst, tokens + (now - filled_at) * rate), now
        if tokens >= 1:
            tokens -= 1
            accepted += 1
            limiter.record_response(now, sent, 0)
        else:
            refused += 1
            limiter.record_refusal(now, sent, 0, is_throttle=True)
    return now, accepted, refused


def test_a_pacer_sends_one_call_after_another() -> None:
    pacer = Pacer()
    assert not pacer.is_active and pacer.delay(0.0, 99) == 0.0
    pacer.begin(1.0, GUESS)
    pacer.send(1.0)
    assert pacer.is_active and 0 < pacer.delay(1.0) < pacer.delay(1.0, 1)


def test_calls_are_not_paced_long_after_throttling() -> None:
    limiter = paced()
    limiter.send(59.0)
    assert limiter.pacer.is_active
    limiter.send(61.0)
    assert limiter.reason == "free" and limiter.pacer.delay(61.0, 99) == 0.0


@pytest.mark.parametrize("rate", [5.0, 40.0, 100.0, 400.0, 2000.0])
def test_the_rate_is_learned_and_kept(rate: float) -> None:
    limiter = paced()
    now, _, refused = drive(limiter, rate, 2 + 60 / rate)
    assert refused <= 0.35 * rate + 30
    _, accepted, refused = drive(limiter, rate, 2000 / rate, now=now)
    assert accepted >= 0.95 * 2000 and refused <= 0.04 * 2000


@pytest.mark.parametrize(("before", "after"), [(400.0, 40.0), (40.0, 400.0)])
def test_a_change_of_the_rate_is_followed(before: float, after: float) -> None:
    limiter = paced()
    now, _, _ = drive(limiter, before, 10.0)
    now, _, _ = drive(limiter, after, 20.0, now=now)
    _, accepted, _ = drive(limiter, after, 10.0, now=now)
    assert accepted >= 0.9 * 10 * after


def test_a_catalog_that_only_throttles_gets_few_calls() -> None:
    _, accepted, refused = drive(paced(), 0.0, 60.0, burst=0.0)
    assert accepted == 0 and refused <= 55


def test_accidental_refusals_do_not_lower_the_rate_far() -> None:
    limiter = paced()
    now, _, _ = drive(limiter, 100.0, 10.0)
    for number in range(5000):
        now += limiter.pacer.delay(now) + 1e-6
        sent = limiter.send(now)
        if number % 40 == 0:
            limiter.record_refusal(now, sent, 0, is_throttle=True)
        else:
            limiter.record_response(now, sent, 0)
    assert limiter.pacer.rate >= 75


@pytest.mark.parametrize("every", [2, 3])
def test_throttling_that_a_lower_rate_does_not_lower_frees_the_pace(every: int) -> None:
    limiter, now, sent, latency = paced(), 0.0, 0, 0.02
    # From this rate on, the calls of a limit that begins anew are not delayed.
    while limiter.pacer.rate < START / latency and sent < 100:
        now += limiter.pacer.delay(now) + 1e-6
        token = limiter.send(now)
        sent += 1
        if sent % every == 0:
            limiter.record_refusal(now + latency, token, 0, is_throttle=True)
        else:
            limiter.record_response(now + latency, token, 0)
    assert sent <= 60 and now <= 5


def throttle() -> Failure:
    return Failure(429, message="too many", delivered=False)


class Bucket:
    """A catalog that accepts `rate` calls per second, and `burst` at once; each call takes 5 ms."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = self.tokens = burst
        self.filled_at = 0.0
        self.refused = 0

    async def __call__(self) -> None:
        await asyncio.sleep(0.005)
        now = asyncio.get_running_loop().time()
        self.tokens = min(self.burst, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens < 1:
            self.refused += 1
            raise throttle()
        self.tokens -= 1


def test_few_calls_are_sent_in_vain_to_a_catalog_with_a_rate_limit() -> None:
    async def main() -> None:
        to = caller(Policy())
        await asyncio.gather(*(call(to, bucket) for _ in range(100)))

    bucket = Bucket(rate=20, burst=5)
    run(main())
    # Without a pace, it is more than 70, and 330 in most runs.
    assert bucket.refused <= 65


@pytest.mark.parametrize("is_bulk", [True, False])
async def test_describes_lose_nothing_to_a_rate_limit(is_bulk: bool) -> None:
    with FakePolaris() as server:
        names = server.add_lance_tables("lake", ["s"], 400 if is_bulk else 200)
        async with AsyncNamespace.connect("polaris", server.properties) as namespace:
            server.limit_rate(200, burst=40 if is_bulk else 20, match="generic-tables/")
            if is_bulk:
                described = await namespace.describe_tables([("lake", "s", name) for name in names])
                assert not described.errors and len(described.tables) == len(names)
            else:
                requests = [namespace.describe_table({"id": ["lake", "s", name]}) for name in names]
                assert all(response.location for response in await asyncio.gather(*requests))


async def test_a_catalog_that_only_throttles_ends_with_its_error() -> None:
    with FakePolaris() as server:
        names = server.add_lance_tables("lake", ["s"], 100)
        policy = Policy(operation_timeout=1.0)
        async with AsyncNamespace.connect("polaris", server.properties, policy=policy) as namespace:
            await namespace.describe_table({"id": ["lake", "s", names[0]]})
            limit = server.limit_rate(0, burst=0, match="generic-tables/")
            described = await namespace.describe_tables([("lake", "s", name) for name in names])
        assert len(described.errors) == len(names)
        assert all(isinstance(e, ThrottlingError | ServiceUnavailableError) for e in described.errors.values())
        assert any("the catalog throttles, and accepts about" in str(e) for e in described.errors.values())
        assert limit.refusals <= 100


@skipping_timers
async def test_throttles_of_a_catalog_that_answers_others_use_up_no_retries() -> None:
    to, script = caller(Policy(max_retries=2, backoff_initial=1.0)), Script(*[throttle()] * 6)

    async def send() -> int:
        if script.sent:
            # Another table is described while the throttled call waits.
            await to.call(Script(), subject=TableId(["db", "other"]), operation="describe_table")
        return await script()

    assert int(await call(to, send)) == 7


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3)])
def test_throttles_alone_use_up_the_retries(retries: int, attempts: int) -> None:
    script = Script(*[throttle()] * 9)
    with pytest.raises(ThrottlingError, match="too many"):
        run(call(caller(Policy(max_retries=retries)), script))
    assert script.sent == attempts


async def test_a_call_that_waits_for_the_pace_can_be_cancelled() -> None:
    to, hold = caller(Policy(max_retries=0, max_in_flight=3)), Turnstile()
    while not to.slots.is_paced:
        with pytest.raises(ThrottlingError):
            await call(to, Script(throttle()))
    hold.open.set()
    waiting = [asyncio.create_task(call(to, hold)) for _ in range(9)]
    await settle()
    assert to.slots.snapshot().resting
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    load = to.slots.snapshot()
    assert not load.resting and not load.in_flight and not load.waiting
    assert await call(to, Script()) == 1


async def test_a_call_that_waits_for_the_pace_ends_with_its_time() -> None:
    to, message = caller(Policy(max_retries=0)), ""
    # The pace of a call depends on the refusals before it, and how many these are on the speed of the machine.
    while "the catalog throttles, and accepts about" not in message:
        with deadline(0.05), pytest.raises((ThrottlingError, ServiceUnavailableError)) as error:
            await call(to, Script(throttle()))
        message = str(error.value)
    assert "operation_timeout" in message and to.slots.has_room

"""The pacer measures the rate that a catalog accepts, and stops when throttling ends."""

from __future__ import annotations

import pytest

from lance_ns_async.calls.pacer import Pacer


def drive(
    pacer: Pacer, rate: float, seconds: float, *, now: float = 0.0, burst: float | None = None
) -> tuple[float, int, int]:
    """Sends calls without latency to a token bucket; returns the time, the accepted and the refused calls."""
    burst = rate if burst is None else burst
    end, tokens, filled_at, accepted, refused = now + seconds, 0.0, now, 0, 0
    while (now := now + pacer.delay(now)) < end:
        pacer.send(now)
        tokens, filled_at = min(burst, tokens + (now - filled_at) * rate), now
        if tokens >= 1:
            tokens -= 1
            accepted += 1
            pacer.record_response(now, now)
        else:
            refused += 1
            pacer.record_throttle(now, now)
    return now, accepted, refused


def test_calls_are_not_paced_before_throttling_and_long_after() -> None:
    pacer = Pacer()
    assert not pacer.is_active(0.0) and pacer.delay(0.0, 99) == 0.0
    pacer.begin(1.0)
    pacer.send(1.0)
    assert pacer.is_active(1.0) and 0 < pacer.delay(1.0) < pacer.delay(1.0, 1)
    assert not pacer.is_active(62.0) and pacer.delay(62.0, 99) == 0.0


@pytest.mark.parametrize("rate", [5.0, 40.0, 100.0, 400.0, 2000.0])
def test_the_rate_is_learned_and_kept(rate: float) -> None:
    pacer = Pacer()
    pacer.begin(0.0)
    now, _, refused = drive(pacer, rate, 2 + 60 / rate)
    assert refused <= 0.35 * rate + 30
    _, accepted, refused = drive(pacer, rate, 2000 / rate, now=now)
    assert accepted >= 0.95 * 2000 and refused <= 0.04 * 2000


@pytest.mark.parametrize(("before", "after"), [(400.0, 40.0), (40.0, 400.0)])
def test_a_change_of_the_rate_is_followed(before: float, after: float) -> None:
    pacer = Pacer()
    pacer.begin(0.0)
    now, _, _ = drive(pacer, before, 10.0)
    now, _, _ = drive(pacer, after, 20.0, now=now)
    _, accepted, _ = drive(pacer, after, 10.0, now=now)
    assert accepted >= 0.9 * 10 * after


def test_a_catalog_that_only_throttles_gets_few_calls() -> None:
    pacer = Pacer()
    pacer.begin(0.0)
    _, accepted, refused = drive(pacer, 0.0, 60.0, burst=0.0)
    assert accepted == 0 and refused <= 55


def test_refusals_of_calls_sent_before_a_change_say_nothing() -> None:
    pacer = Pacer()
    pacer.begin(1.0)
    for _ in range(100):
        pacer.record_throttle(1.0, 0.9)
    assert pacer.rate == 50.0


def test_accidental_refusals_do_not_lower_the_rate_far() -> None:
    pacer, now = Pacer(), 0.0
    pacer.begin(now)
    now, _, _ = drive(pacer, 100.0, 10.0)
    for number in range(5000):
        now += pacer.delay(now)
        pacer.send(now)
        record = pacer.record_throttle if number % 40 == 0 else pacer.record_response
        record(now, now)
    assert pacer.rate >= 75


@pytest.mark.parametrize("every", [2, 3])
def test_throttling_that_a_lower_rate_does_not_lower_ends_the_pace(every: int) -> None:
    pacer, now, sent = Pacer(), 0.0, 0
    assert pacer.begin(now)
    while pacer.is_active(now) and sent < 100:
        now += pacer.delay(now)
        pacer.send(now)
        sent += 1
        record = pacer.record_throttle if sent % every == 0 else pacer.record_response
        record(now, now)
    assert sent <= 60 and now <= 5
    assert not pacer.begin(now + 59) and pacer.begin(now + 61)

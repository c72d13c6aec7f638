"""What the limiter promises whatever a catalog does, in simulated calls with seeds that were not used for tuning."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lance_ns_async.calls.limiter import START, Limiter, Sent
from tests.support.simulation import Server, simulate

SEEDS = range(101, 106)

CAUSES = {
    "40 a second": Server(rate=40, burst=40, throttles=True),
    "400 a second": Server(rate=400, burst=400, throttles=True),
    "3 in flight": Server(cap=lambda now: 3, throttles=True),
    "20 in flight": Server(cap=lambda now: 20),
    "a fifth refused": Server(accidents=0.2, throttles=True),
    "a tenth refused, 100 a second": Server(accidents=0.1, rate=100, throttles=True),
}


class Watched(Limiter):
    """A limiter that counts the most responses in a row while it is far below the start.

    `longest_few` does not count those at a rate with which half of the initial calls would be in flight.
    """

    def __init__(self) -> None:
        super().__init__(256)
        self.low = self.longest = self.few = self.longest_few = 0

    def record_response(self, now: float, sent: Sent, in_flight: int) -> None:
        super().record_response(now, sent, in_flight)
        self.low = self.low + 1 if self.pacer.is_active or self.limit < START / 2 else 0
        self.few = self.few + 1 if min(self.limit, self.pacer.rate * 0.02) < START / 2 else 0
        self.longest, self.longest_few = max(self.longest, self.low), max(self.longest_few, self.few)


def learned(cause: str, seed: int) -> tuple[Limiter, float]:
    """Returns a limiter that has met a cause of refusals, and the time."""
    limiter = Limiter(256)
    run = simulate(limiter, 600, CAUSES[cause], seed=seed, attempts=99)
    return limiter, run.seconds


@pytest.mark.parametrize("refusal", [0.0005, 0.02])
@pytest.mark.parametrize("share", [0.08, 0.15, 0.25])
def test_a_cut_or_pace_that_does_not_change_the_share_of_refusals_is_taken_back(share: float, refusal: float) -> None:
    server = Server(accidents=share, throttles=True, refusal=refusal)
    for seed in SEEDS:
        limiter = Watched()
        simulate(limiter, 4000, server, seed=seed, attempts=99)
        assert limiter.longest <= 400, (seed, limiter.longest)


@pytest.mark.parametrize("refusal", [0.0005, 0.02])
def test_a_third_of_refusals_leaves_few_calls_in_flight_for_a_moment_only(refusal: float) -> None:
    server = Server(accidents=0.33, throttles=True, refusal=refusal)
    for seed in SEEDS:
        limiter = Watched()
        simulate(limiter, 4000, server, seed=seed, attempts=99)
        assert limiter.longest_few <= 400, (seed, limiter.longest_few)


@pytest.mark.parametrize("cause", CAUSES)
def test_what_no_longer_holds_is_forgotten_within_some_hundreds_of_responses(cause: str) -> None:
    for seed in SEEDS:
        limiter, now = learned(cause, seed)
        simulate(limiter, 1000, Server(), seed=seed, begin=now + 1)
        assert limiter.limit >= START and not limiter.pacer.is_active, limiter.reason


@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_is_remembered_for_more_than_a_minute(cause: str) -> None:
    limiter, now = learned(cause, 101)
    assert limiter.reason != "free"
    sent = limiter.send(now + 61)
    limiter.record_response(now + 61.02, sent, 0)
    assert limiter.reason == "free" and limiter.limit >= START


@pytest.mark.parametrize("cause", CAUSES)
def test_who_comes_next_begins_with_what_holds_now(cause: str) -> None:
    server = CAUSES[cause]
    for seed in SEEDS:
        limiter, now = learned(cause, seed)
        known = simulate(limiter, 600, server, seed=seed, attempts=99, begin=now + 0.1).seconds
        # A bucket was full for the first one, but not for the second.
        fresh = simulate(Limiter(256), 600, server, seed=seed, attempts=99).seconds + 1.05 * bool(server.rate)
        assert known <= 1.3 * fresh + 0.5, (seed, known, fresh)


@pytest.mark.parametrize("before", CAUSES)
@pytest.mark.parametrize("after", CAUSES)
def test_another_cause_is_found_in_time(before: str, after: str) -> None:
    for seed in SEEDS:
        limiter, now = learned(before, seed)
        changed = simulate(limiter, 600, CAUSES[after], seed=seed, attempts=99, begin=now + 0.1).seconds
        fresh = simulate(Limiter(256), 600, CAUSES[after], seed=seed, attempts=99).seconds
        assert changed <= 2 * fresh + 10, (seed, changed, fresh)


def test_all_causes_can_be_told_from_their_reason() -> None:
    starts: dict[str, Callable[[str], bool]] = {
        "40 a second": lambda reason: reason.startswith("paced at "),
        "20 in flight": lambda reason: reason.startswith("capped at "),
        "a fifth refused": lambda reason: reason.endswith("% refused whatever the load"),
    }
    for cause, is_right in starts.items():
        limiter, _ = learned(cause, 101)
        assert is_right(limiter.reason), (cause, limiter.reason)

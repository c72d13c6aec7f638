"""The limiter finds the capacity of a catalog: thousands of simulated calls, with seeds not used for tuning."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async.calls.limiter import START, Limiter, Sent
from tests.support.budget import with_usual
from tests.support.simulation import Run, Server, simulate

SEEDS = range(101, 111)
LATENCY = 0.02


def runs(calls: int, server: Server, most: int = 256, *, attempts: int = 8) -> list[Run]:
    result = [simulate(Limiter(most), calls, server, seed=seed, attempts=attempts) for seed in SEEDS]
    assert all(run.done == calls and not run.at_end for run in result)
    return result


def runs_with_losses(calls: int, server: Server) -> list[Run]:
    return [simulate(Limiter(64), calls, server, seed=seed) for seed in SEEDS]


def bounds(runs: list[Run], calls: int, ideal: float) -> tuple[float, float]:
    """Returns the median time relative to the ideal, and the maximum share of additional calls."""
    return median(run.seconds / ideal for run in runs), max(run.sent / calls - 1 for run in runs)


@pytest.mark.parametrize(
    ("calls", "cap", "latency", "most", "slower", "extra"),
    [
        *((500, 50, (0.02, 0.02), 256, 1.3, 0.06), (3000, 50, (0.02, 0.02), 256, 1.15, 0.03)),
        *((3000, 50, (0.02, 0.02), 64, 1.15, 0.03), (3000, 50, (0.05, 0.05), 256, 1.15, 0.03)),
        *((3000, 50, (0.02, 0.06), 256, 1.15, 0.03), (3000, 10, (0.02, 0.02), 256, 1.2, 0.05)),
        (500, 2, (0.02, 0.02), 256, 1.2, 0.2),
    ],
)
def test_a_cap_is_found(
    calls: int, cap: int, latency: tuple[float, float], most: int, slower: float, extra: float
) -> None:
    result = runs(calls, Server(cap=lambda now: cap, latency=latency), most)
    wall, sent = bounds(result, calls, calls / cap * sum(latency) / 2)
    assert wall <= slower and sent <= extra


@pytest.mark.parametrize(("calls", "rate", "extra"), [(500, 100, 0.25), (3000, 100, 0.1), (1500, 300, 0.2)])
def test_a_rate_is_found_and_kept_to(calls: int, rate: int, extra: float) -> None:
    server = Server(rate=rate)
    wall, sent = bounds(runs(calls, server, 64), calls, (calls - server.burst) / rate)
    assert wall <= 1.1 and sent <= extra


@pytest.mark.parametrize(
    ("most", "refusal"),
    with_usual([(32, 0.0005), (32, 0.005), (256, 0.0005), (256, 0.005)], (32, 0.005), (256, 0.0005)),
)
@pytest.mark.parametrize(("calls", "rate"), [(300, 40), (1000, 100), (3000, 40), (3000, 100), (3000, 400), (300, 5)])
def test_a_rate_limit_without_retry_after_loses_no_call(calls: int, rate: int, most: int, refusal: float) -> None:
    results = runs(calls, Server(rate=rate, burst=rate, latency=(0.004, 0.006), throttles=True, refusal=refusal), most)
    learning = 3.5 * max(rate, 32)
    wall, extra = bounds(results, calls, (calls - rate) / rate)
    assert wall <= 1.1 and extra * calls <= learning + 0.03 * calls
    # After the rate is learned, few calls are refused.
    assert calls < 1000 or median(run.extra_at_end for run in results) <= 0.02 * calls / 2
    assert all(run.paced for run in results)


@pytest.mark.parametrize(("cap", "slower"), [(50, 1.15), (25, 1.15), (10, 1.3), (5, 1.4), (2, 2.5)])
def test_a_cap_that_answers_429_is_kept_to(cap: int, slower: float) -> None:
    results = runs(3000, Server(cap=lambda now: cap, throttles=True))
    wall, extra = bounds(results, 3000, 3000 / cap * LATENCY)
    assert wall <= slower and extra <= 0.07
    assert cap < 5 or not any(run.paced for run in results)


def test_accidental_throttles_do_not_pace_calls() -> None:
    results = runs(3000, Server(faults=0.0267, throttles=True), 64)
    assert bounds(results, 3000, 3000 / 64 * LATENCY)[0] <= 1.25 and not any(run.paced for run in results)


@pytest.mark.parametrize("faults", [0.2, 0.3, 0.4])
def test_frequent_accidental_throttles_cost_no_more_than_other_refusals(faults: float) -> None:
    results = [runs_with_losses(300, Server(faults=faults, throttles=throttles)) for throttles in (False, True)]
    other, throttled = (median(run.seconds for run in of_kind) for of_kind in results)
    assert throttled <= 2.5 * other + 5


@pytest.mark.parametrize("retry_after", [0.0, 1.0])
@pytest.mark.parametrize(("share", "slower"), [(0.1, 1.2), (0.2, 2.5)])
def test_a_steady_share_of_throttles_is_no_limit(share: float, slower: float, retry_after: float) -> None:
    calls = 5000
    results = runs(calls, Server(accidents=share, throttles=True, retry_after=retry_after), attempts=12)
    ideal = calls / (1 - share) / 64 * LATENCY + 3 * retry_after
    assert bounds(results, calls, ideal)[0] <= slower and not any(run.paced for run in results)
    assert median(run.limit for run in results) >= 50


@pytest.mark.parametrize("retry_after", [0.0, 1.0])
def test_what_was_learned_among_accidents_does_not_slow_down_who_comes_next(retry_after: float) -> None:
    server, limiter = Server(accidents=0.1, throttles=True, retry_after=retry_after), Limiter(256)
    first, second = (simulate(limiter, 3000, server, seed=seed, attempts=12, begin=60 * seed) for seed in (1, 2))
    assert second.seconds <= 1.2 * first.seconds


def test_caps_are_found_among_accidents() -> None:
    calls = 5000
    result = runs(calls, Server(cap=lambda now: 50, accidents=0.1, throttles=True), attempts=12)
    wall, sent = bounds(result, calls, calls / 0.9 / 50 * LATENCY)
    assert wall <= 1.6 and sent <= 0.2
    limiter = Limiter(256)
    for now in range(10_000):
        limiter.record_refusal(now + LATENCY, limiter.send(now), 0)
    assert len(limiter._wakes) <= 256


def test_accidents_are_forgotten_when_they_end() -> None:
    limiter = Limiter(256)
    simulate(limiter, 3000, Server(accidents=0.1, throttles=True), seed=1, attempts=12)
    simulate(limiter, 10_000, Server(), seed=1, begin=100)
    result = simulate(limiter, 3000, Server(cap=lambda now: 50), seed=1, begin=200)
    assert result.seconds <= 1.15 * 3000 / 50 * LATENCY and result.extra_at_end <= 0.01 * 3000


def test_without_a_limit_there_is_none() -> None:
    result = runs(3000, Server(), 64)
    wall, sent = bounds(result, 3000, 3000 / 64 * LATENCY)
    assert wall <= 1.1 and sent == 0 and all(run.limit == run.most == 64 for run in result)


def test_accidents_are_not_taken_for_load() -> None:
    calls = 3000
    result = runs(calls, Server(faults=0.0267), 64)
    assert bounds(result, calls, calls / 64 * LATENCY)[0] <= 1.25
    assert median(run.limit for run in result) == 64


def test_a_cap_is_found_among_accidents() -> None:
    calls = 3000
    wall, sent = bounds(runs(calls, Server(cap=lambda now: 50, faults=0.0267)), calls, calls / 50 * LATENCY)
    assert wall <= 1.5 and sent <= 0.08


CHANGES: dict[str, tuple[Callable[[float], int], float, float]] = {
    # A decrease from 100 to 25 after 0.3 s, an increase from 25 to 100 after 1 s, and half a second without responses.
    "fall": (lambda now: 100 if now < 0.3 else 25, 0.3 + (3000 - 0.3 * 100 / LATENCY) / 25 * LATENCY, 1.3),
    "rise": (lambda now: 25 if now < 1 else 100, 1 + (3000 - 25 / LATENCY) / 100 * LATENCY, 1.5),
    "outage": (lambda now: 0 if 0.3 < now < 0.8 else 64, 0.5 + 3000 / 64 * LATENCY, 1.8),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_followed(change: str) -> None:
    cap, ideal, slower = CHANGES[change]
    wall, sent = bounds(runs(3000, Server(cap=cap), 128), 3000, ideal)
    assert wall <= slower and sent <= 0.08


def test_no_more_is_sent_at_first_than_is_allowed_at_most() -> None:
    assert Limiter(5).limit == 5 and Limiter(1).limit == 1 and Limiter(1000).limit == START


def test_what_was_sent_before_a_cut_is_no_second_reason_for_one() -> None:
    limiter = Limiter(256)
    sent = [limiter.send(0.9) for _ in range(START)]
    limiter.record_response(1.0, sent.pop(), START - 1)
    rests = [limiter.record_refusal(1.0 + n / 1000, sent.pop(), len(sent)) for n in range(3)]
    assert all(0 <= rest <= 1 for rest in rests)
    cut = limiter.limit
    assert 26 <= cut < START
    for _ in range(4):
        limiter.record_refusal(1.01, sent.pop(), len(sent))
    assert limiter.limit == pytest.approx(cut - 4)


def test_the_limit_is_halved_while_nothing_is_accepted() -> None:
    limiter = Limiter(256)
    for now in range(1, 4):
        for it in [limiter.send(now) for _ in range(3)]:
            limiter.record_refusal(now + LATENCY, it, 0)
    assert limiter.limit == START / 8


def test_refusals_of_calls_sent_before_the_pace_do_not_lower_the_rate() -> None:
    limiter = Limiter(256)
    early = [limiter.send(0.0) for _ in range(100)]
    for now in range(1, 6):
        for it in [limiter.send(now) for _ in range(3)]:
            if not limiter.pacer.is_active:
                limiter.record_refusal(now + LATENCY, it, 0, is_throttle=True)
    assert limiter.reason == "paced at 50/s"
    for it in early:
        limiter.record_refusal(6.0, it, 0, is_throttle=True)
    assert limiter.reason == "paced at 50/s"


@pytest.mark.parametrize("is_long_ago", [True, False])
@pytest.mark.parametrize(("share", "seconds"), [(0.1, 2), (0.2, 5), (1 / 3, 60), (1 / 2, 60)])
def test_a_pace_does_not_slow_down_calls_refused_by_accident(share: float, seconds: float, is_long_ago: bool) -> None:
    for seed in SEEDS:
        limiter = Limiter(256)
        before = simulate(limiter, 300, Server(rate=40, burst=40, throttles=True), seed=seed)
        assert limiter.pacer.is_active
        now = 100 if is_long_ago else before.seconds + 1
        result = simulate(limiter, 3000, Server(accidents=share, throttles=True), seed=seed, attempts=99, begin=now)
        # At the old rate, it would be 75 seconds or more.
        assert result.seconds <= (seconds if is_long_ago else 60)


def test_what_was_learned_is_forgotten_after_a_minute() -> None:
    limiter = Limiter(256)
    simulate(limiter, 3000, Server(accidents=0.2, throttles=True), seed=1, attempts=12)
    assert limiter._usual > 0.1
    simulate(limiter, 1, Server(), seed=1, begin=10_000)
    assert limiter._usual == 0


NOTES = st.tuples(
    st.sampled_from(["record_response", "record_refusal"]), st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 64)
)


@given(st.lists(NOTES, max_size=300), st.integers(1, 64))
def test_bounds_hold_and_it_grows_again(notes: list[tuple[str, float, float, int]], most: int) -> None:
    limiter, now = Limiter(most), 0.0
    for note, later, duration, in_flight in notes:
        now += later
        rest = getattr(limiter, note)(now, Sent(now - duration), in_flight)
        assert 0 <= (rest or 0) <= 1 and min(2, most) <= limiter.limit <= most
    for _ in range(20_000):
        if limiter.limit == most:
            break
        now += 0.1
        limiter.record_response(now, Sent(now), int(limiter.limit) - 1)
    assert limiter.limit == most


def test_an_accident_is_made_good_at_the_pace_of_answers() -> None:
    limiter = Limiter(64)
    assert limiter.pace(Sent(0.0)) == inf
    limiter.record_response(2.0, Sent(1.98), 5)
    assert limiter.pace(Sent(1.99)) == pytest.approx(0.02)
    # There was no response at about that time.
    assert limiter.pace(Sent(2.1)) == inf


def test_few_refusals_among_many_answers_lower_nothing() -> None:
    limiter = Limiter(64)
    for n in range(10_000):
        note = limiter.record_refusal if n % 33 == 0 else limiter.record_response
        note(n / 1000, Sent(n / 1000 - LATENCY), 63)
    assert limiter.limit == 64


PROMISE_SEEDS = range(101, 106)
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
    return limiter, simulate(limiter, 600, CAUSES[cause], seed=seed, attempts=99).seconds


@pytest.mark.parametrize("refusal", [0.0005, 0.02])
@pytest.mark.parametrize("share", [0.08, 0.15, 0.25, 0.33])
def test_a_cut_or_pace_that_does_not_change_the_share_of_refusals_is_taken_back(share: float, refusal: float) -> None:
    """A third of refusals leaves few calls in flight for a moment only."""
    server = Server(accidents=share, throttles=True, refusal=refusal)
    for seed in PROMISE_SEEDS:
        limiter = Watched()
        simulate(limiter, 4000, server, seed=seed, attempts=99)
        longest = limiter.longest if share < 0.3 else limiter.longest_few
        assert longest <= 400, (seed, longest)


@pytest.mark.parametrize("cause", CAUSES)
def test_what_no_longer_holds_is_forgotten_within_some_hundreds_of_responses(cause: str) -> None:
    for seed in PROMISE_SEEDS:
        limiter, now = learned(cause, seed)
        simulate(limiter, 1000, Server(), seed=seed, begin=now + 1)
        assert limiter.limit >= START and not limiter.pacer.is_active, limiter.reason


@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_is_remembered_for_more_than_a_minute(cause: str) -> None:
    limiter, now = learned(cause, 101)
    assert limiter.reason != "free"
    limiter.record_response(now + 61.02, limiter.send(now + 61), 0)
    assert limiter.reason == "free" and limiter.limit >= START


@pytest.mark.parametrize("cause", CAUSES)
def test_who_comes_next_begins_with_what_holds_now(cause: str) -> None:
    server = CAUSES[cause]
    for seed in PROMISE_SEEDS:
        limiter, now = learned(cause, seed)
        known = simulate(limiter, 600, server, seed=seed, attempts=99, begin=now + 0.1).seconds
        # A bucket was full for the first one, but not for the second.
        fresh = simulate(Limiter(256), 600, server, seed=seed, attempts=99).seconds + 1.05 * bool(server.rate)
        assert known <= 1.3 * fresh + 0.5, (seed, known, fresh)


@pytest.mark.parametrize("before", CAUSES)
@pytest.mark.parametrize("after", CAUSES)
def test_another_cause_is_found_in_time(before: str, after: str) -> None:
    for seed in PROMISE_SEEDS:
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

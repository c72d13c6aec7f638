"""Simulated calls to a catalog with limits: tests a limiter with thousands of calls without waiting."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from lance_ns_async.calls.limiter import Limiter, Sent

Outcome = Literal["ok", "refused", "failed"]
_OWN_WORK = 120e-6  # Seconds of the client's own work for each call; without it, calls would come in unrealistic bursts
_NEVER = Sent(0.0)
_LONGEST = 600  # Seconds after which a simulation fails


@dataclass(frozen=True)
class Server:
    """A catalog that refuses calls beyond its maximum, and some calls at random."""

    cap: Callable[[float], int] = lambda now: 10**9  # Maximum number of concurrent calls
    rate: float = 0.0  # Maximum number of calls per second, after a burst of `burst`; 0 for no maximum
    burst: int = 100
    latency: tuple[float, float] = (0.02, 0.02)
    throttles: bool = False  # Whether refusals are throttling errors, such as 429
    refusal: float = 0.0005  # Seconds until a refusal is sent
    faults: float = 0.0  # The share of calls that are refused at random; half as many are cut
    accidents: float = 0.0  # The share of calls that are refused at random, and at once
    retry_after: float = 0.0  # Seconds that a refused call has to wait, in addition to its own pause
    queue: float = inf  # The number of concurrent calls from which on the latency grows in proportion


@dataclass
class Run:
    """The result of simulated calls."""

    seconds: float = 0.0
    sent: int = 0
    done: int = 0
    lost: int = 0
    most: int = 0
    at_end: int = 0
    limit: float = 0.0
    extra_at_end: int = 0  # Number of refused calls in the second half
    paced: bool = False


def simulate(limiter: Limiter, calls: int, server: Server, *, seed: int, attempts: int = 8, begin: float = 0.0) -> Run:
    """Makes a number of calls, each up to `attempts` times, with pauses of jittered exponential back-off. A limiter
    that was used before needs a later time to `begin`."""
    chance, run = random.Random(seed), Run()
    waiting: deque[int] = deque([1] * calls)
    events: list[tuple[float, int, str, int, Sent]] = []
    in_flight = resting = ready = serial = 0
    now = free_at = filled = begin
    tokens, pacing = float(server.burst), False

    def push(at: float, kind: str, attempt: int = 0, sent: Sent = _NEVER) -> None:
        nonlocal serial
        serial += 1
        heapq.heappush(events, (at, serial, kind, attempt, sent))

    while run.done + run.lost < calls:
        assert now < begin + _LONGEST, "it does not end"
        while waiting and in_flight + resting < int(limiter.limit):
            if delay := limiter.pacer.delay(now):
                if not pacing:
                    pacing = True
                    push(now + delay, "pace")
                break
            attempt = waiting.popleft()
            sent = limiter.send(now)
            free_at = max(free_at, now) + _OWN_WORK
            in_flight += 1
            run.sent += 1
            run.most = max(run.most, in_flight)
            push(free_at, "arrive", attempt, sent)
        now, _, kind, attempt, sent = heapq.heappop(events)
        match kind:
            case "arrive":
                latency = chance.uniform(*server.latency)
                latency *= max(1.0, (ready + 1) / server.queue)
                tokens, filled = min(server.burst, tokens + (now - filled) * server.rate), now
                is_accident = bool(server.accidents) and chance.random() < server.accidents
                if ready >= server.cap(now) or (server.rate and tokens < 1) or is_accident:
                    push(now + server.refusal, "refused", attempt, sent)
                    continue
                tokens -= 1
                ready += 1
                fault = chance.random()
                outcome = "ok" if fault >= 1.5 * server.faults else "refused" if fault < server.faults else "failed"
                push(now + latency, f"served {outcome}", attempt, sent)
            case "wake":
                resting -= 1
            case "pace":
                pacing = False
            case "again":
                waiting.append(attempt)
            case _:
                in_flight -= 1
                if kind.startswith("served"):
                    ready -= 1
                if kind == "served ok":
                    limiter.record_response(now, sent, in_flight)
                    run.done += 1
                    continue
                pace = limiter.pace(sent)
                resting += 1
                if kind == "served failed":
                    rest = limiter.record_refusal(now, sent, in_flight)
                else:
                    rest = limiter.record_refusal(now, sent, in_flight, is_throttle=server.throttles)
                    run.extra_at_end += run.done >= calls / 2
                push(now + rest, "wake")
                if attempt == attempts:
                    run.lost += 1
                else:
                    pause = chance.uniform(0, min(5.0, min(0.1, pace) * 2 ** (attempt - 1))) + server.retry_after
                    push(now + max(rest, pause), "again", attempt + 1)
    run.seconds, run.at_end, run.limit = now - begin, in_flight, limiter.limit
    run.paced = limiter.pacer.is_active
    return run

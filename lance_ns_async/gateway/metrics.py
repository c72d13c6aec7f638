"""What is counted of requests and of the calls they cost, in the text form that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from time import monotonic

from lance_ns_async.calls.observers import BOUNDS, Call


@dataclass(slots=True)
class Seen:
    """What becomes known of a request while it is answered."""

    operation: str = "other"
    """The spec's name of it; `other` for what is none of its operations."""
    code: str = "cancelled"
    """The status of its answer; `cancelled` where the client left before there was one."""
    is_cut_off: bool = False
    """Whether the end of the server came before the end of what it asked for."""


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


class Metrics:
    """Counts of one gateway, since it was started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, _Histogram] = {}
        self._in_flight: dict[int, Seen] = {}
        self._cut_off = 0
        self._calls: Counter[tuple[str, str]] = Counter()
        self._call_seconds: dict[str, _Histogram] = {}

    @contextmanager
    def request(self) -> Iterator[Seen]:
        """Counts a request; what is to be told of it is set on what this gives."""
        seen, started = Seen(), monotonic()
        self._in_flight[id(seen)] = seen
        try:
            yield seen
        finally:
            del self._in_flight[id(seen)]
            self._requests[seen.operation, seen.code] += 1
            self._seconds.setdefault(seen.operation, _Histogram()).add(monotonic() - started)

    @property
    def cut_off(self) -> int:
        """How many requests the end of the server has cut off."""
        return self._cut_off

    def cut(self, seen: Seen) -> None:
        """Counts a request that the end of the server cuts off; once, however often it is told."""
        if not seen.is_cut_off:
            seen.is_cut_off = True
            self._cut_off += 1

    def cut_all(self) -> None:
        """Counts all requests under way as cut off."""
        for seen in self._in_flight.values():
            self.cut(seen)

    def called(self, call: Call) -> None:
        """Counts a remote call of the namespace: an `Observer`."""
        self._calls[call.operation, call.outcome] += 1
        self._call_seconds.setdefault(call.operation, _Histogram()).add(call.seconds)

    def text(self) -> str:
        """All counts."""
        lines = [
            *_counter("lance_ns_requests_total", "Requests answered, by status.", "code", self._requests),
            *_histogram("lance_ns_request_seconds", "How long requests took.", self._seconds),
            "# HELP lance_ns_requests_in_flight Requests under way.",
            "# TYPE lance_ns_requests_in_flight gauge",
            f"lance_ns_requests_in_flight {len(self._in_flight)}",
            *_counter("lance_ns_calls_total", "Calls that the catalog was sent, by outcome.", "outcome", self._calls),
            *_histogram("lance_ns_call_seconds", "How long the catalog's calls took.", self._call_seconds),
        ]
        return "\n".join([*lines, ""])


def _counter(name: str, help: str, label: str, counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    yield from _head(name, help, "counter")
    for (operation, value), count in sorted(counts.items()):
        yield f'{name}{{operation="{_escaped(operation)}",{label}="{_escaped(value)}"}} {count}'


def _histogram(name: str, help: str, found: Mapping[str, _Histogram]) -> Iterator[str]:
    yield from _head(name, help, "histogram")
    bounds = [*map(str, BOUNDS), "+Inf"]
    for operation, histogram in sorted(found.items()):
        label = f'operation="{_escaped(operation)}"'
        upto = list(accumulate(histogram.counts))
        for bound, count in zip(bounds, upto, strict=True):
            yield f'{name}_bucket{{{label},le="{bound}"}} {count}'
        yield f"{name}_sum{{{label}}} {histogram.sum:.6f}"
        yield f"{name}_count{{{label}}} {upto[-1]}"


def _head(name: str, help: str, kind: str) -> Sequence[str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

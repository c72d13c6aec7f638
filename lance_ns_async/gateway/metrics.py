"""Metrics of requests and of their remote calls, in the Prometheus text format."""

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
    """Labels of a request, set while it is processed."""

    operation: str = "other"
    """The operation's name in the spec; `other` for any other request."""
    code: str = "cancelled"
    """The HTTP status of the response; `cancelled` if the client left before the response."""
    is_cut_off: bool = False
    """Whether the server stopped before the request was completed."""


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


class Metrics:
    """Counters of one gateway since its start."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, _Histogram] = {}
        self._in_flight: dict[int, Seen] = {}
        self._cut_off = 0
        self._calls: Counter[tuple[str, str]] = Counter()
        self._call_seconds: dict[str, _Histogram] = {}

    @contextmanager
    def request(self) -> Iterator[Seen]:
        """Counts a request; the caller sets its labels on the yielded object."""
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
        """The number of requests that the end of the server interrupted."""
        return self._cut_off

    def cut(self, seen: Seen) -> None:
        """Counts a request as interrupted by the end of the server; repeated calls count once."""
        if not seen.is_cut_off:
            seen.is_cut_off = True
            self._cut_off += 1

    def cut_all(self) -> None:
        """Counts all requests in progress as interrupted."""
        for seen in self._in_flight.values():
            self.cut(seen)

    def called(self, call: Call) -> None:
        """Counts a remote call of the namespace; an `Observer`."""
        self._calls[call.operation, call.outcome] += 1
        self._call_seconds.setdefault(call.operation, _Histogram()).add(call.seconds)

    def text(self) -> str:
        """Returns all metrics in the Prometheus text format."""
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

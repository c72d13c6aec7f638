"""Metrics of remote calls: the instruments, and the measurements of each call and of the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.slots import CallLoad

PREFIX = "lance_ns."
"""The prefix of all instruments, and of the labels that only this package has."""

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Upper bounds, in seconds, of the histogram buckets for durations; one more bucket has no upper bound."""

OPERATION = f"{PREFIX}operation"
ERROR = "error.type"
RESEND_REASON = f"{PREFIX}resend.reason"


@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """A metric as OpenTelemetry names it; exporters in other formats derive their names from it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str


DURATION = Instrument(f"{PREFIX}call.duration", "histogram", "s", "How long a remote call to the catalog took.")
RESENDS = Instrument(
    f"{PREFIX}call.resends", "counter", "{call}", "Remote calls that were sent once more: a retry, or a hedge."
)


def _is_limited(word: str, load: CallLoad) -> int:
    return int(word in load.reason)


_LIMITS = {  # The words in `CallLoad.reason` for limits that adapt to the catalog.
    "capped": "1 while the catalog accepts only a number of calls in flight.",
    "paced": "1 while calls are sent at a rate, because the catalog throttles.",
    "refused": "1 while the catalog refuses a share of the calls whatever their number.",
}

LOAD: Mapping[Instrument, Callable[[CallLoad], int]] = {
    Instrument(f"{PREFIX}call.in_flight", "gauge", "{call}", "Remote calls in flight to the catalog."): lambda load: (
        load.in_flight
    ),
    Instrument(f"{PREFIX}call.waiting", "gauge", "{call}", "Remote calls that wait for a slot."): lambda load: (
        load.waiting
    ),
    Instrument(
        f"{PREFIX}call.limit", "gauge", "{call}", "The current maximum of remote calls in flight to the catalog."
    ): lambda load: load.limit,
    Instrument(
        f"{PREFIX}circuit.open",
        "gauge",
        "{circuit}",
        "1 while calls fail without being sent, because the catalog does not respond.",
    ): lambda load: int(load.circuit_open),
    **{
        Instrument(f"{PREFIX}limit.{word}", "gauge", "{limit}", description): partial(_is_limited, word)
        for word, description in _LIMITS.items()
    },
}
"""The gauges of the load of one catalog's slots, with their values."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value for an instrument; labels never contain an id or a secret."""

    instrument: Instrument
    value: float
    labels: Mapping[str, str]


def call_labels(call: Call) -> dict[str, str]:
    """Returns the labels of a call: its operation and, if it did not succeed, the kind of failure."""
    labels = {OPERATION: call.operation}
    if call.outcome != "ok":
        labels[ERROR] = call.outcome
    return labels


def measure_call(call: Call) -> Sequence[Measurement]:
    """Returns what a completed call adds to the counters and histograms."""
    labels = call_labels(call)
    duration = Measurement(DURATION, call.seconds, labels)
    if not call.hedge and call.attempt == 1:
        return (duration,)
    return duration, Measurement(RESENDS, 1, {**labels, RESEND_REASON: "hedge" if call.hedge else "retry"})

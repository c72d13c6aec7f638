"""Metrics of requests and of their remote calls, in the Prometheus text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from time import monotonic
from typing import TypeAlias

from lance_ns_async.calls.metrics import (
    BOUNDS,
    DURATION,
    LOAD,
    OPERATION,
    PREFIX,
    RESENDS,
    Instrument,
    Measurement,
    measure_call,
)
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.slots import CallLoad
from lance_ns_async.gateway.request_log import AuditLog, RequestLog

REQUESTS = Instrument(f"{PREFIX}requests", "counter", "{request}", "Number of requests, by status.")
CLIENT_REQUESTS = Instrument(f"{PREFIX}client.requests", "counter", "{request}", "Number of requests, by client.")
REQUEST_DURATION = Instrument(f"{PREFIX}request", "histogram", "s", "Duration of requests.")
REQUESTS_IN_FLIGHT = Instrument(f"{PREFIX}requests.in_flight", "gauge", "{request}", "Requests in progress.")

AUDIT_LINES_LOST = Instrument(
    f"{PREFIX}audit.lines_lost", "gauge", "{line}", "Lines of the audit log that could not be written."
)

_MAX_CLIENTS = 1_000  # Maximum number of clients that are counted by name: an issuer may have any number.
_OTHERS = "(others)"  # The name for further ones, which no client can have.

_Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Total:
    """The total of one counter or histogram for one set of labels."""

    sum: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """The counts of a histogram; unused for a counter."""


class Metrics:
    """Metrics of one server since its start: of its requests, of calls and their load, and of the audit log.

    Args:
        snapshot: Returns the load of the calls; None if it is not known.
        audit_log: The log of requests; None if there is none.
        more: Returns further current measurements; None for none.
    """

    def __init__(
        self,
        snapshot: Callable[[], CallLoad | None] | None = None,
        audit_log: AuditLog | None = None,
        more: Callable[[], Iterable[Measurement]] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._audit_log = audit_log
        self._more = more
        self._totals: dict[Instrument, dict[_Labels, _Total]] = {
            instrument: {} for instrument in (REQUESTS, CLIENT_REQUESTS, REQUEST_DURATION, DURATION, RESENDS)
        }
        self._in_flight: dict[int, RequestLog] = {}
        self.cut_off: int = 0  # The number of requests that the end of the server interrupted.

    @contextmanager
    def count_request(self, request: RequestLog) -> Iterator[None]:
        """Counts a request, as in progress within the block."""
        self._in_flight[id(request)] = request
        try:
            yield
        finally:
            del self._in_flight[id(request)]
            operation = {OPERATION: request.operation}
            self._add(Measurement(REQUESTS, 1, {**operation, f"{PREFIX}code": request.code}))
            self._add(Measurement(REQUEST_DURATION, monotonic() - request.started, operation))
            if request.principal is not None:
                self._count_client(request.principal)

    def count_cut_off(self, request: RequestLog) -> None:
        """Counts a request as interrupted by the end of the server; repeated calls count once."""
        if not request.is_cut_off:
            request.is_cut_off = True
            self.cut_off += 1

    def cut_all(self) -> None:
        """Counts all requests in progress as interrupted."""
        for request in self._in_flight.values():
            self.count_cut_off(request)

    def record(self, call: Call) -> None:
        """Counts a remote call of the namespace; an `Observer`."""
        for measurement in measure_call(call):
            self._add(measurement)

    def text(self, *, clients: bool = True) -> str:
        """Returns all metrics in the Prometheus text format; `clients` is whether those by client are included."""
        gauges: dict[Instrument, int] = {REQUESTS_IN_FLIGHT: len(self._in_flight)}
        if self._audit_log is not None:
            gauges[AUDIT_LINES_LOST] = self._audit_log.lost
        if self._snapshot is not None and (load := self._snapshot()) is not None:
            gauges.update((instrument, value(load)) for instrument, value in LOAD.items())
        visible = {it: totals for it, totals in self._totals.items() if clients or it is not CLIENT_REQUESTS}
        lines = [line for instrument, totals in visible.items() for line in _render(instrument, totals)]
        lines.extend(line for gauge, value in gauges.items() for line in _render(gauge, {(): _Total(value)}))
        more: dict[Instrument, dict[_Labels, _Total]] = {}
        for it in self._more() if self._more is not None else ():
            more.setdefault(it.instrument, {})[tuple(it.labels.items())] = _Total(it.value)
        lines.extend(line for instrument, totals in more.items() for line in _render(instrument, totals))
        return "\n".join([*lines, ""])

    def _count_client(self, name: str) -> None:
        label, known = f"{PREFIX}client", self._totals[CLIENT_REQUESTS]
        is_counted = ((label, name),) in known or len(known) < _MAX_CLIENTS
        self._add(Measurement(CLIENT_REQUESTS, 1, {label: name if is_counted else _OTHERS}))

    def _add(self, measurement: Measurement) -> None:
        total = self._totals[measurement.instrument].setdefault(tuple(measurement.labels.items()), _Total())
        total.sum += measurement.value
        if measurement.instrument.kind == "histogram":
            total.buckets[bisect_left(BOUNDS, measurement.value)] += 1


def _render(instrument: Instrument, totals: Mapping[_Labels, _Total]) -> Iterator[str]:
    name = _metric_name(instrument)
    yield f"# HELP {name} {instrument.description}"
    yield f"# TYPE {name} {instrument.kind}"
    for labels, total in sorted(totals.items(), key=lambda series: series[0]):
        if instrument.kind != "histogram":
            yield f"{name}{_label_set(labels)} {total.sum:.0f}"
            continue
        counts = list(accumulate(total.buckets))
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], counts, strict=True):
            yield f"{name}_bucket{_label_set((*labels, ('le', bound)))} {count}"
        yield f"{name}_sum{_label_set(labels)} {total.sum:.6f}"
        yield f"{name}_count{_label_set(labels)} {counts[-1]}"


def _metric_name(instrument: Instrument) -> str:
    """Returns the name in Prometheus, as an exporter of OpenTelemetry derives it."""
    name = instrument.name.replace(".", "_")
    return name + {"counter": "_total", "histogram": "_seconds", "gauge": ""}[instrument.kind]


def _label_set(labels: _Labels) -> str:
    """Returns labels in braces; their names lose the prefix, which the metric already has."""
    pairs = (f'{name.removeprefix(PREFIX).replace(".", "_")}="{_escape(value)}"' for name, value in labels)
    return f"{{{','.join(pairs)}}}" if labels else ""


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

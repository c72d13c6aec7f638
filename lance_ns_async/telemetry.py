"""OpenTelemetry instrumentation: a span for each attempt of a remote call, and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING

from lance_ns_async.calls.observers import BOUNDS, Call

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import SpanKind, StatusCode, Tracer, TracerProvider
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(f"{__name__} needs: pip install 'lance-ns-async[otel]'", name=e.name) from e

if TYPE_CHECKING:
    from lance_ns_async.calls.traffic import Traffic
    from lance_ns_async.namespace.client import AsyncNamespace
    from lance_ns_async.namespace.sync import Namespace

_SCOPE = "lance_ns_async"
_VERSION = version("lance-ns-async")


@contextmanager
def instrument(
    namespace: AsyncNamespace | Namespace,
    *,
    catalog: str | None = None,
    ids: bool = False,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Iterator[None]:
    """Records a span and metrics for every remote call of the namespace while the context is open.

    A span lasts as long as its call. Its parent is the current span where the operation was called, in any thread.

    Args:
        namespace: The namespace to instrument.
        catalog: The catalog's name in attributes; None for its address, as in `namespace_id`.
        ids: Whether spans contain the ids of tables and namespaces; metrics never do.
        tracer_provider: None for OpenTelemetry's global provider.
        meter_provider: None for OpenTelemetry's global provider.
    """
    named = _Catalog.of(namespace.namespace_id(), catalog)
    tracer = trace.get_tracer(_SCOPE, _VERSION, tracer_provider)
    instruments = _instruments(meter_provider)
    with namespace.observe(_Teller(named, tracer, instruments, ids)), instruments.watching(_traffic(namespace), named):
        yield


@dataclass(frozen=True, slots=True)
class _Catalog:
    """The attributes of the catalog in every span and measurement."""

    backend: str
    name: str

    @classmethod
    def of(cls, namespace_id: str, name: str | None) -> _Catalog:
        _, backend, identity = namespace_id.split(":", 2)
        # Without the digest, which differs between processes.
        return cls(backend, name or identity.rpartition("#")[0])

    def attributes(self) -> dict[str, str]:
        return {"lance_ns.backend": self.backend, "lance_ns.catalog": self.name}


class _Teller:
    """Records each completed call; an `Observer`."""

    def __init__(self, catalog: _Catalog, tracer: Tracer, instruments: _Instruments, ids: bool) -> None:
        self._common = catalog.attributes()
        self._tracer = tracer
        self._instruments = instruments
        self._ids = ids

    def __call__(self, call: Call) -> None:
        attributes = {**self._common, "lance_ns.operation": call.operation}
        if call.outcome != "ok":
            attributes["error.type"] = call.outcome
        # Observers run in the task of the call, so the current span is the one of the operation.
        end = time_ns()
        span = self._tracer.start_span(
            call.operation,
            kind=SpanKind.CLIENT,
            attributes={**attributes, **self._of_one(call)},
            start_time=end - int(call.seconds * 1e9),
        )
        # A cancellation is intended, so it is no error.
        if call.outcome not in ("ok", "cancelled"):
            span.set_status(StatusCode.ERROR)
        self._instruments.count(call, attributes, span)
        span.end(end)

    def _of_one(self, call: Call) -> Mapping[str, str | int | bool]:
        found: dict[str, str | int | bool] = {"lance_ns.attempt": call.attempt}
        if call.hedge:
            found["lance_ns.hedge"] = True
        if self._ids:
            found[f"lance_ns.{call.subject.kind}"] = str(call.subject)
        return found


class _Instruments:
    """The instruments of one meter: counters of completed calls, and gauges of the catalogs' traffic."""

    def __init__(self, meter: Meter) -> None:
        self._watched: list[tuple[Traffic, _Catalog]] = []
        self._duration = meter.create_histogram(
            "lance_ns.call.duration",
            "s",
            "How long a remote call to the catalog took.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._resends = meter.create_counter(
            "lance_ns.call.resends", "{call}", "Remote calls that were sent once more: a retry, or a hedge."
        )
        gauges: Sequence[tuple[str, str, Callable[[Traffic], int], str]] = (
            ("lance_ns.call.in_flight", "{call}", _in_flight, "Remote calls under way to the catalog."),
            ("lance_ns.call.limit", "{call}", _limit, "Remote calls that may be under way to the catalog just now."),
            ("lance_ns.circuit.open", "{circuit}", _is_open, "1 while calls fail unsent, as the catalog answers none."),
        )
        for name, unit, of, what in gauges:
            meter.create_observable_up_down_counter(name, [partial(self._observed, of)], unit, what)

    def count(self, call: Call, attributes: Mapping[str, str], span: trace.Span) -> None:
        self._duration.record(call.seconds, attributes, context=trace.set_span_in_context(span))
        if call.hedge or call.attempt > 1:
            self._resends.add(1, {**attributes, "lance_ns.resend.reason": "hedge" if call.hedge else "retry"})

    @contextmanager
    def watching(self, traffic: Traffic, catalog: _Catalog) -> Iterator[None]:
        self._watched.append((traffic, catalog))
        try:
            yield
        finally:
            self._watched.remove((traffic, catalog))

    def _observed(self, of: Callable[[Traffic], int], options: CallbackOptions) -> Sequence[Observation]:
        # Namespaces may share one traffic, which counts once; one catalog may have a separate traffic for each user.
        sums: Counter[_Catalog] = Counter()
        for traffic, catalog in frozenset(self._watched):
            sums[catalog] += of(traffic)
        return [Observation(found, catalog.attributes()) for catalog, found in sums.items()]


def _traffic(namespace: AsyncNamespace | Namespace) -> Traffic:
    client = namespace._open().client if hasattr(namespace, "_open") else namespace
    return client._caller.traffic


def _in_flight(traffic: Traffic) -> int:
    return traffic._taken - traffic._resting


def _limit(traffic: Traffic) -> int:
    return traffic.limit


def _is_open(traffic: Traffic) -> int:
    return int(traffic._circuit.is_open)


def _instruments(provider: MeterProvider | None) -> _Instruments:
    """Returns the provider's instruments, created once: a second callback for the same name would never be called."""
    # Instruments created before the global provider is set are moved to it by OpenTelemetry.
    key = None if provider is metrics.get_meter_provider() else provider
    with _making:
        if key not in _made:
            _made[key] = _Instruments(metrics.get_meter(_SCOPE, _VERSION, key))
        return _made[key]


_making = Lock()
_made: dict[MeterProvider | None, _Instruments] = {}

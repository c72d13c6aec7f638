"""OpenTelemetry instrumentation: spans of remote calls and of operations on many tables, and metrics.

The names of the metrics are in `lance_ns_async.calls.metrics`, because the gateway uses them, too. Beside them are the
names of the semantic conventions for database clients, which tools know:
https://opentelemetry.io/docs/specs/semconv/database/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, finalize

from lance_ns_async.calls.caller import Caller, on_open
from lance_ns_async.calls.metrics import (
    BOUNDS,
    DURATION,
    ERROR,
    LOAD,
    OPERATION,
    PREFIX,
    RESENDS,
    Instrument,
    call_labels,
    measure_call,
)
from lance_ns_async.calls.observers import Call, Observer
from lance_ns_async.model import TableId

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import SpanKind, StatusCode, Tracer, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"{__name__} needs: pip install 'lance-ns-async[otel]'", name=_error.name) from _error

if TYPE_CHECKING:
    from lance_ns_async.calls.slots import CallLoad
    from lance_ns_async.client import AsyncNamespace
    from lance_ns_async.sync import Namespace

_SCOPE = "lance_ns_async"
_CONVENTIONAL_DURATION = "db.client.operation.duration"
_SCHEMES = ("http", "https", "thrift")
_VERSION = version("lance-ns-async")
_PROPAGATOR = TraceContextTextMapPropagator()


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
    Requests over HTTP get the W3C headers `traceparent` and `tracestate` of that parent; baggage is not sent.

    In a program with an active `Instrumentor`, as under `opentelemetry-instrument`, this records nothing more.

    Args:
        namespace: The namespace to instrument.
        catalog: The catalog's name in attributes; None for its address, as in `namespace_id`.
        ids: Whether spans contain the ids of tables and namespaces; metrics never do.
        tracer_provider: None for OpenTelemetry's global provider.
        meter_provider: None for OpenTelemetry's global provider.
    """
    if Instrumentor.is_active():
        yield
        return
    attributes = _Catalog.of(namespace.namespace_id(), catalog)
    with _record(namespace.observe, namespace.snapshot, attributes, ids, tracer_provider, meter_provider):
        yield


class Instrumentor:
    """Instruments all namespaces that the process opens; the entry point of `opentelemetry-instrument`."""

    _recordings: ClassVar[WeakKeyDictionary[Caller, finalize[[], Caller]]] = WeakKeyDictionary()
    _hook: ClassVar[Callable[[str, Caller], None] | None] = None

    def instrument(
        self,
        *,
        ids: bool = True,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        **_: Any,
    ) -> None:
        """Records spans and metrics for every namespace that is opened from now on; a second call changes nothing.

        Args:
            ids: Whether spans contain the ids of tables and namespaces; metrics never do.
            tracer_provider: None for OpenTelemetry's global provider.
            meter_provider: None for OpenTelemetry's global provider.
            **_: Options of OpenTelemetry's own instrumentors, which are ignored.
        """

        def record(id: str, caller: Caller) -> None:
            stack = ExitStack()
            attributes = _Catalog.of(id, None)
            # Nothing in the stack may refer to the caller, whose end closes it.
            observe, snapshot = caller.observers.with_one, caller.slots.snapshot
            stack.enter_context(_record(observe, snapshot, attributes, ids, tracer_provider, meter_provider))
            Instrumentor._recordings[caller] = end = finalize(caller, stack.close)
            end.atexit = False

        if not self.is_active():
            Instrumentor._hook = record
            on_open.append(record)

    @classmethod
    def is_active(cls) -> bool:
        """Returns whether namespaces that are opened now are recorded."""
        return cls._hook is not None

    def uninstrument(self, **_: Any) -> None:
        """Ends the recording, also of open namespaces.

        Args:
            **_: Options of OpenTelemetry's own instrumentors, which are ignored.
        """
        if Instrumentor._hook is not None:
            on_open.remove(Instrumentor._hook)
            Instrumentor._hook = None
        for end in list(Instrumentor._recordings.values()):
            end()


@contextmanager
def _record(
    observe: Callable[[Observer], AbstractContextManager[None]],
    snapshot: Callable[[], CallLoad],
    catalog: _Catalog,
    ids: bool,
    tracer_provider: TracerProvider | None,
    meter_provider: MeterProvider | None,
) -> Iterator[None]:
    tracer = trace.get_tracer(_SCOPE, _VERSION, tracer_provider)
    instruments = _instruments(meter_provider)
    with observe(_CallRecorder(catalog, tracer, instruments, ids)), instruments.watch(snapshot, catalog):
        yield


class RequestTracer:
    """Records a span for each request of a gateway, which continues the trace of its client.

    Args:
        tracer_provider: None for OpenTelemetry's global provider.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(_SCOPE, _VERSION, tracer_provider)

    @contextmanager
    def __call__(self, method: str, headers: Mapping[str, str]) -> Iterator[Callable[[str, str], None]]:
        """Makes a new span the current one while the context is open.

        Args:
            method: The HTTP method.
            headers: The headers of the request, of which `traceparent` and `tracestate` are used.

        Yields:
            A function that takes the operation and the status of the request.
        """
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        with self._tracer.start_as_current_span(
            method, _PROPAGATOR.extract(carrier), SpanKind.SERVER, {"http.request.method": method}
        ) as span:

            def finish(operation: str, status: str) -> None:
                span.update_name(operation)
                span.set_attribute(OPERATION, operation)
                # A cancelled request has no status.
                if status.isdigit():
                    span.set_attribute("http.response.status_code", int(status))
                    if status.startswith("5"):
                        span.set_status(StatusCode.ERROR)

            yield finish


@dataclass(frozen=True, slots=True)
class _Catalog:
    """The attributes of the catalog in every span and measurement."""

    backend: str
    name: str
    host: str | None = None
    port: int | None = None

    @classmethod
    def of(cls, namespace_id: str, name: str | None) -> _Catalog:
        _, backend, identity = namespace_id.split(":", 2)
        # Without the digest, which differs between processes.
        identity = identity.rpartition("#")[0]
        # A metastore may have several addresses; calls have the first one.
        url = urlsplit(identity.partition("|")[0].partition(",")[0])
        host, port = (url.hostname, url.port) if url.scheme in _SCHEMES else (None, None)
        return cls(backend, name or identity, host, port)

    def attributes(self) -> dict[str, str]:
        return {f"{PREFIX}backend": self.backend, f"{PREFIX}catalog": self.name}

    def conventional(self) -> dict[str, str | int]:
        """Returns the attributes of the semantic conventions."""
        attributes = {"db.system.name": self.backend, "server.address": self.host, "server.port": self.port}
        return {name: value for name, value in attributes.items() if value is not None}


class _CallRecorder:
    """Records each completed call as a span and in metrics; a `TraceObserver`."""

    def __init__(self, catalog: _Catalog, tracer: Tracer, instruments: _Instruments, ids: bool) -> None:
        self._common = catalog.attributes()
        self._conventional = catalog.conventional()
        self._tracer = tracer
        self._instruments = instruments
        self._ids = ids

    def __call__(self, call: Call) -> None:
        # Observers run in the task of the call, so the current span is the one of the operation.
        end = time_ns()
        conventional = {**self._conventional, **_conventional_labels(call)}
        span = self._tracer.start_span(
            call.operation,
            kind=SpanKind.CLIENT,
            attributes={**self._common, **call_labels(call), **conventional, **self._details(call)},
            start_time=end - int(call.seconds * 1e9),
        )
        # A cancellation is intended, so it is no error.
        if call.outcome not in ("ok", "cancelled"):
            span.set_status(StatusCode.ERROR)
        self._instruments.record(call, self._common, conventional, span)
        span.end(end)

    def trace_headers(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers)
        return headers

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        attributes = {**self._common, OPERATION: name, **self._conventional, "db.operation.name": name}
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Exception as error:
                # Its message may contain ids.
                span.set_attribute(ERROR, type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    def _details(self, call: Call) -> Mapping[str, str | int | bool]:
        """Returns the attributes that only a span has."""
        details: dict[str, str | int | bool] = {f"{PREFIX}attempt": call.attempt}
        if call.hedge:
            details[f"{PREFIX}hedge"] = True
        if call.http_status is not None:
            details["http.response.status_code"] = call.http_status
        if self._ids:
            details[f"{PREFIX}{call.subject.kind}"] = str(call.subject)
            if isinstance(call.subject, TableId):
                details["db.namespace"] = str(call.subject.parent)
                details["db.collection.name"] = call.subject.name
            else:
                details["db.namespace"] = str(call.subject)
        return details


def _conventional_labels(call: Call) -> dict[str, str]:
    """Returns the labels of a call in the semantic conventions."""
    labels = call_labels(call)
    labels["db.operation.name"] = labels.pop(OPERATION)
    if call.outcome.isdigit():
        labels["db.response.status_code"] = call.outcome
    return labels


class _Instruments:
    """The instruments of one meter: counters of completed calls, and gauges of the catalogs' load."""

    def __init__(self, meter: Meter) -> None:
        self._sources: list[tuple[Callable[[], CallLoad], _Catalog]] = []
        self._duration = meter.create_histogram(
            DURATION.name, DURATION.unit, DURATION.description, explicit_bucket_boundaries_advisory=BOUNDS
        )
        self._conventional_duration = meter.create_histogram(
            _CONVENTIONAL_DURATION, "s", DURATION.description, explicit_bucket_boundaries_advisory=BOUNDS
        )
        self._resends = meter.create_counter(RESENDS.name, RESENDS.unit, RESENDS.description)
        for gauge in LOAD:
            callback = partial(self._observe, gauge)
            meter.create_observable_up_down_counter(gauge.name, [callback], gauge.unit, gauge.description)

    def record(
        self, call: Call, common: Mapping[str, str], conventional: Mapping[str, str | int], span: trace.Span
    ) -> None:
        context = trace.set_span_in_context(span)
        self._conventional_duration.record(call.seconds, conventional, context=context)
        for measurement in measure_call(call):
            attributes = {**common, **measurement.labels}
            if measurement.instrument is DURATION:
                self._duration.record(measurement.value, attributes, context=context)
            else:
                self._resends.add(measurement.value, attributes)

    @contextmanager
    def watch(self, snapshot: Callable[[], CallLoad], catalog: _Catalog) -> Iterator[None]:
        self._sources.append((snapshot, catalog))
        try:
            yield
        finally:
            self._sources.remove((snapshot, catalog))

    def _observe(self, gauge: Instrument, options: CallbackOptions) -> Sequence[Observation]:
        # Namespaces may share slots, which count once; one catalog may have separate slots for each user.
        loads = {}
        for snapshot, catalog in tuple(self._sources):
            load = snapshot()
            loads[load.slots_id, catalog] = load
        sums: dict[_Catalog, int] = {}
        for (_, catalog), load in loads.items():
            sums[catalog] = sums.get(catalog, 0) + LOAD[gauge](load)
        return [Observation(value, catalog.attributes()) for catalog, value in sums.items()]


def _instruments(provider: MeterProvider | None) -> _Instruments:
    """Returns the provider's instruments, created once: a second callback for the same name would never be called."""
    # Instruments created before the global provider is set are moved to it by OpenTelemetry.
    key = None if provider is metrics.get_meter_provider() else provider
    with _lock:
        if key not in _instruments_by_provider:
            _instruments_by_provider[key] = _Instruments(metrics.get_meter(_SCOPE, _VERSION, key))
        return _instruments_by_provider[key]


_lock = Lock()
_instruments_by_provider: dict[MeterProvider | None, _Instruments] = {}

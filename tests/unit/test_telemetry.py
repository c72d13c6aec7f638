"""OpenTelemetry instrumentation: spans in the traces of the callers, and metrics."""

from __future__ import annotations

import asyncio
import gc
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, aclosing
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError, ServiceUnavailableError
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from lance_ns_async import AsyncNamespace, IcebergNamespace, Namespace, Policy, telemetry
from lance_ns_async.calls.metrics import BOUNDS
from lance_ns_async.fleet import discover
from lance_ns_async.gateway import serving
from lance_ns_async.spark import LocationResolver
from tests.fakes.iceberg import FakeIceberg
from tests.support.gateway import send_request
from tests.unit.test_api import printed

pytestmark = pytest.mark.floors
SECRET = "hush-hush-4711"
TABLE = DescribeTableRequest(id=["db", "t"])


class Watcher:
    """An application with OpenTelemetry, and its recorded spans and metrics."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("app")

    def watch(self, namespace: AsyncNamespace | Namespace, **more: Any) -> AbstractContextManager[None]:
        return telemetry.instrument(namespace, tracer_provider=self.tracers, meter_provider=self.meters, **more)

    def spans(self) -> list[ReadableSpan]:
        """Returns the spans of remote calls, and of requests to a gateway."""
        return [span for span in self.finished() if span.kind is not SpanKind.INTERNAL]

    def finished(self) -> Sequence[ReadableSpan]:
        """Returns all spans."""
        return self._exporter.get_finished_spans()

    def tree(self) -> Mapping[str, set[str]]:
        """Returns the names of the spans within each operation on many tables."""
        spans = {span.context.span_id: span.name for span in self.finished() if span.context}
        result: dict[str, set[str]] = {}
        for span in self.finished():
            if span.parent:
                result.setdefault(spans[span.parent.span_id], set()).add(span.name)
        return result

    def points(self) -> Mapping[str, list[Any]]:
        """Returns the data points of each instrument that has any."""
        result: dict[str, list[Any]] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "lance_ns_async" and scope.scope.version
                for metric in scope.metrics:
                    result[metric.name] = list(metric.data.data_points)
        return result

    def value(self, name: str) -> int:
        """Returns the value of the only data point of an instrument."""
        [point] = self.points()[name]
        return int(point.value)

    def everything(self) -> str:
        """Returns all recorded data as text."""
        return repr([span.to_json() for span in self.finished()]) + repr(self.points())


def get_attribute(span: ReadableSpan, attribute: str) -> Any:
    return (span.attributes or {}).get(attribute)


async def collect(items: AsyncIterator[object]) -> list[object]:
    return [item async for item in items]


def names(spans: list[ReadableSpan]) -> list[str]:
    return sorted(span.name for span in spans)


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        for name in ("t", "u", "v"):
            running.add_table(["db"], name)
        yield running


def connect(server: FakeIceberg, policy: Policy | None = None, **more: str) -> AsyncNamespace:
    return AsyncNamespace.connect(
        "iceberg", {"endpoint": server.endpoint, **more}, policy=policy or Policy(backoff_initial=0.001)
    )


async def test_a_call_is_a_span_within_the_callers(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server) as ns:
        with watcher.watch(ns), watcher.tracer.start_as_current_span("job") as job:
            await ns.describe_table(TABLE)
        await ns.describe_table(TABLE)
    described = watcher.spans()[-1]
    assert names(watcher.spans()) == ["describe_table", "get_config"]
    assert isinstance(job, ReadableSpan) and described.parent == job.get_span_context()
    assert described.kind is SpanKind.CLIENT and described.status.status_code is StatusCode.UNSET
    assert dict(described.attributes or {}) == {
        "lance_ns.backend": "iceberg",
        "lance_ns.catalog": server.endpoint,
        "lance_ns.operation": "describe_table",
        "lance_ns.attempt": 1,
        "db.system.name": "iceberg",
        "db.operation.name": "describe_table",
        "server.address": "127.0.0.1",
        "server.port": urlsplit(server.endpoint).port,
        "http.response.status_code": 200,
    }
    times = [job.start_time, described.start_time, described.end_time, job.end_time]
    assert times == sorted(time for time in times if time)


def test_the_span_of_a_sync_caller_crosses_to_the_background(server: FakeIceberg, watcher: Watcher) -> None:
    with IcebergNamespace(endpoint=server.endpoint) as ns, watcher.watch(ns):

        def job(name: str) -> list[str]:
            with watcher.tracer.start_as_current_span(name):
                ns.describe_tables([["db", "t"], ["db", "u"]])
                return [str(id) for id in ns.iter_tables(["db"])]

        with ThreadPoolExecutor(2) as threads:
            assert list(map(sorted, threads.map(job, ("one", "two")))) == [["db$t", "db$u", "db$v"]] * 2
    jobs = [s.context for s in watcher.finished() if s.parent is None and s.context]
    assert len(jobs) == 2
    for job_context in jobs:
        of_it = [span for span in watcher.spans() if span.context and span.context.trace_id == job_context.trace_id]
        assert names(of_it)[:2] == ["describe_table", "describe_table"] and "list_tables" in names(of_it)
    assert watcher.tree().keys() == {"one", "two", "describe_tables", "iter_tables"}
    assert watcher.tree()["one"] == watcher.tree()["two"] == {"describe_tables", "iter_tables"}


def test_a_server_gets_the_trace_of_the_caller(server: FakeIceberg, watcher: Watcher) -> None:
    with Namespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
        with watcher.watch(namespace):
            namespace.describe_table(TABLE)
            with watcher.tracer.start_as_current_span("job") as job:
                namespace.describe_table(TABLE)
        with watcher.tracer.start_as_current_span("other job"):
            namespace.describe_table(TABLE)
    context = job.get_span_context()
    sent = [request.headers.get("traceparent", "").rpartition("-")[0] for request in server.requests[-3:]]
    assert sent == ["", f"00-{context.trace_id:032x}-{context.span_id:016x}", ""]


async def test_a_retry_is_a_span_of_its_own_and_counts(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server) as ns:
        await ns.describe_table(TABLE)
        server.fail(503, times=2, match="tables/t")
        with watcher.watch(ns):
            await ns.describe_table(TABLE)
    spans, slow = watcher.spans(), "SlowDownException"
    outcomes = [(get_attribute(s, "lance_ns.attempt"), get_attribute(s, "error.type")) for s in spans]
    assert outcomes == [(1, slow), (2, slow), (3, None)]
    assert [get_attribute(s, "http.response.status_code") for s in spans] == [503, 503, 200]
    assert [s.status.status_code for s in spans] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    points = watcher.points()
    of_databases = points["db.client.operation.duration"]
    counts = {(p.attributes["db.operation.name"], p.attributes.get("error.type")): p.count for p in of_databases}
    assert counts == {("describe_table", slow): 2, ("describe_table", None): 1}
    assert all(p.attributes["server.address"] == "127.0.0.1" for p in of_databases)
    durations = {point.attributes.get("error.type"): point.count for point in points["lance_ns.call.duration"]}
    assert durations == {slow: 2, None: 1}
    resends = [(dict(p.attributes), p.value) for p in points["lance_ns.call.resends"]]
    common = {
        "lance_ns.backend": "iceberg",
        "lance_ns.catalog": server.endpoint,
        "lance_ns.operation": "describe_table",
        "lance_ns.resend.reason": "retry",
    }
    assert resends == [({**common, "error.type": slow}, 1), (common, 1)]


async def walk_twice(ns: AsyncNamespace) -> None:
    [_ async for _ in ns.iter_tables(recursive=True)]
    async with aclosing(ns.iter_tables(["db"])) as ids:
        await anext(ids)


@pytest.mark.parametrize(
    ("operation", "run"),
    [
        ("count_many", lambda ns: ns.count_many("**.*")),
        ("describe_tables", lambda ns: ns.describe_tables(["db.*", "other.t"])),
        ("discover", lambda ns: discover(ns, str(ns.session.root), into="db")),
        ("iter_namespaces", lambda ns: collect(ns.iter_namespaces(recursive=True))),
        ("iter_tables", walk_twice),
        ("list_all_tables", lambda ns: ns.list_all_tables()),
        ("list_many", lambda ns: ns.list_many([["db"], ["other"]])),
        ("open_many", lambda ns: ns.open_many(["db.t", "db.u"])),
        ("prefetch", lambda ns: LocationResolver(ns).aprefetch("db.*", pin_versions=True)),
        ("register_tables", lambda ns: ns.register_tables([{"id": ["db", "t"], "location": "t.lance"}])),
        ("scan_many", lambda ns: ns.scan_many("db.*")),
        ("sql", lambda ns: ns.sql("SELECT * FROM db.t")),
        ("stream_tables", lambda ns: collect(ns.stream_tables([["db", "t"], ["db", "u"]]))),
        ("watch", lambda ns: collect(ns.watch("db.*", every=None))),
    ],
)
async def test_the_calls_of_a_bulk_operation_have_one_parent(
    operation: str, run: Callable[[AsyncNamespace], Awaitable[object]], tmp_path: Path, watcher: Watcher
) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        for parent in ("db", "other"):
            await ns.create_namespace([parent])
        for name in "tu":
            await ns.write(["db", name], pa.table({"a": [1]}))
        with watcher.watch(ns):
            await run(ns)
    assert watcher.spans() and {span.name for span in watcher.finished() if span.parent is None} == {operation}


async def test_a_failed_bulk_operation_says_so_without_ids(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server) as ns:
        with watcher.watch(ns), pytest.raises(NamespaceNotFoundError):
            await ns.list_all_tables(["nothing"])
    [span] = [span for span in watcher.finished() if span.name == "list_all_tables"]
    assert span.status.status_code is StatusCode.ERROR and get_attribute(span, "error.type") == "NamespaceNotFoundError"
    assert not span.events and "nothing" not in watcher.everything()


def test_the_entry_point_instruments_what_is_opened_later(server: FakeIceberg, watcher: Watcher) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    [(name, path)] = project["entry-points"]["opentelemetry_instrumentor"].items()
    instrumentor = EntryPoint(name, path, "").load()
    with IcebergNamespace(endpoint=server.endpoint) as earlier:
        for _ in range(2):
            instrumentor().instrument(
                skip_dep_check=True, tracer_provider=watcher.tracers, meter_provider=watcher.meters
            )
        try:
            with IcebergNamespace(endpoint=server.endpoint) as ns:
                earlier.describe_table(TABLE)
                assert not watcher.spans()
                with watcher.watch(ns):
                    ns.describe_table(TABLE)
                assert get_attribute(watcher.spans()[-1], "lance_ns.table") == "db$t" and len(watcher.spans()) == 2
                assert watcher.value("lance_ns.call.limit") == 32
            # The end of a namespace ends its measurements.
            del ns
            gc.collect()
            assert "lance_ns.call.limit" not in watcher.points()
            with IcebergNamespace(endpoint=server.endpoint) as ns:
                instrumentor().uninstrument()
                ns.describe_table(TABLE)
                assert len(watcher.spans()) == 2
        finally:
            instrumentor().uninstrument()


@pytest.mark.parametrize(
    ("impl", "properties", "address"),
    [
        ("hive3", {"uri": "thrift://a.example:9083,thrift://b.example:9083"}, ("a.example", 9083)),
        ("unity", {"endpoint": "https://unity.example/api", "catalog": "main"}, ("unity.example", None)),
        ("dir", {"root": "s3://bucket/lake"}, (None, None)),
    ],
)
def test_only_a_server_has_an_address(impl: str, properties: Mapping[str, str], address: object) -> None:
    with Namespace.connect(impl, properties) as ns:
        attributes = telemetry._Catalog.of(ns.namespace_id(), None).conventional()
    assert (attributes.get("server.address"), attributes.get("server.port")) == address


async def test_a_hedge_is_distinguished_from_the_slow_call(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server, Policy(hedge_after=0.05)) as ns:
        await ns.describe_table(TABLE)
        server.delay(60, times=1, match="tables/t")
        with watcher.watch(ns):
            await ns.describe_table(TABLE)
    spans = {get_attribute(span, "lance_ns.hedge"): span for span in watcher.spans()}
    assert {is_hedge: get_attribute(it, "error.type") for is_hedge, it in spans.items()} == {
        True: None,
        None: "cancelled",
    }
    assert {it.status.status_code for it in spans.values()} == {StatusCode.UNSET}
    [resend] = watcher.points()["lance_ns.call.resends"]
    assert resend.attributes["lance_ns.resend.reason"] == "hedge"


async def test_durations_are_seconds_in_buckets_that_fit(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server) as ns:
        with watcher.watch(ns):
            await ns.describe_tables([["db", name] for name in "tuv"])
    points = watcher.points()["lance_ns.call.duration"]
    [described] = [it for it in points if it.attributes["lance_ns.operation"] == "describe_table"]
    assert (described.count, described.explicit_bounds) == (3, BOUNDS) and 0 < described.sum < 60
    examples = {exemplar.span_id for exemplar in described.exemplars}
    assert examples and examples <= {span.context.span_id for span in watcher.spans() if span.context}


async def test_names_are_reported_only_when_asked_and_never_in_metrics(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server) as ns:
        with watcher.watch(ns):
            await ns.describe_table(TABLE)
        assert "db$t" not in watcher.everything()
        with watcher.watch(ns, ids=True, catalog="prod"):
            await ns.describe_table(TABLE)
            assert [id async for id in ns.iter_tables(["db"])]
    named = [dict(it.attributes or {}) for it in watcher.spans() if get_attribute(it, "db.namespace")]
    operations = ("describe_table", "list_tables")
    described, listed = (next(it for it in named if it["lance_ns.operation"] == name) for name in operations)
    assert described["lance_ns.table"] == "db$t" and "lance_ns.namespace" not in described
    assert listed["lance_ns.namespace"] == "db" and "lance_ns.table" not in listed
    assert (described["db.namespace"], described["db.collection.name"]) == ("db", "t")
    assert listed["db.namespace"] == "db" and "db.collection.name" not in listed
    assert get_attribute(watcher.spans()[-1], "lance_ns.catalog") == "prod"
    assert not {"t", "db$t"} & set(repr(watcher.points()).split("'")) and "prod" in repr(watcher.points())


async def test_errors_contain_no_secrets(server: FakeIceberg, watcher: Watcher) -> None:
    server.fail(401, times=1)
    async with connect(server, auth_token=SECRET) as ns:
        with watcher.watch(ns, ids=True), pytest.raises(LanceNamespaceError):
            await ns.describe_table(TABLE)
        digest = ns.namespace_id().rpartition("#")[2]
    assert len(watcher.spans()) == 1
    assert SECRET not in watcher.everything() and digest not in watcher.everything()


async def test_calls_in_flight_are_seen_while_they_are(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server, Policy(max_in_flight=7)) as ns, connect(server, Policy(max_in_flight=7)) as same:
        with watcher.watch(ns), watcher.watch(same):
            await ns.describe_table(TABLE)
            with server.hold("tables/") as hold:
                task = asyncio.create_task(ns.describe_tables([["db", name] for name in "tuv"]))
                await hold.reached(3)
                assert watcher.value("lance_ns.call.in_flight") == 3
            await task
            # They share one `Slots`, which counts once.
            assert (watcher.value("lance_ns.call.in_flight"), watcher.value("lance_ns.call.limit")) == (0, 7)
            async with connect(server, auth_token="another") as other:
                with watcher.watch(other):
                    assert watcher.value("lance_ns.call.limit") == 7 + 32
        assert watcher.points().keys() == {"lance_ns.call.duration", "db.client.operation.duration"}


async def test_the_state_of_the_circuit_is_seen(server: FakeIceberg, watcher: Watcher) -> None:
    async with connect(server, Policy(max_retries=0, max_in_flight=32, circuit_after=0)) as ns:
        with watcher.watch(ns):
            await ns.describe_table(TABLE)
            before = ns.snapshot()
            assert watcher.value("lance_ns.circuit.open") == before.circuit_open == 0
            server.fail(503, times=None)
            for _ in range(20):
                with pytest.raises(ServiceUnavailableError):
                    await ns.describe_table(TABLE)
            assert watcher.value("lance_ns.circuit.open") == ns.snapshot().circuit_open == 1
            assert ns.snapshot().limit < before.limit == before.max_in_flight
    assert len(watcher.spans()) < 20


def test_the_global_providers_may_be_set_later(server: FakeIceberg) -> None:
    script = f"""
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from lance_ns_async import IcebergNamespace, telemetry

one, two = (IcebergNamespace(endpoint={server.endpoint!r}, max_in_flight=most) for most in ("3", "4"))
with one, two, telemetry.instrument(one):
    one.exists(["db", "t"])
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    with telemetry.instrument(two, catalog="two", meter_provider=metrics.get_meter_provider()):
        two.exists(["db", "t"])
        found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        print([sorted(p.value for p in metric.data.data_points) for metric in found if metric.name.endswith("limit")])
"""
    assert printed(script) == "[[3, 4]]"


def test_without_opentelemetry_it_says_what_to_install() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None
try:
    import lance_ns_async.telemetry
except ModuleNotFoundError as e:
    print(e)
"""
    assert printed(script) == "lance_ns_async.telemetry needs: pip install 'lance-ns-async[otel]'"


async def test_a_gateway_continues_the_trace_of_its_client(tmp_path: Path) -> None:
    watcher = Watcher()
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        tracer = telemetry.RequestTracer(watcher.tracers)
        with watcher.watch(ns):
            async with serving(ns, tracer=tracer) as gateway:
                with watcher.tracer.start_as_current_span("job") as job:
                    trace_id, parent = job.get_span_context().trace_id, job.get_span_context().span_id
                    headers = {"traceparent": f"00-{trace_id:032x}-{parent:016x}-01"}
                    await send_request(gateway, "POST", "/v1/namespace/n/create", {}, headers)
                    await send_request(gateway, "POST", "/v1/table/n$t/describe", {}, headers)
                await send_request(gateway, "GET", "/v1/namespace/$/list", headers={"traceparent": "nonsense"})
                await send_request(gateway, "GET", "/v1/namespace/$/list", token=False)
    spans = watcher.spans()
    requests = [span for span in spans if span.kind is SpanKind.SERVER]
    assert [(span.name, get_attribute(span, "http.response.status_code")) for span in requests] == [
        ("create_namespace", 200),
        ("describe_table", 404),
        ("list_namespaces", 200),
        ("other", 401),
    ]
    for request in requests[:2]:
        context = request.get_span_context()
        assert request.parent is not None and context is not None
        assert (request.parent.span_id, context.trace_id) == (parent, trace_id)
        calls = [span for span in spans if span.parent and span.parent.span_id == context.span_id]
        assert calls and all(span.kind is SpanKind.CLIENT for span in calls)
    assert requests[2].parent is None

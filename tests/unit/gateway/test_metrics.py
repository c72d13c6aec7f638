"""The metrics of the gateway, and their agreement with those of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import ServiceUnavailableError
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from lance_ns_async import AsyncNamespace, Policy, telemetry
from lance_ns_async.calls.observers import Call
from lance_ns_async.gateway.metrics import Metrics
from lance_ns_async.model import TableId
from tests.fakes.iceberg import FakeIceberg


def series(text: str) -> Mapping[str, float]:
    """Returns the value of each series, by its name and labels."""
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def opentelemetry_series(reader: InMemoryMetricReader) -> Mapping[str, float]:
    """Returns what OpenTelemetry recorded, in the names of Prometheus and without the labels of the catalog."""
    values: dict[str, float] = {}
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            labels = {
                key.removeprefix("lance_ns.").replace(".", "_"): value
                for key, value in (point.attributes or {}).items()
                if key not in ("lance_ns.backend", "lance_ns.catalog")
            }
            braces = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else ""
            name = metric.name.replace(".", "_")
            if hasattr(point, "count"):
                values[f"{name}_seconds_count{braces}"] = point.count
            else:
                values[f"{name}{'_total' if 'resends' in name else ''}{braces}"] = point.value
    return values


async def test_the_gateway_and_opentelemetry_report_the_same() -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    table = DescribeTableRequest(id=["db", "t"])
    with FakeIceberg() as server:
        server.add_table(["db"], "t")
        policy = Policy(max_retries=1, backoff_initial=0.001)
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}, policy=policy) as ns:
            metrics = Metrics(ns.snapshot)
            with ns.observe(metrics.record), telemetry.instrument(ns, meter_provider=meters):
                await ns.describe_table(table)
                server.fail(503, times=2, match="tables/t")
                with pytest.raises(ServiceUnavailableError):
                    await ns.describe_table(table)
                # The gateway has no names of the conventions for database clients.
                everything = opentelemetry_series(reader)
                expected = {name: value for name, value in everything.items() if name.startswith("lance_ns_")}
                reported = series(metrics.text())
    assert (
        expected['lance_ns_call_duration_seconds_count{operation="describe_table",error_type="SlowDownException"}'] == 2
    )
    assert sum("resends" in name for name in expected) == 1 and "lance_ns_call_limit" in expected
    of_calls = {
        name: value
        for name, value in reported.items()
        if name.startswith(("lance_ns_call_", "lance_ns_circuit_", "lance_ns_limit_"))
        and "_bucket{" not in name
        and "_sum{" not in name
    }
    assert of_calls == expected


def test_a_label_is_escaped_and_a_hedge_is_a_resend() -> None:
    metrics = Metrics()
    metrics.record(Call("describe_table", TableId(["t"]), 1, 0.2, 'a"b\\c\nd', hedge=True))
    lines = metrics.text().splitlines()
    labels = 'operation="describe_table",error_type="a\\"b\\\\c\\nd"'
    assert f'lance_ns_call_resends_total{{{labels},resend_reason="hedge"}} 1' in lines
    assert f'lance_ns_call_duration_seconds_bucket{{{labels},le="0.1"}} 0' in lines
    assert f'lance_ns_call_duration_seconds_bucket{{{labels},le="0.25"}} 1' in lines
    assert f"lance_ns_call_duration_seconds_sum{{{labels}}} 0.200000" in lines

"""The readiness and the metrics of `maintain_forever` over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from aiohttp import web

from lance_ns_async.calls.metrics import PREFIX, Instrument, Measurement
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.fleet.maintenance.daemon import MaintenanceStatus
from lance_ns_async.gateway import responses
from lance_ns_async.gateway.metrics import Metrics
from lance_ns_async.gateway.server import MAX_CONNECTIONS, listen, url_of

_NAME = f"{PREFIX}maintenance."
LEADER = Instrument(f"{_NAME}leader", "gauge", "1", "1 if this instance maintains the tables, 0 if it waits.")
READY = Instrument(f"{_NAME}ready", "gauge", "1", "1 if the last look and run worked, 0 if they failed as a whole.")
TABLES = Instrument(f"{_NAME}tables", "gauge", "{table}", "Number of tables that are watched.")
PENDING = Instrument(f"{_NAME}pending", "gauge", "{table}", "Number of tables to look at.")
RUNS = Instrument(f"{_NAME}runs", "counter", "{run}", "Number of runs of this instance.")
RESULTS = Instrument(f"{_NAME}results", "counter", "{table}", "Number of tables in these runs, by outcome.")


@asynccontextmanager
async def serving_status(
    namespace: AsyncNamespace, status: MaintenanceStatus, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serves `/health`, `/ready` and `/metrics` while the context is open; the responses have no ids and no secrets.

    Args:
        namespace: The catalog, whose calls are among the metrics.
        status: What `maintain_forever` does.
        host: The address or name to listen on.
        port: The port to listen on; 0 selects a free one.

    Yields:
        The address of the server.

    Raises:
        InvalidInputError: The address cannot be used.
    """
    metrics = Metrics(namespace.snapshot, more=lambda: _measure(status))

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        match request.path:
            case "/health":
                return responses.json_response({"status": "ok"})
            case "/ready" if status.is_ready:
                return responses.json_response({"status": "ok", "leader": status.is_leader})
            case "/ready":
                return responses.json_response({"status": "not ready"}, status=503, headers={"Retry-After": "10"})
            case "/metrics":
                return responses.text_response(metrics.text())
        return responses.json_response({"error": "use /health, /ready or /metrics"}, status=404)

    runner = web.ServerRunner(web.Server(respond, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    try:
        with namespace.observe(metrics.record):
            yield url_of(host, await listen(runner, host, port, None, MAX_CONNECTIONS), None)
    finally:
        await runner.cleanup()


def _measure(status: MaintenanceStatus) -> Iterator[Measurement]:
    yield Measurement(LEADER, status.is_leader, {})
    yield Measurement(READY, status.is_ready, {})
    yield Measurement(TABLES, status.tables, {})
    yield Measurement(PENDING, status.pending, {})
    yield Measurement(RUNS, status.runs, {})
    for outcome, count in sorted(status.outcomes.items()):
        yield Measurement(RESULTS, count, {f"{PREFIX}outcome": outcome})

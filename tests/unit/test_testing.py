"""Test doubles: faults through the real client over any httpx transport, async and sync, and the fixtures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import lance_namespace.errors as err
import pyarrow as pa
import pytest
import respx

from lance_ns_async import AsyncNamespace, Namespace, RestNamespace
from lance_ns_async.registry import BACKENDS
from lance_ns_async.testing import (
    Fault,
    FaultTransport,
    fault_transport,
    lost_response,
    namespace,
    slow,
    status,
    sync_namespace,
)
from tests.fakes.iceberg import FakeIceberg
from tests.support.errors import catch

__all__ = ["fault_transport", "namespace", "sync_namespace"]

CATALOG = "http://catalog.example.com"
QUICK = {"backoff_initial": "1ms", "backoff_max": "1ms", "max_retries": "1"}
ROWS = pa.table({"x": [1, 2]})


class Site:
    """A catalog over HTTP with the namespace `shop`, behind faults."""

    def __init__(self, impl: str, properties: Mapping[str, str], faults: FaultTransport) -> None:
        self.impl, self.properties, self.faults = impl, {**properties, **QUICK}, faults

    def connect(self, **properties: str) -> AsyncNamespace:
        return AsyncNamespace.connect(self.impl, {**self.properties, **properties}, transport=self.faults)


@pytest.fixture
def rest(sync_namespace: Namespace, fault_transport: FaultTransport) -> Site:
    sync_namespace.create_namespace("shop")
    return Site("rest", {"uri": CATALOG}, fault_transport)


@pytest.fixture
def iceberg() -> Iterator[Site]:
    with FakeIceberg() as server:
        server.add_table(("shop",), "old")
        yield Site("iceberg", {"endpoint": server.endpoint}, FaultTransport(httpx.AsyncHTTPTransport()))


@pytest.fixture(params=["rest", "iceberg"])
def site(request: pytest.FixtureRequest) -> Site:
    site: Site = request.getfixturevalue(request.param)
    return site


@pytest.mark.parametrize("fault", [status(429), status(429, retry_after=0), status(503)], ids=["429", "wait", "503"])
async def test_a_transient_fault_is_survived(site: Site, fault: Fault) -> None:
    async with site.connect() as ns:
        site.faults.fail(fault, path="/namespaces" if site.impl == "iceberg" else "")
        await ns.describe_namespace("shop")
    assert len({request.url.path for request in site.faults.requests[-2:]}) == 1


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (status(429), err.ThrottlingError, "2 attempts"),
        (status(429, retry_after=3600), err.ThrottlingError, "the server asks to wait 3600 s"),
        (status(403), err.PermissionDeniedError, "HTTP 403"),
        (status(401), err.UnauthenticatedError, "no credentials are set"),
        (slow(float("inf")), err.ServiceUnavailableError, "no answer within 0.05 s"),
        (lost_response(), err.ServiceUnavailableError, "the connection was lost"),
    ],
    ids=["429", "wait", "403", "401", "slow", "lost"],
)
async def test_a_lasting_fault_is_an_error(site: Site, fault: Fault, error: type[Exception], message: str) -> None:
    async with site.connect(attempt_timeout="50ms" if "0.05" in message else "30s") as ns:
        site.faults.fail(fault, times=9)
        await catch(error, ns.describe_namespace("shop"), message)


async def test_an_expired_token_is_renewed(site: Site) -> None:
    tokens = iter(["old", "new"])
    async with AsyncNamespace.connect(
        site.impl, site.properties, token=lambda: next(tokens), transport=site.faults
    ) as ns:
        site.faults.fail(status(401))
        await ns.describe_namespace("shop")
    assert [it.headers["authorization"] for it in site.faults.requests[:2]] == ["Bearer old", "Bearer new"]


async def test_the_response_to_a_change_is_lost(site: Site) -> None:
    async with site.connect() as ns:
        await ns.describe_namespace("shop")
        site.faults.fail(lost_response())
        await catch(err.ServiceUnavailableError, ns.create_namespace("new"), "whether it took effect is unknown")
        await ns.describe_namespace("new")


async def test_rows_reach_the_catalog_and_faults_select_by_path(
    rest: Site, namespace: AsyncNamespace, sync_namespace: Namespace
) -> None:
    async with rest.connect(data_operations="remote") as ns:
        rest.faults.fail(status(403), path="/insert")
        await ns.create_table("shop.orders", ROWS.to_reader())
        await catch(err.PermissionDeniedError, ns.insert_into_table("shop.orders", ROWS))
        assert (await ns.count_table_rows("shop.orders")).count == 2
        await catch(err.TableNotFoundError, ns.describe_table("shop.none"))
    assert (await namespace.open("shop.orders")).count_rows() == sync_namespace.open("shop.orders").count_rows() == 2


def test_the_sync_namespace_takes_a_transport(rest: Site) -> None:
    for ns in (
        Namespace.connect("rest", rest.properties, transport=rest.faults),
        RestNamespace(**rest.properties, transport=rest.faults),
    ):
        with ns:
            rest.faults.fail(status(429))
            assert ns.list_namespaces().namespaces == ["shop"]
    assert len(rest.faults.requests) == 4


@pytest.mark.parametrize("way", ["mock", "instance", "class"])
async def test_respx(respx_mock: respx.MockRouter, way: str) -> None:
    route = respx_mock.get(host="catalog.example.com").respond(json={"namespaces": ["shop"]})
    mocked = httpx.MockTransport(respx_mock.async_handler)
    ways: dict[str, Any] = {"mock": mocked, "instance": httpx.AsyncHTTPTransport(), "class": httpx.AsyncHTTPTransport}
    async with AsyncNamespace.connect("rest", {"uri": CATALOG}, transport=ways[way]) as ns:
        assert (await ns.list_namespaces()).namespaces == ["shop"]
    assert route.calls.last.request.headers["user-agent"] == "lance-ns-async"


@pytest.mark.parametrize("impl", ["dir", "glue", "hive2", "hive3"])
@pytest.mark.glue
def test_backends_without_httpx_take_no_transport(impl: str) -> None:
    with pytest.raises(err.InvalidInputError, match=rf"transport: unknown, because {impl} does not use httpx"):
        AsyncNamespace.connect(impl, BACKENDS[impl].example, transport=httpx.AsyncHTTPTransport)


@pytest.mark.parametrize("impl", ["iceberg", "lakekeeper", "polaris", "rest", "unity"])
async def test_backends_with_http_send_over_the_transport(impl: str) -> None:
    faults = FaultTransport(httpx.MockTransport(lambda _: httpx.Response(403)))
    async with AsyncNamespace.connect(impl, BACKENDS[impl].example, transport=faults) as ns:
        await catch(err.PermissionDeniedError, ns.describe_table(["main", "shop", "orders"]))
    assert faults.requests
    with pytest.raises(err.InvalidInputError, match=r"transport: it is an httpx\.AsyncBaseTransport"):
        AsyncNamespace.connect(impl, BACKENDS[impl].example, transport=httpx.HTTPTransport())  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [1024, 1025])
async def test_the_size_of_responses_is_limited(most: int) -> None:
    body = b'{"namespaces": []}'.ljust(1025)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
    properties = {"uri": CATALOG, "max_response_bytes": str(most)}
    async with AsyncNamespace.connect("rest", properties, transport=transport) as ns:
        if most == len(body):
            await ns.list_namespaces()
        else:
            await catch(err.InternalError, ns.list_namespaces(), "longer than 1024 bytes")

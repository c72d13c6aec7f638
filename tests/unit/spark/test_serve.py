"""The namespace of the Spark endpoint: its calls to the catalog. Without Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import IcebergNamespace
from lance_ns_async.spark import LocationResolver, Locations
from lance_ns_async.spark.serve import CatalogNamespace, PrefetchNamespace
from tests.connector.lake import Lake
from tests.fakes.iceberg import FakeIceberg
from tests.support.errors import catch

Make = Callable[[Locations], PrefetchNamespace]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake")
    with made.namespace, made.namespace.observe(made.calls.append):
        yield made


@pytest.fixture
def over(lake: Lake) -> Make:
    return lambda locations: CatalogNamespace(locations, lake.resolver)


def alone(locations: Locations) -> PrefetchNamespace:
    return PrefetchNamespace(locations, {problem.subject: problem.reason for problem in locations.report.missing})


def calls(lake: Lake) -> list[str]:
    return [f"{call.operation} {call.subject}" for call in lake.calls]


async def describe(namespace: PrefetchNamespace, *id: str) -> spec.DescribeTableResponse:
    return await namespace.describe_table(spec.DescribeTableRequest(id=list(id)))


async def test_what_is_known_is_described_as_it_is(tmp_path: Path) -> None:
    lake = Lake(tmp_path, region="eu")
    lake.write("t")
    locations = lake.resolver.prefetch("db.t", pin_versions=True)
    namespace = alone(locations)
    result = await describe(namespace, "db", "t")
    assert (result.location, result.storage_options) == (locations["db.t"].location, {"region": "eu"})
    assert (result.version, result.managed_versioning) == (None, False)
    await namespace.table_exists(spec.TableExistsRequest(id=["db", "t"]))
    assert namespace.hits == 2
    lake.namespace.close()


async def test_many_who_miss_the_same_ask_once(lake: Lake, over: Make) -> None:
    lake.write("t")
    namespace = over(lake.prefetch("other.*"))
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(describe, namespace, "db", "t")
    assert calls(lake) == ["describe_table db$t"]


async def test_an_absence_is_not_remembered(lake: Lake, over: Make) -> None:
    namespace = over(lake.prefetch("db.*"))
    await catch(err.TableNotFoundError, describe(namespace, "db", "t"), r"Table not found: db\$t")
    lake.write("t")
    assert (await describe(namespace, "db", "t")).location


async def test_what_is_about_to_expire_is_requested_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path, expires_at_millis=str(int((time.time() + 30) * 1000)))
    lake.write("t")
    locations = lake.prefetch()
    with lake.namespace, lake.namespace.observe(lake.calls.append):
        await describe(CatalogNamespace(locations, lake.resolver), "db", "t")
        assert calls(lake) == ["describe_table db$t"]
        # If the catalog cannot be called, cached values may still be valid.
        await describe(alone(locations), "db", "t")
    assert len(lake.calls) == 1


@pytest.mark.parametrize(
    ("operation", "request_class"),
    [("deregister_table", spec.DeregisterTableRequest), ("drop_table", spec.DropTableRequest)],
)
async def test_a_table_that_may_have_moved_is_requested_again(
    lake: Lake, over: Make, operation: str, request_class: type[Any]
) -> None:
    lake.write("t")
    lake.write("u")
    namespace = over(lake.prefetch())
    await getattr(namespace, operation)(request_class(id=["db", "t"]))
    await catch(err.TableNotFoundError, describe(namespace, "db", "t"))
    assert namespace.hits == 0
    await describe(namespace, "db", "u")
    assert namespace.hits == 1


async def test_a_table_that_is_declared_again_may_be_elsewhere(lake: Lake, over: Make) -> None:
    lake.write("t")
    namespace = over(lake.prefetch())
    lake.namespace.deregister_table(spec.DeregisterTableRequest(id=["db", "t"]))
    declared = await namespace.create_empty_table(spec.CreateEmptyTableRequest(id=["db", "t"]))
    lake.calls.clear()
    assert (await describe(namespace, "db", "t")).location == declared.location
    assert calls(lake) == ["describe_table db$t"]


async def test_a_change_that_failed_may_have_been_done(lake: Lake, over: Make) -> None:
    lake.write("t")
    lake.write("u")
    locations = lake.prefetch()
    namespace = over(locations)
    await catch(err.NamespaceNotEmptyError, namespace.drop_namespace(spec.DropNamespaceRequest(id=["db"])))
    lake.calls.clear()
    await describe(namespace, "db", "t")
    assert calls(lake) == ["describe_table db$t"]
    namespace = over(locations)
    with pytest.raises(err.UnsupportedOperationError):
        await namespace.rename_table(spec.RenameTableRequest(id=["db", "t"], new_table_name="u"))
    for name in ("t", "u"):
        await describe(namespace, "db", name)
    assert namespace.hits == 0
    namespace = over(locations)
    lake.namespace.deregister_table(spec.DeregisterTableRequest(id=["db", "t"]))
    await catch(err.TableNotFoundError, namespace.deregister_table(spec.DeregisterTableRequest(id=["db", "t"])))
    await catch(err.TableNotFoundError, describe(namespace, "db", "t"))


async def test_what_the_prefetch_does_not_know_is_asked_upstream(lake: Lake, over: Make) -> None:
    lake.write("t")
    namespace = over(lake.prefetch())
    request = spec.DescribeTableRequest(id=["db", "t"], load_detailed_metadata=True)
    assert (await namespace.describe_table(request)).version == 1
    await namespace.table_exists(spec.TableExistsRequest(id=["db", "t"], version=1))
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, pa.schema({"id": pa.int64()})):
        pass
    await namespace.create_table(spec.CreateTableRequest(id=["db", "new"]), rows.getvalue().to_pybytes())
    assert lake.rows("new") == 0 and namespace.hits == 0
    assert not hasattr(namespace, "describe_tables") and hasattr(namespace, "query_table")


async def test_without_a_catalog_listings_come_in_pages(lake: Lake) -> None:
    for name in "cab":
        lake.write(name)
    namespace = alone(lake.prefetch())
    first = await namespace.list_tables(spec.ListTablesRequest(id=["db"], limit=2))
    assert first.tables == ["a", "b"]
    rest = await namespace.list_tables(spec.ListTablesRequest(id=["db"], limit=2, page_token=first.page_token))
    assert (rest.tables, rest.page_token) == (["c"], None)
    assert (await namespace.list_tables(spec.ListTablesRequest(id=[]))).tables == []
    assert (await namespace.list_namespaces(spec.ListNamespacesRequest(id=[]))).namespaces == ["db"]
    assert (await namespace.list_namespaces(spec.ListNamespacesRequest(id=["db"]))).namespaces == []
    await namespace.namespace_exists(spec.NamespaceExistsRequest(id=["db"]))


async def test_without_a_catalog_all_else_is_refused(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.write("t")
    namespace = alone(lake.prefetch("db.t", "db.nope"))
    await catch(err.TableNotFoundError, describe(namespace, "db", "nope"), r"Table not found: db\$nope")
    await catch(err.UnsupportedOperationError, describe(namespace, "db", "u"), r"table db\$u: was not prefetched")
    with pytest.raises(err.UnsupportedOperationError, match="namespace x: contains no prefetched table"):
        await namespace.namespace_exists(spec.NamespaceExistsRequest(id=["x"]))
    with pytest.raises(err.UnsupportedOperationError, match="namespace db: describe_namespace needs the catalog"):
        await namespace.describe_namespace(spec.DescribeNamespaceRequest(id=["db"]))
    with pytest.raises(err.UnsupportedOperationError, match=r"table db\$t: deregister_table needs the catalog"):
        await namespace.deregister_table(spec.DeregisterTableRequest(id=["db", "t"]))
    assert "table db$t was not dropped, but Spark reports no error" in caplog.text
    await describe(namespace, "db", "t")
    await catch(err.InvalidInputError, namespace.list_tables(spec.ListTablesRequest(id=["db"], limit=0)), "limit 0")


def test_a_client_that_leaves_ends_the_call_of_a_read() -> None:
    outcomes: list[str] = []
    with FakeIceberg() as server, IcebergNamespace(endpoint=server.endpoint) as catalog:
        server.add_table(["db"], "t")
        catalog.exists(["db", "t"])
        resolver = LocationResolver(catalog)
        namespace = CatalogNamespace(resolver.prefetch([]), resolver)

        async def leave() -> None:
            # It runs on the loop of the sync namespace, like the endpoint.
            for request in (describe(namespace, "db", "t"), namespace.list_tables(spec.ListTablesRequest(id=["db"]))):
                with server.hold("tables") as hold:
                    read = asyncio.ensure_future(request)
                    await hold.reached(1)
                    read.cancel()
                    await asyncio.wait([read])

        with catalog.observe(lambda call: outcomes.append(call.outcome)):
            catalog.run(lambda client: leave())
    assert outcomes == ["cancelled", "cancelled"]

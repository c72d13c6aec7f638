"""Clients of a gateway: pylance and the connector of the JVM."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import lance
import lance_namespace
import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, serving
from tests.contract.sites import SITES
from tests.support.gateway import send_request
from tests.support.lake import ROWS, in_file, lake, stream

DECLARED = {"location": "~", "properties": {}, "managed_versioning": False}
CONNECTOR: list[tuple[str, str, dict[str, Any] | None, int, Any]] = [
    ("namespace", "%24/list", None, 200, {"namespaces": ["default"]}),
    ("namespace", "db/create", {"id": ["db"], "properties": {"owner": "me"}}, 200, {"properties": {"owner": "me"}}),
    ("namespace", "db/create", {"id": ["db"], "properties": {"owner": "me"}}, 409, 2),
    ("namespace", "db/exists", {"id": ["db"]}, 200, {}),
    ("namespace", "no/exists", {"id": ["no"]}, 404, 1),
    ("namespace", "db/describe", {"id": ["db"]}, 200, {"properties": {"owner": "me"}}),
    ("namespace", "no/describe", {"id": ["no"]}, 404, 1),
    ("table", "db%24t1/exists", {"id": ["db", "t1"]}, 404, 4),
    ("table", "db%24t1/declare", {"id": ["db", "t1"], "properties": {}}, 200, DECLARED),
    ("table", "db%24t1/declare", {"id": ["db", "t1"], "properties": {}}, 409, 5),
    ("table", "db%24t1/exists", {"id": ["db", "t1"]}, 200, {}),
    ("table", "db%24a+b/declare", {"id": ["db", "a b"], "properties": {}}, 200, DECLARED),
    ("namespace", "db/table/list", None, 200, {"tables": ["a b", "t1"]}),
    ("table", "db%24t1/describe", {"id": ["db", "t1"], "with_table_uri": False}, 200, DECLARED),
    ("table", "db%24no/describe", {"id": ["db", "no"], "with_table_uri": False}, 404, 4),
    ("table", "db%24t1/describe", {"id": ["db", "t1"], "with_table_uri": False, "version": 1}, 404, 11),
    ("namespace", "db/drop", {"id": ["db"], "behavior": "Restrict"}, 409, 3),
    ("table", "db%24t1/deregister", {"id": ["db", "t1"]}, 200, {"id": ["db", "t1"], "location": "~", "properties": {}}),
    ("table", "db%24t1/deregister", {"id": ["db", "t1"]}, 404, 4),
    ("table", "db%24a+b/drop", {"id": ["db", "a b"]}, 200, {"id": ["db", "a b"], "location": "~", "properties": {}}),
    ("table", "db%24a+b/drop", {"id": ["db", "a b"]}, 404, 4),
    ("namespace", "db/drop", {"id": ["db"], "behavior": "Restrict"}, 200, {}),
    ("transaction", "db%24t1/describe", {"id": ["db", "t1"]}, 406, 0),
]
"""The requests of the JVM connector in a session, in order, with the responses or error codes."""


async def test_the_connectors_requests_are_answered_as_it_expects(tmp_path: Path) -> None:
    async with lake(tmp_path) as it, serving(it.ns) as gateway:
        await it.ns.drop_namespace(spec.DropNamespaceRequest(id=["n"]))
        await it.ns.create_namespace(spec.CreateNamespaceRequest(id=["default"]))
        for kind, path, fields, status, expected in CONNECTOR:
            detail = "&with_table_uri=false" if fields and "with_table_uri" in fields else ""
            target = f"/v1/{kind}/{path}?delimiter=%24{detail}"
            method, body = ("GET", None) if fields is None else ("POST", {"context": {}, **fields})
            response = await send_request(gateway, method, target, body, {"Content-Type": "application/json"})
            assert response.status == status, (target, response.body)
            if status != 200:
                assert response.code == expected and isinstance(response.json["error"], str), target
                continue
            document = response.json
            if "location" in document:
                document["location"] = "~"
            assert document == expected, target


@pytest.fixture(params=["dir", "hive-fake-4.0.1", "glue"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Gateway, list[str]]]:
    with SITES[request.param](tmp_path) as site:
        async with AsyncNamespace.connect(site.impl, site.properties) as ns, serving(ns) as gateway:
            yield gateway, [*site.above, "n"]


def connected(gateway: Gateway) -> Any:
    return lance_namespace.connect("rest", dict(gateway.properties))


async def aside(work: Callable[..., None], served: tuple[Gateway, list[str]]) -> None:
    """Runs blocking work while the gateway responds in this thread."""
    gateway, n = served
    await anyio.to_thread.run_sync(work, connected(gateway), n)


async def test_tables_and_their_rows(served: tuple[Gateway, list[str]]) -> None:
    def work(ns: Any, n: list[str]) -> None:
        t = [*n, "t"]
        ns.create_namespace(spec.CreateNamespaceRequest(id=n))
        assert ns.create_table(spec.CreateTableRequest(id=t, properties={"p": "q"}), stream(ROWS)).version == 1
        with pytest.raises(err.TableAlreadyExistsError):
            ns.create_table(spec.CreateTableRequest(id=t), stream(ROWS))
        assert ns.list_all_tables(spec.ListTablesRequest(id=n)).tables == ["$".join(t)]
        described = ns.describe_table(spec.DescribeTableRequest(id=t, load_detailed_metadata=True))
        assert described.version == 1 and [f.name for f in described.var_schema.fields] == ["id", "text", "v"]
        assert ns.insert_into_table(spec.InsertIntoTableRequest(id=t), stream(ROWS)).num_inserted_rows == 3
        update = spec.UpdateTableRequest(id=t, updates=[["text", "'new'"]], predicate="id = 1")
        assert ns.update_table(update).updated_rows == 2
        query = {"id": t, "k": 1, "vector": {"single_vector": [2.0, 2.0]}, "columns": {"column_names": ["id"]}}
        assert [row["id"] for row in in_file(ns.query_table(spec.QueryTableRequest.from_dict(query)).data)] == [3]
        explain = spec.ExplainTableQueryPlanRequest.from_dict({"id": t, "query": query})
        assert "KNN" in ns.explain_table_query_plan(explain)
        ns.drop_table(spec.DropTableRequest(id=t))
        with pytest.raises(err.TableNotFoundError):
            ns.describe_table(spec.DescribeTableRequest(id=t))

    await aside(work, served)


async def test_datasets_are_written_and_opened(served: tuple[Gateway, list[str]]) -> None:
    def work(ns: Any, n: list[str]) -> None:
        t = [*n, "t"]
        ns.create_namespace(spec.CreateNamespaceRequest(id=n))
        rows = pa.table({"id": [1, 2, 3]})
        for mode, count in (("create", 3), ("append", 6), ("overwrite", 3)):
            lance.write_dataset(rows, namespace_client=ns, table_id=t, mode=mode)
            assert lance.dataset(namespace_client=ns, table_id=t).count_rows() == count
        assert lance.dataset(namespace_client=ns, table_id=t, version=2).count_rows() == 6
        with pytest.raises(err.TableNotFoundError):
            lance.dataset(namespace_client=ns, table_id=[*n, "no"])

    await aside(work, served)


async def test_the_token_may_be_an_identitys(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        client: Any = lance_namespace.connect("rest", {"uri": gateway.url})
        for identity in ({"auth_token": gateway.token}, {"api_key": gateway.token}):
            request = spec.ListNamespacesRequest.from_dict({"id": [], "identity": identity})
            assert (await anyio.to_thread.run_sync(client.list_namespaces, request)).namespaces == []

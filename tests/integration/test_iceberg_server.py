"""The Iceberg REST server of other tests: it starts, responds, restarts, and fails with a clear error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DescribeTableRequest, ListTableVersionsRequest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace, CacheUse, IcebergNamespace, Namespace, TableId
from tests.servers.iceberg_rest import IcebergRest, Nessie, iceberg_rest, nessie
from tests.servers.process import ServerError
from tests.support.budget import thorough

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with iceberg_rest(tmp_path_factory.mktemp("iceberg")) as running:
        yield running


@pytest.fixture
def client(server: IcebergRest) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.endpoint, trust_env=False) as connected:
        yield connected


def test_the_server_is_the_reference_server(server: IcebergRest, client: httpx.Client) -> None:
    config = client.get("/v1/config").raise_for_status().json()
    assert config["overrides"] == {"namespace-separator": "%2E"}
    assert "prefix" not in config["defaults"]
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}" in config["endpoints"]
    namespace = {"namespace": ["placed"], "properties": {"owner": "someone"}}
    created = client.post("/v1/namespaces", json=namespace).raise_for_status().json()
    assert created["namespace"] == ["placed"]
    assert created["properties"] == {"owner": "someone", "location": f"{server.warehouse}/placed"}
    table = {"name": "t", "schema": {"type": "struct", "fields": []}}
    answer = client.post("/v1/namespaces/nowhere/tables", json=table)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchNamespaceException")


@thorough
def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(ServerError, match=r"(?s)iceberg-rest ended with code \d+.*catalog\.db"):
        with iceberg_rest(tmp_path):
            pass


def test_a_server_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="iceberg-rest is not ready after 0 s"):
        with iceberg_rest(tmp_path, start_within=0.0):
            pass


async def test_a_known_table_is_confirmed_by_its_etag(server: IcebergRest) -> None:
    properties = {"endpoint": server.endpoint, "root": server.warehouse.as_uri(), "rest_table_cache_max_entries": "10"}
    id = ["tagged", "t"]
    async with (
        AsyncNamespace.connect("iceberg", properties) as ns,
        AsyncNamespace.connect("iceberg", properties) as other,
    ):
        await ns.create_namespace({"id": ["tagged"]})
        await ns.declare_table({"id": id})
        first = await ns.describe_table({"id": id})
        assert await ns.describe_table({"id": id}) == first
        # This server confirms the tag even of a request for credentials, so such a request must have none.
        assert (await ns.describe_table({"id": id, "vend_credentials": True})).location == first.location
        await other.deregister_table({"id": id})
        second = await other.declare_table({"id": id, "properties": {"team": "data"}})
        assert (await ns.describe_table({"id": id})).location == second.location != first.location
        assert ns.table_cache() == CacheUse(entries=1, max_entries=10, hits=1, misses=2)


ID = ["db", "t"]
_PART = "struct<10: a: optional boolean, 11: b: optional binary>"
COLUMNS: Mapping[str, tuple[Any, pa.DataType, str]] = {
    "id": (1, pa.int64(), "long"),
    "small": (1, pa.uint8(), "int"),
    "large": (2**64 - 1, pa.uint64(), "decimal(20, 0)"),
    "price": (Decimal("1.50"), pa.decimal128(9, 2), "decimal(9, 2)"),
    "word": ("é", pa.large_string(), "string"),
    "at": (datetime(2026, 1, 2, tzinfo=UTC), pa.timestamp("us", "UTC"), "timestamptz"),
    "vector": ([0.5, 1.5], pa.list_(pa.float32(), 2), "list<float>"),
    "part": ({"a": True, "b": b"x"}, pa.struct({"a": pa.bool_(), "b": pa.binary()}), _PART),
}
"""A value of each column, its type in Arrow, and its type as pyiceberg shows it."""

ROWS = pa.table({name: pa.array([value], type) for name, (value, type, _) in COLUMNS.items()})


def test_pyiceberg_shows_the_schema_and_a_snapshot_for_each_version(server: IcebergRest, tmp_path: Path) -> None:
    rest = pytest.importorskip("pyiceberg.catalog.rest", reason="no wheels for Python 3.15")
    with IcebergNamespace(endpoint=server.endpoint, root=tmp_path.as_uri(), managed_by="impl") as ns:
        ns.create_namespace(CreateNamespaceRequest(id=ID[:1]))
        at: dict[str, Any] = {"namespace_client": ns, "table_id": ID}
        for number in (1, 2, 3):
            assert lance.write_dataset(ROWS, mode="append" if number > 1 else "create", **at).version == number
        with rest.RestCatalog("real", uri=server.endpoint) as catalog:
            table = catalog.load_table(tuple(ID))
            # The schema has the id 1, and commits that change no column add none.
            assert table.schema().schema_id == table.metadata.current_schema_id == 1
            shown = {field.name: str(field.field_type) for field in table.schema().fields}
            assert shown == {name: it for name, (_, _, it) in COLUMNS.items()}
            assert [schema.schema_id for schema in table.metadata.schemas] == [0, 1]
            dataset = lance.dataset(**at)
            dataset.add_columns({"more": "id + 1"})
            dataset.delete("id = 1")
            table.refresh()
        snapshots = [(it.snapshot_id, it.parent_snapshot_id, it.sequence_number) for it in table.snapshots()]
        assert snapshots == [(1, None, 1), *((number, number - 1, number) for number in range(2, 6))]
        assert [it.schema_id for it in table.snapshots()] == [1, 1, 1, 2, 2]
        assert [it.snapshot_id for it in table.history()] == [1, 2, 3, 4, 5]
        versions = ns.list_table_versions(ListTableVersionsRequest(id=ID)).versions
        assert [it.timestamp_ms for it in table.snapshots()] == [it.timestamp_millis for it in versions]
        assert [Path(it.manifest_list.removeprefix("file://")) for it in table.snapshots()] == [
            Path("/", it.manifest_path) for it in versions
        ]
    current = table.current_snapshot()
    assert current is not None and current.snapshot_id == 5 and table.schema().find_type("more").is_primitive
    assert table.properties["table_type"] == "lance" and table.location().startswith(f"{tmp_path.as_uri()}/db/t-")


@pytest.fixture(scope="module")
def nessie_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    with nessie(tmp_path_factory.mktemp("nessie")) as running:
        yield running


@thorough
def test_config_gives_an_escaped_prefix_for_the_warehouse(nessie_server: Nessie) -> None:
    warehouse = {"warehouse": nessie_server.properties["warehouse"]}
    config = httpx.get(f"{nessie_server.endpoint}/v1/config", params=warehouse, trust_env=False).json()
    assert config["defaults"]["prefix"] == "main%7Cwarehouse"
    assert "namespace-separator" not in config["overrides"]


@thorough
def test_tables_are_kept_through_a_crash_and_their_data_lies_in_s3(nessie_server: Nessie) -> None:
    with Namespace.connect("iceberg", nessie_server.properties) as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["kept"]))
        declared = ns.declare_table(DeclareTableRequest(id=["kept", "t"]))
        assert declared.location is not None and declared.location.startswith(f"s3://{nessie_server.s3.bucket}/kept/t-")
        lance.write_dataset(pa.table({"id": [1, 2, 3]}), declared.location, storage_options=declared.storage_options)
        nessie_server.kill()
        nessie_server.restart()
        result = ns.describe_table(DescribeTableRequest(id=["kept", "t"]))
        assert lance.dataset(result.location, storage_options=result.storage_options).count_rows() == 3


@thorough
def test_a_location_outside_the_s3_is_refused(nessie_server: Nessie, tmp_path: Path) -> None:
    with Namespace.connect("iceberg", nessie_server.properties) as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["placed"]))
        with pytest.raises(InvalidInputError, match="Unknown or unsupported scheme: file"):
            ns.declare_table(DeclareTableRequest(id=["placed", "t"], location=tmp_path.as_uri()))
        assert not ns.exists(TableId(["placed", "t"]))

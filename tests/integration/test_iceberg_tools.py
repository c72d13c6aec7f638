"""Tables with versions in the catalog, read by Iceberg's own tools: schemas, and a snapshot for each version."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, ListTableVersionsRequest
from pyiceberg.catalog.rest import RestCatalog

from lance_ns_async import IcebergNamespace
from tests.servers.iceberg_rest import IcebergRest, iceberg_rest

pytestmark = pytest.mark.integration

ID = ["db", "t"]
ROWS = pa.table(
    {
        "id": pa.array([1], pa.int64()),
        "small": pa.array([1], pa.uint8()),
        "large": pa.array([2**64 - 1], pa.uint64()),
        "price": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "word": pa.array(["é"], pa.large_string()),
        "at": pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "vector": pa.array([[0.5, 1.5]], pa.list_(pa.float32(), 2)),
        "part": pa.array([{"a": True, "b": b"x"}], pa.struct({"a": pa.bool_(), "b": pa.binary()})),
    }
)
SHOWN = {
    "id": "long",
    "small": "int",
    "large": "decimal(20, 0)",
    "price": "decimal(9, 2)",
    "word": "string",
    "at": "timestamptz",
    "vector": "list<float>",
    "part": "struct<10: a: optional boolean, 11: b: optional binary>",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with iceberg_rest(tmp_path_factory.mktemp("iceberg")) as running:
        yield running


def test_pyiceberg_shows_the_schema_and_a_snapshot_for_each_version(server: IcebergRest, tmp_path: Path) -> None:
    with IcebergNamespace(endpoint=server.endpoint, root=tmp_path.as_uri(), managed_by="impl") as ns:
        ns.create_namespace(CreateNamespaceRequest(id=ID[:1]))
        at: dict[str, Any] = {"namespace_client": ns, "table_id": ID}
        for number in (1, 2, 3):
            assert lance.write_dataset(ROWS, mode="append" if number > 1 else "create", **at).version == number
        with RestCatalog("real", uri=server.endpoint) as catalog:
            table = catalog.load_table(tuple(ID))
            # The schema has the id 1, and commits that change no column add none.
            assert table.schema().schema_id == table.metadata.current_schema_id == 1
            assert {field.name: str(field.field_type) for field in table.schema().fields} == SHOWN
            assert [schema.schema_id for schema in table.metadata.schemas] == [0, 1]
            dataset = lance.dataset(**at)
            dataset.add_columns({"more": "id + 1"})
            dataset.delete("id = 1")
            table.refresh()
        assert [(it.snapshot_id, it.parent_snapshot_id, it.sequence_number) for it in table.snapshots()] == [
            (1, None, 1),
            (2, 1, 2),
            (3, 2, 3),
            (4, 3, 4),
            (5, 4, 5),
        ]
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

"""lance-ray's workers: how they use their string arguments, and how the secrets among these are treated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import lance_ray
import pyarrow as pa
import pytest
import ray
from lance_namespace import CreateNamespaceRequest, DropTableRequest

import lance_ns_async
from tests.ecosystem.catalogs import Catalog, Diary
from tests.ecosystem.catalogs import running as begun
from tests.ecosystem.ray_cluster import WARNINGS, running
from tests.ecosystem.vending import vending

pytestmark = WARNINGS
ROWS = pa.table({"id": [1, 2, 3, 4]})
SECRET = "hush-hush-4711"


@pytest.fixture
def logs() -> Path:
    return running()


def write(table: dict[str, Any]) -> None:
    lance_ray.write_lance(ray.data.from_arrow(ROWS), min_rows_per_file=1, max_rows_per_file=1, **table)


def read(table: dict[str, Any]) -> list[int]:
    rows = lance_ray.read_lance(**table, override_num_blocks=4).take_all()
    return sorted(row["id"] for row in rows)


def assert_unlogged(secret: str, logs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [path for path in logs.rglob("*") if path.is_file()]
    assert any("worker" in path.name for path in files)
    assert [path.name for path in files if secret.encode() in path.read_bytes()] == []
    assert secret not in "".join(capfd.readouterr())


def test_each_worker_makes_the_namespace_once(logs: Path, diary: Diary, tmp_path: Path) -> None:
    with begun("dir", tmp_path) as catalog, catalog.connect() as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["a"]))
        table = {**diary.place(catalog), "table_id": ["a", "t"]}
        write(table)
        for _ in range(3):
            assert read(table) == [1, 2, 3, 4]
    makers = diary.makers()
    assert len(set(makers) - {os.getpid()}) >= 1
    assert len(makers) == len(set(makers))


def test_workers_request_their_own_credentials(logs: Path, diary: Diary, capfd: pytest.CaptureFixture[str]) -> None:
    with vending("polaris", life=600_000) as lake:
        catalog = Catalog("polaris", {**lake.properties, "auth_token": SECRET})
        table = {**diary.place(catalog), "table_id": list(lake.id)}
        with lake.connect() as ns:
            lance.write_dataset(ROWS, namespace_client=ns, table_id=list(lake.id), max_rows_per_file=1)
        lake.catalog.clear()
        assert read(table) == [1, 2, 3, 4]
        assert set(diary.calls(here=False)) == {"describe_table"}
        assert lake.s3.refused == 0 and len(set(lake.s3.shown)) > 1
        assert {request.headers.get("Authorization") for request in lake.catalog.requests} == {f"Bearer {SECRET}"}
        # lance-ray itself requests no credentials, and its commit cannot get any.
        with pytest.raises(OSError, match="Failed to get AWS credentials"):
            lance_ray.write_lance(ray.data.from_arrow(ROWS), mode="overwrite", **table)
    assert_unlogged(SECRET, logs, capfd)


def test_workers_know_no_short_name(logs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lance_ns_async.register()
    with begun("polaris", tmp_path) as catalog, catalog.connect() as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["lake", "a"]))
        properties = {**catalog.properties, "header.X-Note": SECRET}
        table = {"namespace_properties": properties, "table_id": ["lake", "a", "t"]}
        with pytest.raises(ray.exceptions.RayTaskError, match="lance-ns-polaris"):
            write({**table, "namespace_impl": "lance-ns-polaris"})
        assert ns.drop_table(DropTableRequest(id=table["table_id"])).location
        write({**table, "namespace_impl": catalog.class_path})
        assert read({**table, "namespace_impl": catalog.class_path}) == [1, 2, 3, 4]
    assert_unlogged(SECRET, logs, capfd)

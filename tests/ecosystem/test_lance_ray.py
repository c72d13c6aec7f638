"""lance-ray on each catalog: by class path and properties, with real workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import lance_namespace as spec
import lance_namespace.errors as err
import lance_ray
import pyarrow as pa
import pytest
import ray
from lance_namespace import CreateNamespaceRequest, DropTableRequest

import lance_ns_async
from lance_ns_async import Namespace
from lance_ns_async.gateway import renewing
from tests.ecosystem.catalogs import Bill, Catalog, Diary, on_each_kind, on_one_catalog
from tests.ecosystem.catalogs import running as begun
from tests.ecosystem.pages_elsewhere import RAY, check_places
from tests.ecosystem.pages_elsewhere import read as read_page
from tests.ecosystem.ray_cluster import WARNINGS, running
from tests.ecosystem.vending import revocable, vending

pytestmark = WARNINGS
ROWS = pa.table({"id": [1, 2, 3, 4], "total": [1.5, 2.5, 3.5, 4.5]})


@pytest.fixture(autouse=True)
def logs() -> Path:
    return running()


@pytest.fixture
def place(catalog: Catalog, diary: Diary) -> dict[str, Any]:
    return diary.place(catalog)


@pytest.fixture
def table(place: dict[str, Any], home: list[str], diary: Diary) -> dict[str, Any]:
    """Returns lance-ray's arguments for a table that exists and has two fragments."""
    named = {**place, "table_id": [*home, "t"]}
    write(named)
    diary.forget()
    return named


def write(table: dict[str, Any], *, mode: str = "create") -> None:
    lance_ray.write_lance(ray.data.from_arrow(ROWS), mode=mode, min_rows_per_file=2, max_rows_per_file=2, **table)


def read(table: dict[str, Any], **chosen: Any) -> list[dict[str, Any]]:
    return sorted(lance_ray.read_lance(**table, **chosen).take_all(), key=lambda row: row["id"])


@on_each_kind
def test_a_table_is_created_appended_to_and_overwritten(
    catalog: Catalog, place: dict[str, Any], home: list[str]
) -> None:
    table = {**place, "table_id": [*home, "t"]}
    write(table)
    assert read(table) == ROWS.to_pylist()
    write(table, mode="append")
    assert [row["id"] for row in read(table)] == [1, 1, 2, 2, 3, 3, 4, 4]
    write(table, mode="overwrite")
    assert read(table) == ROWS.to_pylist()
    with catalog.connect() as ns:
        assert ns.list_tables(spec.ListTablesRequest(id=home)).tables == ["t"]
        versions = ns.list_table_versions(spec.ListTableVersionsRequest(id=table["table_id"])).versions
        assert [it.version for it in versions] == [1, 2, 3]


def test_rows_and_columns_are_chosen_where_they_are_read(table: dict[str, Any]) -> None:
    assert read(table, columns=["id"], filter="total > 2") == [{"id": 2}, {"id": 3}, {"id": 4}]
    assert read(table, dataset_options={"version": 1}) == ROWS.to_pylist()


@on_one_catalog
def test_a_namespace_is_compacted(catalog: Catalog, place: dict[str, Any], table: dict[str, Any], diary: Diary) -> None:
    *database, _ = id = table["table_id"]
    (done,) = lance_ray.compact_database(database=database, num_workers=1, **place)
    assert (done["table_id"], done["metrics"].fragments_removed, done["metrics"].fragments_added) == (id, 2, 1)
    # A table in an Iceberg catalog is a Lance table only if its description says so.
    described = 2 if catalog.impl == "iceberg" else 1
    # Listings of Lakekeeper end with an empty page.
    listed = 2 if catalog.impl == "lakekeeper" else 1
    assert diary.calls(here=True) == ["list_tables"] * listed + ["describe_table"] * described
    assert diary.calls(here=False) == []
    assert read(table) == ROWS.to_pylist()
    # A table without data stops the compaction of its namespace.
    with catalog.connect() as ns:
        ns.declare_table(spec.DeclareTableRequest(id=[*database, "a"]))
    with pytest.raises(RuntimeError, match=r"Compaction failed for table .*'a'"):
        lance_ray.compact_database(database=database, **place)


@on_one_catalog
def test_an_index_is_built_and_columns_are_added(catalog: Catalog, table: dict[str, Any], diary: Diary) -> None:
    lance_ray.create_scalar_index(**table, column="id", index_type="BTREE", num_workers=1)
    assert diary.calls(here=True) == ["describe_table"] and diary.calls(here=False) == []
    with catalog.connect() as ns:
        (index,) = ns.list_table_indices(spec.ListTableIndicesRequest(id=table["table_id"])).indexes
    assert index.columns == ["id"]
    assert read(table, filter="id = 3") == [{"id": 3, "total": 3.5}]
    diary.forget()
    lance_ray.add_columns(**table, transform={"double": "total * 2"}, concurrency=1)
    assert diary.calls(here=True) == ["describe_table"] and diary.calls(here=False) == []
    assert read(table)[0] == {"id": 1, "total": 1.5, "double": 3.0}


def test_errors_are_those_of_the_spec(catalog: Catalog, table: dict[str, Any], home: list[str]) -> None:
    missing = {**table, "table_id": [*home, "missing"]}
    with pytest.raises(err.TableAlreadyExistsError, match=r"Table already exists: .*\$t"):
        write(table)
    with pytest.raises(err.TableNotFoundError, match=r"Table not found: .*\$missing"):
        lance_ray.read_lance(**missing).take_all()
    with pytest.raises(err.TableNotFoundError):
        write(missing, mode="append")
    with pytest.raises(err.TableNotFoundError):
        lance_ray.compact_files(**missing)
    nowhere = [*catalog.above, "nowhere"]
    with pytest.raises(err.NamespaceNotFoundError):
        write({**table, "table_id": [*nowhere, "t"]})
    with pytest.raises(ValueError, match=r"Streaming write .* is not supported"):
        lance_ray.write_lance(ray.data.from_arrow(ROWS), stream=True, mode="append", **table)
    assert read(table) == ROWS.to_pylist()


def test_a_create_that_fails_leaves_the_table_declared(
    catalog: Catalog, place: dict[str, Any], home: list[str]
) -> None:
    def broken(row: dict[str, Any]) -> dict[str, Any]:
        raise OSError("the source is gone")

    table = {**place, "table_id": [*home, "t"]}
    with pytest.raises(ray.exceptions.RayTaskError, match="the source is gone"):
        lance_ray.write_lance(ray.data.from_arrow(ROWS).map(broken), **table)
    with catalog.connect() as ns:
        assert ns.exists(table["table_id"])
    with pytest.raises(ValueError, match="was not found"):
        read(table)
    with pytest.raises(err.TableAlreadyExistsError):
        write(table)
    write(table, mode="overwrite")
    assert read(table) == ROWS.to_pylist()


@pytest.mark.parametrize("catalog", ["iceberg"], indirect=True)
def test_lance_ray_commits_past_a_catalog_that_commits_versions(catalog: Catalog, home: list[str]) -> None:
    id = [*home, "t"]
    properties = {**catalog.properties, "managed_by": "impl"}
    table = {"namespace_impl": catalog.class_path, "namespace_properties": properties, "table_id": id}
    with Namespace.connect("iceberg", properties) as ns:
        ns.write(id, ROWS)
        write(table, mode="append")
        assert [it.version for it in ns.list_table_versions(spec.ListTableVersionsRequest(id=id)).versions] == [1]
        assert read(table) == ROWS.to_pylist()
        # Later clients of the catalog find the new version.
        ns.write(id, ROWS, mode="append")
        assert [it.version for it in ns.list_table_versions(spec.ListTableVersionsRequest(id=id)).versions] == [1, 2, 3]
        assert len(read(table)) == 12
        write(table, mode="overwrite")
        for mode in ("append", "overwrite"):
            with pytest.raises(err.ConcurrentModificationError):
                ns.write(id, ROWS, mode=mode)
        location = ns.deregister_table(spec.DeregisterTableRequest(id=id)).location
        assert location is not None
        ns.register_table(spec.RegisterTableRequest(id=id, location=location, properties={"managed_by": "impl"}))
        ns.write(id, ROWS, mode="append")
        assert len(read(table)) == 8


@on_one_catalog
def test_costs_are_as_documented(catalog: Catalog, home: list[str], diary: Diary) -> None:
    table, other = ({**diary.place(catalog), "table_id": [*home, name]} for name in ("t", "u"))
    rows = ray.data.from_items([{"id": 1}])
    bill = Bill(diary)
    with bill.step("`write_lance`, `create`"):
        lance_ray.write_lance(rows, **table)
    for mode in ("append", "overwrite"):
        with bill.step("`write_lance`, `append` or `overwrite`"):
            lance_ray.write_lance(rows, mode=mode, **table)
    with bill.step("`write_lance`, `overwrite`, missing table"):
        lance_ray.write_lance(rows, mode="overwrite", **other)
    with bill.step("`read_lance`"):
        assert lance_ray.read_lance(**table).count() == 1
    changing = "`add_columns`, `create_scalar_index`, `compact_files`"
    with bill.step(changing):
        lance_ray.add_columns(transform={"double": "id * 2"}, concurrency=1, **table)
    with bill.step(changing):
        lance_ray.create_scalar_index(column="id", index_type="BTREE", num_workers=1, **table)
    with bill.step(changing):
        lance_ray.compact_files(num_workers=1, **table)
    # The page distinguishes calls that each process makes once.
    assert bill.costs("get_config") == RAY.costs(catalog.impl)


async def test_the_code_prints_what_the_page_shows(tmp_path: Path) -> None:
    running()
    try:
        async with read_page(RAY, tmp_path) as named:
            check_places(RAY, named["PROPERTIES"])
    finally:
        # The page has started another Ray, whose workers know short names.
        ray.shutdown()


IDS = pa.table({"id": [1, 2, 3, 4]})
SECRET = "hush-hush-4711"


def write_ids(table: dict[str, Any]) -> None:
    lance_ray.write_lance(ray.data.from_arrow(IDS), min_rows_per_file=1, max_rows_per_file=1, **table)


def read_ids(table: dict[str, Any]) -> list[int]:
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
        write_ids(table)
        for _ in range(3):
            assert read_ids(table) == [1, 2, 3, 4]
    makers = diary.makers()
    assert len(set(makers) - {os.getpid()}) >= 1
    assert len(makers) == len(set(makers))


def test_workers_request_their_own_credentials(logs: Path, diary: Diary, capfd: pytest.CaptureFixture[str]) -> None:
    with vending("polaris", life=600_000) as lake:
        catalog = Catalog("polaris", {**lake.properties, "auth_token": SECRET})
        table = {**diary.place(catalog), "table_id": list(lake.id)}
        with lake.connect() as ns:
            lance.write_dataset(IDS, namespace_client=ns, table_id=list(lake.id), max_rows_per_file=1)
        lake.catalog.clear()
        assert read_ids(table) == [1, 2, 3, 4]
        assert set(diary.calls(here=False)) == {"describe_table"}
        assert lake.s3.refused == 0 and len(set(lake.s3.shown)) > 1
        assert {request.headers.get("Authorization") for request in lake.catalog.requests} == {f"Bearer {SECRET}"}
        # lance-ray itself requests no credentials, and its commit cannot get any.
        with pytest.raises(OSError, match="Failed to get AWS credentials"):
            lance_ray.write_lance(ray.data.from_arrow(IDS), mode="overwrite", **table)
    assert_unlogged(SECRET, logs, capfd)


def test_workers_renew_credentials_by_the_driver(logs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with revocable(IDS, auth_token=SECRET) as (ns, revoke), renewing(ns, "shop.db.*") as lake:
        table = {**lake, "table_id": ["shop", "db", "t0000"]}
        planned = lance_ray.read_lance(**table)
        revoke()
        assert sorted(row["id"] for row in planned.take_all()) == [1, 2, 3, 4]
        write_ids({**table, "mode": "append"})
        # A commit has the credentials of its plan, so a long write commits by a plan of its own.
        at = ns.describe_table(table["table_id"], vend_credentials=True)
        there = {"storage_options": at.storage_options, "use_legacy_format": None, **table}
        writer = lance_ray.LanceFragmentWriter(at.location, **there)
        revoke()
        fragments = ray.data.from_arrow(IDS).map_batches(writer, batch_size=None).materialize()
        revoke()
        fragments.write_datasink(lance_ray.LanceFragmentCommitter(mode="append", **table))
        lance_ray.add_columns(transform={"double": "id * 2"}, concurrency=1, **table)
        lance_ray.create_scalar_index(column="id", index_type="BTREE", num_workers=1, **table)
        assert lance_ray.compact_files(num_workers=1, **table).fragments_added == 1
        assert read_ids(table) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
        with pytest.raises(err.UnsupportedOperationError, match="declare it in the catalog before"):
            write_ids({**lake, "table_id": ["shop", "db", "new"]})
        ns.declare_table("shop.db.new")
        with renewing(ns, "shop.db.new") as lake:
            write_ids({**lake, "table_id": ["shop", "db", "new"], "mode": "overwrite"})
        assert ns.open("shop.db.new").count_rows() == 4
    assert_unlogged(SECRET, logs, capfd)


def test_workers_know_no_short_name(logs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lance_ns_async.register()
    with begun("polaris", tmp_path) as catalog, catalog.connect() as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["lake", "a"]))
        properties = {**catalog.properties, "header.X-Note": SECRET}
        table = {"namespace_properties": properties, "table_id": ["lake", "a", "t"]}
        with pytest.raises(ray.exceptions.RayTaskError, match="lance-ns-polaris"):
            write_ids({**table, "namespace_impl": "lance-ns-polaris"})
        assert ns.drop_table(DropTableRequest(id=table["table_id"])).location
        write_ids({**table, "namespace_impl": catalog.class_path})
        assert read_ids({**table, "namespace_impl": catalog.class_path}) == [1, 2, 3, 4]
    assert_unlogged(SECRET, logs, capfd)

"""daft-lance on each catalog: by class path and properties, in Daft's own runner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft
import daft_lance
import pyarrow as pa
import pytest
from daft.exceptions import DaftCoreException
from lance_namespace import CountTableRowsRequest, CreateNamespaceRequest, DropTableRequest
from lance_namespace.errors import NamespaceNotFoundError, TableAlreadyExistsError, TableNotFoundError

from lance_ns_async.gateway import renewing
from tests.ecosystem.catalogs import Bill, Catalog, Diary, on_each_kind, running
from tests.ecosystem.pages_elsewhere import DAFT, check_places, read
from tests.ecosystem.vending import Impl, revocable, vending

# Daft counts rows by a function of daft-lance that was renamed since.
COUNTING = pytest.mark.filterwarnings("ignore:_lancedb_count_result_function is deprecated:DeprecationWarning")
pytestmark = COUNTING

# Daft would choose Ray if another test had started it before.
daft.set_runner_native()

ROWS: dict[str, list[Any]] = {"id": [1, 2, 3, 4], "total": [1.5, 2.5, 3.5, 4.5]}


@pytest.fixture
def table(catalog: Catalog, home: list[str], diary: Diary) -> dict[str, Any]:
    """Returns daft-lance's arguments for a table that does not exist yet."""
    return {**diary.place(catalog), "table_id": [*home, "t"]}


def write(table: dict[str, Any], mode: str, rows: dict[str, list[Any]] = ROWS, **options: Any) -> int:
    (version,) = daft_lance.write_lance(daft.from_pydict(rows), mode=mode, **options, **table).to_pydict()["version"]
    assert isinstance(version, int)
    return version


def ids(table: dict[str, Any], **options: Any) -> list[int]:
    return sorted(daft_lance.read_lance(**table, **options).to_pydict()["id"])


@on_each_kind
def test_a_table_is_created_appended_to_and_overwritten(catalog: Catalog, table: dict[str, Any]) -> None:
    assert write(table, "create") == 1
    assert ids(table) == [1, 2, 3, 4]
    assert write(table, "append", {"id": [5], "total": [5.5]}) == 2
    assert ids(table) == [1, 2, 3, 4, 5] and ids(table, version=1) == [1, 2, 3, 4]
    assert write(table, "overwrite", {"id": [6], "total": [6.5]}) == 3
    assert ids(table) == [6]
    with catalog.connect() as ns:
        assert ns.count_table_rows(CountTableRowsRequest(id=table["table_id"])).count == 1


def test_rows_and_columns_are_chosen_where_they_are_read(table: dict[str, Any]) -> None:
    write(table, "create")
    rows = daft_lance.read_lance(**table)
    assert rows.where(daft.col("total") > 2).select("id").sort("id").to_pydict() == {"id": [2, 3, 4]}
    assert rows.limit(2).count_rows() == 2 and rows.count_rows() == 4


def test_a_table_is_kept_in_order(table: dict[str, Any]) -> None:
    write(table, "create", max_rows_per_file=2)
    write(table, "insert_overwrite", {"id": [4], "total": [0.0]}, overwrite_where="id = 4")
    rows = daft_lance.read_lance(**table, default_scan_options={"with_row_address": True}, include_fragment_id=True)
    double = rows.with_column("double", rows["total"] * 2).select("_rowaddr", "fragment_id", "double")
    daft_lance.merge_columns_df(double, **table)
    daft_lance.create_scalar_index(column="id", index_type="BTREE", **table)
    assert daft_lance.compact_files(**table).fragments_added == 1
    assert daft_lance.read_lance(**table).sort("id").to_pydict() == {
        "id": [1, 2, 3, 4],
        "total": [1.5, 2.5, 3.5, 0.0],
        "double": [3.0, 5.0, 7.0, 0.0],
    }


@on_each_kind
def test_errors_are_those_of_the_spec(catalog: Catalog, table: dict[str, Any], home: list[str]) -> None:
    write(table, "create")
    missing = {**table, "table_id": [*home, "missing"]}
    with pytest.raises(TableAlreadyExistsError, match=r"Table already exists: .*\$t"):
        write(table, "create")
    with pytest.raises(TableNotFoundError, match=r"Table not found: .*\$missing"):
        daft_lance.read_lance(**missing)
    with pytest.raises(TableNotFoundError):
        write(missing, "append")
    with pytest.raises(NamespaceNotFoundError):
        write({**table, "table_id": [*catalog.above, "nowhere", "t"]}, "create")
    with pytest.raises(ValueError, match="use_mem_wal=True is not supported with namespace-addressed tables"):
        daft_lance.write_lance(daft.from_pydict(ROWS), mode="append", use_mem_wal=True, **table)
    assert ids(table) == [1, 2, 3, 4]


def test_a_table_that_goes_between_plan_and_run(catalog: Catalog, table: dict[str, Any]) -> None:
    write(table, "create")
    planned = daft_lance.read_lance(**table)
    with catalog.connect() as ns:
        ns.drop_table(DropTableRequest(id=table["table_id"]))
    with pytest.raises(DaftCoreException, match=r"TableNotFoundError: Table not found: .*\$t"):
        planned.collect()


def test_a_fragment_costs_a_call_and_several_may_share_one(
    catalog: Catalog, table: dict[str, Any], diary: Diary
) -> None:
    for mode in ("create", "append"):
        write(table, mode, max_rows_per_file=1)
    fragments, bill = 8, Bill(diary)
    with bill.step("plan"):
        planned = daft_lance.read_lance(**table)
    with bill.step("read"):
        planned.collect()
    with bill.step("plan and read by fours"):
        daft_lance.read_lance(**table, fragment_group_size=4).collect()
    planning = 3 if catalog.impl == "unity" else 2
    assert bill.costs() == {"plan": planning, "read": fragments, "plan and read by fours": planning + fragments // 4}


def test_a_create_that_fails_leaves_the_table_declared(catalog: Catalog, table: dict[str, Any]) -> None:
    def broken(total: float) -> float:
        raise OSError("the source is gone")

    rows = daft.from_pydict(ROWS)
    rows = rows.with_column("total", daft.func(broken)(rows["total"]))
    with pytest.raises(DaftCoreException, match="the source is gone"):
        daft_lance.write_lance(rows, mode="create", **table).collect()
    with catalog.connect() as ns:
        assert ns.exists(table["table_id"])
    with pytest.raises(ValueError, match="was not found"):
        daft_lance.read_lance(**table)
    with pytest.raises(TableAlreadyExistsError):
        write(table, "create")
    assert write(table, "overwrite") == 1
    assert ids(table) == [1, 2, 3, 4]


@pytest.mark.parametrize("impl", ["polaris", "unity"])
def test_credentials_that_the_catalog_gives_out_are_all_it_takes(impl: Impl) -> None:
    with vending(impl, life=600_000) as lake:
        # Without the settings by which Lance would call the catalog.
        properties = {
            key: value for key, value in lake.properties.items() if "expires" not in key and "refresh" not in key
        }
        place = {"namespace_impl": Catalog(impl, properties).class_path, "namespace_properties": properties}
        table = {**place, "table_id": list(lake.id)}
        write(table, "create")
        write(table, "append")
        assert ids(table) == [1, 1, 2, 2, 3, 3, 4, 4]
        write(table, "overwrite")
        assert ids(table) == [1, 2, 3, 4]
        assert lake.s3.refused == 0 and lake.s3.shown


REVOKE: list[Callable[[], None]] = []  # A global, because Daft pickles its functions.


def revoke_at(id: int) -> int:
    REVOKE[-1]()
    return id


def test_workers_renew_credentials_by_the_driver() -> None:
    with revocable(pa.table(ROWS)) as (ns, revoke), renewing(ns, "shop.db.*") as lake:
        table = {**lake, "table_id": ["shop", "db", "t0000"]}
        planned = daft_lance.read_lance(**table)
        revoke()
        assert sorted(planned.to_pydict()["id"]) == [1, 2, 3, 4]
        assert write(table, "append") == 2
        assert daft_lance.compact_files(**table).fragments_added == 1
        REVOKE.append(revoke)
        rows = daft.from_pydict(ROWS).with_column("id", daft.func(revoke_at)(daft.col("id")))
        # The fragment is written, but a commit has the credentials of its plan.
        with pytest.raises(OSError, match=r"list request(.|\n)*ExpiredToken"):
            daft_lance.write_lance(rows, mode="append", **table).collect()
        assert ids(table) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_places_with_odd_names(tmp_path: Path) -> None:
    """Locations are URLs, which daft-lance parses."""
    root = tmp_path / "a b é 50%20c"
    root.mkdir()
    for impl, name in (("dir", "a b"), ("polaris", "a b é 50%20c#"), ("glue", "a b é 50%20c#")):
        with running(impl, root) as catalog, catalog.connect() as ns:
            ns.create_namespace(CreateNamespaceRequest(id=[*catalog.above, "home"]))
            place = {"namespace_impl": catalog.class_path, "namespace_properties": dict(catalog.properties)}
            table = {**place, "table_id": [*catalog.above, "home", name]}
            write(table, "create")
            assert ns.count_table_rows(CountTableRowsRequest(id=table["table_id"])).count == 4
            ns.write(table["table_id"], pa.table({"id": [5], "total": [5.5]}), mode="append")
            assert ids(table) == [1, 2, 3, 4, 5]


@on_each_kind
def test_costs_are_as_documented(catalog: Catalog, home: list[str], diary: Diary) -> None:
    table, other = ({**diary.place(catalog), "table_id": [*home, name]} for name in ("t", "u"))
    bill = Bill(diary)
    with bill.step("`write_lance`, `create`"):
        write(table, "create")
    for mode in ("append", "overwrite"):
        with bill.step("`write_lance`, `append` or `overwrite`"):
            write(table, mode)
    with bill.step("`write_lance`, `overwrite`, missing table"):
        write(other, "overwrite")
    with bill.step("`create_scalar_index`, `compact_files`"):
        daft_lance.create_scalar_index(column="id", index_type="BTREE", **table)
    with bill.step("`create_scalar_index`, `compact_files`"):
        daft_lance.compact_files(**table)
    # The page distinguishes calls that each process makes once, and calls for credentials.
    assert bill.costs("get_config", "vend_credentials") == DAFT.costs(catalog.impl)
    assert all(calls.count("vend_credentials") == (catalog.impl == "unity") for _, calls in bill.calls)


async def test_the_code_prints_what_the_page_shows(tmp_path: Path) -> None:
    async with read(DAFT, tmp_path) as named:
        check_places(DAFT, named["PROPERTIES"])

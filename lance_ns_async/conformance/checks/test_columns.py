"""Columns, metadata, indices and statistics of a table."""

from __future__ import annotations

import lance_namespace as spec
from lance_namespace import LanceNamespace
from lance_namespace.errors import TableColumnNotFoundError, TableIndexAlreadyExistsError, TableIndexNotFoundError

from lance_ns_async.conformance.home import expect


def test_a_detailed_description_has_the_columns(ns: LanceNamespace, table: list[str]) -> None:
    _check_columns(ns, table, ["id", "text", "v"])


def test_a_column_is_added_renamed_and_dropped(ns: LanceNamespace, table: list[str]) -> None:
    column = {"name": "twice", "expression": "id * 2"}
    ns.alter_table_add_columns(spec.AlterTableAddColumnsRequest.model_validate({"id": table, "new_columns": [column]}))
    _check_columns(ns, table, ["id", "text", "v", "twice"])
    change = {"path": "twice", "rename": "double"}
    ns.alter_table_alter_columns(
        spec.AlterTableAlterColumnsRequest.model_validate({"id": table, "alterations": [change]})
    )
    _check_columns(ns, table, ["id", "text", "v", "double"])
    ns.alter_table_drop_columns(spec.AlterTableDropColumnsRequest(id=table, columns=["double"]))
    _check_columns(ns, table, ["id", "text", "v"])


def test_dropping_a_missing_column_fails(ns: LanceNamespace, table: list[str]) -> None:
    with expect(TableColumnNotFoundError):
        ns.alter_table_drop_columns(spec.AlterTableDropColumnsRequest(id=table, columns=["none"]))


def test_metadata_of_the_schema_is_set(ns: LanceNamespace, table: list[str]) -> None:
    request = spec.UpdateTableSchemaMetadataRequest(id=table, metadata={"k": "v"})
    metadata = ns.update_table_schema_metadata(request).metadata
    assert metadata is not None and metadata.get("k") == "v", f"expected k='v', found {metadata}"


def test_an_index_is_created_listed_and_dropped(ns: LanceNamespace, table: list[str]) -> None:
    request = spec.CreateTableIndexRequest(id=table, column="id", index_type="BTREE", name="by_id")
    ns.create_table_scalar_index(request)
    indices = ns.list_table_indices(spec.ListTableIndicesRequest(id=table)).indexes
    assert [(it.index_name, it.columns) for it in indices] == [("by_id", ["id"])], f"expected by_id, found {indices}"
    stats = ns.describe_table_index_stats(spec.DescribeTableIndexStatsRequest(id=table, index_name="by_id"))
    assert stats.num_indexed_rows == 3, f"expected 3 indexed rows, found {stats.num_indexed_rows}"
    with expect(TableIndexAlreadyExistsError):
        ns.create_table_scalar_index(request)
    ns.drop_table_index(spec.DropTableIndexRequest(id=table, index_name="by_id"))
    indices = ns.list_table_indices(spec.ListTableIndicesRequest(id=table)).indexes
    assert indices == [], f"expected no index after the drop, found {indices}"


def test_a_missing_index_is_not_found(ns: LanceNamespace, table: list[str]) -> None:
    with expect(TableIndexNotFoundError):
        ns.describe_table_index_stats(spec.DescribeTableIndexStatsRequest(id=table, index_name="none"))
    with expect(TableIndexNotFoundError):
        ns.drop_table_index(spec.DropTableIndexRequest(id=table, index_name="none"))


def test_an_index_of_a_missing_column_is_refused(ns: LanceNamespace, table: list[str]) -> None:
    with expect(TableColumnNotFoundError):
        ns.create_table_scalar_index(spec.CreateTableIndexRequest(id=table, column="none", index_type="BTREE"))


def test_statistics_count_the_rows(ns: LanceNamespace, table: list[str]) -> None:
    rows = ns.get_table_stats(spec.GetTableStatsRequest(id=table)).num_rows
    assert rows == 3, f"expected 3 rows, found {rows}"


def _check_columns(ns: LanceNamespace, id: list[str], expected: list[str]) -> None:
    schema = ns.describe_table(spec.DescribeTableRequest(id=id, load_detailed_metadata=True)).var_schema
    columns = None if schema is None else [field.name for field in schema.fields]
    assert columns == expected, f"expected the columns {expected}, found {columns}"

"""Rows: tables created with data, inserted into, queried, updated, merged and deleted from."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import LanceNamespace

from lance_ns_async.conformance.home import ROWS, Home, expect, read_file, stream
from lance_ns_async.conformance.plugin import LIMIT, call_within


def test_a_created_table_has_its_rows(ns: LanceNamespace, home: Home) -> None:
    made = ns.create_table(spec.CreateTableRequest(id=home.table("t")), stream(ROWS))
    assert made.version == 1, f"expected version 1, found {made.version}"
    _check_count(ns, home.table("t"), 3)


def test_creating_an_existing_table_fails(ns: LanceNamespace, home: Home) -> None:
    ns.create_table(spec.CreateTableRequest(id=home.table("t")), stream(ROWS))
    with expect(err.TableAlreadyExistsError):
        ns.create_table(spec.CreateTableRequest(id=home.table("t")), stream(ROWS.slice(0, 1)))
    _check_count(ns, home.table("t"), 3)


@pytest.mark.parametrize(("mode", "rows"), [("ExistOk", 3), ("exist_ok", 3), ("Overwrite", 1), ("overwrite", 1)])
def test_each_mode_keeps_or_replaces_an_existing_table(ns: LanceNamespace, home: Home, mode: str, rows: int) -> None:
    ns.create_table(spec.CreateTableRequest(id=home.table("t")), stream(ROWS))
    ns.create_table(spec.CreateTableRequest(id=home.table("t"), mode=mode), stream(ROWS.slice(0, 1)))
    _check_count(ns, home.table("t"), rows)


def test_creating_needs_the_namespace(ns: LanceNamespace, home: Home) -> None:
    with expect(err.NamespaceNotFoundError):
        ns.create_table(spec.CreateTableRequest(id=home.beside("none", "t")), stream(ROWS))


def test_data_that_is_no_arrow_stream_leaves_no_table(ns: LanceNamespace, home: Home) -> None:
    with expect(err.InvalidInputError):
        ns.create_table(spec.CreateTableRequest(id=home.table("t")), b"garbage")
    with expect(err.TableNotFoundError):
        ns.describe_table(spec.DescribeTableRequest(id=home.table("t")))


def test_a_dropped_table_can_be_created_with_other_columns(ns: LanceNamespace, home: Home) -> None:
    ns.create_table(spec.CreateTableRequest(id=home.table("t")), stream(ROWS))
    ns.drop_table(spec.DropTableRequest(id=home.table("t")))
    ns.create_table(spec.CreateTableRequest(id=home.table("t")), stream(ROWS.select(["id"])))
    _check_count(ns, home.table("t"), 3)


def test_a_dropped_table_leaves_no_data(ns: LanceNamespace, table: list[str]) -> None:
    described = ns.describe_table(spec.DescribeTableRequest(id=table, vend_credentials=True))
    location, options = described.location, described.storage_options
    assert location, f"expected a location, found {location!r}"

    def count() -> int:
        dataset = call_within(LIMIT, "opening", lambda: lance.dataset(location, storage_options=options))
        rows: int = dataset.count_rows()
        return rows

    try:
        count()
    except (ValueError, OSError) as e:
        pytest.skip(f"the data at {location} cannot be read from here ({type(e).__name__})")
    ns.drop_table(spec.DropTableRequest(id=table))
    try:
        rows = count()
    except TimeoutError:
        raise
    except (ValueError, OSError):
        return
    pytest.fail(f"expected no data at {location} after the drop, found {rows} rows", pytrace=False)


def test_rows_are_counted_with_a_predicate(ns: LanceNamespace, table: list[str]) -> None:
    count = ns.count_table_rows(spec.CountTableRowsRequest(id=table, predicate="id > 1")).count
    assert count == 2, f"expected a row count of 2, found {count}"


@pytest.mark.parametrize(("mode", "rows"), [(None, 6), ("Append", 6), ("append", 6), ("Overwrite", 3)])
def test_an_insert_appends_or_overwrites(ns: LanceNamespace, table: list[str], mode: str | None, rows: int) -> None:
    ns.insert_into_table(spec.InsertIntoTableRequest(id=table, mode=mode), stream(ROWS))
    _check_count(ns, table, rows)


def test_an_insert_of_other_columns_is_refused(ns: LanceNamespace, table: list[str]) -> None:
    with expect(err.TableSchemaValidationError, err.InvalidInputError):
        ns.insert_into_table(spec.InsertIntoTableRequest(id=table), stream(ROWS.rename_columns(["x", "y", "z"])))
    _check_count(ns, table, 3)


def test_a_query_filters_and_limits(ns: LanceNamespace, table: list[str]) -> None:
    rows = _query(ns, table, k=10, vector={}, filter="id >= 2", columns={"column_names": ["id"]})
    assert sorted(row["id"] for row in rows) == [2, 3], f"expected the ids 2 and 3, found {rows}"
    rows = _query(ns, table, k=2, vector={})
    assert len(rows) == 2, f"expected 2 rows, found {rows}"


def test_a_vector_query_returns_the_nearest_first(ns: LanceNamespace, table: list[str]) -> None:
    rows = _query(ns, table, k=2, vector={"single_vector": [1.0, 0.0]}, vector_column="v")
    assert [row["id"] for row in rows] == [2, 1], f"expected the ids 2 and 1, found {rows}"
    assert rows[0]["_distance"] == 0.0, f"expected the distance 0, found {rows[0]['_distance']}"


def test_an_update_changes_the_rows_of_its_predicate(ns: LanceNamespace, table: list[str]) -> None:
    answer = ns.update_table(spec.UpdateTableRequest(id=table, predicate="id = 1", updates=[["text", "'changed'"]]))
    assert answer.updated_rows == 1, f"expected 1 updated row, found {answer.updated_rows}"
    count = ns.count_table_rows(spec.CountTableRowsRequest(id=table, predicate="text = 'changed'")).count
    assert count == 1, f"expected 1 changed row, found {count}"


def test_a_delete_removes_the_rows_of_its_predicate(ns: LanceNamespace, table: list[str]) -> None:
    ns.delete_from_table(spec.DeleteFromTableRequest(id=table, predicate="id > 1"))
    _check_count(ns, table, 1)


def test_a_predicate_that_is_no_sql_is_refused(ns: LanceNamespace, table: list[str]) -> None:
    with expect(err.InvalidInputError):
        ns.delete_from_table(spec.DeleteFromTableRequest(id=table, predicate="id >"))
    _check_count(ns, table, 3)


def test_a_merge_updates_matches_and_inserts_others(ns: LanceNamespace, table: list[str]) -> None:
    rows = ROWS.slice(2).set_column(1, "text", [["new"]])
    more = rows.set_column(0, "id", [[9]])
    request = spec.MergeInsertIntoTableRequest(
        id=table, on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
    )
    answer = ns.merge_insert_into_table(request, stream(pa.concat_tables([rows, more])))
    assert (answer.num_updated_rows, answer.num_inserted_rows) == (1, 1), (
        f"expected 1 updated and 1 inserted row, found {answer}"
    )
    _check_count(ns, table, 4)


@pytest.mark.parametrize("operation", ["count_table_rows", "insert_into_table", "delete_from_table", "query_table"])
def test_rows_of_a_missing_table_are_not_found(ns: LanceNamespace, home: Home, operation: str) -> None:
    id = home.table("none")
    requests: dict[str, tuple[Any, ...]] = {
        "count_table_rows": (spec.CountTableRowsRequest(id=id),),
        "insert_into_table": (spec.InsertIntoTableRequest(id=id), stream(ROWS)),
        "delete_from_table": (spec.DeleteFromTableRequest(id=id, predicate="true"),),
        "query_table": (spec.QueryTableRequest.from_dict({"id": id, "k": 1, "vector": {}}),),
    }
    with expect(err.TableNotFoundError):
        getattr(ns, operation)(*requests[operation])


def _check_count(ns: LanceNamespace, id: list[str], expected: int) -> None:
    count = ns.count_table_rows(spec.CountTableRowsRequest(id=id)).count
    assert count == expected, f"expected a row count of {expected}, found {count}"


def _query(ns: LanceNamespace, id: list[str], **fields: Any) -> list[dict[str, Any]]:
    request = spec.QueryTableRequest.from_dict({"id": id, **fields})
    assert request is not None
    answer: Any = ns.query_table(request)
    return read_file(answer.data)

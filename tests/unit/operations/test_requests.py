"""Checks of requests: unknown fields and wrong types are reported by name, at any depth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import CountTableRowsRequest, DescribeTableRequest, QueryTableRequest
from lance_namespace.errors import InvalidInputError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async import DirNamespace, TableId
from lance_ns_async.operations import requests

pytestmark = [pytest.mark.bare, pytest.mark.environment, pytest.mark.floors]
ID = ["t"]
QUERY: dict[str, Any] = {"k": 1, "vector": {}}
TEXT = {"string_query": {"query": "a", "column": "b"}}
HINT = '; without a search, use {"vector": {}}'


@pytest.fixture
def ns(tmp_path: Path) -> Iterator[DirNamespace]:
    with DirNamespace(root=str(tmp_path)) as namespace:
        namespace.write(ID, pa.table({"id": [1], "vector": pa.array([[0.0, 1.0]], pa.list_(pa.float32(), 2))}))
        yield namespace


@pytest.mark.parametrize(
    ("operation", "fields", "message"),
    [
        ("query_table", {"vector": {}, "k": 1, "nearest": [0.0]}, "nearest: unknown, use vector"),
        ("query_table", {"vector": {"single": [0.0]}}, "vector: single: unknown, did you mean single_vector"),
        (
            "query_table",
            {"vector": [0.0]},
            "^QueryTableRequest: vector: .* dict with single_vector or multi_vector, not list",
        ),
        ("query_table", {"columns": ["id"]}, "columns: must be a dict with column_names or column_aliases"),
        ("query_table", {"columns": {"colum_names": ["id"]}}, "columns: colum_names: unknown"),
        (
            "query_table",
            {"full_text_query": TEXT},
            "full_text_query: string_query: column: unknown, did you mean columns",
        ),
        (
            "explain_table_query_plan",
            {"query": {**QUERY, "filtr": "id > 1"}},
            "query: filtr: unknown, did you mean filter",
        ),
        (
            "alter_table_alter_columns",
            {"alterations": [{"path": "id", "new_name": "x"}]},
            "alterations: new_name: unknown",
        ),
        (
            "update_field_metadata",
            {"updates": [{"path": "id", "replcae": True}]},
            "replcae: unknown, did you mean replace",
        ),
        (
            "alter_table_add_columns",
            {"new_columns": {"name": "x"}},
            "new_columns: must be a list of dicts with name or",
        ),
        ("describe_table", {"version": "one"}, "^DescribeTableRequest: version: Input should be a valid integer"),
    ],
)
def test_the_fault_is_named(ns: DirNamespace, operation: str, fields: dict[str, Any], message: str) -> None:
    required = QUERY if operation == "query_table" else {}
    with pytest.raises(InvalidInputError, match=message):
        getattr(ns, operation)({"id": ID, **required, **fields})


def test_an_id_alone_or_a_model_inside_a_dict_is_a_request(ns: DirNamespace) -> None:
    text = ".".join(ID)
    described = ns.describe_table({"id": ID})
    assert described == ns.describe_table(ID) == ns.describe_table(tuple(ID)) == ns.describe_table(text)
    assert ns.list_tables() == ns.list_tables([]) == ns.list_tables("") == ns.list_tables({})
    assert ns.count_table_rows(text).count == ns.open(text).count_rows() == 1 and ns.exists(text)
    assert ns.describe_tables([text, ID, TableId(ID)]) == ns.describe_tables([ID])
    with pytest.raises(InvalidInputError, match=r"^CreateTableTagRequest: tag and version: they are missing"):
        ns.create_table_tag(text)
    message = r"^DescribeTableRequest: id: must be a list of names; use \['a', 't'\]"
    with pytest.raises(InvalidInputError, match=message):
        ns.describe_table({"id": "a.t"})
    with pytest.raises(InvalidInputError, match=r"^BatchCommitTablesRequest: a request must be a dict, not str"):
        ns.batch_commit_tables(text)
    query = {"id": ID, "k": 1, "vector": {"single_vector": [0.0, 1.0]}, "columns": {"column_names": ["id"]}}
    assert pa.ipc.open_file(ns.query_table(query).data).read_all()["id"].to_pylist() == [1]
    assert "ANNSubIndex" not in ns.explain_table_query_plan({"id": ID, "query": query})
    assert ns.count_table_rows(CountTableRowsRequest(id=ID)).count == 1


@pytest.mark.parametrize("identity", [{"auth_token": "hush"}, {"api_key": "hush"}])
def test_a_request_with_an_identity_is_rejected(ns: DirNamespace, identity: dict[str, str]) -> None:
    with pytest.raises(UnsupportedOperationError, match="identity in a request") as raised:
        ns.describe_table({"id": ID, "identity": identity})
    assert "hush" not in str(raised.value)
    assert ns.describe_table({"id": ID, "identity": {}, "context": {"trace": "1"}}).location
    assert ns.describe_table(DescribeTableRequest(id=ID, identity=None)).location
    with pytest.raises(UnsupportedOperationError, match="identity in a request"):
        ns.explain_table_query_plan({"id": ID, "query": {"k": 1, "vector": {}, "identity": identity}})


@pytest.mark.parametrize(
    ("operation", "fields", "missing"),
    [
        ("query_table", {"vector": {}}, "k: it is missing"),
        ("query_table", {"k": 1}, f"vector: it is missing{HINT}"),
        ("query_table", {}, f"k and vector: they are missing{HINT}"),
        ("explain_table_query_plan", {"query": {"k": 1}}, f"query: vector: it is missing{HINT}"),
        ("restore_table", {}, "version: it is missing"),
        ("delete_from_table", {}, "predicate: it is missing"),
        ("alter_table_alter_columns", {"alterations": [{"rename": "x"}]}, "alterations: path: it is missing"),
    ],
)
def test_what_is_missing_is_named(ns: DirNamespace, operation: str, fields: dict[str, Any], missing: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(f"Request: {missing}") + "$"):
        getattr(ns, operation)({"id": ID, **fields})


class FromRust(dict[str, Any]):
    """A request in the form in which Lance's Rust side and the gateway pass it."""


def test_fields_of_another_kind_are_refused(ns: DirNamespace) -> None:
    for operation, fields in (
        ("alter_table_add_columns", {"new_columns": 5}),
        ("alter_table_alter_columns", {"alterations": 5}),
        ("update_field_metadata", {"updates": True}),
    ):
        with pytest.raises(InvalidInputError, match="Request: "):
            getattr(ns, operation)(FromRust({"id": ID, **fields}))


def test_fields_may_be_passed_by_name(ns: DirNamespace) -> None:
    ns.create_namespace("sales", mode="exist_ok")
    ns.create_table_tag("t", tag="first", version=1)
    assert ns.get_table_tag_version({"id": ID}, tag="first").version == 1
    rows = ns.query_table("t", k=1, vector={"single_vector": [0.0, 1.0]}, columns={"column_names": ["id"]})
    assert pa.ipc.open_file(rows.data).read_all()["id"].to_pylist() == [1]
    assert ns.list_tables(limit=1) == ns.list_tables({"limit": 1})
    with pytest.raises(InvalidInputError, match=r"^CreateTableTagRequest: tga: unknown, did you mean tag"):
        ns.create_table_tag("t", tga="second", version=1)
    with pytest.raises(InvalidInputError, match=r"^version: it is given twice, in the request and by name"):
        ns.describe_table({"id": ID, "version": 1}, version=2)
    with pytest.raises(InvalidInputError, match=r"^version: not allowed beside a DescribeTableRequest; set it there"):
        ns.describe_table(DescribeTableRequest(id=ID), version=1)


def test_one_id_is_no_list_of_ids(ns: DirNamespace) -> None:
    one: Any
    for one in ("sales$t", TableId(["sales", "t"])):
        for use in (ns.list_many, lambda ids: list(ns.stream_tables(ids))):
            with pytest.raises(InvalidInputError, match=r"one id instead of a list of ids; use \['sales\$t'\]"):
                use(one)
        assert list(ns.describe_tables(one)) == list(ns.open_many(one)) == [TableId(["sales", "t"])]
    with pytest.raises(InvalidInputError, match=r"'sales\.\*': a pattern instead of a list of ids; pass it to desc"):
        list(ns.stream_tables("sales.*"))


def test_a_result_gives_the_table_of_an_id(ns: DirNamespace) -> None:
    described = ns.describe_tables(["t", "u"])
    assert described["t"] == described[ID] == described.tables[TableId(ID)] == described.outcome("t")
    with pytest.raises(TableNotFoundError, match=r"^Table not found: u "):
        described["u"]
    assert list(described) == [TableId("t"), TableId("u")] and "u" in described and "x" not in described
    with pytest.raises(KeyError, match=r"x is not among these 2 tables"):
        described["x"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"columns": {"column_names": [1] * 200_000}}, "columns: column_names: 0: Input should be a valid string"),
        ({"columns": {"column_names": ["a"] * 200 + [""]}}, "columns: column_names: 200: String should have at least"),
        ({"columns": {"column_aliases": dict.fromkeys("a" * n for n in range(101))}}, "column_aliases: : Input should"),
        ({"vector": {"single_vector": [True] * 200}}, "vector: single_vector: 0: Input should be a valid number"),
        ({"vector": {"multi_vector": [[1, 1.5], [""] * 200]}}, "vector: multi_vector: 1: Input should be a valid num"),
        ({"context": {f"{n}": "a" if n < 150 else n for n in range(200)}}, "context: 150: Input should be a valid"),
        ({"filter": [1] * 200}, "filter: Input should be a valid string"),
    ],
)
def test_many_wrong_values_are_one_error(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        requests.parse(QueryTableRequest, {"k": 1, "vector": {}, **fields})
    assert len(str(error.value)) < 200


def test_many_values_are_valid() -> None:
    fields = {
        "vector": {"multi_vector": [[1, 1.5] * 100] * 200},
        "columns": {"column_aliases": {f"{n}": "a" for n in range(200)}},
    }
    request = requests.parse(QueryTableRequest, {"k": 1, **fields})
    assert request.vector.to_dict() == fields["vector"]
    assert request.columns is not None and request.columns.to_dict() == fields["columns"]

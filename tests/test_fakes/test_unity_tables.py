"""The fake Unity Catalog server: locations, columns and credentials of tables as raw requests and responses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.unity import FakeUnity
from tests.fakes.unity.requests import LIST, call, column, create, error, page


@pytest.fixture
def server() -> Iterator[FakeUnity]:
    with FakeUnity(catalog="c1") as running:
        running.add_schema("c1", "s1")
        yield running


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("file:/x", "file:///x"),
        ("/x", "file:///x"),
        ("file:///x/", "file:///x"),
        ("file://host/x", "file:///host/x"),
        ("x/y", f"file://{os.getcwd()}/x/y"),
        ("s3://b//a///c", "s3://b/a/c"),
        ("s3://b/a/./c/../d/", "s3://b/a/d"),
        ("s3://b/a%20b?c#é", "s3://b/a%20b?c#é"),
        ("gs://b/a", "gs://b/a"),
        ("abfs://c@h/a", "abfs://c@h/a"),
        ("abfss://c@h/a", "abfss://c@h/a"),
        ("s3://b/" + "x" * 2041, "s3://b/" + "x" * 2041),
    ],
)
def test_locations_are_stored_normalised(server: FakeUnity, sent: str, stored: str) -> None:
    assert create(server, storage_location=sent).json["storage_location"] == stored
    assert call(server, "GET", "/tables/c1.s1.t1").json["storage_location"] == stored


SCHEMES = ["s3a", "S3", "az", "hdfs", "memory", "https", "r2", "wasbs", "s3+ddb"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        *((f"{scheme}://b/a", (400, "INVALID_ARGUMENT", f"Unsupported URI scheme: {scheme}")) for scheme in SCHEMES),
        ("", (400, "INVALID_ARGUMENT", "Path cannot be null or empty")),
        ("s3://b/a b", (400, "INVALID_ARGUMENT", "Unsupported path: s3://b/a b")),
        *(
            (
                root,
                (
                    400,
                    "INVALID_ARGUMENT",
                    f"External table storage location must include a non-empty path prefix: {root}",
                ),
            )
            for root in ("s3://bkt", "s3://bkt/", "abfss://c@h")
        ),
        ("s3://b/" + "x" * 2042, (500, "INTERNAL", "Value too long for column: CHARACTER VARYING(2048)")),
        (..., (500, "INTERNAL", "Cannot invoke String.length() because storage_location is null")),
    ],
)
def test_other_locations_are_refused(server: FakeUnity, sent: Any, expected: tuple[int, str, str]) -> None:
    assert error(create(server, storage_location=sent)) == expected


def test_locations_may_lie_within_each_other(server: FakeUnity) -> None:
    for name, location in (("a", "s3://b/x"), ("b", "s3://b/x"), ("c", "s3://b/x/y"), ("d", "s3://b/")):
        assert create(server, name=name, storage_location=location).status == (200 if name != "d" else 400)


def field(**changes: Any) -> str:
    """Returns the `type_json` of the column `id`; parts that are `...` are omitted."""
    usual = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    return json.dumps({key: value for key, value in {**usual, **changes}.items() if value is not ...})


VECTOR = {"type": "array", "elementType": "float", "containsNull": True}
STRUCT = {"type": "struct", "fields": [json.loads(field(type=VECTOR))]}
MAP = {"type": "map", "keyType": "string", "valueType": STRUCT, "valueContainsNull": True}
PARSE = "Failed to parse typeJson for column id: "


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        *(({"type_json": field(**{key: ...})}, f"type_json.{key} is required.") for key in json.loads(field())),
        *((({"type_json": text}), f"{PARSE}{text}") for text in ("nonsense", '"long"', "3", '{"name": "id", "x": 1}')),
        *(
            ({"type_json": field(type=type)}, f"{PARSE}{field(type=type)}")
            for type in (
                3,
                {"type": "vector"},
                {**VECTOR, "length": 3},
                {"type": "struct"},
                {**VECTOR, "elementType": 1},
            )
        ),
        ({"type_json": ...}, "Column id has null/empty typeJson"),
        ({"type_json": ""}, "Column id has null/empty typeJson"),
        ({"type_json": field(name="ID")}, "field name ID does not match column name id"),
        ({"nullable": False}, "field nullable true does not match column nullable false"),
        ({"type_json": field(nullable=False)}, "field nullable false does not match column nullable true"),
    ],
)
def test_type_json_must_be_the_field_of_the_column(server: FakeUnity, changes: Any, problem: str) -> None:
    message = problem if problem.endswith("required.") else f"Invalid type_json for column id: {problem}"
    assert error(create(server, columns=[column(**changes)])) == (400, "INVALID_ARGUMENT", message)


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {}),
        ({"type_json": field(type="float16")}, {}),
        ({"type_json": field(type=VECTOR)}, {}),
        ({"type_json": field(type=MAP)}, {}),
        ({"type_json": field(metadata={"lance:arrow": "x" * 5000}, type="decimal(20,0)")}, {}),
        ({"nullable": ..., "type_json": field(nullable=False)}, {"nullable": True}),
        ({"type_text": "ARRAY<Float>", "comment": "c", "mask": {}}, {"type_text": "array<float>"}),
        ({"type_name": "DECIMAL", "type_precision": 20, "type_scale": 0}, {}),
        ({"type_name": "NULL", "position": 7, "partition_index": 1}, {}),
        ({"type_name": "VARIANT"}, {}),
    ],
)
def test_columns_are_kept(server: FakeUnity, changes: Any, kept: Any) -> None:
    sent = column(**changes)
    optional = ("type_precision", "type_scale", "type_interval_type", "comment", "partition_index")
    expected = {**dict.fromkeys(optional), **sent, **kept}
    expected.pop("mask", None)
    made = create(server, columns=[sent, sent]).json
    assert made["columns"] == call(server, "GET", "/tables/c1.s1.t1").json["columns"] == [expected, expected]


@pytest.mark.parametrize("name", ["VARCHAR", "BIGINT", "long", "GEOMETRY", "VECTOR"])
def test_type_names_are_known_or_refused(server: FakeUnity, name: str) -> None:
    assert error(create(server, columns=[column(type_name=name)]))[:2] == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("changes", [{"type_text": ...}, {"type_name": ...}, {"position": ...}, {"name": "x" * 256}])
def test_columns_that_cannot_be_stored_break_the_server(server: FakeUnity, changes: Any) -> None:
    sent = column(**changes) if "name" not in changes else column("x" * 256)
    assert error(create(server, columns=[sent]))[:2] == (500, "INTERNAL")
    assert page(server, LIST) == ([], None)


@pytest.mark.parametrize(("dialect", "status"), [("0.6", 400), ("0.4.1", 200), ("0.4.0", 200)])
def test_older_servers_do_not_look_at_type_json(dialect: Any, status: int) -> None:
    with FakeUnity(catalog="c1", dialect=dialect) as server:
        server.add_schema("c1", "s1")
        assert create(server, columns=[column(type_json='{"type": "long"}')]).status == status
        assert create(server, name="t2", columns=...).json["columns"] == []


def test_fields_of_other_services_can_come_too() -> None:
    with FakeUnity(catalog="c1", extra_fields=True) as server:
        server.add_schema("c1", "s1")
        made = create(server, columns=[column()]).json
        assert (made["full_name"], made["columns"][0]["mask"]["using_column_names"]) == ("c1.s1.t1", [])
        assert made == call(server, "GET", "/tables/c1.s1.t1").json


NOTHING = dict.fromkeys(
    ("aws_temp_credentials", "azure_user_delegation_sas", "gcp_oauth_token", "expiration_time", "url")
)
UNKNOWN = "00000000-0000-0000-0000-000000000000"
AWS = {"access_key_id": "k", "secret_access_key": "s", "session_token": "t"}


@pytest.mark.parametrize(
    ("configured", "location", "operation", "outcome"),
    [
        (None, "file:///x", "READ", {**NOTHING, "url": "file:///x"}),
        (None, "s3://b/x", "READ_WRITE", (400, "FAILED_PRECONDITION")),
        ({}, "s3://b/x", ..., (500, "INTERNAL")),
        ({}, "s3://b/x", "WRITE", (400, "INVALID_ARGUMENT")),
        (
            {"aws_temp_credentials": AWS, "expiration_time": 5},
            "s3://b/x",
            "READ",
            {**NOTHING, "aws_temp_credentials": AWS, "expiration_time": 5, "url": "s3://b/x"},
        ),
    ],
)
def test_credentials_are_given_out(configured: Any, location: str, operation: Any, outcome: Any) -> None:
    with FakeUnity(catalog="c1", credentials=configured) as server:
        server.add_schema("c1", "s1")
        id = create(server, storage_location=location).json["table_id"]
        body = {"table_id": id} if operation is ... else {"table_id": id, "operation": operation}
        reply = call(server, "POST", "/temporary-table-credentials", body)
        if isinstance(outcome, tuple):
            assert error(reply)[:2] == outcome
        else:
            assert (reply.status, reply.json) == (200, outcome)
        unknown = call(server, "POST", "/temporary-table-credentials", {"table_id": UNKNOWN, "operation": "READ"})
        assert error(unknown) == (404, "TABLE_NOT_FOUND", f"Table not found: {UNKNOWN}")
        call(server, "DELETE", "/tables/c1.s1.t1")
        assert call(server, "POST", "/temporary-table-credentials", {**body, "operation": "READ"}).status == 404

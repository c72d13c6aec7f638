"""All kinds of responses of Unity Catalog: a correct one, and the operation that causes it."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace.errors import TableAlreadyExistsError

from tests.faults.catalogs import SECRET
from tests.fuzz.answering import Case
from tests.fuzz.asks import DATE, PLACE, PROPERTIES, VENDS, asks, many

_UNITY_COLUMNS = [
    {"name": "a", "type_text": "bigint", "type_name": "LONG", "type_json": '{"name":"a","type":"long"}', "position": 0},
    {
        "name": "d",
        "type_text": "decimal(10,2)",
        "type_name": "DECIMAL",
        "type_json": '"decimal(10,2)"',
        "type_precision": 10,
        "type_scale": 2,
        "position": 1,
        "nullable": True,
    },
    {"name": "s", "type_text": "struct<x:array<int>>", "type_name": "STRUCT", "type_json": "{}", "position": 2},
]
UNITY_TABLE = {
    "name": "t0",
    "catalog_name": "c",
    "schema_name": "n",
    "table_type": "EXTERNAL",
    "data_source_format": "TEXT",
    "storage_location": PLACE,
    "properties": {"table_type": "lance", "k": "v"},
    "columns": _UNITY_COLUMNS,
    "created_at": DATE,
    "table_id": "uuid",
}
_UNITY_TABLES = {"tables": [UNITY_TABLE, {**UNITY_TABLE, "name": "t1"}], "next_page_token": ""}
_UNITY_KEYS = {
    "aws_temp_credentials": {"access_key_id": SECRET, "secret_access_key": SECRET, "session_token": SECRET},
    "azure_user_delegation_sas": {"sas_token": SECRET},
    "gcp_oauth_token": {"oauth_token": SECRET},
    "expiration_time": DATE,
}
_UNITY_SCHEMA = {"name": "n", "catalog_name": "c", "properties": PROPERTIES, "created_at": DATE}

UNITY: Sequence[Case] = (
    Case(
        "unity",
        "schemas",
        "GET .*/schemas",
        {"schemas": [_UNITY_SCHEMA], "next_page_token": ""},
        asks("list_namespaces", "c", limit=3),
    ),
    Case("unity", "a schema", "GET .*/schemas/", _UNITY_SCHEMA, asks("describe_namespace", "c", "n")),
    Case("unity", "a new schema", "POST", _UNITY_SCHEMA, asks("create_namespace", "c", "n")),
    Case("unity", "tables", "GET .*/tables", _UNITY_TABLES, asks("list_tables", "c", "n")),
    Case(
        "unity",
        "tables in bulk",
        "GET .*/tables\\?",
        _UNITY_TABLES,
        many("c", "n", count=70),
        {"/tables/": UNITY_TABLE},
    ),
    Case(
        "unity",
        "tables to drop",
        "GET .*/tables\\?",
        _UNITY_TABLES,
        asks("drop_namespace", "c", "n", behavior="cascade"),
    ),
    Case("unity", "a table", "GET .*/tables/", UNITY_TABLE, asks("describe_table", "c", "n", "t0")),
    Case(
        "unity",
        "credentials",
        "/temporary-table-credentials",
        _UNITY_KEYS,
        asks("describe_table", "c", "n", "t0", **VENDS),
        {"/tables/": UNITY_TABLE},
        anew=True,
        secret=(),
    ),
    Case("unity", "a declared table", "POST", UNITY_TABLE, asks("declare_table", "c", "n", "t0", location=PLACE)),
    Case(
        "unity",
        "a table declared before",
        "GET .*/tables/",
        UNITY_TABLE,
        asks("declare_table", "c", "n", "t0", location=PLACE),
        {"POST": []},
        ends=TableAlreadyExistsError,
    ),
)

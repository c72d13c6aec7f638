"""All kinds of responses of Iceberg catalogs and Polaris: a correct one, and the operation that causes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lance_namespace.errors import InternalError, InvalidTableStateError, TableAlreadyExistsError

from tests.faults.catalogs import SECRET
from tests.fuzz.answering import DATE, NO_TOKEN, PLACE, PROPERTIES, TOKEN, VENDS, Case, asks, many, walks

_iceberg, _polaris, _unity = (partial(Case, impl) for impl in ("iceberg", "polaris", "unity"))
_CREDENTIAL = {"credential": f"id:{SECRET}"}
_ICEBERG_CONFIG = {
    "defaults": {"prefix": "p", "rest-page-size": "10"},
    "overrides": {"namespace-separator": "%1F", "nessie.is-nessie-catalog": "true"},
    "endpoints": ["POST /v1/{prefix}/transactions/commit"],
}
_ICEBERG_TABLE = {
    "metadata-location": "s3://lake/n/t0/m.json",
    "metadata": {
        "format-version": 2,
        "table-uuid": "u",
        "location": PLACE,
        "properties": {"table_type": "lance", "managed_by": "storage"},
        "current-snapshot-id": -1,
    },
    "config": {"s3.secret-access-key": SECRET},
}
_SNAPSHOT = {
    "snapshot-id": 2,
    "sequence-number": 2,
    "timestamp-ms": DATE,
    "summary": {"operation": "append", "lance.staging": "lake/n/t0/_versions/2.manifest", "lance.size": "7"},
    "schema-id": 0,
}
_ICEBERG_MANAGED = {
    "metadata": {
        "format-version": 2,
        "table-uuid": "u",
        # A location without a dataset, because the dataset is opened, too.
        "location": "file:///nowhere/t0",
        "properties": {"table_type": "lance", "managed_by": "impl"},
        "current-snapshot-id": 2,
        "last-sequence-number": 2,
        "last-updated-ms": DATE,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": "a", "type": "int", "required": False}]}],
        "snapshots": [_SNAPSHOT],
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
    }
}
_NAMES = {"identifiers": [{"namespace": ["n"], "name": f"t{i}"} for i in range(2)], "next-page-token": None}
_NAMESPACE = {"namespace": ["n"], "properties": PROPERTIES}
_NAMESPACES = {"namespaces": [["a"], ["b"]], "next-page-token": None}
ICEBERG_ERROR = {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404, "stack": []}}

ICEBERG: Sequence[Case] = (
    _iceberg("config", "/v1/config", _ICEBERG_CONFIG, asks("describe_namespace", "n"), anew=True),
    _iceberg(
        "token",
        "/oauth/tokens",
        TOKEN,
        asks("describe_namespace", "n"),
        {},
        _CREDENTIAL,
        NO_TOKEN,
        anew=True,
        secret=(),
    ),
    _iceberg("namespaces", "GET .*/namespaces(\\?|$)", _NAMESPACES, asks("list_namespaces", limit=3)),
    _iceberg("a namespace", "GET .*/namespaces/n", _NAMESPACE, asks("describe_namespace", "n")),
    _iceberg("a new namespace", "POST", _NAMESPACE, asks("create_namespace", "n")),
    _iceberg("tables", "/tables$", _NAMES, asks("list_tables", "n"), {"/tables/": _ICEBERG_TABLE}),
    _iceberg(
        "all tables",
        "/tables$",
        _NAMES,
        walks("iter_tables", "n"),
        {"/tables/": _ICEBERG_TABLE, "/namespaces": {"namespaces": []}},
    ),
    _iceberg("a table", "GET .*/tables/", _ICEBERG_TABLE, asks("describe_table", "n", "t0")),
    _iceberg("tables in bulk", "GET .*/tables/", _ICEBERG_TABLE, many("n", count=3)),
    _iceberg("a declared table", "POST .*/tables/", _ICEBERG_TABLE, asks("declare_table", "n", "t0", location=PLACE)),
    _iceberg(
        "versions",
        "GET .*/tables/",
        _ICEBERG_MANAGED,
        asks("list_table_versions", "n", "t0"),
        ends=InvalidTableStateError,
    ),
    _iceberg(
        "a version",
        "GET .*/tables/",
        _ICEBERG_MANAGED,
        asks("describe_table_version", "n", "t0", version=2),
        ends=InvalidTableStateError,
    ),
)

_POLARIS_TABLE = {
    "table": {"name": "t0", "format": "lance", "base-location": PLACE, "doc": None, "properties": {"k": "v"}},
    "storage-access-configs": [
        {
            "prefix": "s3://lake/",
            "config": {
                "s3.access-key-id": SECRET,
                "s3.secret-access-key": SECRET,
                "s3.session-token": SECRET,
                "s3.session-token-expires-at-ms": str(DATE),
                "s3.endpoint": "http://s3",
                "client.region": "r",
            },
        }
    ],
}
_POLARIS_AZURE = {
    "table": {"name": "t0", "format": "lance", "base-location": "abfss://c@account.dfs.core.windows.net/n/t0"},
    "storage-access-configs": [
        {
            "prefix": "abfss://",
            "config": {
                "adls.sas-token.account.dfs.core.windows.net": SECRET,
                "adls.sas-token-expires-at-ms.account.dfs.core.windows.net": str(DATE),
            },
        }
    ],
}

POLARIS: Sequence[Case] = (
    _polaris(
        "token",
        "/oauth/tokens",
        TOKEN,
        asks("list_tables", "c", "n"),
        {"/generic-tables": _NAMES},
        _CREDENTIAL,
        NO_TOKEN,
        anew=True,
        secret=(),
    ),
    _polaris(
        "catalogs", "/management/", {"catalogs": [{"name": "c"}]}, asks("list_namespaces"), properties={"catalogs": "*"}
    ),
    _polaris(
        "namespaces",
        "GET .*/namespaces",
        {"namespaces": [["a", "b"]], "next-page-token": None},
        asks("list_namespaces", "c", "a"),
    ),
    _polaris("all namespaces", "GET .*/namespaces", _NAMESPACES, walks("iter_namespaces", "c"), ends=InternalError),
    _polaris("a namespace", "GET .*/namespaces/n", _NAMESPACE, asks("describe_namespace", "c", "n")),
    _polaris("a new namespace", "POST", _NAMESPACE, asks("create_namespace", "c", "n")),
    _polaris("tables", "/generic-tables$", _NAMES, asks("list_tables", "c", "n")),
    _polaris(
        "tables one by one",
        "/generic-tables/",
        _POLARIS_TABLE,
        asks("list_tables", "c", "n"),
        {"/generic-tables$": {"identifiers": [{"namespace": ["n"], "name": "t0"}]}},
        {"filter_tables": "true"},
    ),
    _polaris("a table", "/generic-tables/", _POLARIS_TABLE, asks("describe_table", "c", "n", "t0")),
    _polaris(
        "a table of S3",
        "/generic-tables/",
        _POLARIS_TABLE,
        asks("describe_table", "c", "n", "t0", **VENDS),
        anew=True,
        secret=("storage-access-configs",),
    ),
    _polaris(
        "a table of Azure",
        "/generic-tables/",
        _POLARIS_AZURE,
        asks("describe_table", "c", "n", "t0", **VENDS),
        anew=True,
        secret=("storage-access-configs",),
    ),
    _polaris("a declared table", "POST", _POLARIS_TABLE, asks("declare_table", "c", "n", "t0", location=PLACE)),
    _polaris(
        "where tables go",
        "GET .*/namespaces/n$",
        {"properties": PROPERTIES},
        asks("declare_table", "c", "n", "t0"),
        {"POST": _POLARIS_TABLE},
        # The response to the declaration has another location than the random one that was requested.
        ends=InternalError,
    ),
)

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
    _unity(
        "schemas",
        "GET .*/schemas",
        {"schemas": [_UNITY_SCHEMA], "next_page_token": ""},
        asks("list_namespaces", "c", limit=3),
    ),
    _unity("a schema", "GET .*/schemas/", _UNITY_SCHEMA, asks("describe_namespace", "c", "n")),
    _unity("a new schema", "POST", _UNITY_SCHEMA, asks("create_namespace", "c", "n")),
    _unity("tables", "GET .*/tables", _UNITY_TABLES, asks("list_tables", "c", "n")),
    _unity("tables in bulk", "GET .*/tables\\?", _UNITY_TABLES, many("c", "n", count=70), {"/tables/": UNITY_TABLE}),
    _unity("tables to drop", "GET .*/tables\\?", _UNITY_TABLES, asks("drop_namespace", "c", "n", behavior="cascade")),
    _unity("a table", "GET .*/tables/", UNITY_TABLE, asks("describe_table", "c", "n", "t0")),
    _unity(
        "credentials",
        "/temporary-table-credentials",
        _UNITY_KEYS,
        asks("describe_table", "c", "n", "t0", **VENDS),
        {"/tables/": UNITY_TABLE},
        anew=True,
        secret=(),
    ),
    _unity("a declared table", "POST", UNITY_TABLE, asks("declare_table", "c", "n", "t0", location=PLACE)),
    _unity(
        "a table declared before",
        "GET .*/tables/",
        UNITY_TABLE,
        asks("declare_table", "c", "n", "t0", location=PLACE),
        {"POST": []},
        ends=TableAlreadyExistsError,
    ),
)

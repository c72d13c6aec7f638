"""All kinds of responses of AWS Glue: a correct one, and the operation that causes it."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace.errors import NamespaceNotEmptyError

from tests.fuzz.answering import Case
from tests.fuzz.asks import PLACE, asks, many

_GLUE_TABLE = {
    "Name": "t0",
    "DatabaseName": "n",
    "TableType": "EXTERNAL_TABLE",
    "Parameters": {"table_type": "lance", "k": "v"},
    "StorageDescriptor": {"Location": PLACE},
    "CreateTime": 1.7e9,
    "TargetTable": None,
}
_GLUE_TABLES = {"TableList": [_GLUE_TABLE, {**_GLUE_TABLE, "Name": "t1"}], "NextToken": ""}
_GLUE_DATABASE = {"Name": "n", "LocationUri": "s3://lake/n", "Parameters": {"k": "v"}}
_GLUE_DATABASES = {"DatabaseList": [_GLUE_DATABASE], "NextToken": ""}
_GLUE_CATALOG = {"Name": "c", "CatalogId": "123456789012:c", "Parameters": {"k": "v"}}
_GLUE_CATALOGS = {"CatalogList": [_GLUE_CATALOG], "NextToken": ""}
GLUE_EMPTY = {
    "^GetDatabases$": {"DatabaseList": []},
    "^GetCatalogs$": {"CatalogList": []},
    "^GetDatabase$": {"Database": _GLUE_DATABASE},
}
_GLUE_MISSING = (400, {"__type": "EntityNotFoundException", "Message": "no"})
FLAT = {"catalogs": "off"}

GLUE: Sequence[Case] = (
    Case("glue", "databases", "^GetDatabases$", _GLUE_DATABASES, asks("list_namespaces"), GLUE_EMPTY),
    Case("glue", "catalogs", "^GetCatalogs$", _GLUE_CATALOGS, asks("list_namespaces"), GLUE_EMPTY),
    Case(
        "glue",
        "catalogs above",
        "^GetCatalogs$",
        _GLUE_CATALOGS,
        asks("list_tables", "c", "n"),
        {"^GetTables$": _GLUE_TABLES},
        anew=True,
    ),
    Case(
        "glue",
        "a database",
        "^GetDatabase$",
        {"Database": _GLUE_DATABASE},
        asks("describe_namespace", "n"),
        properties=FLAT,
    ),
    Case(
        "glue",
        "a catalog",
        "^GetCatalog$",
        {"Catalog": _GLUE_CATALOG},
        asks("describe_namespace", "c"),
        {"^GetCatalogs$": _GLUE_CATALOGS, "^GetDatabase$": _GLUE_MISSING},
        anew=True,
    ),
    Case("glue", "tables", "^GetTables$", _GLUE_TABLES, asks("list_tables", "n"), GLUE_EMPTY, FLAT),
    Case(
        "glue",
        "tables in bulk",
        "^GetTables$",
        _GLUE_TABLES,
        many("n", count=9),
        {"^GetTable$": {"Table": _GLUE_TABLE}},
        FLAT,
        anew=True,
    ),
    Case(
        "glue",
        "tables to drop",
        "^GetTables$",
        _GLUE_TABLES,
        asks("drop_namespace", "n"),
        GLUE_EMPTY,
        FLAT,
        ends=NamespaceNotEmptyError,
    ),
    Case("glue", "a table", "^GetTable$", {"Table": _GLUE_TABLE}, asks("describe_table", "n", "t0"), GLUE_EMPTY, FLAT),
    Case(
        "glue",
        "where tables go",
        "^GetDatabase$",
        {"Database": _GLUE_DATABASE},
        asks("declare_table", "n", "t0"),
        {},
        FLAT,
    ),
)

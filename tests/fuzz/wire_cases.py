"""All kinds of responses of AWS Glue: a correct one, and the operation that causes it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from hypothesis import strategies as st
from lance_namespace.errors import NamespaceNotEmptyError

from tests.fakes.thrift_wire import BYTE, DOUBLE, I16, I64, REPLY, Message, Struct, Typed
from tests.fuzz.answering import ODD_TEXTS, PLACE, Case, asks, many

_glue, _hive = (partial(Case, impl) for impl in ("glue", "hive3"))
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
    _glue("databases", "^GetDatabases$", _GLUE_DATABASES, asks("list_namespaces"), GLUE_EMPTY),
    _glue("catalogs", "^GetCatalogs$", _GLUE_CATALOGS, asks("list_namespaces"), GLUE_EMPTY),
    _glue(
        "catalogs above",
        "^GetCatalogs$",
        _GLUE_CATALOGS,
        asks("list_tables", "c", "n"),
        {"^GetTables$": _GLUE_TABLES},
        anew=True,
    ),
    _glue(
        "a database", "^GetDatabase$", {"Database": _GLUE_DATABASE}, asks("describe_namespace", "n"), properties=FLAT
    ),
    _glue(
        "a catalog",
        "^GetCatalog$",
        {"Catalog": _GLUE_CATALOG},
        asks("describe_namespace", "c"),
        {"^GetCatalogs$": _GLUE_CATALOGS, "^GetDatabase$": _GLUE_MISSING},
        anew=True,
    ),
    _glue("tables", "^GetTables$", _GLUE_TABLES, asks("list_tables", "n"), GLUE_EMPTY, FLAT),
    _glue(
        "tables in bulk",
        "^GetTables$",
        _GLUE_TABLES,
        many("n", count=9),
        {"^GetTable$": {"Table": _GLUE_TABLE}},
        FLAT,
        anew=True,
    ),
    _glue(
        "tables to drop",
        "^GetTables$",
        _GLUE_TABLES,
        asks("drop_namespace", "n"),
        GLUE_EMPTY,
        FLAT,
        ends=NamespaceNotEmptyError,
    ),
    _glue("a table", "^GetTable$", {"Table": _GLUE_TABLE}, asks("describe_table", "n", "t0"), GLUE_EMPTY, FLAT),
    _glue("where tables go", "^GetDatabase$", {"Database": _GLUE_DATABASE}, asks("declare_table", "n", "t0"), {}, FLAT),
)

_HEAD = len(Message(REPLY, "", 0).encoded()) - 1
_TABLE = Struct({1: "t0", 2: "n", 7: Struct({2: "s3://lake/n/t0"}), 9: {"table_type": "lance", "k": "v"}})
_WHOLE = Struct({0: Struct({1: Struct({**_TABLE, 12: "EXTERNAL_TABLE", 8: []})})})
_TABLES = Struct({0: Struct({1: [_TABLE, Struct({**_TABLE, 1: "t1"})]})})
_DATABASE = Struct({0: Struct({1: "n", 2: "d", 3: "s3://lake/n", 4: {"k": "v"}, 6: "me", 7: 1})})
_CATALOG = Struct({0: Struct({1: Struct({1: "c", 2: "d", 3: "s3://lake"})})})
_NAMES = Struct({0: ["t0", "t1"]})
_ALL = {
    "get_table_names_by_filter": _NAMES,
    "get_all_tables": _NAMES,
    "get_database": _DATABASE,
    "get_catalog": _CATALOG,
}

HIVE: Sequence[Case] = (
    _hive("catalogs", "get_catalogs", Struct({0: Struct({1: ["c", "d"]})}), asks("list_namespaces")),
    _hive("a catalog", "get_catalog$", _CATALOG, asks("describe_namespace", "c")),
    _hive("databases", "get_databases", Struct({0: ["n", "m"]}), asks("list_namespaces", "c"), _ALL),
    _hive("a database", "get_database$", _DATABASE, asks("describe_namespace", "c", "n")),
    _hive("a new database", "create_database", Struct(), asks("create_namespace", "c", "n"), _ALL),
    _hive("names of tables", "by_filter", _NAMES, asks("list_tables", "c", "n"), _ALL),
    _hive("a table", "get_table_req", _WHOLE, asks("describe_table", "c", "n", "t0"), _ALL),
    _hive("tables in bulk", "objects_by_name", _TABLES, many("c", "n", count=3), {**_ALL, "get_table_req": _WHOLE}),
    _hive(
        "a declared table", "create_table", Struct(), asks("declare_table", "c", "n", "t0", location="s3://l/t0"), _ALL
    ),
    _hive("a renamed table", "get_table_req", _WHOLE, asks("rename_table", "c", "n", "t0", new_table_name="u"), _ALL),
    _hive(
        "a dropped table", "drop_table", Struct(), asks("deregister_table", "c", "n", "t0"), {"get_table_req": _WHOLE}
    ),
)

_ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(ODD_TEXTS),
    st.sampled_from([b"\xff\xfe", b"", True, 0, -1, Struct(), [], ["a"], {}, {"": ""}, {"table_type": "x"}, None]).map(
        copy.deepcopy
    ),
    st.sampled_from([[Struct()], [Struct({1: "t0"})], Struct({1: "odd"}), Struct({2: 7})]).map(copy.deepcopy),
    st.builds(Typed, st.just(BYTE), st.integers(-128, 127)),
    st.builds(Typed, st.just(I16), st.integers(-(2**15), 2**15 - 1)),
    st.builds(Typed, st.just(I64), st.integers(-(2**63), 2**63 - 1)),
    st.builds(Typed, st.just(DOUBLE), st.floats()),
)

ANY_RESULT: st.SearchStrategy[Struct] = st.recursive(
    st.dictionaries(st.integers(-1, 16), _ODD, max_size=4).map(Struct),
    lambda inner: st.dictionaries(st.integers(-1, 16), st.one_of(inner, _ODD), max_size=4).map(Struct),
    max_leaves=6,
)
"""The fields of any result."""


def _fields(value: Any) -> Iterator[tuple[Struct, int]]:
    if isinstance(value, list):
        for item in value:
            yield from _fields(item)
    if isinstance(value, Struct):
        for number, held in value.items():
            yield value, number
            yield from _fields(held)


@st.composite
def _mutated(draw: st.DrawFn, good: Struct) -> Struct:
    """Returns a correct result in which one to three fields are different."""
    value = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        fields = list(_fields(value)) or [(value, draw(st.integers(0, 5)))]
        held, number = draw(st.sampled_from(fields))
        held[draw(st.one_of(st.just(number), st.integers(0, 16)))] = draw(_ODD)
    return value


def results(good: Struct) -> st.SearchStrategy[bytes]:
    """Returns results on the wire instead of the correct one; incomplete ones are covered by the codec's own test."""
    return st.one_of(_mutated(good), _mutated(good), ANY_RESULT).map(
        lambda result: Message(REPLY, "", 0, result).encoded()[_HEAD:]
    )

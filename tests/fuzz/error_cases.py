"""Errors of each catalog with JSON: one in its own form, and the operation that causes it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.catalogs import SECRET
from tests.fuzz.answering import Case
from tests.fuzz.asks import NO_TOKEN, PLACE, VENDS, asks
from tests.fuzz.glue_cases import FLAT, GLUE_EMPTY
from tests.fuzz.iceberg_cases import ICEBERG_ERROR
from tests.fuzz.unity_cases import UNITY_TABLE

ERRORS: Sequence[Case] = (
    Case("iceberg", "an error", "GET .*/tables/", ICEBERG_ERROR, asks("describe_table", "n", "t0")),
    Case("iceberg", "an error of a write", "POST", ICEBERG_ERROR, asks("declare_table", "n", "t0", location=PLACE)),
    Case(
        "iceberg",
        "an error of a token",
        "/oauth/tokens",
        {"error": "invalid_client", "error_description": "no"},
        asks("list_tables", "n"),
        {},
        {"credential": f"id:{SECRET}"},
        NO_TOKEN,
        anew=True,
    ),
    Case("polaris", "an error", "GET", ICEBERG_ERROR, asks("describe_table", "c", "n", "t0")),
    Case(
        "unity",
        "an error",
        "GET",
        {"error_code": "NOT_FOUND", "message": "Table not found: c.n.t0", "details": []},
        asks("describe_table", "c", "n", "t0"),
    ),
    Case(
        "unity",
        "an error of credentials",
        "POST",
        {"error_code": "PERMISSION_DENIED", "message": "no"},
        asks("describe_table", "c", "n", "t0", **VENDS),
        {"/tables/": UNITY_TABLE},
        anew=True,
    ),
    Case(
        "glue",
        "an error",
        "^GetTable$",
        {"__type": "EntityNotFoundException", "Message": "no"},
        asks("describe_table", "n", "t0"),
        GLUE_EMPTY,
        FLAT,
    ),
)

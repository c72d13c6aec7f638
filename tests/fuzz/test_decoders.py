"""After any response of a catalog, users soon get a valid value or an error of the spec, without a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance_namespace.errors import LanceNamespaceError
from pydantic import BaseModel

from lance_ns_async import BulkResult, Table
from lance_ns_async.model import Id
from tests.faults.catalogs import SECRET
from tests.faults.operations import outcome
from tests.fuzz.answering import NO_TOKEN, PLACE, VENDS, Asking, Case, asking, asks, bodies, changed, paths
from tests.fuzz.http_cases import ICEBERG, ICEBERG_ERROR, POLARIS, UNITY, UNITY_TABLE
from tests.fuzz.wire_cases import FLAT, GLUE, GLUE_EMPTY, HIVE, results
from tests.support.budget import examples

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

STATUSES = [400, 401, 403, 404, 405, 406, 409, 418, 422, 429, 500, 501, 502]


@pytest.fixture
def client(case: Case) -> Iterator[Asking]:
    with asking(case) as client:
        yield client


@pytest.mark.parametrize("case", [*ICEBERG, *POLARIS, *UNITY, *GLUE], ids=str)
def test_an_answer_of_json_is_understood_or_refused(client: Asking, case: Case) -> None:
    good = decode(client, json.dumps(case.good).encode())
    assert isinstance(good, case.ends) if case.ends else not isinstance(good, LanceNamespaceError), repr(good)

    @settings(max_examples=examples(20))
    @given(bodies(case.good))
    def check(body: bytes) -> None:
        decode(client, body)

    check()


@pytest.mark.parametrize("case", [case for case in (*ICEBERG, *POLARIS, *UNITY) if case.secret is not None], ids=str)
def test_secrets_in_other_places_are_redacted(client: Asking, case: Case) -> None:
    assert case.secret is not None
    for path in paths(case.good):
        if path[: len(case.secret)] == case.secret:
            decode(client, json.dumps(changed(case.good, path, SECRET)).encode())


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_an_error_is_one_of_the_specs(client: Asking, case: Case) -> None:

    @settings(max_examples=examples(60))
    @given(st.sampled_from(STATUSES), bodies(case.good))
    def check(status: int, body: bytes) -> None:
        decode(client, body, status)

    check()


@pytest.mark.parametrize("case", HIVE, ids=str)
def test_an_answer_of_thrift_is_understood_or_refused(client: Asking, case: Case) -> None:

    @settings(max_examples=examples(60))
    @given(results(case.good))
    def check(result: bytes) -> None:
        decode(client, result)

    check()


def decode(client: Asking, answer: bytes, status: int = 200) -> object:
    async def ask() -> object:
        client.server.answer, client.server.status = answer, status
        async with client.namespace() as ns:
            return await outcome(client.case.ask(ns))

    result = client.runner.run(ask())
    check_sound(result)
    return result


def check_sound(value: object) -> None:
    match value:
        case LanceNamespaceError():
            pass
        case BaseModel():
            assert type(value).model_validate(value.model_dump(by_alias=True)) == value
        case BulkResult(tables, errors):
            assert all(table.id == id for id, table in tables.items())
            for table in tables.values():
                check_table(table)
            assert all(isinstance(error, LanceNamespaceError) for error in errors.values())
        case list():
            assert all(isinstance(id, Id) and all(isinstance(name, str) for name in id) for id in value)
        case _:
            raise AssertionError(f"{value!r} is none of the answers there are")


def check_table(table: Table) -> None:
    assert isinstance(table.location, str)
    for texts in (table.properties, table.storage_options):
        assert texts is None or are_texts(texts)


def are_texts(values: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) and isinstance(value, str) for key, value in values.items())

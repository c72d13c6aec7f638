"""A search of many tables in one request to the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import ErrorCode, InternalError, PermissionDeniedError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.gateway import Gateway, MountedNamespace, serving
from lance_ns_async.many.row_results import decode
from lance_ns_async.storage.arrow import file
from tests.support.gateway import ask
from tests.unit.gateway.test_rights import gateway_for

SEARCH = "/v1/table/search"
ROWS = pa.table({"id": [1, 2], "vector": pa.array([[0.0, 1.0], [1.0, 0.0]], pa.list_(pa.float32(), 2))})
ANN: Mapping[str, Mapping[str, Any]] = {"ann": {"rights": "read", "only": ["s.pub_*"]}, "owner": {"rights": "admin"}}


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as opened:
        for parent in ("s", "hidden"):
            await opened.create_namespace([parent])
        for id in ("s.pub_a", "s.secret", "hidden.t"):
            await opened.write(id, ROWS)
        yield opened


def client(gateway: Gateway, name: str) -> AsyncNamespace:
    properties = {"uri": gateway.url, "data_operations": "remote", "header.x-lance-token": name}
    return AsyncNamespace.connect("rest", properties)


async def test_a_client_searches_what_it_may_see(ns: AsyncNamespace, tmp_path: Path) -> None:
    async with gateway_for(ns, tmp_path, ANN) as gateway:
        async with client(gateway, "ann") as ann:
            found = await ann.search_many("**", vector=[0, 1], columns=["id"])
            assert found.searched == [TableId("s$pub_a")] and not found.errors
            assert {row["_table"] for row in found.rows.to_pylist()} == {"s$pub_a"}
            found = await ann.search_many(["s.pub_a", "s.pub_b", "s.secret"], vector=[0, 1])
            assert {str(id): type(error) for id, error in found.errors.items()} == {
                "s$secret": PermissionDeniedError,
                "s$pub_b": TableNotFoundError,
            }
        async with client(gateway, "owner") as owner:
            assert len((await owner.search_many("**", vector=[0, 1])).searched) == 3


async def test_rights_hold_before_a_server_that_searches_itself(ns: AsyncNamespace, tmp_path: Path) -> None:
    async with serving(ns) as inner, client(inner, inner.token) as upstream:
        async with gateway_for(upstream, tmp_path, ANN) as gateway, client(gateway, "ann") as ann:
            found = await ann.search_many("**", vector=[0, 1], columns=["id"])
            assert found.searched == [TableId("s$pub_a")] and found.rows.num_rows == 2 and not found.errors


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tables": ["s.secret"], "vector": [0, 1]}, ErrorCode.PERMISSION_DENIED),
        ({"tables": [], "vector": [0, 1]}, ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"]}, ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "k": 10**9}, ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "nprobes": 3}, ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "query_fields": {"k": 3}}, ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "query_fields": {"include": None}}, ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "filter": "sleep(9) > 1"}, ErrorCode.INVALID_INPUT),
        ({"tables": ["s.*"], "vector": [0, 1], "timeout": 0}, ErrorCode.INVALID_INPUT),
    ],
)
async def test_invalid_requests_are_refused(
    ns: AsyncNamespace, tmp_path: Path, fields: Mapping[str, Any], code: ErrorCode
) -> None:
    async with gateway_for(ns, tmp_path, ANN) as gateway:
        answer = await ask(gateway, "POST", SEARCH, fields, {"x-lance-token": "ann"})
        assert answer.code == code


async def test_without_one_catalog_tables_are_searched_one_by_one(ns: AsyncNamespace) -> None:
    async with serving(MountedNamespace({"a": ns})) as gateway, client(gateway, gateway.token) as mounted:
        found = await mounted.search_many("a.s.*", vector=[0, 1], columns=["id"])
        assert {str(id) for id in found.searched} == {"a$s$pub_a", "a$s$secret"} and not found.errors


def test_a_response_that_is_not_of_a_search_is_an_error() -> None:
    for data in (
        b"rows",
        file(ROWS.to_reader()),
        file(ROWS.replace_schema_metadata({"lance_ns.search": "{"}).to_reader()),
    ):
        with pytest.raises(InternalError):
            decode(data)

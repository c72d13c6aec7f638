"""Operations that lancedb can delegate to the namespace."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace import QueryTableRequest

from lance_ns_async import Call
from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.lancedb_tables import ROWS, async_connected, connected, ids

REFUSED = "a bytes-like object is required, not 'QueryTableResponse'"


def test_queries_that_are_left_to_us_fail_in_lancedb(catalog: Catalog, home: list[str]) -> None:
    """Our response is the model of the spec, which lancedb 0.40 does not know: it expects bytes."""
    with connected(catalog, "QueryTable") as db:
        table = db.create_table("t", ROWS, namespace_path=home)
        for query in (table.search([1.0, 0.0]), table.search().where("id > 7")):
            with pytest.raises(TypeError, match=REFUSED):
                query.to_list()
        with pytest.raises(TypeError, match=REFUSED):
            table.to_arrow()
        # Operations other than queries are not delegated to us.
        assert table.count_rows() == 10
        assert table.add(ROWS).version == 2
        assert "KNN" in table.search([1.0, 0.0]).explain_plan()
        # The response is available to a client that accepts it.
        request = QueryTableRequest(id=[*home, "t"], k=1, vector={"single_vector": [3.0, 0.0]}, vector_column="vector")
        assert db.namespace_client().query_table(request).data


async def test_so_do_async_ones_but_for_searches_by_vector(catalog: Catalog, home: list[str]) -> None:
    async with async_connected(catalog, "QueryTable") as db:
        table = await db.create_table("t", ROWS, namespace_path=home)
        with pytest.raises(RuntimeError, match="'QueryTableResponse' object is not an instance of 'Sequence'"):
            await table.query().where("id > 7").to_list()
        with pytest.raises(TypeError, match=REFUSED):
            await table.to_arrow()
        assert ids(await (await table.search([9.0, 0.0])).limit(1).to_list()) == [9]
        assert await table.count_rows() == 10


def test_created_tables_are_declared(catalog: Catalog, home: list[str]) -> None:
    operations: list[Any] = []
    with connected(catalog, "CreateTable") as db:

        def tell(call: Call) -> None:
            operations.append(call.operation)

        with db.namespace_client().observe(tell):
            assert db.create_table("t", ROWS, namespace_path=home).count_rows() == 10
        assert "declare_table" in operations
        assert db.open_table("t", namespace_path=home).search([3.0, 0.0]).limit(1).to_list()[0]["id"] == 3

"""lancedb's own REST namespace on catalogs behind our gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import lancedb
import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import TableNotFoundError

from tests.ecosystem.catalogs import TOKEN, Catalog, on_served
from tests.ecosystem.lancedb_tables import ROWS, ids

pytestmark = on_served
MORE = [{"id": 10, "vector": [10.0, 0.0]}]
PUSHDOWN = pytest.mark.parametrize("pushdown", [[], ["QueryTable"]])


def queries(rest: Mapping[str, str]) -> int:
    """Returns the number of queries that the server has run."""
    request = Request(f"{rest['uri']}/metrics", headers={"x-lance-token": TOKEN})
    with build_opener(ProxyHandler({})).open(request) as answer:
        result = re.search(
            r'lance_ns_requests_total\{operation="query_table",code="200"\} (\d+)', answer.read().decode()
        )
    return int(result[1]) if result else 0


@PUSHDOWN
def test_a_table_lives_and_ends(rest: Mapping[str, str], catalog: Catalog, pushdown: list[str]) -> None:
    db = lancedb.connect_namespace("rest", {**rest}, namespace_client_pushdown_operations=pushdown)
    n = [*catalog.above, "served"]
    db.create_namespace(n)
    db.create_table("t", ROWS, namespace_path=n)
    assert db.list_tables(n).tables == ["t"]
    location: str = db.namespace_client().describe_table(DescribeTableRequest(id=[*n, "t"])).location
    place = Path(urlsplit(location).path)
    assert place.is_dir()
    table = db.open_table("t", namespace_path=n)
    table.add(MORE)
    assert ids(table.search([9.6, 0.0]).limit(2).to_list()) == [9, 10]
    before = queries(rest)
    assert ids(table.search().where("id > 7").to_list()) == [8, 9, 10]
    # lancedb 0.40 runs searches by vector itself in any case.
    assert queries(rest) - before == len(pushdown)
    db.drop_table("t", namespace_path=n)
    assert not place.exists()
    with pytest.raises(TableNotFoundError, match=r"Table not found: .*served\$t"):
        db.open_table("t", namespace_path=n)
    db.drop_namespace(n)


@PUSHDOWN
async def test_so_it_does_async(rest: Mapping[str, str], catalog: Catalog, pushdown: list[str]) -> None:
    db = lancedb.connect_namespace_async("rest", {**rest}, namespace_client_pushdown_operations=pushdown)
    n = [*catalog.above, "served"]
    await db.create_namespace(n)
    await db.create_table("t", ROWS, namespace_path=n)
    assert (await db.list_tables(n)).tables == ["t"]
    table = await db.open_table("t", namespace_path=n)
    await table.add(MORE)
    assert ids(await (await table.search([9.6, 0.0])).limit(2).to_list()) == [9, 10]
    assert ids(await table.query().where("id > 7").to_list()) == [8, 9, 10]
    await db.drop_table("t", namespace_path=n)
    with pytest.raises(TableNotFoundError, match=r"Table not found: .*served\$t"):
        await db.open_table("t", namespace_path=n)
    await db.drop_namespace(n)

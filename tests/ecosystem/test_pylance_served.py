"""pylance's own REST namespace on catalogs behind our gateway."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import lance
import lance_namespace
import lance_namespace as spec
import pyarrow as pa
import pytest
from lance_namespace.errors import TableNotFoundError

from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.pylance_tables import ids, opened, write
from tests.ecosystem.served import on_served

ROWS = pa.table({"id": [1, 2], "v": pa.array([[0.0, 1.0], [5.0, 5.0]], pa.list_(pa.float32(), 2))})


@on_served
def test_a_table_lives_and_ends(rest: Mapping[str, str], catalog: Catalog) -> None:
    n = [*catalog.above, "served"]
    t = [*n, "t"]
    ns: Any = lance_namespace.connect("rest", {**rest})
    ns.create_namespace(spec.CreateNamespaceRequest(id=n))
    write(ns, t, ROWS)
    assert ns.list_tables(spec.ListTablesRequest(id=n)).tables == ["t"]
    location: str = ns.describe_table(spec.DescribeTableRequest(id=t)).location
    place = Path(urlsplit(location).path)
    assert place.is_dir()
    write(ns, t, ROWS, mode="append")
    assert ids(ns, t) == [1, 1, 2, 2]
    assert ns.count_table_rows(spec.CountTableRowsRequest(id=t)).count == 4
    nearest = opened(ns, t).to_table(nearest={"column": "v", "q": [4.0, 4.0], "k": 2})
    assert nearest["id"].to_pylist() == [2, 2]
    ns.drop_table(spec.DropTableRequest(id=t))
    assert not place.exists()
    with pytest.raises(TableNotFoundError, match=r"Table not found: .*served\$t"):
        lance.dataset(namespace_client=ns, table_id=t)
    ns.drop_namespace(spec.DropNamespaceRequest(id=n))

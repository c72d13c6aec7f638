"""DuckDB's extension `lance` on tables behind the gateway: `nox -s duckdb-extension`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pytest

from lance_ns_async import Namespace
from tests.support.gateway import served

pytestmark = pytest.mark.integration
Ask: TypeAlias = Callable[[str], Any]  # Returns the rows of a statement


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        for id in ("shops", "shops.north"):
            ns.create_namespace({"id": id.split(".")})
        for id in (*(f"shops.t{n}" for n in range(20)), "shops.north.deep"):
            ns.write(id, pa.table({"id": [1, 2, 3], "customer": [7, 8, 7], "price": [5.0, 8.0, 2.5]}))
        ns.write("shops.customers", pa.table({"id": [7, 8], "name": ["Ann", "Bo"]}))
        yield ns


@pytest.fixture
def ask(lake: Namespace, tmp_path: Path) -> Iterator[Ask]:
    folder = Path(str(files("duckdb_extension_lance")))
    with served("dir", {"root": str(tmp_path)}) as gateway, duckdb.connect() as db:
        db.load_extension(str(next(folder.rglob("lance.duckdb_extension"))))
        attach = f"ATTACH '{{}}' AS {{}} (TYPE LANCE, ENDPOINT '{gateway.url}', BEARER_TOKEN '{{}}')"
        with pytest.raises(duckdb.IOException, match="the gateway's token is wrong"):
            db.execute(attach.format("shops", "shops", "wrong"))
        for id, name in (("shops", "shops"), ("shops$north", "north")):
            db.execute(attach.format(id, name, gateway.token))
        yield lambda statement: db.execute(statement).fetchall()


def test_tables_are_queried_and_changed(ask: Ask, lake: Namespace) -> None:
    assert ask("SELECT count(*) FROM shops.main.t0") == [(3,)] and ask("SELECT max(id) FROM north.main.deep") == [(3,)]
    assert ask("SELECT id FROM shops.main.t1 WHERE price > 4 ORDER BY id") == [(1,), (2,)]
    join = "shops.main.t0 JOIN shops.main.customers c ON customer = c.id"
    assert ask(f"SELECT name, sum(price) FROM {join} GROUP BY ALL ORDER BY ALL") == [("Ann", 7.5), ("Bo", 8.0)]
    every = " UNION ALL ".join(f"FROM shops.main.t{n}" for n in range(20))
    assert ask(f"SELECT count(*), sum(price) FROM ({every})") == [(60, 310.0)]
    changes = ("INSERT INTO {} VALUES (4, 8, 1)", "UPDATE {} SET price = 6 WHERE id > 2", "DELETE FROM {} WHERE id < 4")
    ask(";".join(changes).format(*["shops.main.t0"] * 3))
    assert lake.open("shops.t0").to_table().to_pylist() == [{"id": 4, "customer": 8, "price": 6.0}]


def test_a_table_of_that_name_at_the_root_is_read_instead(ask: Ask, lake: Namespace) -> None:
    """The extension first asks for the name without its namespace; the page about engines warns of it."""
    lake.write("t5", pa.table({"other": [1]}))
    assert ask("FROM shops.main.t5") == [(1,)]

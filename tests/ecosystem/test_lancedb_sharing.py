"""One connection in many threads, and connections that are sent to other processes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lancedb
import pytest
from lance_namespace.errors import TableNotFoundError

import lance_ns_async
from tests.ecosystem.catalogs import Catalog, on_one_catalog
from tests.ecosystem.lancedb_tables import ROWS

WORKER = """
import json, sys
import lancedb
sent = json.load(sys.stdin)
db = lancedb.deserialize_conn(sent["connection"])
table = db.open_table("t", namespace_path=sent["home"])
table.add([{"id": 10, "vector": [10.0, 0.0]}])
print(table.count_rows())
"""


def test_threads_share_a_connection(db: Any, home: list[str]) -> None:
    def live(n: int) -> int:
        name = f"t{n:02}"
        db.create_table(name, ROWS[: n % 10 + 1], namespace_path=home)
        rows: int = db.open_table(name, namespace_path=home).count_rows()
        assert db.table_exists([*home, name])
        with pytest.raises(TableNotFoundError):
            db.open_table(f"no{n}", namespace_path=home)
        if n % 2:
            db.drop_table(name, namespace_path=home)
        return rows

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(live, range(16))) == [n % 10 + 1 for n in range(16)]
    assert db.list_tables(home).tables == [f"t{n:02}" for n in range(0, 16, 2)]


def test_threads_write_to_one_table(db: Any, home: list[str]) -> None:
    db.create_table("t", ROWS, namespace_path=home)

    def add(n: int) -> None:
        db.open_table("t", namespace_path=home).add([{"id": n, "vector": [0.0, 0.0]}])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(100, 108)))
    assert db.open_table("t", namespace_path=home).count_rows("id >= 100") == 8


def test_a_connection_is_sent_as_text(db: Any, catalog: Catalog, home: list[str]) -> None:
    db.create_table("t", ROWS, namespace_path=home)
    text = db.serialize()
    sent = json.loads(text)
    assert (sent["namespace_client_impl"], sent["namespace_client_properties"]) == (
        catalog.class_path,
        catalog.properties,
    )
    received = lancedb.deserialize_conn(text)
    with received.namespace_client() as namespace:
        assert received.open_table("t", namespace_path=home).count_rows() == 10
        # A cached description for one is therefore valid for the other.
        assert namespace.namespace_id() == db.namespace_client().namespace_id()


@on_one_catalog
def test_a_connection_works_in_another_process(db: Any, home: list[str]) -> None:
    db.create_table("t", ROWS, namespace_path=home)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WORKER],
        input=json.dumps({"connection": db.serialize(), "home": home}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "11"), done.stderr
    assert db.open_table("t", namespace_path=home).count_rows() == 11


def test_lancedb_itself_pickles_nothing_and_its_namespace_does(db: Any, home: list[str]) -> None:
    table = db.create_table("t", ROWS, namespace_path=home)
    for thing in (db, table):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(thing)
    with pickle.loads(pickle.dumps(db.namespace_client())) as namespace:
        assert namespace.exists([*home, "t"])


def test_a_short_name_connects_in_this_process(catalog: Catalog, home: list[str]) -> None:
    lance_ns_async.register()
    db = lancedb.connect_namespace(f"lance-ns-{catalog.impl}", dict(catalog.properties))
    with db.namespace_client():
        assert db.create_table("t", ROWS, namespace_path=home).count_rows() == 10

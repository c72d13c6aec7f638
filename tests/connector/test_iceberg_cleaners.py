"""Iceberg's own tools on Lance tables in an Iceberg catalog: what they delete, and what prevents it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import lance
import pyarrow as pa

from lance_ns_async import Namespace
from lance_ns_async.spark.maven import classpath
from tests.servers.iceberg_rest import IcebergRest

REMOVE = "CALL ice.system.remove_orphan_files(table => '{table}')"
PURGE = "DROP TABLE ice.{table} PURGE"

_SPARK = """
import json, sys
from lance_ns_async.spark.local import local_spark

jar, uri, statements = json.loads(sys.argv[1])
session = local_spark("cleaners", cores=1, config={
    "spark.driver.extraClassPath": jar,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "rest",
    "spark.sql.catalog.ice.uri": uri,
})
for statement in statements:
    try:
        session.sql(statement).collect()
        print(json.dumps("ok"))
    except Exception as e:
        print(json.dumps(str(e)))
"""
"""Runs statements by Spark with Iceberg's runtime, in a separate process, because each JVM has one class path."""

DAYS_AGO = 3 * 86_400  # Age of files; younger files are never treated as orphans


def spark(server: IcebergRest, *statements: str) -> list[str]:
    """Returns the outcome of each statement: `ok`, or the error."""
    [jar] = classpath("iceberg-spark", ["org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.11.0"], exclusions=["*:*"])
    arguments = json.dumps([str(jar), server.endpoint, statements])
    done = subprocess.run([sys.executable, "-c", _SPARK, arguments], check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def connect(server: IcebergRest, root: Path, **properties: str) -> Namespace:
    return Namespace.connect("iceberg", {"endpoint": server.endpoint, "root": root.as_uri(), **properties})


def written(ns: Namespace, namespace: str, name: str) -> str:
    """Returns a table of three fragments, old enough to be treated as orphans."""
    id = [namespace, name]
    ns.declare_table({"id": id, "properties": {"managed_by": "impl"} if name == "managed" else {}})
    for start in (0, 10, 20):
        ns.write(id, pa.table({"id": range(start, start + 10)}), mode="append")
    location = ns.describe_table({"id": id}).location
    assert location is not None
    for path in Path(location.removeprefix("file://")).rglob("*"):
        before = path.stat().st_mtime - DAYS_AGO
        os.utime(path, (before, before))
    return location


def counted(location: str) -> Mapping[str, Any]:
    """Returns the numbers of rows and fragments whose files exist."""
    data = Path(location.removeprefix("file://")) / "data"
    try:
        rows = lance.dataset(location).to_table().num_rows
    except (OSError, ValueError):
        rows = None
    return {"rows": rows, "files": len(list(data.glob("*.lance"))) if data.exists() else 0}


WHOLE = {"rows": 30, "files": 3}


def test_cleaners_delete_what_is_not_protected_and_leave_what_is(server: IcebergRest, tmp_path: Path) -> None:
    with connect(server, tmp_path, gc_enabled="true") as unprotected, connect(server, tmp_path) as ns:
        for name in ("db", "old"):
            ns.create_namespace({"id": [name]})
        places = {f"db.{name}": written(unprotected, "db", name) for name in ("cleaned", "purged")}
        places |= {f"db.{name}": written(ns, "db", name) for name in ("kept", "managed", "unpurged")}
        places |= {f"old.{name}": written(unprotected, "old", name) for name in ("kept", "unpurged")}
        assert [str(id) for id in ns.protect_tables(["old"])] == ["old$kept", "old$unpurged"]
        assert {table: counted(place) for table, place in places.items()} == dict.fromkeys(places, WHOLE)
        allowed = [REMOVE.format(table="db.cleaned"), PURGE.format(table="db.purged")]
        refused = [REMOVE.format(table=table) for table in ("db.kept", "db.managed", "old.kept")]
        refused += [PURGE.format(table=table) for table in ("db.unpurged", "old.unpurged")]
        became = spark(server, *allowed, *refused)
        assert became[:2] == ["ok", "ok"]
        assert ["GC is disabled" in it for it in became[2:]] == [True] * len(refused)
        # Without the property, the rows or the name would be lost.
        assert counted(places.pop("db.cleaned")) == {"rows": None, "files": 0}
        assert not ns.exists(["db", "purged"])
        assert {table: counted(place) for table, place in places.items()} == dict.fromkeys(places, WHOLE)
        for table in places.keys() - {"db.purged"}:
            assert ns.open(table.split(".")).count_rows() == WHOLE["rows"]


def test_a_purge_by_rest_removes_the_name_and_leaves_the_rows(server: IcebergRest, tmp_path: Path) -> None:
    """The property does not prevent this: the server deletes its own metadata files and no others."""
    with connect(server, tmp_path) as ns:
        ns.create_namespace({"id": ["rest"]})
        place = written(ns, "rest", "t")
        path = f"{server.endpoint}/v1/namespaces/rest/tables/t?purgeRequested=true"
        assert httpx.delete(path, trust_env=False).status_code == 204
        assert not ns.exists(["rest", "t"])
        assert counted(place) == WHOLE
        assert not list((Path(place.removeprefix("file://")) / "metadata").glob("*.json"))

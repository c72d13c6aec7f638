"""The endpoint in a Spark session: its configuration, its lifetime and its errors."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from textwrap import dedent
from typing import cast
from urllib.parse import urlsplit

import pytest
from lance_namespace.errors import InvalidInputError
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as RemoteSession

from lance_ns_async import AsyncNamespace
from lance_ns_async.spark import LocationResolver
from tests.connector.lake import MARKS, Ask, Lake

pytestmark = MARKS


def settings(spark: SparkSession, catalog: str) -> dict[str, str]:
    """Returns the session's settings for a catalog, as Spark shows them."""
    shown = {row.key: row.value for row in spark.sql("SET").collect()}
    return {key: value for key, value in shown.items() if key.startswith(f"spark.sql.catalog.{catalog}")}


def setting(spark: SparkSession, key: str) -> str:
    result = spark.conf.get(f"spark.sql.catalog.{key}")
    assert result is not None
    return result


def status(uri: str, **headers: str) -> int:
    connection = HTTPConnection(urlsplit(uri).netloc, timeout=30)
    try:
        connection.request("POST", "/v1/table/db%24t/describe", json.dumps({"id": ["db", "t"]}), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_nothing_is_left(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    threads = set(threading.enumerate())
    with lake.prefetch().serve(spark, catalog, resolver=lake.resolver):
        uri = setting(spark, f"{catalog}.uri")
        assert ask(f"SELECT count(*) FROM {catalog}.db.t") == [(10,)]
        assert settings(spark, catalog)
    assert settings(spark, catalog) == {}
    assert [thread.name for thread in set(threading.enumerate()) - threads if "lance-ns" in thread.name] == []
    with pytest.raises(ConnectionRefusedError):
        status(uri)
    with pytest.raises(ZeroDivisionError), lake.prefetch().serve(spark, f"{catalog}_again"):
        _ = 1 / 0
    assert settings(spark, f"{catalog}_again") == {}


def test_the_token_is_wanted_and_not_shown(spark: SparkSession, lake: Lake, catalog: str) -> None:
    lake.write("t")
    key = f"{catalog}.headers.x-lance-token"
    with lake.prefetch().serve(spark, catalog) as served:
        uri, token = setting(spark, f"{catalog}.uri"), setting(spark, key)
        shown = settings(spark, catalog)
        assert "redacted" in shown[f"spark.sql.catalog.{key}"]
        texts = [*shown.values(), spark.sql(f"SET `spark.sql.catalog.{key}`").collect()[0]["value"], repr(served)]
        assert spark.table(f"{catalog}.db.t").count() == 10
        executions = spark._jsparkSession.sharedState().statusStore().executionsList()
        texts += [executions.apply(n).modifiedConfigs().toString() for n in range(executions.size())]
        assert any(uri in text for text in texts)
        assert [text for text in texts if token in text] == []
        assert status(uri, **{"x-lance-token": token}) == 200
        assert status(uri, **{"x-lance-token": f"{token}x"}) == 401
        assert status(uri) == 401


def test_another_token_is_reported_to_the_user(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        spark.conf.set(f"spark.sql.catalog.{catalog}.headers.x-lance-token", "another")
        with pytest.raises(Py4JJavaError, match="401 Unauthorized"):
            ask(f"SELECT * FROM {catalog}.db.t")


def test_a_name_may_be_served_again_and_two_at_once(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    for n in range(1, 4):
        lake.write(f"t{n}", rows=n)
        with lake.prefetch(f"db.t{n}").serve(spark, catalog):
            assert ask(f"SELECT count(*) FROM {catalog}.db.t{n}") == [(n,)]
    with lake.prefetch("db.t2").serve(spark, catalog), lake.prefetch("db.t3").serve(spark, f"{catalog}_u"):
        assert ask(f"SELECT count(*) FROM {catalog}.db.t2 JOIN {catalog}_u.db.t3 USING (id)") == [(2,)]


def test_a_name_that_is_taken_or_none_is_refused(spark: SparkSession, lake: Lake, catalog: str) -> None:
    lake.write("t")
    locations = lake.prefetch()
    with locations.serve(spark, catalog):
        with pytest.raises(
            InvalidInputError, match=rf"catalog '{catalog}': the session already has a catalog of this name"
        ):
            locations.serve(spark, catalog).__enter__()
        assert spark.table(f"{catalog}.db.t").count() == 10
    with pytest.raises(InvalidInputError, match="'spark_catalog': Spark has loaded a catalog of this name"):
        locations.serve(spark, "spark_catalog").__enter__()
    for name in ("", "a.b", "a b", "`"):
        with pytest.raises(InvalidInputError, match="not a valid catalog name"):
            locations.serve(spark, name).__enter__()


def test_an_address_that_is_taken_by_now_is_reported(spark: SparkSession, lake: Lake, catalog: str) -> None:
    lake.write("t")
    locations = lake.prefetch()
    with locations.serve(spark, catalog):
        port = urlsplit(setting(spark, f"{catalog}.uri")).port
        assert spark.table(f"{catalog}.db.t").count() == 10
    with socket.create_server(("127.0.0.1", port or 0)):
        with pytest.raises(InvalidInputError, match=f"catalog '{catalog}': .*port {port}.*set another name"):
            locations.serve(spark, catalog).__enter__()
    assert settings(spark, catalog) == {}


def test_requests_after_the_end_get_an_error(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        frame = spark.table(f"{catalog}.db.t")
    with pytest.raises(Py4JJavaError, match="error sending request for url"):
        frame.count()
    with pytest.raises(Py4JJavaError, match="error sending request for url"):
        ask(f"SELECT * FROM {catalog}.db.t")


def test_a_closed_resolver_is_reported(spark: SparkSession, tmp_path: Path, catalog: str) -> None:
    lake = Lake(tmp_path)
    lake.write("t")
    locations = lake.prefetch()
    lake.namespace.close()
    with pytest.raises(InvalidInputError, match=r"it is closed; connect anew$"):
        locations.serve(spark, catalog, resolver=lake.resolver).__enter__()
    with locations.serve(spark, catalog):
        assert spark.table(f"{catalog}.db.t").count() == 10


async def test_an_async_namespace_cannot_be_used(spark: SparkSession, lake: Lake, catalog: str) -> None:
    async with AsyncNamespace.connect("dir", {"root": "elsewhere"}) as namespace:
        with pytest.raises(InvalidInputError, match="whose event loop is blocked while Spark plans"):
            lake.prefetch().serve(spark, catalog, resolver=LocationResolver(namespace)).__enter__()


def test_spark_connect_is_refused(lake: Lake) -> None:
    # Nothing listens at this address, because a session connects at its first use.
    remote = RemoteSession("sc://127.0.0.1:1")
    try:
        with pytest.raises(InvalidInputError, match="a Spark Connect session, whose server cannot reach"):
            lake.prefetch().serve(cast(SparkSession, remote)).__enter__()
    finally:
        remote.client.close()


def test_storage_options_about_to_expire_are_warned_of(spark: SparkSession, tmp_path: Path, catalog: str) -> None:
    lake = Lake(tmp_path, expires_at_millis=str(int((time.time() + 300) * 1000)))
    lake.write("t")
    with pytest.warns(
        UserWarning, match=r"of 1 tables expire in \d+ s, and a Spark read or write keeps the options"
    ) as caught:
        with lake.prefetch().serve(spark, catalog):
            assert spark.table(f"{catalog}.db.t").count() == 10
    # Spark's own tables are among them.
    assert [warned.filename for warned in caught if "storage options" in str(warned.message)] == [__file__]
    lake.namespace.close()


def test_the_errors_name_the_missing_connector(tmp_path: Path) -> None:
    """In a process without the connector, which serves locations, and asks for the connector."""
    program = """
        import sys
        import traceback
        from lance_ns_async import Namespace
        from lance_ns_async.spark import LocationResolver
        from lance_ns_async.spark.local import local_spark

        spark = local_spark(cores=1)
        locations = LocationResolver(Namespace.connect("dir", {"root": sys.argv[1]})).prefetch("db.*")
        try:
            locations.serve(spark).__enter__()
        except Exception:
            traceback.print_exc()
        try:
            local_spark(connector=True)
        finally:
            spark.stop()
    """
    command = [sys.executable, "-c", dedent(program), str(tmp_path)]
    errors = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "InvalidInputError: serve: the Lance connector is not on Spark's class path" in errors
    assert "local_spark(connector=True)" in errors and "spark.driver.extraClassPath" in errors
    assert "InvalidInputError: local_spark: this process has started Spark without the connector" in errors

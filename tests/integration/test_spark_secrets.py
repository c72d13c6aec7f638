"""A Spark job whose tables have secrets: they appear in no event log, no output and no command line."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SECRET = "hush-hush-4711"

JOB = """
import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

from lance_ns_async import Namespace
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.local import local_spark

root, log, secret = Path(sys.argv[1]), sys.argv[2], sys.stdin.read()
with Namespace.connect("dir", {"root": str(root), "storage.aws_secret_access_key": secret}) as ns:
    ns.create_namespace(CreateNamespaceRequest(id=["db"]))
    location = ns.declare_table(DeclareTableRequest(id=["db", "t"])).location
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), location, mode="overwrite")
    config = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": log, "spark.eventLog.compress": "false"}
    spark = local_spark("secrets", cores=2, config=config)
    frame = LocationResolver(ns).prefetch("db.t", progress=False).dataframe(spark)
    frame.createOrReplaceTempView("secretly")
    assert spark.sql("select * from secretly where id > 1").count() == 2
    frame.explain("extended")
    # The job and all that it started, and nobody else.
    session = str(os.getsid(0))
    subprocess.run(["ps", "-ww", "-o", "args=", "-s", session], check=True)
    spark.stop()
"""


def test_event_log_output_and_command_lines_tell_no_secret(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    line = [sys.executable, "-c", textwrap.dedent(JOB), str(tmp_path / "lake"), str(tmp_path / "log")]
    done = subprocess.run(line, input=SECRET, capture_output=True, text=True, timeout=300, start_new_session=True)
    assert done.returncode == 0, done.stderr
    assert "org.apache.spark.deploy.SparkSubmit" in done.stdout and "== Physical Plan ==" in done.stdout
    logged = [file.read_text() for file in (tmp_path / "log").rglob("*") if file.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text and "secretly" in text for text in logged)
    assert not [text for text in (done.stdout, done.stderr, *logged) if SECRET in text]

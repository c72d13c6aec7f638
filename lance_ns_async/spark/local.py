"""A Spark session on this machine alone, started quietly with whatever Java there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lance_ns_async.spark.java import spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
_JVM_OPTIONS = "spark.driver.extraJavaOptions"


def local_spark(
    app_name: str = "lance-ns", *, cores: int | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Gives a local Spark session that shows errors only and listens on the loopback address.

    `cores` bounds the tasks that run at once; None means one a processor. `config` replaces defaults, except
    that its JVM options are added to ours. A session already running in this process is given as it is, with
    `config` applied where Spark allows that. The environment of the launch is put back once Spark runs.
    Raises `JavaNotFoundError` where neither the machine nor pip has a Java that fits.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("a local Spark session needs: pip install lance-ns-async[spark]") from error
    launch = {
        "JAVA_HOME": str(spark_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    with _environment(launch):
        return SparkSession.builder.config(map=_settings(app_name, cores, config or {})).getOrCreate()


def _settings(
    app_name: str, cores: int | None, config: Mapping[str, str]
) -> dict[str, bool | float | int | str | None]:
    logging = (Path(__file__).parent / "log4j2.properties").as_uri()
    return {
        "spark.app.name": app_name,
        "spark.master": f"local[{'*' if cores is None else cores}]",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        **config,
        _JVM_OPTIONS: f"-Dlog4j2.configurationFile={logging} {config.get(_JVM_OPTIONS, '')}".rstrip(),
    }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

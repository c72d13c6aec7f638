"""The Lance connector for Spark: its jars, and a local session that loads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lance_ns_async.spark.local import local_spark
from tests.servers.maven import classpath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.lance:lance-spark-3.5_2.12:0.4.0"

SPARKS_OWN = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.google.code.findbugs:*",
    "com.google.errorprone:*",
    "com.google.guava:*",
    "com.google.j2objc:*",
    "commons-codec:*",
    "io.netty:*",
    "org.apache.commons:*",
    "org.checkerframework:*",
)
"""Libraries that Spark itself contains, in other versions."""


def connector_jars() -> list[Path]:
    """Returns the jars of the connector and of its dependencies that Spark does not contain."""
    return classpath("lance-spark", [CONNECTOR], SPARKS_OWN)


def spark_with_connector(app_name: str, *, cores: int, config: Mapping[str, str] | None = None) -> SparkSession:
    """Returns a local session that can load the connector; Spark's version must be the connector's, 3.5."""
    # Before Spark's own jars, whose Arrow is too old for the connector.
    jars = os.pathsep.join(map(str, connector_jars()))
    settings = {
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        # A union of a thousand tables is a deep tree, and Arrow needs memory outside the heap.
        "spark.driver.extraJavaOptions": "-Xss64m -Dio.netty.tryReflectionSetAccessible=true",
    }
    return local_spark(app_name, cores=cores, config={**settings, **(config or {})})

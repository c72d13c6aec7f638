"""The JVM connector of Lance for Spark: its jars, and the settings with which a session loads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = "3.5"
"""The version of Spark that the connector is built for."""

CONNECTOR = "org.lance:lance-spark-3.5_2.12:0.4.0"

CATALOG = "org.lance.spark.LanceNamespaceSparkCatalog"
"""The connector's class that implements a Spark catalog."""

_SPARKS_OWN = (  # Libraries that Spark itself contains, in other versions.
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

_REMEDY = "pip install 'lance-ns-async[connector]'"


def connector_jars() -> list[Path]:
    """Returns the jars of the connector and of its dependencies that Spark does not contain.

    They are downloaded from Maven's central repository (240 MB) at the first time, and then cached.
    """
    try:
        from lance_ns_async.spark.maven import classpath
    except ImportError as e:
        raise ImportError(f"the jars of the Lance connector for Spark need: {_REMEDY}") from e
    return classpath("lance-spark", [CONNECTOR], _SPARKS_OWN)


def connector_settings() -> Mapping[str, str]:
    """Returns the settings of a Spark session that loads the connector."""
    import pyspark

    if not pyspark.__version__.startswith(f"{SPARK}."):
        raise ImportError(f"the Lance connector needs Spark {SPARK}, not {pyspark.__version__}: {_REMEDY}")
    # Before Spark's own jars, whose Arrow is too old for the connector.
    jars = os.pathsep.join(map(str, connector_jars()))
    return {
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        # A union of a thousand tables is a deep tree, and Arrow needs memory outside the heap.
        "spark.driver.extraJavaOptions": "-Xss64m -Dio.netty.tryReflectionSetAccessible=true",
    }


def has_connector(spark: SparkSession) -> bool:
    """Returns whether the driver's JVM has loaded the jars of the connector; for sessions without Spark Connect."""
    # PySpark has no public access to the class path.
    jvm = spark._jvm  # noqa: SLF001
    assert jvm is not None
    # Spark uses the same class loader to find catalogs.
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(f"{CATALOG.replace('.', '/')}.class") is not None

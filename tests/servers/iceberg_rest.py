"""Apache Iceberg's reference REST catalog: its own servlet and adapter over its JDBC catalog in SQLite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lance_ns_async.spark.maven import classpath
from tests.servers.process import LOOPBACK, JavaServer, answers_ok, free_port

COORDINATES = (
    "org.apache.iceberg:iceberg-core:1.11.0",
    "org.apache.iceberg:iceberg-core:1.11.0:jar:tests",
    "org.apache.hadoop:hadoop-client-api:3.4.3",
    "org.apache.hadoop:hadoop-client-runtime:3.4.3",
    "org.apache.httpcomponents:httpclient:4.5.14",
    "org.eclipse.jetty:jetty-xml:12.1.8",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.8",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.8",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.8",
    "org.xerial:sqlite-jdbc:3.53.0.0",
    "org.slf4j:slf4j-simple:2.0.17",
)
_ASSEMBLY = Path(__file__).with_suffix(".xml")


class IcebergRest(JavaServer):
    """A separate Iceberg REST catalog in a directory; a restart keeps its port and its content.

    It is strict: a table in a missing namespace is refused. It needs no credentials.
    """

    def __init__(self, directory: Path, *, start_within: float = 60.0) -> None:
        directory = directory.resolve()
        self.warehouse = directory / "warehouse"
        self.warehouse.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{port}"
        jars = classpath("iceberg-rest", COORDINATES)
        arguments = (
            "-Xmx1g",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            os.pathsep.join(str(jar) for jar in jars),
            "org.eclipse.jetty.xml.XmlConfiguration",
            # The properties precede the file that uses them, because Jetty reads its arguments in order.
            f"port={port}",
            f"database={directory / 'catalog.db'}",
            f"warehouse={self.warehouse}",
            str(_ASSEMBLY),
        )
        ready = partial(answers_ok, port, "/v1/config")
        log = directory / "iceberg-rest.log"
        super().__init__("iceberg-rest", arguments, log=log, ready=ready, start_within=start_within)


@contextmanager
def iceberg_rest(directory: Path, *, start_within: float = 60.0) -> Iterator[IcebergRest]:
    """Runs an Iceberg REST catalog whose data and log are in the directory; `start_within` is in seconds."""
    server = IcebergRest(directory, start_within=start_within)
    server.start()
    try:
        yield server
    finally:
        server.stop()

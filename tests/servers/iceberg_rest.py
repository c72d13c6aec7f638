"""Iceberg REST catalogs: Apache Iceberg's reference server over its JDBC catalog in SQLite, and Project Nessie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from lance_ns_async.spark.maven import classpath
from tests.servers.process import KEY, LOOPBACK, REGION, S3, SECRET, JavaServer, answers_ok, free_port, s3

COORDINATES = tuple(
    """org.apache.iceberg:iceberg-core:1.11.0 org.apache.iceberg:iceberg-core:1.11.0:jar:tests
    org.apache.hadoop:hadoop-client-api:3.4.3 org.apache.hadoop:hadoop-client-runtime:3.4.3
    org.apache.httpcomponents:httpclient:4.5.14 org.eclipse.jetty:jetty-xml:12.1.8
    org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.8 org.eclipse.jetty.compression:jetty-compression-server:12.1.8
    org.eclipse.jetty.compression:jetty-compression-gzip:12.1.8 org.xerial:sqlite-jdbc:3.53.0.0
    org.slf4j:slf4j-simple:2.0.17""".split()
)
_ASSEMBLY = Path(__file__).with_suffix(".xml")


class IcebergRest(JavaServer):
    """A separate Iceberg REST catalog in a directory; a restart keeps its port and its content. It is strict: a table
    in a missing namespace is refused. It needs no credentials."""

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


def iceberg_rest(directory: Path, *, start_within: float = 60.0) -> IcebergRest:
    """Returns an Iceberg REST catalog whose data and log are in the directory; `start_within` is in seconds."""
    return IcebergRest(directory, start_within=start_within)


_NESSIE = ("org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner",)
WAREHOUSE = "warehouse"


class Nessie(JavaServer):
    """A Nessie that is empty at first; a restart keeps its port and its content. It needs no credentials."""

    def __init__(self, directory: Path, storage: S3, *, start_within: float = 120.0) -> None:
        self.s3 = storage
        port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{port}/iceberg"
        self.properties = {
            "endpoint": self.endpoint,
            "warehouse": WAREHOUSE,
            "root": f"s3://{storage.bucket}",
            **{f"storage.{name}": value for name, value in storage.storage.items()},
        }
        # The jar contains all its dependencies.
        [jar] = classpath("nessie", _NESSIE, exclusions=["*:*"])
        bucket = "nessie.catalog.service.s3.default-options"
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": port,
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": free_port(),
            "quarkus.oidc.tenant-enabled": "false",
            "nessie.server.authentication.enabled": "false",
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": mkdtemp(dir=directory.resolve(), prefix="nessie-"),
            "nessie.catalog.default-warehouse": WAREHOUSE,
            f"nessie.catalog.warehouses.{WAREHOUSE}.location": f"s3://{storage.bucket}/",
            f"{bucket}.endpoint": storage.endpoint,
            f"{bucket}.path-style-access": "true",
            f"{bucket}.region": REGION,
            f"{bucket}.auth-type": "STATIC",
            f"{bucket}.access-key": "urn:nessie-secret:quarkus:s3key",
            "s3key.name": KEY,
            "s3key.secret": SECRET,
        }
        arguments = (
            "-Xmx512m",
            # It runs for a minute, so a fast start, in half the time, is more useful than fast responses.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-jar",
            str(jar),
        )
        super().__init__(
            "nessie",
            arguments,
            log=directory / "nessie.log",
            ready=partial(answers_ok, port, "/iceberg/v1/config"),
            java_versions=(21, 25),
            start_within=start_within,
        )


@contextmanager
def nessie(directory: Path, *, start_within: float = 120.0) -> Iterator[Nessie]:
    """Runs Nessie and the S3 of its tables, with logs and database in the directory; `start_within` is in seconds."""
    with s3(directory, "lance", start_within=start_within) as storage:
        with Nessie(directory, storage, start_within=start_within) as server:
            yield server

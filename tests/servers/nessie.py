"""Project Nessie: the single jar of its release, with versions in RocksDB and tables in an S3 beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from lance_ns_async.spark.maven import classpath
from tests.servers.process import LOOPBACK, JavaServer, answers_ok, free_port
from tests.servers.s3 import KEY, REGION, S3, SECRET, s3

COORDINATES = ("org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner",)
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
        [jar] = classpath("nessie", COORDINATES, exclusions=["*:*"])
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
        server = Nessie(directory, storage, start_within=start_within)
        server.start()
        try:
            yield server
        finally:
            server.stop()

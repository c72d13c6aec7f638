"""A real Hive Metastore with a Derby database, created by the release's schema scripts."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lance_ns_async.spark.java import find_java, user_cache
from lance_ns_async.spark.maven import classpath
from tests.servers.process import LOOPBACK, JavaServer, ServerError, free_port, made_once

JAVA_VERSIONS = (17, 21)
_SCHEMA_SECONDS = 180.0
# The releases expect Hadoop's class path: its shaded client, and its old libraries.
_HADOOP = (
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
    "commons-collections:commons-collections:3.2.2",
    "commons-io:commons-io:2.11.0",
)


# The listener that records events; no such archive of Hive 4 is in Maven's repository.
_JACKSON = ("org.codehaus.jackson:jackson-core-asl:1.9.13", "org.codehaus.jackson:jackson-mapper-asl:1.9.13")
_LISTENER = "org.apache.hive.hcatalog:hive-hcatalog-server-extensions"
_HIVE_3 = "org.apache.hive:hive-standalone-metastore:3.1.3:tar.gz:bin"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of the metastore: its coordinates and those of its dependencies."""

    version: str
    coordinate: str  # The archive with the schema scripts, and with the libraries unless it is another release's
    schema_tool: str
    beside: tuple[str, ...]  # Coordinates of libraries, which are installed with their dependencies
    alone: tuple[str, ...] = ()  # Coordinates of libraries, which are installed without their dependencies
    scripts: tuple[str, ...] = ()  # The scripts for Derby's `ij`, if that is the schema tool

    @property
    def home(self) -> Path:
        return user_cache() / "hive" / self.coordinate.split(":")[2] / "home"

    def libraries(self) -> list[Path]:
        jars = classpath(f"hive-{self.version}", self.beside)
        return jars + (classpath(f"hive-{self.version}-alone", self.alone, ("*:*",)) if self.alone else [])


RELEASES: Mapping[str, Release] = {
    release.version: release
    for release in (
        # No archive of 2.3 is in Maven's repository: the one of 3.1.3 contains the scripts of older versions.
        Release(
            "2.3.9",
            _HIVE_3,
            "org.apache.derby.tools.ij",
            (*_HADOOP, "commons-cli:commons-cli:1.4"),
            (
                *"""org.apache.hive:hive-exec:2.3.9 com.google.guava:guava:14.0.1 com.jolbox:bonecp:0.8.0.RELEASE
                com.zaxxer:HikariCP:2.5.1 commons-dbcp:commons-dbcp:1.4 commons-pool:commons-pool:1.5.4
                javax.servlet:javax.servlet-api:3.1.0 javax.transaction:transaction-api:1.1
                org.antlr:antlr-runtime:3.5.2 org.apache.derby:derby:10.10.2.0 org.apache.derby:derbytools:10.10.2.0
                org.apache.logging.log4j:log4j-1.2-api:2.6.2 org.apache.logging.log4j:log4j-api:2.6.2
                org.apache.logging.log4j:log4j-core:2.6.2 org.apache.logging.log4j:log4j-slf4j-impl:2.6.2
                org.datanucleus:datanucleus-api-jdo:4.2.4 org.datanucleus:datanucleus-core:4.1.17
                org.datanucleus:datanucleus-rdbms:4.1.19 org.datanucleus:javax.jdo:3.2.0-m3""".split(),
                f"{_LISTENER}:2.3.9",
                *_JACKSON,
            ),
            (
                "hive-schema-1.2.0",
                "upgrade-1.2.0-to-2.0.0",
                "upgrade-2.0.0-to-2.1.0",
                "upgrade-2.1.0-to-2.2.0",
                "upgrade-2.2.0-to-2.3.0",
            ),
        ),
        Release(
            "3.1.3",
            _HIVE_3,
            "org.apache.hadoop.hive.metastore.tools.MetastoreSchemaTool",
            (*_HADOOP, "commons-cli:commons-cli:1.4"),
            (f"{_LISTENER}:3.1.3", *_JACKSON),
        ),
        Release(
            "4.0.1",
            "org.apache.hive:hive-standalone-metastore-server:4.0.1:tar.gz:bin",
            "org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool",
            (
                *_HADOOP,
                "com.google.code.gson:gson:2.11.0",
                "commons-lang:commons-lang:2.6",
                "javax.servlet:javax.servlet-api:3.1.0",
                "org.apache.httpcomponents:httpclient:4.5.14",
            ),
            # Without its SnapshotException, the server closes the connection of a client that creates a catalog.
            ("org.apache.hadoop:hadoop-hdfs:3.3.6",),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Installed:
    """A metastore on this machine."""

    classpath: str
    database: Path  # A Derby database that the release's own scripts created; it is copied and never opened


def installed(version: str) -> Installed:
    """Returns a release by its version, which is downloaded and given a database at the first time, and then cached."""
    release = RELEASES[version]
    made_once(release.home, lambda folder: _unpack(release, folder))
    own = (release.home / "lib").glob("*.jar") if version in release.coordinate else ()
    libraries = os.pathsep.join(str(jar) for jar in (*sorted(own), *release.libraries()))
    schema = user_cache() / "hive" / version / "schema"
    made_once(schema, lambda folder: _create_database(release, libraries, folder))
    return Installed(libraries, schema / "metastore_db")


def settings() -> Sequence[str]:
    """Returns Java options that a metastore outside of Hive needs, and quiet logging."""
    return (
        # Before 3.0. Otherwise, its log is a file in the folder for temporary files.
        "-Dhive.async.log.enabled=false",
        "-Dhive.log.dir=.",
        "-Dhive.log.file=other.log",
        "-Dhive.log.level=WARN",
        "-Dhive.root.logger=console",
        # Since 3.0.
        # The release's defaults are classes of Hive, which it does not contain.
        "-Dmetastore.expression.proxy=org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        "-Dmetastore.task.threads.always=org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "-Dmetastore.schema.verification=true",
        "-Dorg.apache.logging.log4j.level=WARN",
    )


def names_of(key: str) -> Sequence[str]:
    """Returns the names of a property: its own and, for a metastore's, the one before 3.0."""
    if not key.startswith("metastore."):
        return (key,)
    return (key, f"hive.{key}".replace("hive.metastore.hmshandler.", "hive.hmshandler."))


def connection(database: Path) -> str:
    return f"jdbc:derby:;databaseName={database}"


def _unpack(release: Release, folder: Path) -> None:
    [archive] = classpath(release.coordinate.split(":")[1], (release.coordinate,), ("*:*",))
    with tarfile.open(archive) as packed:
        for member in packed:
            inner = Path(*Path(member.name).parts[1:])
            needed = inner.match("lib/*.jar") or inner.match("scripts/metastore/upgrade/derby/*")
            content = packed.extractfile(member) if needed and member.isfile() else None
            if content is not None:
                (folder / inner).parent.mkdir(parents=True, exist_ok=True)
                with content, (folder / inner).open("wb") as file:
                    shutil.copyfileobj(content, file)


def _create_database(release: Release, libraries: str, folder: Path) -> None:
    """Runs the release's schema scripts: DataNucleus itself would create other column types than servers have."""
    print(f"hive-{release.version}: creating its database, this once", file=sys.stderr, flush=True)
    address = f"{connection(folder / 'metastore_db')};create=true"
    scripts = release.home / "scripts" / "metastore" / "upgrade" / "derby"
    statements = [f"connect '{address}';", *(f"run '{scripts / name}.derby.sql';" for name in release.scripts)]
    command = [
        str(find_java(JAVA_VERSIONS).executable),
        "-Xmx512m",
        *settings(),
        f"-Dderby.stream.error.file={folder / 'derby.log'}",
        f"-Djavax.jdo.option.ConnectionURL={address}",
        "-cp",
        libraries,
        release.schema_tool,
        *(() if release.scripts else ("-dbType", "derby", "-initSchema")),
    ]
    environment = {**os.environ, "METASTORE_HOME": str(release.home)}
    done = subprocess.run(
        command,
        env=environment,
        input="\n".join(statements),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=_SCHEMA_SECONDS,
    )
    # Derby's tool continues after an error, and returns 0.
    if done.returncode != 0 or "\nERROR " in done.stdout:
        raise ServerError(f"hive-{release.version}: its schema tool failed:\n{done.stdout[-4000:]}")


_ALIVE = 2
_CALL_SECONDS = 5.0


class Hive(JavaServer):
    """A separate metastore in a directory; a restart keeps its port and its content."""

    def __init__(
        self,
        directory: Path,
        version: str = "3.1.3",
        *,
        properties: Mapping[str, str] | None = None,
        ready: Callable[[int], bool] | None = None,
        start_within: float = 60.0,
    ) -> None:
        """Creates a server; `properties` are the metastore's, or any of Java's; Hadoop's are written to
        `directory/conf`. `ready` returns for a port whether the server can be used; None checks in plain Thrift,
        without TLS or SASL."""
        directory = directory.resolve()
        self.warehouse = directory / "warehouse"
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.uri = self.endpoint = f"thrift://{LOOPBACK}:{self.port}"
        release = installed(version)
        database = directory / "metastore_db"
        if not database.exists():
            shutil.copytree(release.database, database, ignore=shutil.ignore_patterns("*.lck"))
        chosen = {
            # By default, Derby notices a deadlock of two transactions after twenty seconds.
            "derby.locks.deadlockTimeout": "1",
            "derby.locks.waitTimeout": "5",
            "derby.stream.error.file": str(directory / "derby.log"),
            "javax.jdo.option.ConnectionURL": connection(database),
            "metastore.warehouse.dir": self.warehouse.as_uri(),
            # By default, a server tries ten times, with pauses of two seconds, before it returns an error.
            "metastore.hmshandler.retry.attempts": "1",
            "metastore.hmshandler.retry.interval": "100ms",
            **(properties or {}),
        }
        arguments = (
            "-Xmx768m",
            "-XX:+UseSerialGC",
            *settings(),
            *(f"-D{name}={value}" for key, value in chosen.items() for name in names_of(key)),
            "-cp",
            os.pathsep.join((str(directory / "conf"), release.classpath)),
            "org.apache.hadoop.hive.metastore.HiveMetaStore",
            *("-p", str(self.port)),
        )
        can_be_used = ready or answers
        super().__init__(
            f"hive-{version}",
            arguments,
            log=directory / "hive.log",
            ready=lambda: can_be_used(self.port),
            java_versions=JAVA_VERSIONS,
            start_within=start_within,
        )


def hive(directory: Path, version: str = "3.1.3", **options: Any) -> Hive:
    """Returns a Hive Metastore whose data and log are in the directory, with options of its constructor."""
    return Hive(directory, version, **options)


def answers(port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Returns whether a metastore at this port of the loopback address is alive and can access its database."""
    alive = b"\x08" + struct.pack(">hi", 0, _ALIVE)
    some_databases = b"\x0f" + struct.pack(">h", 0)
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_CALL_SECONDS) as plain:
            wire = tls.wrap_socket(plain, server_hostname=LOOPBACK) if tls else plain
            with wire:
                return _says(wire, "getStatus", alive) and _says(wire, "get_all_databases", some_databases)
    except OSError:
        return False


def _says(wire: socket.socket, method: str, result: bytes) -> bool:
    """Returns whether a call without arguments has a reply whose result begins like this."""
    name = struct.pack(">i", len(method)) + method.encode() + struct.pack(">i", 1)
    wire.sendall(b"\x80\x01\x00\x01" + name + b"\x00")
    expected = b"\x80\x01\x00\x02" + name + result
    reply = b""
    while len(reply) < len(expected):
        more = wire.recv(65536)
        if not more:
            return False
        reply += more
    return reply.startswith(expected)

"""Installed Hive Metastores: the project's own release, its Hadoop dependencies, and a database from its scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lance_ns_async.spark.java import find_java, user_cache
from lance_ns_async.spark.maven import classpath
from tests.servers.process import ServerError

JAVA_VERSIONS = (17, 21)
_SCHEMA_SECONDS = 180.0
# The releases expect Hadoop's class path: its shaded client, and its old libraries.
_HADOOP = (
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
    "commons-collections:commons-collections:3.2.2",
    "commons-io:commons-io:2.11.0",
)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of the standalone metastore: its coordinates and those of its dependencies."""

    version: str
    coordinate: str
    """The archive with the release's libraries and schema scripts."""
    schema_tool: str
    beside: tuple[str, ...]
    """Coordinates of libraries, which are installed with their dependencies."""
    alone: tuple[str, ...] = ()
    """Coordinates of libraries, which are installed without their dependencies."""

    def libraries(self) -> list[Path]:
        """Returns the jars that the release needs and does not contain."""
        jars = classpath(f"hive-{self.version}", self.beside)
        return jars + [jar for coordinate in self.alone for jar in _single(coordinate)]


RELEASES: Mapping[str, Release] = {
    release.version: release
    for release in (
        Release(
            "3.1.3",
            "org.apache.hive:hive-standalone-metastore:3.1.3:tar.gz:bin",
            "org.apache.hadoop.hive.metastore.tools.MetastoreSchemaTool",
            (*_HADOOP, "commons-cli:commons-cli:1.4"),
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
    database: Path
    """A Derby database that the release's own scripts created; it is copied and never opened."""


def installed(version: str) -> Installed:
    """Returns a release by its version, which is downloaded and given a database at the first time, and then cached."""
    release = RELEASES[version]
    cache = user_cache() / "hive" / version
    home = _made_once(cache / "home", lambda folder: _unpack(release, folder))
    jars = [*sorted((home / "lib").glob("*.jar")), *release.libraries()]
    libraries = os.pathsep.join(str(jar) for jar in jars)
    schema = _made_once(cache / "schema", lambda folder: _create_database(release, home, libraries, folder))
    return Installed(libraries, schema / "metastore_db")


def settings() -> Sequence[str]:
    """Returns Java options that a metastore outside of Hive needs, and quiet logging."""
    return (
        # The release's defaults are classes of Hive, which it does not contain.
        "-Dmetastore.expression.proxy=org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        "-Dmetastore.task.threads.always=org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "-Dmetastore.schema.verification=true",
        "-Dorg.apache.logging.log4j.level=WARN",
    )


def connection(database: Path) -> str:
    """Returns the JDBC address of an embedded Derby database."""
    return f"jdbc:derby:;databaseName={database}"


def _single(coordinate: str) -> list[Path]:
    return classpath(coordinate.split(":")[1], (coordinate,), ("*:*",))


def _unpack(release: Release, folder: Path) -> None:
    [archive] = _single(release.coordinate)
    with tarfile.open(archive) as packed:
        for member in packed:
            inner = Path(*Path(member.name).parts[1:])
            needed = inner.match("lib/*.jar") or inner.match("scripts/metastore/upgrade/derby/*")
            content = packed.extractfile(member) if needed and member.isfile() else None
            if content is not None:
                (folder / inner).parent.mkdir(parents=True, exist_ok=True)
                with content, (folder / inner).open("wb") as file:
                    shutil.copyfileobj(content, file)


def _create_database(release: Release, home: Path, libraries: str, folder: Path) -> None:
    """Runs the release's schema script: DataNucleus itself would create other column types than servers have."""
    print(f"hive-{release.version}: creating its database, this once", file=sys.stderr, flush=True)
    command = [
        str(find_java(JAVA_VERSIONS).executable),
        "-Xmx512m",
        *settings(),
        f"-Dderby.stream.error.file={folder / 'derby.log'}",
        f"-Djavax.jdo.option.ConnectionURL={connection(folder / 'metastore_db')};create=true",
        "-cp",
        libraries,
        release.schema_tool,
        *("-dbType", "derby", "-initSchema"),
    ]
    environment = {**os.environ, "METASTORE_HOME": str(home)}
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=_SCHEMA_SECONDS,
    )
    if done.returncode != 0:
        raise ServerError(f"hive-{release.version}: its schema tool failed:\n{done.stdout[-4000:]}")


def _made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Returns a folder that appears completely or not at all, created by `make` if it is missing."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as draft:
        folder = Path(draft) / target.name
        folder.mkdir()
        make(folder)
        try:
            folder.rename(target)
        except OSError:
            # Another process was faster; its folder is equivalent.
            if not target.is_dir():
                raise
    return target

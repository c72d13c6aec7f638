"""A real Hive Metastore with a Derby database, created by the release's schema scripts."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.hive_schema import JAVA_VERSIONS, connection, installed, names_of, settings
from tests.servers.process import LOOPBACK, JavaServer, free_port

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
        `directory/conf`.

        `ready` returns for a port whether the server can be used; None checks in plain Thrift, without TLS or SASL.
        """
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


@contextmanager
def hive(
    directory: Path,
    version: str = "3.1.3",
    *,
    properties: Mapping[str, str] | None = None,
    ready: Callable[[int], bool] | None = None,
    start_within: float = 60.0,
) -> Iterator[Hive]:
    """Runs a Hive Metastore whose data and log are in the directory; `start_within` is in seconds."""
    server = Hive(directory, version, properties=properties, ready=ready, start_within=start_within)
    server.start()
    try:
        yield server
    finally:
        server.stop()


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

"""A served gateway that has no free file descriptors."""

from __future__ import annotations

import resource
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.gateway import command


def test_without_descriptors_new_connections_are_closed_and_the_log_is_small(tmp_path: Path) -> None:
    """Waiting connections would be accepted for ever, and each attempt would be logged."""
    with command("--impl", "dir", "-p", f"root={tmp_path}") as (server, url):
        place = urlsplit(url)
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 5, used + 5))
        held = []
        refused = 0
        for _ in range(300):
            connection = socket.create_connection((str(place.hostname), place.port or 0))
            connection.settimeout(30)
            held.append(connection)
        for connection in held[10:]:
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
            refused += 1
        for connection in held:
            connection.close()
        while True:
            with socket.create_connection((str(place.hostname), place.port or 0)) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                with suppress(ConnectionError):
                    if b" 200 " in connection.recv(100):
                        break
        server.terminate()
        _, log = server.communicate(timeout=60)
    assert refused == 290 and log.count("refused") == 1 and len(log) < 2_000, log

"""A Java server run as a child process: started, waited for, stopped, killed, started again."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic

from lance_ns_async.spark.java import find_java

LOOPBACK = "127.0.0.1"
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0
_TAIL_LINES = 30


class ServerError(RuntimeError):
    """A server that did not start; the message ends with the last lines of its log."""


class JavaServer:
    """A server written in Java, running from `start` to `stop` or `kill`."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log: Path,
        ready: Callable[[], bool],
        java_versions: Sequence[int] = (17, 21, 25),
        start_within: float = 60.0,
    ) -> None:
        """Describes the server: what follows `java`, where its output goes, and how it shows to be ready.

        `ready` is asked until it says yes, for at most `start_within` seconds.
        """
        self.name = name
        self.log = log
        self._command = [str(find_java(java_versions).executable), *arguments]
        self._ready = ready
        self._start_within = start_within
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server and returns once it is ready; raises `ServerError` if that fails."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self._process = process
        try:
            self._wait(process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Asks the server to end and sees to it that it does; does nothing where it has ended already."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Starts the server again as it was first started, after stopping it where it still runs."""
        self.stop()
        self.start()

    def log_tail(self) -> str:
        """The last lines the server wrote."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = monotonic() + self._start_within
        while True:
            try:
                code = process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if self._ready():
                    return
                if monotonic() > until:
                    what = f"is not ready after {self._start_within:g} s"
                    raise ServerError(f"{self.name} {what}; its log ends:\n{self.log_tail()}") from None
            else:
                raise ServerError(f"{self.name} ended with code {code}; its log ends:\n{self.log_tail()}")


def free_port() -> int:
    """Gives a port of the loopback address that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def answers_ok(port: int, path: str) -> bool:
    """Whether a GET of the path at this port of the loopback address is answered with 200."""
    connection = HTTPConnection(LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()

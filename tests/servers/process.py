"""A Java server as a child process, which can be started, stopped, killed and restarted."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic
from typing import Self

import httpx

from lance_ns_async.spark.java import find_java

LOOPBACK = "127.0.0.1"
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0
_TAIL_LINES = 30


class ServerError(RuntimeError):
    """A server did not start; the message ends with the last lines of its log."""


class JavaServer:
    """A Java server, which runs from `start` to `stop` or `kill`."""

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
        """Describes the server by the arguments of `java`, the file for its output, and a check. `ready` is called
        until it returns True, for at most `start_within` seconds."""
        self.name = name
        self.log = log
        self._command = [str(find_java(java_versions).executable), *arguments]
        self._ready = ready
        self._start_within = start_within
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the server and returns when it is ready; raises `ServerError` if that fails."""
        folder = self.log.absolute().parent
        with self.log.open("ab") as log:
            # Servers resolve relative locations against their working directory, and create folders there.
            process = subprocess.Popen(
                self._command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._process = process
        try:
            _wait(self.name, process, self._ready, self.log, self._start_within)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stops the server, by force if needed; does nothing if it has already ended."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Starts the server again with the same arguments, after a stop if it is still running."""
        self.stop()
        self.start()


def _wait(name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, seconds: float) -> None:
    """Returns when a server is ready; raises `ServerError` if it ends, or is not ready in time."""
    until = monotonic() + seconds
    while True:
        try:
            how = f"ended with code {process.wait(_POLL_SECONDS)}"
        except subprocess.TimeoutExpired:
            if ready():
                return
            if monotonic() <= until:
                continue
            how = f"is not ready after {seconds:g} s"
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:])
        raise ServerError(f"{name} {how}; its log ends:\n{tail}")


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
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


def free_port() -> int:
    """Returns a port of the loopback address that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers_ok(port: int, path: str) -> bool:
    """Returns whether a GET of the path at this port of the loopback address has the status 200."""
    connection = HTTPConnection(LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


REGION = "us-east-1"
KEY = SECRET = "test"  # moto checks neither


@dataclass(frozen=True, slots=True)
class S3:
    """A running S3 with one bucket."""

    endpoint: str
    bucket: str

    @property
    def storage(self) -> Mapping[str, str]:
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": REGION,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_allow_http": "true",
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """The same as environment variables, for clients without options."""
        return {name.upper(): value for name, value in self.storage.items()}


@contextmanager
def s3(directory: Path, bucket: str, *, start_within: float = 60.0) -> Iterator[S3]:
    """Runs an S3 with an empty bucket; its log is in the directory, `start_within` is in seconds."""
    port = free_port()
    log = directory / "s3.log"
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    # Credentials and endpoints of this machine must not be used by a server of the tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait("s3", process, partial(answers_ok, port, "/"), log, start_within)
        httpx.put(f"http://{LOOPBACK}:{port}/{bucket}", trust_env=False, timeout=start_within).raise_for_status()
        yield S3(f"http://{LOOPBACK}:{port}", bucket)
    finally:
        process.kill()
        process.wait()

"""An S3 for tests: moto's server in a separate process, with its content in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import httpx

from tests.servers.process import LOOPBACK, ServerError, answers_ok, free_port

REGION = "us-east-1"
KEY = SECRET = "test"
"""moto checks neither."""

_POLL_SECONDS = 0.05
_TAIL_CHARACTERS = 3000


@dataclass(frozen=True, slots=True)
class S3:
    """A running S3 with one bucket."""

    endpoint: str
    bucket: str

    @property
    def storage(self) -> Mapping[str, str]:
        """The storage options for Lance."""
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
        _wait(process, port, log, start_within)
        httpx.put(f"http://{LOOPBACK}:{port}/{bucket}", trust_env=False, timeout=start_within).raise_for_status()
        yield S3(f"http://{LOOPBACK}:{port}", bucket)
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float) -> None:
    until = monotonic() + seconds
    while not answers_ok(port, "/"):
        try:
            how = f"ended with code {process.wait(_POLL_SECONDS)}"
        except subprocess.TimeoutExpired:
            if monotonic() <= until:
                continue
            how = f"is not ready after {seconds:g} s"
        raise ServerError(f"s3 {how}; its log ends:\n{log.read_text(errors='replace')[-_TAIL_CHARACTERS:]}")

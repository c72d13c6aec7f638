"""Starts the stub catalog as a process, and controls it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode, urlsplit


@contextmanager
def running_stub() -> Iterator[str]:
    """Provides the endpoint of a stub catalog in a separate process."""
    command = [sys.executable, "-m", "benchmarks.support.stub"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdin and process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def set_switches(endpoint: str, **switches: float | int | str) -> None:
    """Sets the stub's switches, those not named to their defaults, and resets its counts."""
    _control(endpoint, "POST", f"/_stub?{urlencode(switches)}")


def counts(endpoint: str) -> dict[str, float]:
    """Returns the stub's counts since its switches were set."""
    return _control(endpoint, "GET", "/_stub")


def _control(endpoint: str, method: str, target: str) -> dict[str, float]:
    connection = HTTPConnection(urlsplit(endpoint).netloc, timeout=10)
    try:
        connection.request(method, target)
        answer: dict[str, float] = json.load(connection.getresponse())
        return answer
    finally:
        connection.close()

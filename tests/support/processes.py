"""Processes that start in milliseconds and have not used Lance yet. pylance must not be used on both sides of a fork.
multiprocessing's fork server only imports it, and forks from there."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from time import monotonic
from typing import Any, TextIO
from urllib.parse import urlsplit

import pytest

from tests.support.budget import with_usual

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["__main__", "tests.support.preloaded"])

LOST_SECONDS = 60.0  # Seconds without a response after which a process counts as hung


@contextmanager
def started(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """Runs `target(connection, *arguments)` in a process, which is killed at the end of the context."""
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()


def receive(connection: Connection) -> Any:
    """Returns the next object that a process sends; EOFError if it has ended, TimeoutError if it hangs."""
    if not connection.poll(LOST_SECONDS):
        raise TimeoutError(f"a process sent nothing for {LOST_SECONDS:g} s")
    return connection.recv()


def run_script(script: str, *arguments: str) -> tuple[int | None, list[str]]:
    """Returns the exit code of a process that runs a Python script, and the words that the script prints."""
    with started(_execute, script, arguments) as (process, connection):
        try:
            words = receive(connection).split()
        except EOFError:
            words = []
        process.join()
        return process.exitcode, words


def _execute(connection: Connection, script: str, arguments: Sequence[str]) -> None:
    sys.argv = ["script", *arguments]
    with redirect_stdout(StringIO()) as printed:
        exec(compile(script, "script", "exec"), {"__name__": "__main__"})
    connection.send(printed.getvalue())


@contextmanager
def stuttering(process_id: int, seed: int | None) -> Iterator[None]:
    """Stops a process at random moments for a few milliseconds while the context is open, as a loaded machine does. The
    seed chooses the moments; None stops nothing."""
    if seed is None:
        yield
        return
    chance, is_over = Random(seed), threading.Event()
    # Another process may get the same id later, but never the same descriptor.
    descriptor = os.pidfd_open(process_id)

    def stutter() -> None:
        with suppress(ProcessLookupError):
            while not is_over.wait(chance.uniform(0.0, 0.02)):
                signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
                is_over.wait(chance.uniform(0.0, 0.02))
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        os.close(descriptor)


SEEDS = [pytest.param(None, id="steady"), pytest.param(1, id="stuttering"), *with_usual([2, 3, 4])]
"""Values for `stuttering`: the usual run has two of them."""


class CommandProcess:
    """A `lance-ns` in a process of its own, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, process: BaseProcess, stdout: TextIO, stderr: TextIO) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self.stdout = stdout
        self._process = process
        self._stderr = stderr

    @property
    def returncode(self) -> int | None:
        """The exit status; the number of a signal is negative; None while the process runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def errors(self) -> str:
        """The standard error so far."""
        # The processes share the position in the file.
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode()

    def communicate(self) -> tuple[str, str]:
        """Waits for the end, and returns the rest of the standard output, and the standard error."""
        self._process.join(LOST_SECONDS)
        if self.returncode is None:
            raise TimeoutError(f"the command has not ended within {LOST_SECONDS:g} s")
        self._stderr.seek(0)
        return self.stdout.read(), self._stderr.read()


@contextmanager
def command(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[CommandProcess]:
    """Runs `lance-ns`, which is killed at the end of the context; its standard error is a file, which is never full."""
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as stdout, TemporaryFile("w+", encoding="utf-8") as stderr:
        streams = [reduction.DupFd(number) for number in (writer, stderr.fileno())]
        variables = dict(os.environ if environment is None else environment)
        with started(_run_command, arguments, os.getcwd(), variables, streams) as (process, _):
            os.close(writer)
            yield CommandProcess(process, stdout, stderr)


def _run_command(
    _: Connection, arguments: Sequence[str], folder: str, environment: Mapping[str, str], streams: Sequence[Any]
) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.detach(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["lance-ns", *arguments]
    # Its modules are loaded for commands alone, and not for each process of these tests.
    from lance_ns_async.cli import main

    try:
        main()
    finally:
        # A process of multiprocessing would not call them.
        atexit._run_exitfuncs()


_LISTENS, _TIME_WAIT = "0A", "06"


def wait_until_quiet(properties: Mapping[str, str]) -> None:
    """Waits until a catalog's server on this machine has no open connection. The server finishes the request of a
    killed client, and then closes the connection. If the kernel does not report connections, this returns at once."""
    port = urlsplit(properties.get("endpoint") or properties.get("uri") or "").port
    tables = [it for it in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if it.exists()]
    until = monotonic() + LOST_SECONDS
    while port and any(_is_connected(line, port) for it in tables for line in it.read_text().splitlines()[1:]):
        if monotonic() > until:
            raise TimeoutError(f"the server at port {port} still serves a process that was killed")
        os.sched_yield()


def _is_connected(line: str, port: int) -> bool:
    _, local, _, state, *_ = line.split()
    return local.endswith(f":{port:04X}") and state not in (_LISTENS, _TIME_WAIT)

"""A process that has loaded the modules of `lance-ns`, and forks for each command: `COMMAND LISTENER`. pylance must not
be used on both sides of a fork. This process only imports it."""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import socket
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import lance_ns_async.cli
from lance_ns_async.cli import main

# pylance warns of every fork, and Python of threads that numpy and Arrow start during their import.
warnings.filterwarnings("ignore", message="lance is not fork-safe")
warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)


def _load() -> None:
    for module in pkgutil.iter_modules(lance_ns_async.cli.__path__):
        if module.name != "__main__":
            import_module(f"lance_ns_async.cli.{module.name}")
    for name in (
        "lance.namespace",
        "lance_ns_async.backends.directory.backend",
        "lance_ns_async.backends.iceberg.backend",
        "lance_ns_async.client",
        "lance_ns_async.backends.directory.transport",
    ):
        import_module(name)


def _receive(connection: socket.socket) -> None:
    """Takes over the arguments, the folder, the environment and the standard streams of the client."""
    length, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    sys.argv[1:], folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _serve(listener: socket.socket) -> socket.socket:
    """Serves until the standard input ends; returns only in the process of a command, with its client."""
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return connection
        connection.close()
        # A process that has ended stays in the table of processes until its parent asks for it.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    sys.exit()


def _end(connection: socket.socket, status: int) -> NoReturn:
    """Ends a command like an interpreter, which would also take apart all modules: longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([status]))
    os._exit(status)


_load()
gc.freeze()
client = _serve(socket.socket(fileno=int(sys.argv[1])))
_receive(client)
try:
    main()
except SystemExit as end:
    assert isinstance(end.code, int)
    _end(client, end.code)

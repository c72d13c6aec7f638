"""A process that has loaded the modules of `lance-ns`, and forks for each command: `COMMAND LISTENER`.

pylance must not be used on both sides of a fork. This process only imports it.
"""

from __future__ import annotations

import json
import os
import pkgutil
import select
import socket
import sys
import warnings
from importlib import import_module

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
        "lance_ns_async.namespace.client",
        "lance_ns_async.transports.lance",
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


def _serve(listener: socket.socket) -> None:
    """Runs commands until the standard input ends; returns only in the process of a command."""
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                command = os.fork()
                if command == 0:
                    _receive(connection)
                    return
                status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
                connection.send(bytes([status % 256]))
                os._exit(0)
    os._exit(0)


_load()
_serve(socket.socket(fileno=int(sys.argv[1])))
main()

"""Processes for fake Glue servers, forked from one that has loaded moto: that takes a second, a fork milliseconds.

moto has one state per process, so each server has a process. `python -m tests.fakes.glue.process` is the parent of
all; its standard input is a socket, through which it gets the pipes to new servers.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from multiprocessing.connection import Connection

from moto.core.base_backend import BackendDict
from moto.core.exceptions import JsonRESTError
from moto.glue.models import glue_backends

from .moto import ACCOUNT
from .server import GlueServer


def main() -> None:
    """Forks a server for each pipe, until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
        del os.environ[name]
    # The names of regions are read from a large file of botocore: once here, and not by each server.
    _ = glue_backends[ACCOUNT]["us-east-1"]
    BackendDict.reset()
    # Memory that the servers share stays shared during their garbage collections.
    gc.freeze()
    pipe = _forked()
    if pipe is not None:
        with pipe:
            serve(pipe)


def serve(pipe: Connection) -> None:
    """Runs a server until the other end of the pipe is closed.

    It receives its quirks and region, and sends its URL. Then it receives names of methods with arguments, and sends
    whether the call succeeded, and the result.
    """
    with GlueServer(*pipe.recv()) as server:
        pipe.send((True, server.url))
        while True:
            try:
                name, arguments = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send((True, getattr(server, name)(*arguments)))
            except (JsonRESTError, ValueError) as e:
                pipe.send((False, getattr(e, "message", str(e))))


def _forked() -> Connection | None:
    """Returns once in each new process, with its pipe, and finally in the parent with None."""
    with socket.socket(fileno=os.dup(0)) as orders:
        while True:
            _, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
            if not descriptors:
                return None
            if os.fork() == 0:
                return Connection(descriptors[0])
            os.close(descriptors[0])


if __name__ == "__main__":
    main()

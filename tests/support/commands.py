"""The command `lance-ns` without the time that a process needs to load its modules."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

import typer
from typer.testing import CliRunner

from lance_ns_async.cli.app import app

COMMAND: Any = typer.main.get_command(app)
"""All commands. typer would make them again for each call, which takes longer than most calls."""

_CLIENT = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
    sys.exit(server.recv(1)[0])
"""


class Run:
    """The result of a command that was run in this process."""

    def __init__(self, *args: str, stdin: str | None = None, env: Mapping[str, str] | None = None) -> None:
        with CliRunner().isolation(input=stdin, env=env) as (out, err, _):
            try:
                COMMAND.main(args, prog_name="lance-ns")
            except SystemExit as end:
                assert isinstance(end.code, int)
                self.code = end.code
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
            self.out = out.getvalue().decode()
            self.err = err.getvalue().decode()

    @property
    def lines(self) -> Sequence[str]:
        return self.out.splitlines()


def run_process(
    *args: str, stdin: str = "", stdout: int | IO[str] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own, like a user's shell."""
    return subprocess.run(
        [folder() / "lance-ns", *args],
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )


@cache
def folder() -> Path:
    """Returns a folder for `PATH`, whose `lance-ns` is forked from a process that has loaded the modules."""
    made = Path(tempfile.mkdtemp())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(made / "socket"))
    listener.listen()
    client = made / "lance-ns"
    client.write_text(_CLIENT.format(python=sys.executable, address=str(made / "socket")), encoding="utf-8")
    client.chmod(0o700)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.command_server", str(listener.fileno())],
        cwd=Path(__file__).parents[2],
        pass_fds=[listener.fileno()],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    listener.close()

    def stop() -> None:
        server.communicate()
        shutil.rmtree(made)

    atexit.register(stop)
    return made

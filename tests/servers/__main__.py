"""Runs one of the real catalog servers until standard input closes: `python -m tests.servers iceberg`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import FrameType
from typing import Protocol

from tests.servers.iceberg_rest import iceberg_rest


class Server(Protocol):
    """What every server tells of itself."""

    endpoint: str


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {"iceberg": iceberg_rest}


def main() -> None:
    """Starts the server, prints its endpoint and stops it at the end of input, at SIGTERM and at Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("server", choices=sorted(SERVERS), help="which catalog")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="where its data stays; default: a folder removed at the end"
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="lance-ns-"))
            server = stack.enter_context(SERVERS[chosen.server](chosen.dir or Path(scratch)))
            print(f"endpoint={server.endpoint}", flush=True)
            sys.stdin.read()
    except KeyboardInterrupt:
        pass


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()

"""Runs one of the catalog servers while standard input is open or a command runs. `python -m tests.servers iceberg`
prints the properties; `python -m tests.servers iceberg --run lance-ns ls` runs a command with the catalog in its
environment, and keeps the content for the next run."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from lance_ns_async.spark.java import user_cache
from tests.servers.catalogs import CATALOGS, Properties


def main() -> int:
    """Returns the exit status of the command, if any; SIGTERM and Ctrl-C stop the server, too."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("server", choices=sorted(CATALOGS), help="which catalog")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where its data stays")
    parser.add_argument("--run", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run beside it")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as stack:
            directory = chosen.dir or _usual_directory(stack, chosen.server, keep=bool(chosen.run))
            directory.mkdir(parents=True, exist_ok=True)
            properties = stack.enter_context(CATALOGS[chosen.server](directory.resolve()))
            if chosen.run:
                environment = _environment(chosen.server, properties)
                return subprocess.run(chosen.run, env=environment, check=False).returncode
            for name, value in properties.items():
                print(f"{name}={value}", flush=True)
            sys.stdin.read()
    except KeyboardInterrupt:
        return 130
    return 0


def _usual_directory(stack: ExitStack, server: str, *, keep: bool) -> Path:
    if not keep:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lance-ns-")))
    return user_cache() / "servers" / server


def _environment(impl: str, properties: Properties) -> Mapping[str, str]:
    variables = {f"LANCE_NS_PROPERTY_{name.upper()}": value for name, value in properties.items()}
    return {**os.environ, "LANCE_NS_IMPL": impl, **variables}


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

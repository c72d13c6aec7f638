"""The command `lance-ns`."""

from __future__ import annotations

import sys

LIBRARIES = ("rich", "tomlkit", "typer")
"""Packages of the extra `cli`."""


def main() -> None:
    """Runs the command line and exits; if its libraries are missing, the message says how to install them."""
    try:
        from lance_ns_async.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LIBRARIES:
            raise
        print("lance-ns needs: pip install 'lance-ns-async[cli]'", file=sys.stderr)
        sys.exit(2)
    app(prog_name="lance-ns")

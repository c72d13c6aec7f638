"""Progress of a benchmark."""

from __future__ import annotations

import sys


def progress(text: str) -> None:
    """Shows the state of the benchmark on one line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

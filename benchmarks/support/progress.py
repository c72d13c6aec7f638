"""Progress of a benchmark."""

from __future__ import annotations

import sys


def progress(text: str) -> None:
    """Shows where the benchmark stands on a terminal, on one line."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

"""Progress of a long run of calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Tell: TypeAlias = Callable[[int, int], None]
"""A progress callback; its arguments are the finished steps and the total."""


class Steps:
    """Counts finished steps and reports them to a progress callback."""

    def __init__(self, total: int, tell: Tell) -> None:
        self._total = total
        self._tell = tell
        self._done = 0

    def settle(self, steps: int = 1) -> None:
        """Reports `steps` more finished steps."""
        self._done += steps
        self._tell(self._done, self._total)


@contextmanager
def told(progress: bool | Tell) -> Iterator[Tell]:
    """Provides the progress callback: the caller's, one that shows a line on a terminal's stderr, or a no-op."""
    if callable(progress):
        yield progress
    elif progress and sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ImportError:
            with _plain_line() as tell:
                yield tell
            return
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(_LABEL, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lambda done, total: None


_LABEL = "resolving tables"


@contextmanager
def _plain_line() -> Iterator[Tell]:
    shown = ""

    def tell(done: int, total: int) -> None:
        nonlocal shown
        line = f"{_LABEL}: {done * 100 // total} %"
        if line != shown:
            shown = line
            sys.stderr.write(f"\r{line}")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        # The line is erased, so that later output starts on an empty line.
        sys.stderr.write(f"\r{' ' * len(shown)}\r")
        sys.stderr.flush()

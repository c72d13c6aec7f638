"""Progress of a long run of calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""A progress callback; its arguments are the finished steps and the total."""


class Steps:
    """Counts finished steps and reports them to a progress callback."""

    def __init__(self, total: int, callback: ProgressCallback) -> None:
        self._total = total
        self._callback = callback
        self._count = 0

    def advance(self, steps: int = 1) -> None:
        """Reports `steps` more finished steps."""
        self._count += steps
        self._callback(self._count, self._total)

    def part(self) -> ProgressCallback:
        """Returns the progress callback of an operation whose steps are some of these."""
        before = 0

        def callback(finished: int, total: int) -> None:
            nonlocal before
            self.advance(finished - before)
            before = finished

        return callback


@contextmanager
def show_progress(progress: bool | ProgressCallback, label: str) -> Iterator[ProgressCallback]:
    """Provides the progress callback: the caller's, one that shows a bar in a notebook or on stderr, or a no-op."""
    if callable(progress):
        yield progress
    elif progress and (show := _notebook_display()) is not None:
        with _notebook_bar(label, show) as callback:
            yield callback
    elif progress and sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import MofNCompleteColumn, Progress
        except ImportError:
            with _plain_line(label) as callback:
                yield callback
            return
        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda steps, total: bar.update(task, completed=steps, total=total)
    else:
        yield lambda _steps, _total: None


def is_interactive() -> bool:
    """Returns whether a person types the program: in an interactive interpreter, IPython or a notebook."""
    return hasattr(sys, "ps1") or _ipython() is not None


def _ipython() -> Any:
    """Returns IPython's shell; None if the program does not run in one."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _notebook_display() -> Callable[..., Any] | None:
    """Returns IPython's `display` if the program is a notebook; None elsewhere."""
    if not hasattr(_ipython(), "kernel"):
        return None
    from IPython.display import display

    show: Callable[..., Any] = display
    return show


@contextmanager
def _notebook_bar(label: str, show: Callable[..., Any]) -> Iterator[ProgressCallback]:
    last_share = -1

    def callback(steps: int, total: int) -> None:
        nonlocal last_share
        share = steps * 100 // max(total, 1)
        if share != last_share:
            last_share = share
            bar = f"<progress value='{steps}' max='{max(total, 1)}'></progress>"
            handle.update({"text/html": f"{label} {bar} {steps:,} of {total:,}"}, raw=True)

    handle = show({"text/html": label}, raw=True, display_id=True)
    try:
        yield callback
    finally:
        handle.update({"text/html": ""}, raw=True)


@contextmanager
def _plain_line(label: str) -> Iterator[ProgressCallback]:
    last_line = ""

    def callback(steps: int, total: int) -> None:
        nonlocal last_line
        line = f"{label}: {steps * 100 // max(total, 1)} %"
        if line != last_line:
            last_line = line
            sys.stderr.write(f"\r{line}")
            sys.stderr.flush()

    try:
        yield callback
    finally:
        # The line is erased, so that later output starts on an empty line.
        sys.stderr.write(f"\r{' ' * len(last_line)}\r")
        sys.stderr.flush()

"""Progress bars for long work, on standard error and only in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)


class _Count(ProgressColumn):
    """The column with the completed and total numbers; empty if the total is unknown."""

    def render(self, task: Task) -> str:
        return "" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f}"


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar while the context is open, nothing without a terminal; yields a callback for `(done, total)`."""
    console = Console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Count()]
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as display:
        task = display.add_task(what, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)

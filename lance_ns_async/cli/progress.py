"""Progress bars for long work, on standard error and only in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Bar:
    """A progress bar."""

    def __init__(self, display: Progress, task: TaskID) -> None:
        self._display = display
        self._task = task

    def advance(self, count: int = 1) -> None:
        """Increases the number of completed items."""
        self._display.update(self._task, advance=count)

    def reach(self, count: int, total: int) -> None:
        """Sets the number of completed items and the total known so far."""
        self._display.update(self._task, completed=count, total=total)


class _Count(ProgressColumn):
    """The column with the completed and total numbers; empty if the total is unknown."""

    def render(self, task: Task) -> str:
        return "" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f}"


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Bar]:
    """Shows a bar while the context is open: an animated one if the total is None, nothing without a terminal."""
    console = Console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Count()]
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as display:
        yield Bar(display, display.add_task(what, total=total))

"""Progress of long work, on standard error and only where somebody watches."""

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
    """How far the work is."""

    def __init__(self, shown: Progress, task: TaskID) -> None:
        self._shown = shown
        self._task = task

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self._shown.update(self._task, advance=count)

    def reach(self, done: int, total: int) -> None:
        """So many are done, of so many that are known by now."""
        self._shown.update(self._task, completed=done, total=total)


class _Count(ProgressColumn):
    """So many of so many, where that is known."""

    def render(self, task: Task) -> str:
        return "" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f}"


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Bar]:
    """Shows a bar while it is open, a moving one where nobody knows the total; nothing where no terminal is."""
    console = Console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Count()]
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        yield Bar(shown, shown.add_task(what, total=total))

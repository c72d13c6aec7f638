"""Progress of long work, on standard error and only where somebody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Advance = Callable[[int], None]
"""Is told how many more are done."""


def watcher() -> Console:
    """The console on standard error."""
    return Console(stderr=True, highlight=False)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Shows a bar while it is open, or a spinner where nobody knows the total; nothing where no terminal is."""
    console = watcher()
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30)]
    counted = [MofNCompleteColumn(), TimeElapsedColumn()] if total is not None else [TimeElapsedColumn()]
    with Progress(*columns, *counted, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=total)
        yield lambda count: shown.update(task, advance=count)

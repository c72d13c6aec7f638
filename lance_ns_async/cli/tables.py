"""Tables for people, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import IO, Literal, NoReturn

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED_WIDTH = 100_000
"""Width of output that is not for a terminal: lines for a file or another program are never cut or folded."""

_GAP = 2  # Spaces between columns.
_NARROW = 24  # Minimum width in which the values of the widest column are continued in the next line.


class OutputConsole(Console):
    """A console on standard output or another text stream; if that is not a terminal, its width is unlimited."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        super().__init__(file=stream, highlight=False, markup=False)
        if not self.is_terminal:
            self.width = _UNLIMITED_WIDTH

    def lay(self, table: Table) -> None:
        """Prints the table; removes trailing spaces if the output is not a terminal."""
        if self.is_terminal:
            self.print(table)
            return
        with self.capture() as capture:
            self.print(table)
        for line in capture.get().splitlines():
            self.file.write(f"{line.rstrip()}\n")

    def on_broken_pipe(self) -> NoReturn:
        """Raises BrokenPipeError, for which the command has its own exit code."""
        raise BrokenPipeError


def lay_rows(rows: Sequence[Sequence[str]], columns: Sequence[str], numbers: Collection[str], stream: IO[str]) -> None:
    """Prints rows below the names of their columns; in a narrow terminal, a line for each field; nothing for no rows.

    Args:
        rows: The values of each row.
        columns: The names of the columns.
        numbers: The columns that are aligned to the right.
        stream: Where the table goes.
    """
    if not rows:
        return
    console = OutputConsole(stream)
    widths = [max(map(_width, values)) for values in zip(columns, *rows, strict=True)]
    widest = widths.index(max(widths))
    left = console.width - (sum(widths) - widths[widest]) - _GAP * (len(widths) - 1)
    if left < min(widths[widest], _NARROW):
        for number, row in enumerate(rows):
            if number:
                console.print()
            _lay_fields({column: value for column, value in zip(columns, row, strict=True) if value}, console)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        # A truncated id or location is useless, so the longest values continue in the next line.
        justify: Literal["left", "right"] = "right" if column in numbers else "left"
        table.add_column(column, overflow="fold", justify=justify, no_wrap=number != widest)
    for row in rows:
        table.add_row(*map(Text, row))
    console.lay(table)


def lay_fields(fields: Mapping[str, str]) -> None:
    """Prints one line for each field to standard output."""
    _lay_fields(fields, OutputConsole())


def _lay_fields(fields: Mapping[str, str], console: OutputConsole) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in fields.items():
        table.add_row(key, Text(value))
    console.lay(table)


def _width(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)

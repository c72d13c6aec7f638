"""Output of rows, reports and objects: tables for terminals; lines, JSON, CSV or Parquet for programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lance_ns_async.cli import errors
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.rendering import counted, json_text, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_ns_async.fleet import Report
    from lance_ns_async.model import Id


OutputRow = Mapping[str, Any]

_SHORT_LIST, _SHORT_TEXT = 4, 200  # Elements of a list, and characters of a text, that a table of rows shows.


class Format(StrEnum):
    """Output format of rows."""

    PLAIN = "plain"
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES = {
    ".json": Format.JSON,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}


def format_for(option: Format | None, file: Path | None) -> Format:
    """Returns the output format: the requested one, else by the file's suffix, else a table."""
    if file is not None and not file.parent.is_dir():
        raise Misuse(f"{file}: there is no folder {file.parent}")
    if option is not None or file is None or not file.suffix:
        return option or Format.TABLE
    if (format := _SUFFIXES.get(file.suffix.lower())) is None:
        raise Misuse(f"{file}: unknown suffix; use {', '.join(_SUFFIXES)}, or set the format with --output")
    return format


def write(
    rows: Iterable[OutputRow],
    columns: Sequence[str],
    format: Format,
    file: Path | None = None,
    *,
    to_json: Callable[[], str] | None = None,
    to_arrow: Callable[[], pa.Table] | None = None,
) -> int:
    """Writes the rows as they arrive, a table or Parquet after all have arrived; returns the number of those written.

    Args:
        file: None for standard output.
        to_json: Returns what is written as JSON instead of a list of the rows.
        to_arrow: Returns what is written as Parquet instead of the texts of the columns.
    """
    count = 0

    def counting() -> Iterator[OutputRow]:
        nonlocal count
        for row in rows:
            yield row
            count += 1

    lines = ([_text(row.get(column)) for column in columns] for row in counting())
    if format is Format.PARQUET:
        _write_parquet(_text_table(columns, lines) if to_arrow is None else to_arrow(), file)
        return count
    with _open_text(file) as stream:
        match format:
            case Format.PLAIN:
                # Names of tables may contain control characters for a terminal; a pipe gets them unchanged.
                render = printable if stream.isatty() else str
                stream.writelines("\t".join(map(render, line)) + "\n" for line in lines)
            case Format.TABLE:
                _print_rows(list(counting()), columns, stream)
            case Format.JSON if to_json is not None:
                stream.write(to_json() + "\n")
            case Format.JSON:
                for row in counting():
                    stream.write((",\n " if count else "[") + json_text(row))
                stream.write("]\n" if count else "[]\n")
            case Format.NDJSON:
                stream.writelines(f"{json_text(row)}\n" for row in counting())
            case Format.CSV:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(lines)
    return count


def write_report(
    report: Report, columns: Sequence[str], format: Format, file: Path | None = None, *, in_full: bool = False
) -> None:
    """Writes the rows of a report, and its summary to standard error.

    Args:
        file: None for standard output.
        in_full: Whether JSON and Parquet are those of the report, and the summary contains the problems.
    """
    to_json, to_arrow = (report.to_json, report.to_arrow) if in_full else (None, None)
    try:
        write(_report_rows(report), columns, format, file, to_json=to_json, to_arrow=to_arrow)
    finally:
        # The reader of the rows may have ended.
        errors.summarize(report if in_full else report.line(), problems=report.problems)


def _report_rows(report: Report) -> Iterator[OutputRow]:
    """Yields the rows of a report; reasons name options, and rows of a dry run say what would be done."""
    from lance_ns_async.fleet.run import WOULD

    would = WOULD if report.dry_run else {}
    for row in report.rows:
        yield {
            **row.to_dict(),
            "outcome": would.get(row.outcome, row.outcome),
            "reason": errors.use_options(row.reason),
        }


def write_table(rows: pa.Table, format: Format, file: Path | None) -> None:
    """Writes rows of a table to the file, or to standard output if `file` is None; a table shortens long values."""
    from lance_ns_async.cli.values import for_parquet, write_csv

    rows = rows.rename_columns(_unique(rows.column_names))
    if format is Format.CSV:
        with _open_bytes(file) as stream:
            write_csv(rows, stream)
    else:
        # A table shows the size of bytes instead of their text.
        columns = [] if format is Format.PARQUET else [_shown(it, format) for it in rows.columns]
        lines = (dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True))
        write(lines, rows.column_names, format, file, to_arrow=lambda: for_parquet(rows))
        if format is Format.TABLE and not rows.num_rows:
            # Without a row, nothing would show that there is an answer.
            with _open_text(file) as stream:
                stream.write("  ".join(rows.column_names) + "\n")
            errors.hint("no rows")
    if file is not None:
        errors.hint(f"wrote {counted(rows.num_rows, 'rows')} to {file}")


def _unique(names: Sequence[str]) -> Sequence[str]:
    """Returns the names; of columns with the same name, the later ones get numbers, such as `a_1`."""
    result: dict[str, None] = {}
    for name in names:
        number, unique = 0, name
        while unique in result or (number and unique in names):
            number += 1
            unique = f"{name}_{number}"
        result[unique] = None
    return list(result)


def write_object(row: OutputRow, format: Format) -> None:
    """Writes one object to standard output: one line per field, one JSON object, or a single row."""
    match format:
        case Format.JSON:
            print(json_text(row, indent=2))
        case Format.TABLE:
            # The names are those in the id.
            fields = {key: _text(value) for key, value in row.items() if key != "names"}
            _print_fields(fields, _OutputConsole(sys.stdout))
        case Format.PLAIN:
            write(({"field": key, "value": value} for key, value in row.items()), ("field", "value"), format)
        case _:
            write([row], list(row), format)


class TellChange(Protocol):
    """Tells what was done, as a sentence or as the parts of a row."""

    def __call__(self, sentence: str, id: Id, outcome: str, location: str | None = None) -> None: ...


@contextmanager
def tell_changes(format: Format | None) -> Iterator[TellChange]:
    """Provides a function that tells what was done: as a sentence at once, or as a row of the format at the end."""
    rows: list[OutputRow] = []

    def tell(sentence: str, id: Id, outcome: str, location: str | None = None) -> None:
        if format is None:
            errors.tell(sentence)
        rows.append({"id": str(id), "names": list(id), "outcome": outcome, "location": location})

    try:
        yield tell
    finally:
        # Also after an error, because the changes before it were made.
        if format is not None:
            write(rows, ("id", "outcome", "location"), format)


@contextmanager
def _open_text(file: Path | None) -> Iterator[IO[str]]:
    """Opens the file for text output; standard output if `file` is None."""
    if file is None:
        yield sys.stdout
        return
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            yield stream
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror}") from error


@contextmanager
def _open_bytes(file: Path | None) -> Iterator[IO[bytes]]:
    """Opens the file for bytes; standard output if `file` is None."""
    if file is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        with file.open("wb") as stream:
            yield stream
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror or error}") from error


def _write_parquet(table: pa.Table, file: Path | None) -> None:
    import pyarrow.parquet as pq

    if file is None and sys.stdout.isatty():
        raise Misuse("parquet cannot be written to a terminal: use --out FILE, or redirect the output")
    with _open_bytes(file) as stream:
        pq.write_table(table, stream)


def _text_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> pa.Table:
    import pyarrow as pa

    rows = [dict(zip(columns, line, strict=True)) for line in lines]
    return pa.Table.from_pylist(rows, pa.schema([(column, pa.string()) for column in columns]))


def _shown(column: pa.ChunkedArray, format: Format) -> Sequence[Any]:
    """Returns the values of a column for a format; a table shortens long ones."""
    import pyarrow.types as is_a

    from lance_ns_async.cli.values import values

    if format is not Format.TABLE:
        return values(column)
    if is_a.is_binary(column.type) or is_a.is_large_binary(column.type) or is_a.is_fixed_size_binary(column.type):
        return [None if it is None else f"{len(it):,} bytes" for it in column.to_pylist()]
    return [_shorten(it) for it in values(column)]


def _shorten(value: Any) -> Any:
    """Returns the beginning of a long value, such as a vector or the bytes of an image."""
    if isinstance(value, list) and len(value) > _SHORT_LIST:
        beginning = ", ".join(_text(_shorten(it)) for it in value[:_SHORT_LIST])
        return f"[{beginning}, ...: {len(value):,}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and len(value) > _SHORT_TEXT:
        return f"{value[:_SHORT_TEXT]}..."
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


_UNLIMITED_WIDTH = 100_000  # Width of output for a file or another program, whose lines are never cut or folded.
_GAP = 2  # Spaces between columns.
_NARROW = 24  # Minimum width in which the values of the widest column are continued in the next line.


class _OutputConsole(Console):
    """A console on a text stream; if that is not a terminal, its width is unlimited."""

    def __init__(self, stream: IO[str]) -> None:
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


def _print_rows(rows: Sequence[OutputRow], columns: Sequence[str], stream: IO[str]) -> None:
    """Prints rows below the names of their columns, or in a narrow terminal, a line for each field."""
    if not rows:
        return
    console = _OutputConsole(stream)
    lines = [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(_width, values)) for values in zip(columns, *lines, strict=True)]
    widest = widths.index(max(widths))
    left = console.width - (sum(widths) - widths[widest]) - _GAP * (len(widths) - 1)
    if left < min(widths[widest], _NARROW):
        for number, line in enumerate(lines):
            if number:
                console.print()
            _print_fields({column: value for column, value in zip(columns, line, strict=True) if value}, console)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if _is_number(rows, column) else "left"
        # A truncated id or location is useless, so the longest values continue in the next line.
        table.add_column(column, overflow="fold", justify=justify, no_wrap=number != widest)
    for line in lines:
        table.add_row(*map(Text, line))
    console.lay(table)


def _print_fields(fields: Mapping[str, str], console: _OutputConsole) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in fields.items():
        table.add_row(key, Text(value))
    console.lay(table)


def _is_number(rows: Iterable[OutputRow], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(type(value) in (int, NoneType) for value in values) and any(values)


def _width(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)

"""Output of rows, reports and objects: tables for terminals; lines, JSON, CSV or Parquet for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from lance_ns_async.cli.errors import Misuse, summarize, use_options

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_ns_async.fleet import MaintenancePlan, Report
    from lance_ns_async.model import Id


OutputRow = Mapping[str, Any]


class TellChange(Protocol):
    """Tells what was done, as a sentence or as the parts of a row."""

    def __call__(self, sentence: str, id: Id, outcome: str, location: str | None = None) -> None: ...


_SHORT_LIST, _SHORT_TEXT = 4, 200  # Elements of a list, and characters of a text, that a table of rows shows.


class Format(StrEnum):
    """Output format of rows."""

    PLAIN = "plain"
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES = {".json": Format.JSON, ".csv": Format.CSV, ".parquet": Format.PARQUET}


def write(rows: Iterable[OutputRow], columns: Sequence[str], format: Format, stream: IO[str]) -> int:
    """Writes the rows as they arrive, a table or Parquet after all have arrived; returns their number."""
    count = 0

    def counted() -> Iterator[OutputRow]:
        nonlocal count
        for row in rows:
            yield row
            count += 1

    lines = ([_text(row.get(column)) for column in columns] for row in counted())
    match format:
        case Format.PLAIN:
            # Imported here, because `--help` should not wait for it.
            from lance_ns_async.rendering import printable

            # Names of tables may contain control characters for a terminal; a pipe gets them unchanged.
            render = printable if stream.isatty() else str
            stream.writelines("\t".join(map(render, line)) + "\n" for line in lines)
        case Format.TABLE:
            from lance_ns_async.cli.output import lay_rows

            gathered = list(counted())
            numbers = {column for column in columns if _is_number(gathered, column)}
            lay_rows([[_text(row.get(column)) for column in columns] for row in gathered], columns, numbers, stream)
        case Format.JSON:
            for row in counted():
                stream.write((",\n " if count else "[") + json.dumps(row, ensure_ascii=False, default=str))
            stream.write("]\n" if count else "[]\n")
        case Format.CSV:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(lines)
        case Format.PARQUET:
            import pyarrow as pa

            texts = [dict(zip(columns, line, strict=True)) for line in lines]
            write_parquet(pa.Table.from_pylist(texts, pa.schema([(column, pa.string()) for column in columns])), None)
    return count


def write_parquet(table: pa.Table, file: Path | None) -> None:
    """Writes the table to the file, or to standard output if `file` is None."""
    import pyarrow.parquet as pq

    if file is None:
        if sys.stdout.isatty():
            raise Misuse("parquet cannot be written to a terminal: use --out FILE, or redirect the output")
        sys.stdout.flush()
        pq.write_table(table, sys.stdout.buffer)
        return
    try:
        pq.write_table(table, str(file))
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror or error}") from error


def format_for(option: Format | None, file: Path | None) -> Format:
    """Returns the output format: the requested one, else by the file's suffix, else a table."""
    if option is not None or file is None or not file.suffix:
        return option or Format.TABLE
    if (format := _SUFFIXES.get(file.suffix.lower())) is None:
        raise Misuse(f"{file}: unknown suffix; use {', '.join(_SUFFIXES)}, or set the format with --output")
    return format


@contextmanager
def open_text(file: Path | None) -> Iterator[IO[str]]:
    """Opens the file for text output; standard output if `file` is None."""
    if file is None:
        yield sys.stdout
        return
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            yield stream
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror}") from error


def write_report(report: Report, columns: Sequence[str], format: Format) -> None:
    """Writes the rows of a report to standard output, and its summary to standard error."""
    try:
        write(report_rows(report, format), columns, format, sys.stdout)
    finally:
        # The reader of the rows may have ended.
        summarize(report.line(), problems=report.problems)


def report_rows(report: Report, format: Format) -> Iterator[OutputRow]:
    """Yields the rows of a report; reasons name options, and for people, rows of a dry run say what would be done."""
    from lance_ns_async.fleet.run import WOULD

    is_for_people = report.dry_run and format in (Format.TABLE, Format.PLAIN)
    for row in report.rows:
        outcome = WOULD.get(row.outcome, row.outcome) if is_for_people else row.outcome
        yield {**row.to_dict(), "outcome": outcome, "reason": use_options(row.reason)}


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
            write(rows, ("id", "outcome", "location"), format, sys.stdout)


def write_result(
    result: Report | MaintenancePlan,
    rows: Iterable[OutputRow],
    columns: Sequence[str],
    format: Format,
    file: Path | None,
) -> None:
    """Writes the rows, or all of the result as JSON or Parquet; to standard output if `file` is None."""
    if format is Format.PARQUET:
        write_parquet(result.to_arrow(), file)
        return
    with open_text(file) as stream:
        if format is Format.JSON:
            stream.write(result.to_json() + "\n")
        else:
            write(({name: row.get(name) for name in columns} for row in rows), columns, format, stream)


def write_rows(rows: pa.Table, format: Format, file: Path | None) -> None:
    """Writes rows of a table to the file, or to standard output if `file` is None; a table shortens long values."""
    if format is Format.PARQUET:
        write_parquet(rows, file)
    else:
        shorten = _shorten if format is Format.TABLE else lambda value: value
        lines = ({name: shorten(value) for name, value in row.items()} for row in rows.to_pylist())
        with open_text(file) as stream:
            write(lines, rows.column_names, format, stream)
    if file is not None:
        from lance_ns_async.rendering import counted

        errors.hint(f"wrote {counted(rows.num_rows, 'rows')} to {file}")


def write_object(row: OutputRow, format: Format) -> None:
    """Writes one object to standard output: one line per field, one JSON object, or a single row."""
    if format is Format.JSON:
        print(json.dumps(row, indent=2, ensure_ascii=False, default=str))
        return
    if format is not Format.TABLE:
        fields = [{"field": key, "value": value} for key, value in row.items()] if format is Format.PLAIN else [row]
        write(fields, list(fields[0]), format, sys.stdout)
        return
    from lance_ns_async.cli.output import lay_fields

    lay_fields({key: _text(value) for key, value in row.items()})


def _shorten(value: Any) -> Any:
    """Returns the beginning of a long value, such as a vector or the bytes of an image."""
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, list) and len(value) > _SHORT_LIST:
        beginning = ", ".join(_text(_shorten(it)) for it in value[:_SHORT_LIST])
        return f"[{beginning}, ...: {len(value):,}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and len(value) > _SHORT_TEXT:
        return f"{value[:_SHORT_TEXT]}..."
    return value


def _is_number(rows: Iterable[OutputRow], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(type(value) in (int, NoneType) for value in values) and any(values)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


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

"""Output of rows and objects: tables for terminals; lines, JSON, CSV or Parquet for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lance_ns_async.cli.errors import Misuse

if TYPE_CHECKING:
    import pyarrow as pa

OutputRow = Mapping[str, Any]

_UNLIMITED_WIDTH = 100_000
"""Width of output that is not for a terminal: lines for a file or another program are never cut or folded."""


class Format(StrEnum):
    """Output format of rows."""

    PLAIN = "plain"
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES = {".json": Format.JSON, ".csv": Format.CSV, ".parquet": Format.PARQUET}


class ObjectFormat(StrEnum):
    """Output format of one object."""

    TABLE = "table"
    JSON = "json"


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


def write(rows: Iterable[OutputRow], columns: Sequence[str], format: Format, stream: IO[str]) -> int:
    """Writes the rows as they arrive, a table or Parquet after all have arrived; returns their number."""
    match format:
        case Format.PLAIN:
            return _plain(rows, columns, stream)
        case Format.TABLE:
            return _table(rows, columns, stream)
        case Format.JSON:
            return _json(rows, stream)
        case Format.CSV:
            return _csv(rows, columns, stream)
        case Format.PARQUET:
            import pyarrow as pa

            texts = [{column: _text(row.get(column)) for column in columns} for row in rows]
            table = pa.Table.from_pylist(texts, pa.schema([(column, pa.string()) for column in columns]))
            write_parquet(table, None)
            return len(table)


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


def write_object(row: OutputRow, format: ObjectFormat) -> None:
    """Writes one object to standard output: one line per field, or JSON."""
    if format is ObjectFormat.JSON:
        print(json.dumps(row, indent=2, ensure_ascii=False, default=str))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in row.items():
        table.add_row(key, Text(_text(value)))
    OutputConsole().lay(table)


def _plain(rows: Iterable[OutputRow], columns: Sequence[str], stream: IO[str]) -> int:
    # Imported here, because `--help` should not wait for it.
    from lance_ns_async.rendering import printable

    count = 0
    # Names of tables may contain control characters for a terminal; a pipe gets them unchanged.
    render = printable if stream.isatty() else str
    for row in rows:
        stream.write("\t".join(render(_text(row.get(column))) for column in columns) + "\n")
        count += 1
    return count


def _json(rows: Iterable[OutputRow], stream: IO[str]) -> int:
    count = 0
    for row in rows:
        stream.write((",\n " if count else "[") + json.dumps(row, ensure_ascii=False, default=str))
        count += 1
    stream.write("]\n" if count else "[]\n")
    return count


def _csv(rows: Iterable[OutputRow], columns: Sequence[str], stream: IO[str]) -> int:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    count = 0
    for row in rows:
        writer.writerow([_text(row.get(column)) for column in columns])
        count += 1
    return count


def _table(rows: Iterable[OutputRow], columns: Sequence[str], stream: IO[str]) -> int:
    table = Table(box=None, pad_edge=False, header_style="bold")
    entries = list(rows)
    for column in columns:
        # A truncated id or location is useless, so long values continue in the next line.
        table.add_column(column, overflow="fold", justify="right" if _is_number(entries, column) else "left")
    for row in entries:
        table.add_row(*(Text(_text(row.get(column))) for column in columns))
    if entries:
        OutputConsole(stream).lay(table)
    return len(entries)


def _is_number(rows: Iterable[OutputRow], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(isinstance(value, int) or value is None for value in values) and any(values)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

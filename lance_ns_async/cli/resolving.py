"""Input and output of the command `resolve`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lance_ns_async.cli import output
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.output import Format
from lance_ns_async.model import TableId, is_pattern

if TYPE_CHECKING:
    from lance_ns_async.spark import Locations

_SUFFIXES = {".json": Format.JSON, ".csv": Format.CSV, ".parquet": Format.PARQUET}


def read_targets(arguments: Sequence[str], file: Path | None) -> Sequence[str | TableId]:
    """Returns the ids and patterns in the arguments and in the file; the file `-` is standard input."""
    texts = list(arguments)
    if file is not None:
        with _open(file) as stream:
            texts += _read_lines(stream)
    elif not texts:
        raise Misuse("no ids: pass ids or patterns, or --from-file")
    return [text if is_pattern(text) else TableId.parse(text) for text in texts]


def format_for(option: Format | None, file: Path | None) -> Format:
    """Returns the output format: the requested one, else by the file's suffix, else a table."""
    if option is not None or file is None or not file.suffix:
        return option or Format.TABLE
    if (format := _SUFFIXES.get(file.suffix.lower())) is None:
        raise Misuse(f"{file}: unknown suffix; use {', '.join(_SUFFIXES)}, or set the format with --output")
    return format


def write(locations: Locations, format: Format, file: Path | None, *, secrets: bool) -> None:
    """Writes the locations to the file, or to standard output if `file` is None."""
    if format is Format.PARQUET:
        output.write_parquet(locations.to_arrow(secrets=secrets), file)
        return
    with output.open_text(file) as stream:
        if format is Format.JSON:
            # `Locations.from_json` can read this form, for a Spark job that starts later.
            stream.write(locations.to_json(secrets=secrets) + "\n")
            return
        table = locations.to_arrow(secrets=secrets)
        match format:
            case Format.PLAIN:
                columns = ["id", "location"]
            case Format.TABLE:
                # In this form, duplicate columns and columns without any value are omitted.
                columns = [
                    name for name in table.column_names if name != "names" and table[name].null_count < len(table)
                ]
            case _:
                columns = table.column_names
        output.write(table.to_pylist(maps_as_pydicts="strict"), columns, format, stream)


@contextmanager
def _open(file: Path) -> Iterator[TextIO]:
    if str(file) == "-":
        yield sys.stdin
        return
    try:
        with file.open(encoding="utf-8") as stream:
            yield stream
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misuse(f"{file}: {reason}") from error


def _read_lines(source: Iterable[str]) -> Iterator[str]:
    """Yields the ids and patterns of a text with one per line; ignores empty lines and lines that begin with `#`."""
    for line in source:
        text = line.strip()
        if text and not text.startswith("#"):
            yield text

"""Rows in files, and values of Arrow columns for formats with fewer types: JSON, CSV and tables of text."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import lance_namespace.errors as err
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.types as is_a

from lance_ns_async.cli.errors import Misuse
from lance_ns_async.rendering import json_text

if TYPE_CHECKING:
    from pyarrow.dataset import CsvFileFormat

_FORMATS = {  # Formats of files by suffix, as pyarrow names them.
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".orc": "orc",
}
_FRACTIONS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Returns the values of a column as JSON has them: null, booleans, numbers, texts, lists and objects.

    Times, dates and decimals become texts, durations such as `PT1.5S`, and bytes base64.
    """
    kind = column.type
    if _is_scalar_text(kind):
        column = _in_utc(column).cast(pa.string())
        if not is_a.is_decimal(kind):
            # A fraction of zeros says nothing.
            column = pc.replace_substring_regex(column, pattern=r"\.0+(Z?)$", replacement=r"\1")
        kind = column.type
    result: list[Any] = column.to_pylist() if _is_in_json(kind) else [_value(it) for it in column]
    return result


def write_csv(rows: pa.Table, stream: IO[bytes]) -> None:
    """Writes CSV with a line of names. Nulls are empty, and all texts are quoted; lists and structs are JSON."""
    columns = []
    for column in rows.columns:
        kind = column.type
        if is_a.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif is_a.is_timestamp(kind):
            column = _in_utc(column)
        elif not (_is_scalar_text(kind) or (_is_in_json(kind) and not is_a.is_nested(kind))):
            texts = [it if it is None or isinstance(it, str) else json_text(it) for it in values(column)]
            column = pa.chunked_array([pa.array(texts, pa.large_string())])
        columns.append(column)
    # Arrow would quote all names.
    names = io.StringIO()
    csv.writer(names, lineterminator="\n").writerow(rows.column_names)
    stream.write(names.getvalue().encode())
    pyarrow.csv.write_csv(pa.table(columns, rows.column_names), stream, pyarrow.csv.WriteOptions(include_header=False))


def for_parquet(rows: pa.Table) -> pa.Table:
    """Returns the rows with texts in place of durations, which Parquet does not have, or not as such."""
    for number, column in enumerate(rows.columns):
        if is_a.is_interval(column.type):
            rows = rows.set_column(number, rows.column_names[number], pa.array(values(column), pa.string()))
    return rows


def _in_utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns times with a zone in UTC, whose texts every library reads; other columns as they are."""
    kind = column.type
    has_zone = is_a.is_timestamp(kind) and kind.tz is not None
    return column.cast(pa.timestamp(kind.unit, "UTC")) if has_zone else column


def _is_in_json(kind: pa.DataType) -> bool:
    """Returns whether Python's values of a type are those of JSON."""
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return _is_in_json(kind.value_type)
    checks = (is_a.is_null, is_a.is_boolean, is_a.is_integer, is_a.is_floating, is_a.is_string, is_a.is_large_string)
    return any(check(kind) for check in (*checks, is_a.is_string_view))


def _is_scalar_text(kind: pa.DataType) -> bool:
    """Returns whether Arrow has texts for the values of a type."""
    return any(check(kind) for check in (is_a.is_date, is_a.is_timestamp, is_a.is_time, is_a.is_decimal))


def _value(scalar: pa.Scalar) -> Any:
    """Returns the value of a scalar, as `values` does."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if _is_in_json(kind):
        return scalar.as_py()
    if _is_scalar_text(kind):
        return values(pa.chunked_array([pa.array([scalar], kind)]))[0]
    match scalar:
        case pa.ExtensionScalar() | pa.DictionaryScalar():
            inner = scalar.value
            return inner if inner is None else _value(inner)
        case pa.MonthDayNanoIntervalScalar():
            months, days, nanoseconds = scalar.as_py()
            dates = f"{f'{months}M' if months else ''}{f'{days}D' if days else ''}"
            return f"P{dates}T{_seconds(nanoseconds, 9)}S" if nanoseconds or not dates else f"P{dates}"
        case pa.DurationScalar():
            return f"PT{_seconds(scalar.value, _FRACTIONS[kind.unit])}S"
        case pa.MapScalar():
            pairs = [(_value(entry[0]), _value(entry[1])) for entry in scalar.values]
            # By the type, so that an empty map has the form of the others.
            if is_a.is_string(kind.key_type) or is_a.is_large_string(kind.key_type):
                return dict(pairs)
            return [{"key": key, "value": value} for key, value in pairs]
        case pa.ListScalar() | pa.LargeListScalar() | pa.FixedSizeListScalar():
            return [_value(it) for it in scalar.values]
        case pa.StructScalar():
            return {kind.field(i).name: _value(scalar[i]) for i in range(kind.num_fields)}
    value = scalar.as_py()
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _seconds(value: int, digits: int) -> str:
    """Returns a number of seconds that has this many digits after the point."""
    whole, fraction = divmod(abs(value), 10**digits)
    part = f".{fraction:0{digits}}".rstrip("0") if fraction else ""
    return f"{'-' if value < 0 else ''}{whole}{part}"


def read_rows(file: Path, schema: pa.Schema | None) -> pa.RecordBatchReader:
    """Returns a reader of the rows in a file; raises `Misuse` if it cannot be read.

    Args:
        file: Its suffix names the format. In CSV an empty value is null, and an empty text is `""`.
        schema: The types of columns; others keep those in the file. None means the types in the file.
    """
    # They are slow to import.
    from pyarrow import dataset
    from pyarrow import json as arrow_json

    format = _FORMATS.get(file.suffix.lower())
    if format is None:
        raise Misuse(f"{file}: unknown suffix; use one of {', '.join(_FORMATS)}")
    fields = [] if schema is None else [it for it in schema if not isinstance(it.type, pa.ExtensionType)]
    try:
        if format == "json":
            # Arrow would read texts as times.
            texts = [it for it in fields if is_a.is_decimal(it.type) or _is_text(it.type)]
            options = arrow_json.ParseOptions(explicit_schema=pa.schema(texts))
            reader = arrow_json.open_json(_json_lines(file), parse_options=options)
        else:
            rows = dataset.dataset(str(file), format=_csv(fields) if format == "csv" else format)
            reader = rows.scanner().to_reader()
    except FileNotFoundError:
        raise Misuse(f"{file}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise Misuse(f"{file}: cannot be read ({error})") from error
    types = {it.name: it.type for it in fields}
    # Arrow reads the texts of JSON first.
    places = sorted(enumerate(reader.schema.names), key=lambda it: [*types, it[1]].index(it[1]))
    target = pa.schema([it.with_type(types.get(it.name, it.type)) for it in (reader.schema[i] for i, _ in places)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = []
            for (place, _), field in zip(places, target, strict=True):
                column = batch.column(place)
                try:
                    columns.append(_fit(column, field.type))
                except (ValueError, pa.ArrowNotImplementedError) as error:
                    text = f"column {field.name!r} is {column.type}, which does not become {field.type}"
                    raise err.InvalidInputError(f"{file}: {text} ({error})") from error
            yield pa.RecordBatch.from_arrays(columns, schema=target)

    return pa.RecordBatchReader.from_batches(target, batches())


def _csv(fields: Sequence[pa.Field]) -> CsvFileFormat:
    """Returns the CSV of `write_csv`; lists, structs and bytes are texts."""
    from pyarrow.dataset import CsvFileFormat

    types = {it.name: it.type for it in fields if _is_scalar_text(it.type) or _is_in_json(it.type)}
    options = pyarrow.csv.ConvertOptions(
        column_types={name: type for name, type in types.items() if not is_a.is_nested(type)},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return CsvFileFormat(convert_options=options)


def _json_lines(file: Path) -> Any:
    """Returns what has the objects of a file on lines: the file, or for a list of objects its text."""
    with file.open("rb") as stream:
        if not stream.read(100).lstrip().startswith(b"["):
            return str(file)
        stream.seek(0)
        return io.BytesIO("\n".join(map(json.dumps, json.load(stream))).encode())


def _is_text(kind: pa.DataType) -> bool:
    return bool(is_a.is_string(kind) or is_a.is_large_string(kind))


def _fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns a column with a type; raises an error if a value does not fit."""
    if (is_a.is_binary(kind) or is_a.is_large_binary(kind)) and _is_text(column.type):
        return pa.array([it if it is None else b64decode(it, validate=True) for it in column.to_pylist()], kind)
    if is_a.is_nested(kind) and _is_text(column.type):
        column = pa.array([it if it is None else json.loads(it) for it in column.to_pylist()])
    if is_a.is_decimal(kind) and is_a.is_integer(column.type):
        # Arrow demands space for all values of the type.
        column = column.cast(pa.decimal128(38, kind.scale))
    result = column.cast(kind)
    if is_a.is_floating(kind) and pc.sum(pc.is_inf(result)) != pc.sum(pc.is_inf(column)):
        raise ValueError("a number is too large")
    return result

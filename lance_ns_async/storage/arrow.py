"""Arrow data of requests and responses (IPC streams in, an IPC file out) and of Python callers, aligned for Lance."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar

import pyarrow as pa
from lance_namespace.errors import InternalError, InvalidInputError
from pyarrow import types

from lance_ns_async.storage import guard
from lance_ns_async.storage.threads import under_way

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

_FILE_MAGIC = b"ARROW1"

_BATCH_BYTES = 8 * 2**20  # Bytes of a table that are written between two checks whether the work was abandoned.


def rows(request_data: object) -> pa.Table:
    """Returns the validated rows of an IPC stream, mostly without a copy if the stream is not compressed.

    The rows of a reader are read to its end.
    """
    if isinstance(request_data, pa.RecordBatchReader):
        try:
            return align(request_data.read_all())
        except (pa.ArrowException, OSError, ValueError) as e:
            raise InvalidInputError(f"request_data: the rows cannot be read ({e})") from e
    if not isinstance(request_data, bytes | bytearray | memoryview | pa.Buffer):
        raise InvalidInputError(
            f"request_data: must be the bytes of an Arrow IPC stream, not {type(request_data).__name__}; "
            "write them with pyarrow.ipc.new_stream"
        )
    data = pa.py_buffer(request_data)
    if data.slice(0, min(len(_FILE_MAGIC), data.size)).to_pybytes() == _FILE_MAGIC:
        raise InvalidInputError("request_data: must be an Arrow IPC stream, not a file; use pyarrow.ipc.new_stream")
    try:
        guard.current().check_stream(data)
        with pa.ipc.open_stream(data) as stream:
            table = stream.read_all()
        table.validate(full=True)
        guard.current().check_rows(table)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InvalidInputError(f"request_data: not an Arrow IPC stream ({e})") from e
    return align(table)


def pieces(reader: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yields the rows of a reader as an IPC stream, in parts of about 8 MiB."""
    sink = _Parts()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        for batch in reader:
            step = max(1, batch.num_rows * _BATCH_BYTES // max(batch.nbytes, 1))
            for start in range(0, batch.num_rows, step):
                writer.write_batch(batch.slice(start, step))
                yield sink.take()
    yield sink.take()


class _Parts(io.RawIOBase):
    """A file whose content is taken out in parts."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """Returns what was written since the last call."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content


def file(reader: pa.RecordBatchReader) -> bytes:
    """Returns the rows as an IPC file; fails if the work was abandoned or the guard rejects the size."""
    request_guard, work = guard.current(), under_way()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, reader.schema) as writer:
        for batch in reader:
            work.check()
            request_guard.check_response(sink.tell(), batch)
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def table(reader: pa.RecordBatchReader) -> pa.Table:
    """Returns the rows as a table; fails if the work was abandoned or the guard rejects the size."""
    request_guard, work = guard.current(), under_way()
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        work.check()
        request_guard.check_response(size, batch)
        size += batch.nbytes
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def content(data: bytes) -> pa.Table:
    """Returns the rows of an IPC file, which refer to its bytes."""
    try:
        with pa.ipc.open_file(data) as file:
            return file.read_all()
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InternalError(f"the response is not an Arrow IPC file ({e})") from e


def readable(data: object) -> Any:
    """Returns the data in a form whose schema is known before it is read."""
    # This module imports pandas, so it is not imported before data is read.
    from pyarrow.dataset import Dataset, Scanner

    if isinstance(data, pa.Table | pa.RecordBatch):
        return align(data)
    if isinstance(data, pa.RecordBatchReader):
        return align_reader(data)
    if isinstance(data, Dataset):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return align_reader(pa.RecordBatchReader.from_stream(data))
        except Exception as e:
            # Data frame libraries raise their own errors.
            raise InvalidInputError(f"data: {type(data).__name__} cannot be read as an Arrow table ({e})") from e
    instead = ((Scanner, "its to_reader()"), *_INSTEAD)
    how = next((how for kind, how in instead if isinstance(data, kind)), _USUALLY)
    raise InvalidInputError(f"data: {type(data).__name__} is not Arrow data; pass {how}")


_USUALLY = "a pyarrow table, reader or dataset, or a data frame that can be read as an Arrow stream"

_INSTEAD: tuple[tuple[Any, str], ...] = (  # Types of unsupported data, and the conversion to recommend for each.
    (str | bytes | PathLike, "the data itself, such as pyarrow.dataset.dataset(path)"),
    (Mapping, "pyarrow.table(data)"),
    (Sequence, "pyarrow.Table.from_pylist(rows), or pyarrow.Table.from_batches(batches)"),
    (Iterator, "pyarrow.RecordBatchReader.from_batches(schema, batches)"),
)


def stoppable(data: Any) -> pa.RecordBatchReader:
    """Returns a reader that fails after the current work was abandoned, so that nothing is committed.

    Args:
        data: The result of `readable`.
    """
    work, reader = under_way(), _reader(data)

    def batches() -> Iterator[pa.RecordBatch]:
        while (batch := following()) is not None:
            work.check()
            yield batch
        work.check()

    def following() -> pa.RecordBatch | None:
        work.waits_for_rows(True)
        try:
            return next(reader, None)
        except BaseException as e:
            # Lance would wrap this error in its own; it is recorded, so that the caller gets the original.
            work.unread = e
            raise
        finally:
            work.waits_for_rows(False)

    rows = pa.RecordBatchReader.from_batches(reader.schema, batches())
    work.will_read(rows)
    return rows


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if not isinstance(data, pa.Table | pa.RecordBatch):
        return align_reader(data.scanner().to_reader())
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    rows = max(1, _BATCH_BYTES * table.num_rows // max(1, table.nbytes))
    return table.to_reader(max_chunksize=rows)


_DEFAULT_ALIGNMENT = 8
_WIDE_ALIGNMENT = 16  # Required alignment of decimals, and of string and binary views, in bytes.


def align(rows: Rows) -> Rows:
    """Returns the same rows; columns with an unsupported alignment are copied."""
    columns = rows.columns
    copies = [_column(column) for column in columns]
    if all(new is old for new, old in zip(copies, columns, strict=True)):
        return rows
    return type(rows).from_arrays(copies, schema=rows.schema)


def align_reader(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Returns a reader of the same rows, aligned."""
    return pa.RecordBatchReader.from_batches(reader.schema, map(align, reader))


def _column(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    if isinstance(column, pa.Array):
        return _array(column)
    chunks = column.chunks
    copies = [_array(chunk) for chunk in chunks]
    if all(new is old for new, old in zip(copies, chunks, strict=True)):
        return column
    return pa.chunked_array(copies, column.type)


def _array(array: pa.Array) -> pa.Array:
    type = array.type
    if not _contains(type, types.is_dictionary):
        return _plain(array)
    # The buffers, and a concatenation, do not include dictionaries.
    if isinstance(array, pa.DictionaryArray):
        indices, dictionary = _plain(array.indices), _array(array.dictionary)
        return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=type.ordered)
    if isinstance(array, pa.StructArray):
        fields = [_array(array.field(n)) for n in range(type.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(type), mask=array.is_null())
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        copy = _concatenate(array)
        return copy.from_arrays(copy.offsets, _array(copy.values), type=type, mask=copy.is_null())
    return _plain(array)


def _plain(array: pa.Array) -> pa.Array:
    is_wide = _contains(
        array.type, types.is_decimal128, types.is_decimal256, types.is_string_view, types.is_binary_view
    )
    step = _WIDE_ALIGNMENT if is_wide else _DEFAULT_ALIGNMENT
    if all(buffer is None or buffer.address % step == 0 for buffer in array.buffers()):
        return array
    return _concatenate(array)


def _concatenate(array: pa.Array) -> pa.Array:
    # A concatenation of several arrays is copied to new memory.
    return pa.concat_arrays([array[:0], array])


def _contains(type: pa.DataType, *checks: Callable[[pa.DataType], bool]) -> bool:
    """Returns whether one of the checks applies to the type, at any depth."""
    if isinstance(type, pa.BaseExtensionType):
        return _contains(type.storage_type, *checks)
    for check in checks:
        if check(type):
            return True
    return any(_contains(type.field(n).type, *checks) for n in range(type.num_fields))

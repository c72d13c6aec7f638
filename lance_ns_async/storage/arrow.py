"""Arrow data of requests and responses (IPC streams in, an IPC file out), and of Python callers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async.storage import guard
from lance_ns_async.storage.decimal_memory import align, align_reader
from lance_ns_async.storage.threads import under_way

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

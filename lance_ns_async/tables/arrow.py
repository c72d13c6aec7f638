"""Arrow data: as the spec sends it, IPC streams in and an IPC file out; and as Python callers have it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.tables.alignment import aligned, aligned_reader

_FILE_MAGIC = b"ARROW1"


def rows(request_data: object) -> pa.Table:
    """The rows of an IPC stream, checked, for nobody else will; mostly without a copy if it is not compressed."""
    if not isinstance(request_data, bytes | bytearray | memoryview | pa.Buffer):
        raise InvalidInputError(
            f"request_data: it is bytes of an Arrow IPC stream, not {type(request_data).__name__}; "
            "write them with pyarrow.ipc.new_stream"
        )
    data = pa.py_buffer(request_data)
    if data.slice(0, min(len(_FILE_MAGIC), data.size)).to_pybytes() == _FILE_MAGIC:
        raise InvalidInputError("request_data: it is an Arrow IPC file, not a stream; use pyarrow.ipc.new_stream")
    try:
        with pa.ipc.open_stream(data) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InvalidInputError(f"request_data: it is no Arrow IPC stream ({e})") from e
    return aligned(table)


def file(table: pa.Table) -> bytes:
    """The rows as an IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def readable(data: object) -> Any:
    """The data as something that tells its schema before it is read."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return aligned(data)
    if isinstance(data, pa.RecordBatchReader):
        return aligned_reader(data)
    if isinstance(getattr(data, "schema", None), pa.Schema):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return aligned_reader(pa.RecordBatchReader.from_stream(data))
    raise InvalidInputError(
        f"data: {type(data).__name__} is no Arrow data; give a pyarrow table, reader or dataset, or a data frame that "
        "can be read as an Arrow stream"
    )

"""The rows of the checks, in the formats of the spec."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "text": ["red apple", "green pear", "blue plum"],
        "v": pa.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], pa.list_(pa.float32(), 2)),
    }
)


def stream(rows: pa.Table) -> bytes:
    """Returns the rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_file(data: bytes) -> list[dict[str, Any]]:
    """Returns the rows in an Arrow IPC file."""
    rows: list[dict[str, Any]] = pa.ipc.open_file(data).read_all().to_pylist()
    return rows

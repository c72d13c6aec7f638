"""Values of Arrow for display: long ones are cut, and small images and sounds are shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.explorer.layout import name, number, visible

MAX_COLUMNS = 50  # Maximum number of columns of a table of rows.
MAX_TEXT = 200
_FIRST_ELEMENTS = 4  # Number of elements of a list, or of fields of a struct, that are shown.

_MAX_DEPTH = 3

_MEDIA = (  # The first bytes of images and sounds. SVG is not among them, because it can contain scripts.
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}

_BLOB = frozenset({"position", "size"})
_BLOB_2 = frozenset({"kind", "position", "size", "blob_id"})
"""The fields in which Lance describes a column of blobs instead of reading them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a value is shown."""

    text: int = MAX_TEXT  # Characters.
    media: int = 200_000  # Bytes of an image or a sound.
    elements: int = _FIRST_ELEMENTS  # Elements of a list, or fields of a struct.


IN_A_TABLE = Limits()
ON_ITS_PAGE = Limits(20_000, 4 << 20, 1_000)


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows as cells of a table."""

    head: Sequence[Markup]
    body: Sequence[Sequence[Markup]]
    more_columns: int = 0  # Number of columns that are left out.


def cells(rows: pa.Table) -> Cells:
    """Returns rows as cells; of many columns, the first ones."""
    names = rows.column_names[:MAX_COLUMNS]
    body = [[cell(rows.column(i)[row]) for i in range(len(names))] for row in range(rows.num_rows)]
    return Cells([name(shortened(it, MAX_TEXT)) for it in names], body, rows.num_columns - len(names))


def cell(value: pa.Scalar, limits: Limits = IN_A_TABLE) -> Markup:
    """Returns a value; long texts and lists are cut, and small images and sounds are shown."""
    if isinstance(value, pa.ExtensionScalar):
        return Markup("null") if value.value is None else cell(value.value, limits)
    if not value.is_valid:
        return Markup('<span class="null">null</span>')
    if _is_binary(value.type):
        return media(value.as_buffer(), limits)
    if is_blob(value):
        return size_of_blob(value["size"].as_py())
    return Markup("<bdi>{}</bdi>").format(visible(shortened(_text(value, limits), limits.text)))


def is_blob(value: pa.Scalar) -> bool:
    """Returns whether a value describes a blob, which Lance reads on request only."""
    if not value.is_valid or not pa.types.is_struct(value.type):
        return False
    fields = {field.name for field in value.type}
    return fields == _BLOB or fields >= _BLOB_2


def size_of_blob(size: int | None) -> Markup:
    """Returns the size of bytes that are not shown."""
    return Markup('<span class="blob">{} bytes</span>').format(number(size))


def media(data: pa.Buffer, limits: Limits = IN_A_TABLE) -> Markup:
    """Returns bytes as an image or a sound if they are one and small; else their size."""
    start = data[:16].to_pybytes()
    kind = next((kind for magic, kind in _MEDIA if start.startswith(magic)), None)
    if start[:4] == b"RIFF":
        kind = _RIFF.get(start[8:12])
    if kind is None or data.size >= limits.media:
        return size_of_blob(data.size)
    source = f"data:{kind};base64,{b64encode(data).decode()}"
    if kind.startswith("audio"):
        return Markup('<audio controls src="{}" aria-label="Sound of {} bytes"></audio>').format(
            source, number(data.size)
        )
    return Markup('<img src="{}" alt="Image of {} bytes" loading="lazy">').format(source, number(data.size))


def _text(value: Any, limits: Limits, depth: int = 0) -> str:
    """Returns a scalar as text; of lists and structs only the first elements are read."""
    if not value.is_valid:
        return "null"
    if depth > _MAX_DEPTH:
        return "..."
    kind = value.type
    if isinstance(value, pa.ExtensionScalar):
        return _text(value.value, limits, depth)
    if _is_binary(kind):
        return f"{value.as_buffer().size:,} bytes"
    if pa.types.is_struct(kind):
        fields = [
            f"{kind[i].name}: {_text(value[i], limits, depth + 1)}"
            for i in range(min(kind.num_fields, limits.elements))
        ]
        return f"{{{', '.join([*fields, *(['...'] if kind.num_fields > limits.elements else [])])}}}"
    if isinstance(value, pa.ListScalar):
        elements = value.values
        parts = [_text(elements[i], limits, depth + 1) for i in range(min(len(elements), limits.elements))]
        more = f", ... {len(elements):,} values" if len(elements) > limits.elements else ""
        return f"[{', '.join(parts)}{more}]"
    if pa.types.is_floating(kind):
        return f"{value.as_py():.6g}"
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, ImportError):
        # Python cannot represent some times, and texts may not be valid UTF-8.
        return "(cannot be shown)"


def _is_binary(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(check(kind) for check in checks)

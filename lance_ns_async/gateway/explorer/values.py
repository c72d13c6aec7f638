"""Rendering of types, numbers, times and sample values."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.explorer.layout import Markup, html, visible

MAX_COLUMNS = 50
"""Maximum number of columns of the sample."""

_MAX_TEXT = 200
_MAX_THUMBNAIL = 200_000
_FIRST = 4  # Number of elements of a list, or of fields of a struct, that are shown.

_MAX_DEPTH = 3

_IMAGES = (  # The first bytes of images. SVG is not among them, because it can contain scripts.
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

_BLOB = frozenset({"position", "size"})
_BLOB_2 = frozenset({"kind", "position", "size", "blob_id"})
"""The fields in which Lance describes a column of blobs instead of reading them."""

_LISTS = ("list", "large_list", "list_view", "large_list_view")


def number(value: int | float | None) -> str:
    """Returns a number with separators; a dash for None."""
    return "\N{EN DASH}" if value is None else f"{value:,}"


def time(milliseconds: int | None) -> Markup:
    """Returns a time since 1970 in UTC; a dash for None, and the number if it is no time of this calendar."""
    if milliseconds is None:
        return Markup("\N{EN DASH}")
    try:
        value = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return html("{}", number(milliseconds))
    text = f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return html('<time datetime="{}">{}</time>', value.isoformat(), text)


def type_text(json_type: JsonArrowDataType, depth: int = 0) -> str:
    """Returns a type of the spec as text, such as `vector[768] of float32` or `struct<x: int64>`."""
    inner = json_type.fields or []
    if depth > _MAX_DEPTH:
        return "..."
    parts = [type_text(field.type, depth + 1) for field in inner]
    match json_type.type.lower():
        case "fixed_size_list" if parts:
            kind = "vector" if parts[0] in ("float16", "float32", "float64") else "list"
            return f"{kind}[{json_type.length}] of {parts[0]}"
        case word if word in _LISTS and parts:
            return f"list of {parts[0]}"
        case "struct":
            return f"struct<{', '.join(f'{field.name}: {part}' for field, part in zip(inner, parts, strict=True))}>"
        case "map" if inner and len(entries := inner[0].type.fields or []) == 2:
            return f"map of {type_text(entries[0].type, depth + 1)} to {type_text(entries[1].type, depth + 1)}"
        case "fixed_size_binary":
            return f"binary[{json_type.length}]"
        case "decimal128" | "decimal256" as word if json_type.length is not None:
            return f"{word}({json_type.length // 1000}, {json_type.length % 1000})"
        case _:
            return json_type.type


def sample_table(data: bytes) -> Markup:
    """Returns the rows of an Arrow IPC file as a table; takes time in proportion to the shown part only."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        rows = reader.read_all()
    if not rows.num_rows:
        return html('<p class="note">The table has no rows.</p>')
    names = rows.column_names[:MAX_COLUMNS]
    head = [html('<th scope="col"><bdi>{}</bdi></th>', visible(shortened(it, _MAX_TEXT))) for it in names]
    body = [
        html("<tr>{}</tr>", [html("<td>{}</td>", cell(rows.column(i)[row])) for i in range(len(names))])
        for row in range(rows.num_rows)
    ]
    more = rows.num_columns - len(names)
    note = html('<p class="note">{} more columns are not shown.</p>', number(more)) if more > 0 else None
    return html(
        '{}<div class="scroll" tabindex="0" role="region" aria-label="Sample rows"><table class="sample">'
        '<caption class="hidden">First rows</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        note,
        head,
        body,
    )


def cell(value: pa.Scalar) -> Markup:
    """Returns a value of a sample: long texts and lists are cut, and small images are shown."""
    if isinstance(value, pa.ExtensionScalar):
        return Markup("null") if value.value is None else cell(value.value)
    if not value.is_valid:
        return html('<span class="null">null</span>')
    if _is_binary(value.type):
        return _blob(value.as_buffer())
    if pa.types.is_struct(value.type):
        fields = {field.name for field in value.type}
        if fields == _BLOB or fields >= _BLOB_2:
            return html('<span class="blob">{}</span>', f"{number(value['size'].as_py())} bytes")
    return html("<bdi>{}</bdi>", visible(shortened(_text(value), _MAX_TEXT)))


def _blob(data: pa.Buffer) -> Markup:
    start = data[:16].to_pybytes()
    kind = next((kind for magic, kind in _IMAGES if start.startswith(magic)), None)
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None or data.size >= _MAX_THUMBNAIL:
        return html('<span class="blob">{}</span>', f"{data.size:,} bytes")
    return html(
        '<img src="data:{};base64,{}" alt="{}" loading="lazy">',
        kind,
        b64encode(data).decode(),
        f"Image of {data.size:,} bytes",
    )


def _text(value: Any, depth: int = 0) -> str:
    """Returns a scalar as text; of lists and structs only the first elements are read."""
    if not value.is_valid:
        return "null"
    if depth > _MAX_DEPTH:
        return "..."
    kind = value.type
    if isinstance(value, pa.ExtensionScalar):
        return _text(value.value, depth)
    if _is_binary(kind):
        return f"{value.as_buffer().size:,} bytes"
    if pa.types.is_struct(kind):
        fields = [f"{kind[i].name}: {_text(value[i], depth + 1)}" for i in range(min(kind.num_fields, _FIRST))]
        return f"{{{', '.join([*fields, *(['...'] if kind.num_fields > _FIRST else [])])}}}"
    if isinstance(value, pa.ListScalar):
        elements = value.values
        parts = [_text(elements[i], depth + 1) for i in range(min(len(elements), _FIRST))]
        more = f", ... {len(elements):,} values" if len(elements) > _FIRST else ""
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

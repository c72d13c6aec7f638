"""The columns of a directory catalog's manifest that have the values of partitions.

pylance 14 removes these columns with each change that it makes itself. The values are therefore also properties of the
partitions' namespaces, from which the columns are restored.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from lance_namespace.errors import InvalidTableStateError

from lance_ns_async.model import DELIMITER
from lance_ns_async.spec.partitions import PROPERTY, read_partitioning

_BASE64: Final = "base64:"  # Prefix of the text of bytes that are no UTF-8.


def with_partition_values(rows: pa.Table, metadata: Mapping[str, str]) -> pa.Table:
    """Returns the rows of a manifest with all columns of its partition fields; missing ones are restored.

    Args:
        rows: All rows of the manifest.
        metadata: The metadata of the manifest itself.
    """
    partitioning = read_partitioning(metadata)
    fields = {} if partitioning is None else partitioning.fields
    missing = [field for field in fields.values() if field.column not in rows.schema.names]
    if not missing:
        return rows
    try:
        texts = _texts(rows)
        for field in missing:
            values = _read_values([above.get(field.field_id) for above in texts], field.result_type)
            rows = rows.append_column(pa.field(field.column, field.result_type), values)
    except (AttributeError, TypeError, ValueError, pa.ArrowException) as e:
        raise InvalidTableStateError(
            f"the manifest's columns of partitions cannot be restored from the properties of its namespaces ({e})"
        ) from e
    return rows


def write_values(values: pa.Array) -> list[str | None]:
    """Returns the texts of a field's values, from which they can be read without a difference."""
    if _is_binary(values.type):
        return [None if it is None else _text(it) for it in values.to_pylist()]
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    return texts


def read_value(text: str | None, kind: pa.DataType) -> Any:
    """Returns the value of a text of `write_values`."""
    return _read_values([text], kind)[0].as_py()


def _read_values(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    if _is_binary(kind):
        return pa.array([None if it is None else _bytes(it) for it in texts], kind)
    return pa.array(texts, pa.string()).cast(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _text(value: bytes) -> str:
    """Returns bytes as text: in Base64 if they are no UTF-8, or would be read as Base64."""
    try:
        if not (text := value.decode()).startswith(_BASE64):
            return text
    except UnicodeDecodeError:
        pass
    return _BASE64 + b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text.removeprefix(_BASE64), validate=True) if text.startswith(_BASE64) else text.encode()


def _texts(rows: pa.Table) -> list[Mapping[str, str]]:
    """Returns the texts of the values of each row and of the namespaces above it, by the ids of the fields."""
    ids = rows["object_id"].to_pylist()
    own = {
        id: {key.removeprefix(PROPERTY): value for key, value in json.loads(text).items() if key.startswith(PROPERTY)}
        for id, text in zip(ids, rows["metadata"].to_pylist(), strict=True)
        if text and PROPERTY in text
    }
    all_texts: dict[str, Mapping[str, str]] = {"": {}}

    def texts_of(id: str) -> Mapping[str, str]:
        if id not in all_texts:
            parent = texts_of(id.rpartition(DELIMITER)[0])
            all_texts[id] = {**parent, **own[id]} if id in own else parent
        return all_texts[id]

    return [texts_of(id) for id in ids]

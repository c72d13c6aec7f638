"""The columns of a directory catalog's manifest that have the values of partitions.

pylance 14 removes these columns with each change that it makes itself. The values are therefore also properties of the
partitions' namespaces, from which the columns are restored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
from lance_namespace.errors import InvalidTableStateError

from lance_ns_async.model import DELIMITER
from lance_ns_async.spec.partitions import PROPERTY, read_partitioning


def with_partition_values(rows: pa.Table, metadata: Mapping[str, str]) -> pa.Table:
    """Returns the rows of a manifest with all columns of its partition fields; missing ones are restored.

    Args:
        rows: All rows of the manifest.
        metadata: The metadata of the manifest itself.

    Raises:
        InvalidTableStateError: The metadata of the partitions, or a value, is invalid.
    """
    partitioning = read_partitioning(metadata)
    fields = {} if partitioning is None else partitioning.fields
    missing = [field for field in fields.values() if field.column not in rows.schema.names]
    if not missing:
        return rows
    try:
        texts = _texts(rows)
        for field in missing:
            values = pa.array([above.get(field.field_id) for above in texts], pa.string()).cast(field.result_type)
            rows = rows.append_column(pa.field(field.column, field.result_type), values)
    except (AttributeError, TypeError, ValueError, pa.ArrowException) as e:
        raise InvalidTableStateError(
            f"the manifest's columns of partitions cannot be restored from the properties of its namespaces ({e})"
        ) from e
    return rows


def write_values(values: pa.Array) -> list[str | None]:
    """Returns the texts of a field's values, from which they can be read without a difference."""
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    return texts


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

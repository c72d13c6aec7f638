"""Partitions of a directory catalog: the entries of its manifest that the partitioning spec defines."""

from __future__ import annotations

import secrets
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from lance_ns_async.backends.directory.manifest import Entries, ManifestChange, ManifestEntry
from lance_ns_async.backends.directory.partition_columns import read_value, write_values
from lance_ns_async.model import DELIMITER, TableId
from lance_ns_async.spec.partitions import PROPERTY, Partitioning, PartitionSpec, new_spec, read_partitioning

_TABLE = "dataset"  # The name of each partition's table.

_CHARACTERS, _LENGTH = string.ascii_lowercase + string.digits, 16  # Of the random names of partitions' namespaces.

READ_COLUMNS = ("read_version", "read_branch", "read_tag")
"""Columns of the manifest that set the version of a partition to read."""


def partitioning_of(entries: Entries) -> Partitioning:
    """Returns the schema and the specs; raises InvalidInputError if the catalog has no partitions."""
    if (partitioning := read_partitioning(entries.metadata)) is None:
        raise InvalidInputError("this directory has no partitions; partition_by divides a new directory into some")
    return partitioning


def add_spec(entries: Entries, schema: pa.Schema | None, by: Sequence[str | Mapping[str, Any]]) -> ManifestChange:
    """Returns the change that adds the next version of the partition spec."""
    partitioning = read_partitioning(entries.metadata)
    if partitioning is None:
        if schema is None:
            raise InvalidInputError("schema: required for the first partitions of a directory")
        partitioning = Partitioning(schema, ())
    elif schema is not None and not schema.equals(partitioning.schema):
        raise InvalidInputError("schema: differs from that of the existing partitions; omit it")
    spec = new_spec(partitioning, by)
    if partitioning.specs and partitioning.specs[-1].fields == spec.fields:
        return ManifestChange()
    if schema is not None and partitioning.specs:
        raise InvalidInputError("schema: this directory already has partitions; omit it to divide new rows otherwise")
    # An interrupted call may have left the namespace of its spec, which is empty.
    others = entries.rows.num_rows - (entries.get(spec.namespace) is not None)
    if others and not partitioning.specs:
        raise InvalidInputError(f"this directory already has {others} tables and namespaces; partition a new directory")
    columns = [pa.field(field.column, field.result_type) for field in spec.fields]
    after = Partitioning(partitioning.schema, [*partitioning.specs, spec])
    put = [ManifestEntry(spec.namespace, "namespace")]
    return ManifestChange(put=put, columns=columns, metadata=after.metadata())


def tables_of(entries: Entries, spec: PartitionSpec) -> pa.Table:
    """Returns the rows of the tables of all partitions of one version of the spec, with the columns for reading."""
    ids = entries.rows["object_id"]
    is_partition = pc.and_(pc.equal(entries.rows["object_type"], "table"), pc.starts_with(ids, spec.namespace + "$"))
    is_partition = pc.and_(is_partition, pc.ends_with(ids, f"{DELIMITER}{_TABLE}"))
    depth = pc.equal(pc.count_substring(ids, DELIMITER), len(spec.fields) + 1)
    names = ["object_id", "location", "metadata", *READ_COLUMNS, *(field.column for field in spec.fields)]
    columns = [name for name in names if name in entries.rows.schema.names]
    return entries.rows.select(columns).filter(pc.and_(is_partition, depth))


def add_partitions(
    entries: Entries, spec: PartitionSpec, values: pa.Table, place: Callable[[TableId], str]
) -> tuple[ManifestChange, Sequence[ManifestEntry]]:
    """Returns the change that adds the partitions that do not exist yet, and the tables of all of them.

    Args:
        entries: The current entries.
        spec: The version of the spec.
        values: A row for each partition, with a column for each field.
        place: Returns the location of a new table.
    """
    names = [field.column for field in spec.fields]
    children = _children(entries, spec, values)
    put: dict[str, ManifestEntry] = {}
    tables: list[ManifestEntry] = []
    texts = zip(*(write_values(column) for column in values.columns), strict=True)
    for row, text in zip(zip(*(column.to_pylist() for column in values.columns), strict=True), texts, strict=True):
        parent = spec.namespace
        column_values: dict[str, Any] = {}
        for level, field in enumerate(spec.fields):
            column_values[names[level]] = row[level]
            if (id := children.get((parent, row[level]))) is None:
                id = children[parent, row[level]] = f"{parent}{DELIMITER}{_random_name()}"
                own = {} if text[level] is None else {f"{PROPERTY}{field.field_id}": str(text[level])}
                put[id] = ManifestEntry(id, "namespace", None, own, dict(column_values))
            parent = id
        key = f"{parent}{DELIMITER}{_TABLE}"
        if (table := entries.get(key)) is None:
            table = put[key] = ManifestEntry(key, "table", place(TableId(key.split(DELIMITER))), {}, column_values)
        elif pinned := {name: value for name, value in entries.columns_of(key, READ_COLUMNS).items() if value}:
            raise InvalidTableStateError(
                f"partition {key} is read at {pinned}, so that new rows would not be seen; "
                "remove these values from the manifest first"
            )
        tables.append(table)
    return ManifestChange(put=list(put.values())), tables


def remove_empty(entries: Entries, dropped: Iterable[TableId]) -> ManifestChange:
    """Returns the change that removes the namespaces above dropped tables, except those that have something else."""
    namespaces = {above for id in dropped for above in _above(DELIMITER.join(id)) if DELIMITER in above}
    removed: Counter[str] = Counter()
    remove = []
    for id in sorted(namespaces, key=lambda id: id.count(DELIMITER), reverse=True):
        if entries.get(id) is not None and entries.count_below(id) == removed[id]:
            remove.append(id)
            removed.update(_above(id))
    return ManifestChange(remove=remove)


def _above(id: str) -> Iterator[str]:
    while DELIMITER in id:
        id = id.rpartition(DELIMITER)[0]
        yield id


def _children(entries: Entries, spec: PartitionSpec, values: pa.Table) -> dict[tuple[str, Any], str]:
    """Returns the ids of the namespaces with one of the values, by that of the parent and the value of the level."""
    ids = entries.rows["object_id"]
    depths = pc.count_substring(ids, DELIMITER)
    below = pc.and_(pc.equal(entries.rows["object_type"], "namespace"), pc.starts_with(ids, spec.namespace + "$"))
    children = {}
    for level, name in enumerate(values.schema.names, 1):
        has_value = pc.is_in(entries.rows[name], value_set=values[name].combine_chunks())
        rows = entries.rows.filter(pc.and_(pc.and_(below, pc.equal(depths, level)), has_value))
        for id, value in zip(rows["object_id"].to_pylist(), rows[name].to_pylist(), strict=True):
            children[id.rpartition(DELIMITER)[0], value] = id
    return children


def values_of(entries: Entries, names: Sequence[str], properties: Mapping[str, str]) -> Mapping[str, Any]:
    """Returns the values of a partition, for a namespace or a table that is made again, by the columns of the manifest.

    Args:
        entries: The entries, with the namespaces above.
        names: The id.
        properties: The properties of the namespace itself; none for a table.
    """
    partitioning = read_partitioning(entries.metadata)
    specs = () if partitioning is None else partitioning.specs
    spec = next((spec for spec in specs if [spec.namespace] == list(names[:1])), None)
    if spec is None or not 1 < len(names) <= len(spec.fields) + 2:
        return {}
    texts = dict(properties)
    for above in _above(DELIMITER.join(names)):
        texts |= {} if (entry := entries.get(above)) is None else entry.metadata
    fields = spec.fields[: len(names) - 1]
    return {it.column: read_value(texts.get(f"{PROPERTY}{it.field_id}"), it.result_type) for it in fields}


def properties_of(entries: Entries, names: Sequence[str]) -> Mapping[str, str]:
    """Returns the further properties of a namespace: its version of the spec, if it is that of one."""
    partitioning = read_partitioning(entries.metadata)
    specs = () if partitioning is None else partitioning.specs
    spec = next((spec for spec in specs if [spec.namespace] == list(names)), None)
    return {} if spec is None else {"partition_spec": spec.to_json()}


def _random_name() -> str:
    return "".join(secrets.choice(_CHARACTERS) for _ in range(_LENGTH))

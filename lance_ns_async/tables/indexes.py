"""Indexes of datasets: made, listed, told of, dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from lance_namespace import CreateTableIndexRequest, DescribeTableIndexStatsResponse
from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models.index_content import IndexContent

from lance_ns_async.tables.searching import DISTANCES

if TYPE_CHECKING:
    from lance import LanceDataset

VECTOR_TYPES = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")
"""What `create_table_index` makes."""

SCALAR_TYPES = (
    "BTREE",
    "BITMAP",
    "LABEL_LIST",
    "NGRAM",
    "ZONEMAP",
    "BLOOMFILTER",
    "RTREE",
    "MINHASHLSH",
    "FTS",
    "INVERTED",
)
"""What `create_table_scalar_index` makes."""

_TEXT_TYPES = ("FTS", "INVERTED")

# The spec's fields, and pylance's names for them where those differ.
_VECTOR_FIELDS: Mapping[str, str] = {
    "num_partitions": "num_partitions",
    "num_sub_vectors": "num_sub_vectors",
    "num_bits": "num_bits",
    "sample_rate": "sample_rate",
    "max_iterations": "max_iters",
    "target_partition_size": "target_partition_size",
    "m": "m",
    "ef_construction": "ef_construction",
}
_TEXT_FIELDS: Mapping[str, str] = {
    name: name
    for name in (
        "with_position",
        "base_tokenizer",
        "language",
        "max_token_length",
        "lower_case",
        "stem",
        "remove_stop_words",
        "ascii_folding",
    )
}


def check_vector(request: CreateTableIndexRequest) -> None:
    """Raises InvalidInputError for a request that is not one for an index of vectors."""
    kind = _kind(request, VECTOR_TYPES, ("create_table_scalar_index", SCALAR_TYPES))
    _refuse(request, _TEXT_FIELDS, f"an index of type {kind}")
    if request.distance_type is not None and request.distance_type.lower() not in DISTANCES:
        raise InvalidInputError(
            f"distance_type {request.distance_type!r}: unknown; it is one of {', '.join(DISTANCES)}"
        )


def check_scalar(request: CreateTableIndexRequest) -> None:
    """Raises InvalidInputError for a request that is not one for an index of scalars or of text."""
    kind = _kind(request, SCALAR_TYPES, ("create_table_index", VECTOR_TYPES))
    _refuse(request, [*_VECTOR_FIELDS, "distance_type"], f"an index of type {kind}")
    if kind not in _TEXT_TYPES:
        _refuse(request, _TEXT_FIELDS, f"an index of type {kind}")


def create_vector(dataset: LanceDataset, request: CreateTableIndexRequest) -> None:
    """Makes an index of vectors as asked by a checked request."""
    given = _given(request, _VECTOR_FIELDS)
    if request.distance_type is not None:
        given["metric"] = request.distance_type.lower()
    dataset.create_index(request.column, request.index_type.upper(), name=request.name, replace=False, **given)


def create_scalar(dataset: LanceDataset, request: CreateTableIndexRequest) -> None:
    """Makes an index of scalars or of text as asked by a checked request."""
    given, kind = _given(request, _TEXT_FIELDS), cast(Any, request.index_type.upper())
    dataset.create_scalar_index(request.column, kind, name=request.name, replace=False, **given)


def described(dataset: LanceDataset) -> Mapping[str, IndexContent]:
    """The indexes by their names."""
    rows = dataset.count_rows()
    return {index.name: _content(index, rows) for index in dataset.describe_indices()}


def stats(dataset: LanceDataset, name: str) -> DescribeTableIndexStatsResponse:
    """What is told of an index that is there."""
    found = dataset.stats.index_stats(name)
    metric = next((part["metric_type"] for part in found["indices"] if "metric_type" in part), None)
    return DescribeTableIndexStatsResponse(
        distance_type=metric,
        index_type=found["index_type"],
        num_indexed_rows=found["num_indexed_rows"],
        num_unindexed_rows=found["num_unindexed_rows"],
        num_indices=found["num_indices"],
    )


def _content(index: Any, rows: int) -> IndexContent:
    first = index.segments[0]
    return IndexContent(
        index_name=index.name,
        index_uuid=str(first.uuid),
        columns=list(index.field_names),
        status="SUCCEEDED",
        index_type=index.index_type,
        type_url=index.type_url,
        num_indexed_rows=index.num_rows_indexed,
        num_unindexed_rows=max(rows - index.num_rows_indexed, 0),
        size_bytes=index.total_size_bytes,
        num_segments=len(index.segments),
        created_at=first.created_at,
        index_version=first.index_version,
        index_details=json.dumps(index.details, default=str),
    )


def _kind(request: CreateTableIndexRequest, known: tuple[str, ...], other: tuple[str, tuple[str, ...]]) -> str:
    kind = request.index_type.upper()
    if kind in known:
        return kind
    operation, elsewhere = other
    hint = f"{operation} makes it" if kind in elsewhere else f"it is one of {', '.join(known)}"
    raise InvalidInputError(f"index_type {request.index_type!r}: {hint}")


def _refuse(request: CreateTableIndexRequest, fields: Any, by: str) -> None:
    if given := [field for field in fields if getattr(request, field) is not None]:
        raise InvalidInputError(f"{given[0]}: {by} has no such setting")


def _given(request: CreateTableIndexRequest, fields: Mapping[str, str]) -> dict[str, Any]:
    return {theirs: value for ours, theirs in fields.items() if (value := getattr(request, ours)) is not None}

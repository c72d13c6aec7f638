"""The operations on indexes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import lance_namespace as spec
from lance_namespace import CreateTableIndexRequest, DescribeTableIndexStatsResponse
from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models.index_content import IndexContent

from lance_ns_async.operations.requests import operation, page_of, passed_on
from lance_ns_async.operations.searching import DISTANCES, arguments, dimension
from lance_ns_async.rendering import counted
from lance_ns_async.session import Session
from lance_ns_async.spec.responses import Short
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.tabular import html_models

if TYPE_CHECKING:
    from lance import LanceDataset


_PARTITIONS = ("distance_type", "num_partitions", "target_partition_size", "sample_rate", "max_iterations")
_PRODUCT = ("num_sub_vectors", "num_bits")
_GRAPH = ("m", "ef_construction")
_TEXT = (
    "with_position",
    "base_tokenizer",
    "language",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "ascii_folding",
)

VECTOR_TYPES: Mapping[str, tuple[str, ...]] = {
    "IVF_FLAT": _PARTITIONS,
    "IVF_PQ": (*_PARTITIONS, *_PRODUCT),
    "IVF_SQ": _PARTITIONS,
    "IVF_RQ": (*_PARTITIONS, "num_bits"),
    "IVF_HNSW_FLAT": (*_PARTITIONS, *_GRAPH),
    "IVF_HNSW_PQ": (*_PARTITIONS, *_PRODUCT, *_GRAPH),
    "IVF_HNSW_SQ": (*_PARTITIONS, *_GRAPH),
}
"""Vector index types, and the request fields that each supports; pylance ignores other fields without an error."""

SCALAR_TYPES: Mapping[str, tuple[str, ...]] = {
    "BTREE": (),
    "BITMAP": (),
    "LABEL_LIST": (),
    "NGRAM": (),
    "ZONEMAP": (),
    "BLOOMFILTER": (),
    "RTREE": (),
    "MINHASHLSH": (),
    "FTS": _TEXT,
    "INVERTED": _TEXT,
}
"""Scalar and text index types, and the request fields that each supports."""

_SETTINGS = (*_PARTITIONS, *_PRODUCT, *_GRAPH, *_TEXT)

_MAX_VALUES: Mapping[str, int] = {
    "num_partitions": 1_000_000,
    "sample_rate": 65_536,
    "max_iterations": 10_000,
    "num_bits": 16,
    "m": 512,
    "ef_construction": 10_000,
    "max_token_length": 1 << 20,
}
"""Maximum values, far above useful ones. Lance reserves memory for the value; if that fails, the process ends."""

_TOKENIZER = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)?")
"""Names of tokenizers; the part after the slash is a folder of a language model, and must not be another path."""

_PYLANCE: Mapping[str, str] = {"distance_type": "metric", "max_iterations": "max_iters"}
"""Names of fields in pylance that differ from the spec."""

_MAX_SUB_VECTORS = 16  # Maximum default number of sub-vectors, as in Lance's own namespaces.


class ListTableIndicesResponse(Short, spec.ListTableIndicesResponse):
    """The indexes of a table."""

    def _repr_html_(self) -> str:
        return html_models(counted(len(self.indexes), "indexes"), self.indexes)


@passed_on
@operation
async def create_table_index(session: Session, request: spec.CreateTableIndexRequest) -> spec.CreateTableIndexResponse:
    check(request)
    await session.change(request.id, lambda it, _: create(it, request), Snapshot(branch=request.branch))
    return spec.CreateTableIndexResponse()


@passed_on
@operation
async def create_table_scalar_index(
    session: Session, request: spec.CreateTableIndexRequest
) -> spec.CreateTableScalarIndexResponse:
    check_scalar(request)
    await session.change(request.id, lambda it, _: create(it, request), Snapshot(branch=request.branch))
    return spec.CreateTableScalarIndexResponse()


@passed_on
@operation
async def list_table_indices(session: Session, request: spec.ListTableIndicesRequest) -> spec.ListTableIndicesResponse:
    snapshot = Snapshot(request.version, branch=request.branch)
    table_indexes = await session.read(request.id, lambda it, _: list_indexes(it), snapshot)
    page, token = await page_of(table_indexes, request.limit, request.page_token)
    return ListTableIndicesResponse(indexes=list(page.values()), page_token=token)


@passed_on
@operation
async def describe_table_index_stats(
    session: Session, request: spec.DescribeTableIndexStatsRequest
) -> spec.DescribeTableIndexStatsResponse:
    name = check_name(request.index_name)
    snapshot = Snapshot(request.version, branch=request.branch)
    return await session.read(request.id, lambda it, _: stats(it, name), snapshot)


@passed_on
@operation
async def drop_table_index(session: Session, request: spec.DropTableIndexRequest) -> spec.DropTableIndexResponse:
    name = check_name(request.index_name)
    await session.change(request.id, lambda it, _: drop(it, name), Snapshot(branch=request.branch))
    return spec.DropTableIndexResponse()


def check(request: CreateTableIndexRequest) -> None:
    """Raises InvalidInputError for a request that is invalid for every table."""
    _check(request, {**VECTOR_TYPES, **SCALAR_TYPES})


def check_scalar(request: CreateTableIndexRequest) -> None:
    """Raises InvalidInputError for a request that is not a valid one for a scalar or text index."""
    if _kind(request) in VECTOR_TYPES:
        raise InvalidInputError(f"index_type {request.index_type!r}: not a scalar index; use create_table_index")
    _check(request, SCALAR_TYPES)


def check_name(name: str | None) -> str:
    """Returns the name of an existing index. Raises InvalidInputError if the name is missing or empty."""
    if not name:
        raise InvalidInputError("index_name: required; list_table_indices returns the existing names")
    return name


def create(dataset: LanceDataset, request: CreateTableIndexRequest) -> None:
    """Creates the index of a checked request."""
    kind = cast(Any, _kind(request))
    settings = arguments({_PYLANCE.get(field, field): getattr(request, field) for field in _SETTINGS})
    settings["name"] = request.name or None
    if kind in SCALAR_TYPES:
        dataset.create_scalar_index(request.column, kind, replace=False, **settings)
        return
    if "metric" in settings:
        settings["metric"] = settings["metric"].lower()
    if "num_sub_vectors" in VECTOR_TYPES[kind] and "num_sub_vectors" not in settings:
        settings["num_sub_vectors"] = _sub_vectors(dataset, request.column)
    dataset.create_index(request.column, kind, replace=False, **settings)


def drop(dataset: LanceDataset, name: str) -> None:
    """Removes an index; earlier versions keep it."""
    dataset.drop_index(name)


def list_indexes(dataset: LanceDataset) -> Mapping[str, IndexContent]:
    """Returns the indexes, keyed by name."""
    rows = dataset.count_rows()
    return {index.name: _content(index, rows) for index in dataset.describe_indices()}


def stats(dataset: LanceDataset, name: str) -> DescribeTableIndexStatsResponse:
    """Returns the statistics of an existing index."""
    statistics = dataset.stats.index_stats(name)
    metric = next((part["metric_type"] for part in statistics["indices"] if "metric_type" in part), None)
    return DescribeTableIndexStatsResponse(
        distance_type=metric,
        index_type=statistics["index_type"],
        num_indexed_rows=statistics["num_indexed_rows"],
        num_unindexed_rows=statistics["num_unindexed_rows"],
        num_indices=statistics["num_indices"],
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


def _check(request: CreateTableIndexRequest, types: Mapping[str, tuple[str, ...]]) -> None:
    kind = _kind(request)
    if kind not in types:
        raise InvalidInputError(f"index_type {request.index_type!r}: must be one of {', '.join(types)}")
    for field in _SETTINGS:
        if field not in types[kind] and getattr(request, field) is not None:
            raise InvalidInputError(f"{field}: not supported by an index of type {kind}; remove it")
    for field, most in _MAX_VALUES.items():
        if (value := getattr(request, field)) is not None and value > most:
            raise InvalidInputError(f"{field} {value}: must be at most {most}; omit it for the default")
    if request.base_tokenizer is not None and not _TOKENIZER.fullmatch(request.base_tokenizer):
        raise InvalidInputError(
            f"base_tokenizer {request.base_tokenizer!r}: must be a name, such as simple, ngram or lindera/ipadic"
        )
    if request.distance_type is not None and request.distance_type.lower() not in DISTANCES:
        raise InvalidInputError(f"distance_type {request.distance_type!r}: must be one of {', '.join(DISTANCES)}")


def _kind(request: CreateTableIndexRequest) -> str:
    """Returns the requested type in pylance's spelling; case, `_` and `-` are ignored in the request."""
    return _BY_FOLDED.get(_fold(request.index_type), request.index_type)


def _fold(kind: str) -> str:
    return re.sub("[_-]", "", kind).upper()


_BY_FOLDED = {_fold(kind): kind for kind in (*VECTOR_TYPES, *SCALAR_TYPES)}


def _sub_vectors(dataset: LanceDataset, column: str) -> int | None:
    """Returns the number of sub-vectors; None if the column has no vectors, which pylance reports as an error."""
    field: Any = dataset.lance_schema.field(column)
    size = None if field is None else dimension(field.to_arrow().type)
    return size and max(n for n in range(1, _MAX_SUB_VECTORS + 1) if size % n == 0)

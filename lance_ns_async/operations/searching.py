"""Queries of the spec, checked and converted to arguments of pylance's scanner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.operations import full_text
from lance_ns_async.storage import guard
from lance_ns_async.storage.guard import Query
from lance_ns_async.storage.sql_bounds import Texts

if TYPE_CHECKING:
    from lance import LanceDataset

DISTANCES = ("l2", "cosine", "dot", "hamming")
"""The supported distance types of vectors."""

_USUAL_COLUMN = "vector"

MOST_ROWS = 2**63 - 1
"""The largest number of rows that Lance accepts."""

# bypass_vector_index is not in this list, because lancedb sets it in every query without a vector.
OF_VECTORS = (
    "vector_column",
    "distance_type",
    "lower_bound",
    "upper_bound",
    "nprobes",
    "minimum_nprobes",
    "maximum_nprobes",
    "ef",
    "refine_factor",
)


def check(query: Query) -> None:
    """Raises InvalidInputError for a query that is invalid for every table, or the guard of the request rejects it."""
    if query.k < 1:
        raise InvalidInputError(f"k {query.k}: must be at least 1")
    for field in ("k", "offset"):
        if (getattr(query, field) or 0) > MOST_ROWS:
            raise InvalidInputError(f"{field} {getattr(query, field)}: must be at most {MOST_ROWS} (2**63 - 1)")
    for field in ("nprobes", "refine_factor", "ef"):
        if getattr(query, field) == 0:
            raise InvalidInputError(f"{field} 0: must be at least 1; omit it for the default")
    low, high = query.minimum_nprobes, query.maximum_nprobes
    if low is not None and high is not None and low > high:
        raise InvalidInputError(f"minimum_nprobes {low}: must not be above maximum_nprobes {high}")
    if query.columns and query.columns.column_names is not None and query.columns.column_aliases is not None:
        raise InvalidInputError("columns: set column_names or column_aliases, not both")
    if _distance(query) not in (None, *DISTANCES):
        raise InvalidInputError(f"distance_type {query.distance_type!r}: must be one of {', '.join(DISTANCES)}")
    vectors = _vectors(query)
    if vectors and query.ef is not None and query.ef < query.k + (query.offset or 0):
        raise InvalidInputError(f"ef {query.ef}: must be at least k + offset, which is {query.k + (query.offset or 0)}")
    if query.full_text_query:
        full_text.check(query.full_text_query)
    guard.current().check_search(query, vectors)
    if vectors and query.full_text_query:
        raise InvalidInputError(
            "vector and full_text_query: set only one of them; leave the vector empty for a text search"
        )
    if len(vectors) > 1 and query.offset:
        raise InvalidInputError(f"offset {query.offset}: not supported with several vectors; omit it")
    if any(not vector for vector in vectors):
        raise InvalidInputError("multi_vector: a vector is empty; remove it")
    if not vectors and (fields := [field for field in OF_VECTORS if getattr(query, field) not in (None, "")]):
        raise InvalidInputError(f"{fields[0]}: allowed only with a vector; set a vector, or omit this field")


def texts(query: Query) -> Texts:
    """Returns the SQL texts of a query. Column names are not included, because Lance does not parse them."""
    aliases = (query.columns and query.columns.column_aliases) or {}
    return Texts({"filter": query.filter}, {f"columns: {name}": sql for name, sql in aliases.items()})


def is_search(query: Query) -> bool:
    """Returns whether a checked query is a search by vector or text."""
    return bool(_vectors(query) or query.full_text_query)


def scan(dataset: LanceDataset, query: Query) -> Any:
    """Returns the scanner for a checked query: a vector or text search, or without either the first rows."""
    vectors = _vectors(query)
    query_arguments: dict[str, Any] = {
        "filter": query.filter,
        "prefilter": query.prefilter,
        "fast_search": query.fast_search,
        "with_row_id": query.with_row_id,
        # The column that a search adds is requested explicitly below, because pylance will require that.
        "disable_scoring_autoprojection": True,
    }
    if len(vectors) < 2:
        query_arguments |= {"limit": query.k, "offset": query.offset}
    found_by = None
    if vectors:
        query_arguments["nearest"] = _nearest(dataset, query, vectors)
        found_by = "_distance"
    elif query.full_text_query:
        query_arguments["full_text_query"] = full_text.text_query(dataset, query.full_text_query)
        found_by = "_score"
    return dataset.scanner(columns=_columns(dataset, query, found_by), **full_text.arguments(query_arguments))


def dimension(type: pa.DataType) -> int | None:
    """Returns the dimension of the vectors in a column of this type, one or several per row; None without vectors."""
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if pa.types.is_list(type):
        type = type.value_type
    return type.list_size if pa.types.is_fixed_size_list(type) else None


def _vectors(query: Query) -> Sequence[Sequence[float]]:
    """Returns the vectors of the search; none for a query without a vector search."""
    single, multi = query.vector.single_vector or [], query.vector.multi_vector or []
    if single and multi:
        raise InvalidInputError("vector: set single_vector or multi_vector, not both")
    return multi or ([single] if single else [])


def _distance(query: Query) -> str | None:
    return query.distance_type.lower() if query.distance_type else None


def _nearest(dataset: LanceDataset, query: Query, vectors: Sequence[Sequence[float]]) -> Mapping[str, Any]:
    bounds = (query.lower_bound, query.upper_bound)
    exact = query.minimum_nprobes is None and query.maximum_nprobes is None
    # Lance reserves memory for the requested number of rows; if that fails, the whole process ends.
    rows = max(1, dataset.count_rows())
    # The search also has to find the rows that are skipped.
    k = min(query.k + (query.offset or 0), rows)
    return full_text.arguments(
        {
            "column": query.vector_column or _vector_column(dataset.schema),
            "q": vectors[0] if len(vectors) == 1 else vectors,
            "k": k,
            "metric": _distance(query),
            "nprobes": query.nprobes if exact else None,
            "minimum_nprobes": query.minimum_nprobes,
            "maximum_nprobes": query.maximum_nprobes,
            "ef": None if query.ef is None else min(query.ef, max(rows, k)),
            "refine_factor": None if query.refine_factor is None else min(query.refine_factor, -(-rows // k)),
            "use_index": not query.bypass_vector_index,
            "distance_range": None if bounds == (None, None) else bounds,
        }
    )


def _vector_column(schema: pa.Schema) -> str:
    """Returns the vector column for a query that names none."""
    fitting: list[str] = [field.name for field in schema if dimension(field.type) is not None]
    if _USUAL_COLUMN in fitting:
        return _USUAL_COLUMN
    if len(fitting) == 1:
        return fitting[0]
    lists = [field.name for field in schema if _is_list_of_floats(field.type)]
    if fitting:
        which = f"set it to one of {', '.join(fitting)}"
    elif lists:
        which = f"{lists[0]} has lists of variable length: write it as pyarrow.list_(pyarrow.float32(), dimension)"
    else:
        which = "the table has no vector column"
    raise InvalidInputError(f"vector_column: required, because there is no vector column {_USUAL_COLUMN!r}; {which}")


def _is_list_of_floats(type: pa.DataType) -> bool:
    return bool((pa.types.is_list(type) or pa.types.is_large_list(type)) and pa.types.is_floating(type.value_type))


def _columns(dataset: LanceDataset, query: Query, found_by: str | None) -> list[str] | dict[str, str] | None:
    columns = query.columns
    names = columns.column_names if columns else None
    aliases = columns.column_aliases if columns else None
    if aliases is not None:
        return {**aliases, **({found_by: found_by} if found_by and found_by not in aliases else {})}
    if names is None and found_by is None:
        return None
    column_names: list[str] = [*(dataset.schema.names if names is None else names)]
    return column_names if found_by is None or found_by in column_names else [*column_names, found_by]

"""Queries of a dataset: searches by vector and by text, filters, counts, plans and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from lance_namespace import GetTableStatsResponse
from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models.fragment_stats import FragmentStats
from lance_namespace_urllib3_client.models.fragment_summary import FragmentSummary
from lance_namespace_urllib3_client.models.fts_query import FtsQuery
from lance_namespace_urllib3_client.models.query_table_request_full_text_query import QueryTableRequestFullTextQuery

from lance_ns_async.storage import arrow, guard
from lance_ns_async.storage.guard import Query
from lance_ns_async.storage.sql_bounds import Texts

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


DISTANCES = ("l2", "cosine", "dot", "hamming")
"""The supported distance types of vectors."""

_DEFAULT_COLUMN = "vector"

MAX_ROWS = 2**63 - 1
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
_DEEPEST = 32  # Maximum nesting of queries.


def check(query: Query) -> None:
    """Raises InvalidInputError for a query that is invalid for every table, or the guard of the request rejects it."""
    if query.k < 1:
        raise InvalidInputError(f"k {query.k}: must be at least 1")
    for field in ("k", "offset"):
        if (getattr(query, field) or 0) > MAX_ROWS:
            raise InvalidInputError(f"{field} {getattr(query, field)}: must be at most {MAX_ROWS} (2**63 - 1)")
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
        check_text_query(query.full_text_query)
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


def scan(dataset: LanceDataset, query: Query, order_by: Any = None) -> Any:
    """Returns the scanner for a checked query: a vector or text search, or without either the first rows.

    Args:
        dataset: The dataset.
        query: The query.
        order_by: The order of the rows of a query that is no search, as pylance's `scanner` takes it; None for any.
    """
    vectors = _vectors(query)
    query_arguments: dict[str, Any] = {
        "filter": query.filter,
        "prefilter": query.prefilter,
        "fast_search": query.fast_search,
        "with_row_id": query.with_row_id,
        "order_by": order_by,
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
        query_arguments["full_text_query"] = text_query(dataset, query.full_text_query)
        found_by = "_score"
    return dataset.scanner(columns=_columns(dataset, query, found_by), **arguments(query_arguments))


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
    return arguments(
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
    if _DEFAULT_COLUMN in fitting:
        return _DEFAULT_COLUMN
    if len(fitting) == 1:
        return fitting[0]
    lists = [field.name for field in schema if _is_list_of_floats(field.type)]
    if fitting:
        which = f"set it to one of {', '.join(fitting)}"
    elif lists:
        which = f"{lists[0]} has lists of variable length: write it as pyarrow.list_(pyarrow.float32(), dimension)"
    else:
        which = "the table has no vector column"
    raise InvalidInputError(f"vector_column: required, because there is no vector column {_DEFAULT_COLUMN!r}; {which}")


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


def arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that are not None; pylance has its own defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}


def check_text_query(request: QueryTableRequestFullTextQuery) -> None:
    """Raises InvalidInputError for a query that is nested too deeply."""
    for depth, _ in enumerate(levels(request), 1):
        if depth > _DEEPEST:
            raise InvalidInputError(
                f"full_text_query: queries are nested more than {_DEEPEST} levels deep; use fewer levels"
            )


def levels(request: QueryTableRequestFullTextQuery) -> Iterator[Sequence[FtsQuery]]:
    """Yields the structured queries of each level, from the outermost on."""
    level = [] if request.structured_query is None else [request.structured_query.query]
    while level:
        yield level
        level = [below for query in level for below in _nested(query)]


def _nested(query: FtsQuery) -> Iterator[FtsQuery]:
    if query.boost is not None:
        yield from (query.boost.positive, query.boost.negative)
    if query.boolean is not None:
        yield from (*query.boolean.must, *query.boolean.must_not, *query.boolean.should)


def text_query(dataset: LanceDataset, request: QueryTableRequestFullTextQuery) -> Any:
    """Returns the query for pylance's scanner."""
    match request.string_query, request.structured_query:
        case (words, None) if words is not None:
            if not words.columns:
                _text_columns(dataset, phrases=False)
            return {"query": words.query, "columns": words.columns or None}
        case (None, structured) if structured is not None:
            return _convert(dataset, structured.query)
    raise InvalidInputError("full_text_query: set either string_query or structured_query")


def _convert(dataset: LanceDataset, query: Any) -> Any:
    from lance import query as lance

    named = [name for name, it in query if it is not None]
    if len(named) != 1:
        raise InvalidInputError(
            f"full_text_query: each query must have exactly one kind, e.g. match or phrase; not {named or 'none'}"
        )
    (kind,) = named
    clause = getattr(query, kind)
    if kind == "match":
        return _matches(dataset, [clause])
    if kind == "multi_match":
        if not clause.match_queries:
            raise InvalidInputError("match_queries: must not be empty")
        return _matches(dataset, clause.match_queries)
    if kind == "phrase":
        columns = [clause.column] if clause.column else _text_columns(dataset, phrases=True)
        return _any([lance.PhraseQuery(clause.terms, column, slop=clause.slop or 0) for column in columns])
    if kind == "boost":
        weight = 0.5 if clause.negative_boost is None else clause.negative_boost
        parts = (_convert(dataset, clause.positive), _convert(dataset, clause.negative))
        return lance.BoostQuery(*parts, negative_boost=weight)
    occurs = {"must": lance.Occur.MUST, "must_not": lance.Occur.MUST_NOT, "should": lance.Occur.SHOULD}
    return lance.BooleanQuery(
        [(occur, _convert(dataset, part)) for name, occur in occurs.items() for part in getattr(clause, name)]
    )


def _matches(dataset: LanceDataset, clauses: Sequence[Any]) -> Any:
    """Returns a query for rows that match any of the queries.

    If pylance can combine all of them into one query, the score of a row is the best one, else the sum of the scores.
    """
    from lance import query as lance

    parts = [
        (it.terms, column, _way(it))
        for it in clauses
        for column in ([it.column] if it.column else _text_columns(dataset, phrases=False))
    ]
    terms, _, first = parts[0]
    alike = all(
        it == terms and set(way) <= {"boost", "operator"} and way.get("operator") == first.get("operator")
        for it, _, way in parts
    )
    if not alike or len(parts) == 1:
        return _any([lance.MatchQuery(it, column, **way) for it, column, way in parts])
    return lance.MultiMatchQuery(
        terms,
        [column for _, column, _ in parts],
        boosts=[way.get("boost", 1.0) for _, _, way in parts],
        operator=first.get("operator", lance.FullTextOperator.OR),
    )


def _any(queries: Sequence[Any]) -> Any:
    from lance import query as lance

    return queries[0] if len(queries) == 1 else lance.BooleanQuery([(lance.Occur.SHOULD, it) for it in queries])


def _way(match: Any) -> dict[str, Any]:
    from lance import query as lance

    operator = None
    if match.operator is not None:
        try:
            operator = lance.FullTextOperator(match.operator.upper())
        except ValueError:
            raise InvalidInputError(f"operator {match.operator!r}: must be one of and, or") from None
    return arguments(
        {
            "boost": match.boost,
            "fuzziness": match.fuzziness,
            "max_expansions": match.max_expansions,
            "operator": operator,
            "prefix_length": match.prefix_length,
        }
    )


def _text_columns(dataset: LanceDataset, *, phrases: bool) -> Sequence[str]:
    """Returns the columns with a full-text index; for phrases, those with positions if there are any."""
    texts: list[Any] = [it for it in dataset.describe_indices() if it.index_type == "Inverted"]
    if not texts:
        raise InvalidInputError(
            "full_text_query: no column is set, and no column has a full-text index; create one with "
            "create_table_scalar_index(..., index_type='FTS'), or set a column"
        )
    fitting = [it for it in texts if it.details.get("with_position")] if phrases else []
    return sorted({name for it in fitting or texts for name in it.field_names})


def count(dataset: LanceDataset, predicate: str | None) -> int:
    """Returns the number of rows that match; all rows if the predicate is None."""
    guard.current().check_built_values(dataset, Texts({"predicate": predicate}))
    rows: int = dataset.count_rows(filter=predicate)
    return rows


def query(dataset: LanceDataset, request: Query) -> bytes:
    """Returns the rows of a query as an Arrow IPC file."""
    _check_built_values(dataset, request)
    return arrow.file(scan(dataset, request).to_reader())


def find_rows(dataset: LanceDataset, request: Query, order_by: Any = None) -> pa.Table:
    """Returns the rows of a query, in an order as in `scan`."""
    _check_built_values(dataset, request)
    return arrow.table(scan(dataset, request, order_by).to_reader())


def explain_plan(dataset: LanceDataset, request: Query, *, verbose: bool) -> str:
    """Returns the plan of a query."""
    plan: str = scan(dataset, request).explain_plan(verbose)
    return plan


def analyze(dataset: LanceDataset, request: Query) -> str:
    """Runs a query; returns its plan with the metrics of each step."""
    _check_built_values(dataset, request)
    plan: str = scan(dataset, request).analyze_plan()
    return plan


def _check_built_values(dataset: LanceDataset, request: Query) -> None:
    """Checks the values that a query builds; for a find_rows, which may return any rows, on all rows."""
    plain = not is_search(request)
    first = request.k + (request.offset or 0) if plain else None
    guard.current().check_built_values(dataset, texts(request), request.filter if plain else None, first=first)


def stats(dataset: LanceDataset) -> GetTableStatsResponse:
    """Returns the statistics of the table and its fragments."""
    rows = sorted(fragment.count_rows() for fragment in dataset.get_fragments())
    dataset_stats, data_stats = dataset.stats.dataset_stats(), cast(Any, dataset.stats.data_stats())

    def at(percent: int) -> int:
        """Returns the percentile of the fragments' lengths."""
        return rows[min(len(rows) * percent // 100, len(rows) - 1)] if rows else 0

    return GetTableStatsResponse(
        total_bytes=sum(field.bytes_on_disk for field in data_stats.fields),
        num_rows=sum(rows),
        num_indices=len(dataset.describe_indices()),
        fragment_stats=FragmentStats(
            num_fragments=dataset_stats["num_fragments"],
            num_small_fragments=dataset_stats["num_small_files"],
            lengths=FragmentSummary(
                min=at(0),
                max=at(100),
                mean=sum(rows) // len(rows) if rows else 0,
                p25=at(25),
                p50=at(50),
                p75=at(75),
                p99=at(99),
            ),
        ),
    )

"""What a query of the spec asks for, in the words of pylance's scanner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from lance_namespace import AnalyzeTableQueryPlanRequest, QueryTableRequest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

if TYPE_CHECKING:
    from lance import LanceDataset

Query: TypeAlias = QueryTableRequest | AnalyzeTableQueryPlanRequest

DISTANCES = ("l2", "cosine", "dot", "hamming")
"""What may be between vectors."""

_USUAL_COLUMN = "vector"


def check(query: Query) -> None:
    """Raises InvalidInputError for what no table could answer."""
    if query.k < 1:
        raise InvalidInputError(f"k {query.k}: a query asks for at least 1 row")
    for field in ("nprobes", "refine_factor", "ef"):
        if getattr(query, field) == 0:
            raise InvalidInputError(f"{field} 0: it is at least 1; leave it out for the usual")
    low, high = query.minimum_nprobes, query.maximum_nprobes
    if low is not None and high is not None and low > high:
        raise InvalidInputError(f"minimum_nprobes {low}: it is above maximum_nprobes {high}")
    if query.columns and query.columns.column_names is not None and query.columns.column_aliases is not None:
        raise InvalidInputError("columns: give column_names or column_aliases, not both")
    if _distance(query) not in (None, *DISTANCES):
        raise InvalidInputError(f"distance_type {query.distance_type!r}: unknown; it is one of {', '.join(DISTANCES)}")
    searched = _vectors(query)
    if searched and query.full_text_query:
        raise InvalidInputError("vector and full_text_query: a query searches by one of them; leave the vector empty")
    if len(searched) > 1 and query.offset:
        raise InvalidInputError(f"offset {query.offset}: with several vectors there is no one order to skip rows of")
    if not searched and (query.lower_bound is not None or query.upper_bound is not None):
        raise InvalidInputError("lower_bound and upper_bound: they bound distances, so they need a vector")


def scan(dataset: LanceDataset, query: Query) -> Any:
    """The scanner that answers a checked query: by vector, by text, or without either the first rows."""
    vectors = _vectors(query)
    given: dict[str, Any] = {
        "filter": query.filter,
        "prefilter": query.prefilter,
        "fast_search": query.fast_search,
        "with_row_id": query.with_row_id,
        # What a search adds is asked for below, as pylance will want it to be.
        "disable_scoring_autoprojection": True,
    }
    if len(vectors) < 2:
        given |= {"limit": query.k, "offset": query.offset}
    found_by = None
    if vectors:
        given["nearest"] = _nearest(dataset, query, vectors)
        found_by = "_distance"
    elif query.full_text_query:
        given["full_text_query"] = _text(dataset, query)
        found_by = "_score"
    return dataset.scanner(
        columns=_columns(dataset, query, found_by), **{k: v for k, v in given.items() if v is not None}
    )


def _vectors(query: Query) -> Sequence[Sequence[float]]:
    """The vectors searched for; none where rows are wanted as they come."""
    single, multi = query.vector.single_vector or [], query.vector.multi_vector or []
    if single and multi:
        raise InvalidInputError("vector: give single_vector or multi_vector, not both")
    return multi or ([single] if single else [])


def _distance(query: Query) -> str | None:
    return query.distance_type.lower() if query.distance_type else None


def _nearest(dataset: LanceDataset, query: Query, vectors: Sequence[Sequence[float]]) -> Mapping[str, Any]:
    bounds = (query.lower_bound, query.upper_bound)
    exact = query.minimum_nprobes is None and query.maximum_nprobes is None
    given = {
        "column": query.vector_column or _vector_column(dataset.schema),
        "q": vectors[0] if len(vectors) == 1 else vectors,
        # The rows skipped are found first.
        "k": query.k + (query.offset or 0),
        "metric": _distance(query),
        "nprobes": query.nprobes if exact else None,
        "minimum_nprobes": query.minimum_nprobes,
        "maximum_nprobes": query.maximum_nprobes,
        "ef": query.ef,
        "refine_factor": query.refine_factor,
        "use_index": not query.bypass_vector_index,
        "distance_range": None if bounds == (None, None) else bounds,
    }
    return {k: v for k, v in given.items() if v is not None}


def _vector_column(schema: pa.Schema) -> str:
    """The column meant where none was named."""
    fitting: list[str] = [field.name for field in schema if _holds_vectors(field.type)]
    if _USUAL_COLUMN in fitting:
        return _USUAL_COLUMN
    if len(fitting) == 1:
        return fitting[0]
    which = f"name one of {', '.join(fitting)}" if fitting else "the table has no column of vectors"
    raise InvalidInputError(f"vector_column: it was left out, and there is no column {_USUAL_COLUMN!r}; {which}")


def _holds_vectors(type: pa.DataType) -> bool:
    if pa.types.is_list(type):
        type = type.value_type
    return bool(pa.types.is_fixed_size_list(type))


def _columns(dataset: LanceDataset, query: Query, found_by: str | None) -> list[str] | dict[str, str] | None:
    asked = query.columns
    names = asked.column_names if asked else None
    aliases = asked.column_aliases if asked else None
    if aliases is not None:
        return {**aliases, **({found_by: found_by} if found_by else {})}
    if names is None and found_by is None:
        return None
    wanted: list[str] = [*(dataset.schema.names if names is None else names)]
    return wanted if found_by is None or found_by in wanted else [*wanted, found_by]


def _text(dataset: LanceDataset, query: Query) -> Any:
    asked = query.full_text_query
    assert asked is not None
    match asked.string_query, asked.structured_query:
        case (words, None) if words is not None:
            return {"query": words.query, "columns": words.columns}
        case (None, structured) if structured is not None:
            return _structured(dataset, structured.query)
    raise InvalidInputError("full_text_query: give string_query or structured_query")


def _structured(dataset: LanceDataset, query: Any) -> Any:
    from lance import query as lance

    named = [name for name, given in query if given is not None]
    if len(named) != 1:
        raise InvalidInputError(f"full_text_query: each query is one of match, phrase, ...; not {named or 'none'}")
    (kind,) = named
    given = getattr(query, kind)
    if kind == "match":
        return lance.MatchQuery(given.terms, _text_column(dataset, given.column), **_matching(given))
    if kind == "phrase":
        return lance.PhraseQuery(given.terms, _text_column(dataset, given.column), slop=given.slop or 0)
    if kind == "boost":
        weight = 0.5 if given.negative_boost is None else given.negative_boost
        parts = (_structured(dataset, given.positive), _structured(dataset, given.negative))
        return lance.BoostQuery(*parts, negative_boost=weight)
    if kind == "multi_match":
        return _multi_match(dataset, given.match_queries)
    occurs = {"must": lance.Occur.MUST, "must_not": lance.Occur.MUST_NOT, "should": lance.Occur.SHOULD}
    return lance.BooleanQuery(
        [(occur, _structured(dataset, part)) for name, occur in occurs.items() for part in getattr(given, name)]
    )


def _multi_match(dataset: LanceDataset, queries: Sequence[Any]) -> Any:
    from lance import query as lance

    if not queries:
        raise InvalidInputError("match_queries: none was given")
    ways = [_matching(it) for it in queries]
    if len({it.terms for it in queries}) > 1 or any(set(way) - {"boost", "operator"} for way in ways):
        raise UnsupportedOperationError(
            "Not supported: multi_match of different terms or with fuzziness (pylance has one text for all columns); "
            "use a boolean query of matches"
        )
    return lance.MultiMatchQuery(
        queries[0].terms,
        [_text_column(dataset, it.column) for it in queries],
        boosts=[way.get("boost", 1.0) for way in ways],
        operator=ways[0].get("operator", lance.FullTextOperator.OR),
    )


def _matching(match: Any) -> dict[str, Any]:
    from lance import query as lance

    operator = None
    if match.operator is not None:
        try:
            operator = lance.FullTextOperator(match.operator.upper())
        except ValueError:
            raise InvalidInputError(f"operator {match.operator!r}: unknown; it is one of and, or") from None
    given = {
        "boost": match.boost,
        "fuzziness": match.fuzziness,
        "max_expansions": match.max_expansions,
        "operator": operator,
        "prefix_length": match.prefix_length,
    }
    return {k: v for k, v in given.items() if v is not None}


def _text_column(dataset: LanceDataset, named: str | None) -> str:
    """The column meant where none was named: the only one with an index of its text."""
    if named is not None:
        return named
    indexed = sorted(
        {name for it in dataset.describe_indices() if it.index_type == "Inverted" for name in it.field_names}
    )
    if len(indexed) == 1:
        return indexed[0]
    which = f"name one of {', '.join(indexed)}" if indexed else "no column has a full text index"
    raise InvalidInputError(f"full_text_query: a column was left out; {which}")

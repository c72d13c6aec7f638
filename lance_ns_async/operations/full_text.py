"""Full-text queries of the spec, converted for pylance.

A query without a column searches all columns that have a full-text index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models.fts_query import FtsQuery
from lance_namespace_urllib3_client.models.query_table_request_full_text_query import QueryTableRequestFullTextQuery

if TYPE_CHECKING:
    from lance import LanceDataset


_DEEPEST = 32
"""Maximum nesting of queries."""


def arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that are not None; pylance has its own defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}


def check(request: QueryTableRequestFullTextQuery) -> None:
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
    """Returns the query for pylance's scanner.

    Raises:
        InvalidInputError: The query is invalid, or needs a full-text index that the dataset does not have.
    """
    match request.string_query, request.structured_query:
        case (words, None) if words is not None:
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
            "full_text_query: no column is set, and no column has a full-text "
            "index; create one with create_table_scalar_index, or set a column"
        )
    fitting = [it for it in texts if it.details.get("with_position")] if phrases else []
    return sorted({name for it in fitting or texts for name in it.field_names})

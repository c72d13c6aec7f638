"""Union of many DataFrames without planning time that grows with the square of their number."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANY = 200
"""Maximum number of branches of a chain of unions without a warning; longer chains take seconds or minutes to plan."""

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | [()] | \bUNION\b""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


def union(frames: Iterable[DataFrame], *, allow_missing_columns: bool = False) -> DataFrame:
    """Returns all rows of all DataFrames, united pairwise as a balanced tree, with columns matched by name.

    In contrast, `functools.reduce(DataFrame.union, frames)` is a chain, which Spark analyses again at each step.

    Args:
        frames: The DataFrames; the first one determines the order of the columns.
        allow_missing_columns: Whether a DataFrame may lack a column, which is null for its rows.

    Raises:
        InvalidInputError: There is no DataFrame.
        pyspark.errors.AnalysisException: The columns do not match.
    """
    level = list(frames)
    if not level:
        raise InvalidInputError("union: no DataFrames; pass at least one")
    while len(level) > 1:
        halves = zip(level[::2], level[1::2], strict=False)
        pairs = [left.unionByName(right, allowMissingColumns=allow_missing_columns) for left, right in halves]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def branches(query: str) -> int:
    """Returns the number of branches of the longest chain of unions in a query; parentheses begin a separate chain."""
    chains = [1]
    longest = 1
    for token in _TOKEN.findall(query):
        match token.upper():
            case "(":
                chains.append(1)
            case ")" if len(chains) > 1:
                chains.pop()
            case "UNION":
                chains[-1] += 1
                longest = max(longest, chains[-1])
    return longest


def warn_of_chains(query: str, *, stacklevel: int) -> None:
    """Warns if a query unites more than `MANY` branches in a chain; `stacklevel` 1 refers to the caller."""
    if (count := branches(query)) > MANY:
        warnings.warn(
            f"a union of {count} branches in a chain takes planning time that grows with the square of their number: "
            "use the union of these views, or write it as a tree, (a UNION ALL b) UNION ALL (c UNION ALL d)",
            stacklevel=stacklevel + 1,
        )

"""Uniting many DataFrames without Spark's planning time growing as the square of their number."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANY = 200
"""Above so many branches a union written as one chain is warned of: it takes seconds, and soon minutes."""

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | [()] | \bUNION\b""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


def union(frames: Iterable[DataFrame], *, allow_missing_columns: bool = False) -> DataFrame:
    """All rows of all frames, their columns matched by name, united pairwise as a balanced tree.

    Columns are in the order of the first frame. With `allow_missing_columns` a column that a frame lacks is null
    there. `functools.reduce(DataFrame.union, frames)` is a chain, which Spark analyses again at each step.
    """
    level = list(frames)
    if not level:
        raise InvalidInputError("union: there is no frame and so no column")
    while len(level) > 1:
        halves = zip(level[::2], level[1::2], strict=False)
        united = [left.unionByName(right, allowMissingColumns=allow_missing_columns) for left, right in halves]
        level = united + level[len(united) * 2 :]
    return level[0]


def branches(query: str) -> int:
    """How many branches the longest chain of unions in a query has, those in brackets being chains of their own."""
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
    """Warns of a query that unites more branches one after the other than Spark plans in good time."""
    if (count := branches(query)) > MANY:
        warnings.warn(
            f"a union of {count} branches in a chain is planned in a time that grows as their square: "
            "use the union of these views, or write it as a tree, (a UNION ALL b) UNION ALL (c UNION ALL d)",
            stacklevel=stacklevel + 1,
        )

"""Bounds of a request to Lance: its SQL texts, the rows that it sends and the rows that it receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Maximum values for one request. None means no bound.

    The defaults apply to callers in this process: they only prevent endless work and stack overflows of Lance's parser
    and planner. A gateway's further bounds are in `lance_ns_async.gateway.limits`.
    """

    sql_bytes: int = 4 << 20
    """UTF-8 bytes of all SQL texts of a request together."""
    sql_tokens: int = 250_000
    """Words, literals, operators, brackets and commas of all SQL texts of a request together."""
    sql_terms: int = 10_000
    """`AND` and `OR` in all SQL texts of a request together."""
    functions: frozenset[str] | None = None
    """Names of functions that SQL texts may call, in lower case; if set, the size of built values is bounded, too."""
    decoded_bytes: int | None = None
    """Bytes of an Arrow stream after decompression."""
    answer_bytes: int | None = None
    """Bytes of the rows of a response."""
    hold: Callable[[int], None] | None = None
    """Called with a number of bytes before they are allocated for rows; raises an error if there are too many."""
    searches: int | None = None
    """Vectors of a vector search, or parts of a structured full-text query."""
    searched_rows: int | None = None
    """Rows that a search finds for all its vectors, including skipped rows."""
    words: int | None = None
    """Words of a full-text query."""
    words_bytes: int | None = None
    """UTF-8 bytes of the words of a full-text query."""


LOCAL: Final = Bounds()

_bounds: ContextVar[Bounds] = ContextVar("lance_ns_async_bounds", default=LOCAL)


def current() -> Bounds:
    """Returns the bounds of the current request, also in its worker threads."""
    return _bounds.get()


@contextmanager
def apply(bounds: Bounds) -> Iterator[None]:
    """Applies other bounds within the block."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)

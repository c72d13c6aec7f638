"""Bounds on what a request may ask of Lance: its SQL texts, the rows that it sends and those that it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one request may ask for. None stands for no bound.

    The defaults hold for callers in this process: they keep Lance's parser and planner from running for ever or
    overflowing the stack, and bound nothing else. What a gateway adds is in `lance_ns_async.gateway.limits`.
    """

    sql_bytes: int = 4 << 20
    """UTF-8 bytes of all SQL texts of a request together."""
    sql_tokens: int = 250_000
    """Words, literals, operators, brackets and commas of all SQL texts of a request together."""
    sql_terms: int = 10_000
    """`AND` and `OR` in all SQL texts of a request together."""
    functions: frozenset[str] | None = None
    """Names of functions that SQL texts may call, in lower case; also bounds what they may build."""
    decoded_bytes: int | None = None
    """Bytes of an Arrow stream after its buffers are decompressed."""
    answer_bytes: int | None = None
    """Bytes of the rows of an answer."""
    hold: Callable[[int], None] | None = None
    """Called with bytes before they are allocated for rows; raises where there are too many."""
    searches: int | None = None
    """Vectors that a query searches for, or parts of its structured query for texts."""
    searched_rows: int | None = None
    """Rows that a search finds for all its vectors, those that it skips included."""
    words: int | None = None
    """Words that a query searches texts for."""
    words_bytes: int | None = None
    """UTF-8 bytes of them."""


LOCAL: Final = Bounds()

_bounds: ContextVar[Bounds] = ContextVar("lance_ns_async_bounds", default=LOCAL)


def current() -> Bounds:
    """Returns the bounds that hold for the request under way, in its worker threads, too."""
    return _bounds.get()


@contextmanager
def applied(bounds: Bounds) -> Iterator[None]:
    """Has other bounds hold within the block."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)

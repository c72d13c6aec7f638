"""What clients of a gateway may have it do: bytes held in memory, and what they may ask of Lance."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lance_namespace.errors import ErrorCode, InvalidInputError

from lance_ns_async.gateway.answers import Refused
from lance_ns_async.tables import filters
from lance_ns_async.tables.bounds import Bounds

MAX_BYTES = 1 << 30
"""Bytes of rows that one request may send, as they come and decompressed."""

MAX_ANSWER_BYTES = 256 << 20
"""Bytes of rows that one answer may have."""

_HELD = 4
"""How many times the largest request or answer may be held at once, where nothing else is said."""

_HELD_AT_LEAST = 512 << 20
"""Bytes that may be held at once, where nothing else is said: seven of the largest JSON bodies."""

_SPEC = Bounds(
    sql_bytes=2 << 20,
    sql_tokens=100_000,
    sql_terms=2_000,
    searches=100,
    searched_rows=1_000_000,
    words=1_000,
    words_bytes=64 << 10,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a gateway."""

    max_bytes: int = MAX_BYTES
    """Bytes of rows that one request may send, as they come and decompressed; 0 to take none."""
    max_answer_bytes: int = MAX_ANSWER_BYTES
    """Bytes of rows that one answer may have."""
    max_held_bytes: int | None = None
    """Bytes that all requests and answers take at once; None for four times the largest of them, and at
    least 512 MiB."""
    functions: frozenset[str] = frozenset()
    """SQL functions that clients may call besides those of `tables.filters.FUNCTIONS`."""

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise InvalidInputError(f"max_bytes {self.max_bytes}: it is a number of bytes; 0 to take no rows")
        if self.max_answer_bytes < 1:
            raise InvalidInputError(f"max_answer_bytes {self.max_answer_bytes}: it is a number of bytes above 0")
        # Both are copied once.
        needed = 2 * max(self.max_bytes, self.max_answer_bytes)
        if self.max_held_bytes is not None and self.max_held_bytes < needed:
            raise InvalidInputError(
                f"max_held_bytes {self.max_held_bytes}: one request or answer may take {needed} bytes alone; give at "
                "least so many, or lower max_bytes and max_answer_bytes"
            )

    @property
    def held(self) -> int:
        """Bytes of all requests and answers at once."""
        if self.max_held_bytes is not None:
            return self.max_held_bytes
        return max(_HELD * max(self.max_bytes, self.max_answer_bytes), _HELD_AT_LEAST)

    def bounds(self, share: Share) -> Bounds:
        """Returns what one request may ask of Lance; what it allocates is counted in its share."""
        return replace(
            _SPEC,
            functions=filters.FUNCTIONS | {name.lower() for name in self.functions},
            decoded_bytes=self.max_bytes,
            answer_bytes=self.max_answer_bytes,
            hold=share.take,
        )


class Memory:
    """Bytes that requests and answers take in this process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        # Answers grow in worker threads.
        self._lock = threading.Lock()

    @contextmanager
    def share(self) -> Iterator[Share]:
        """The share of one request, given back at the end of the block unless somebody else keeps it, too."""
        share = Share(self)
        with share.kept():
            yield share

    def _take(self, size: int) -> None:
        with self._lock:
            if self._taken + size > self._limit:
                message = (
                    f"Service unavailable: requests and answers under way take all of the {self._limit} bytes that "
                    "this server holds; try again later"
                )
                raise Refused(503, ErrorCode.SERVICE_UNAVAILABLE, message, {"Retry-After": "1", "Connection": "close"})
            self._taken += size

    def _give(self, size: int) -> None:
        with self._lock:
            self._taken -= size


class Share:
    """Bytes that one request takes."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._taken = 0
        self._keepers = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Counts bytes; raises Refused where there are too many in all."""
        with self._lock:
            self._memory._take(size)
            self._taken += size

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Has what was counted remain so at least for the block."""
        self._keepers += 1
        try:
            yield
        finally:
            self._keepers -= 1
            if not self._keepers:
                with self._lock:
                    self._memory._give(self._taken)
                    self._taken = 0

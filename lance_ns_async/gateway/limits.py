"""Limits of the gateway: rows and memory of requests and responses, and SQL functions."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

import anyio
from lance_namespace.errors import ErrorCode, InvalidInputError

from lance_ns_async.gateway.responses import RequestError

MAX_BYTES = 1 << 30
"""Maximum number of row bytes in one request, both compressed and decompressed."""

MAX_ANSWER_BYTES = 256 << 20
"""Maximum number of row bytes in one response."""

_MEMORY_FACTOR = 4  # Default memory limit, as a multiple of the largest request or response.

_MIN_MEMORY = 512 << 20  # Minimum of the default memory limit, in bytes: enough for seven of the largest JSON bodies.


_BULK_REQUESTS = 4
"""Maximum number of concurrent searches and descriptions of many tables, for one client; further ones wait."""

_BULK_CALLS = 8
"""Maximum number of calls in flight of one of them; several divide it. More would delay the requests of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a gateway."""

    max_bytes: int = MAX_BYTES
    """Maximum number of row bytes in one request, both compressed and decompressed; 0 refuses all rows."""
    max_answer_bytes: int = MAX_ANSWER_BYTES
    """Maximum number of row bytes in one response."""
    max_held_bytes: int | None = None
    """Maximum number of bytes of all concurrent requests and responses. None means four times the larger one of the
    limits above, but at least 512 MiB.
    """
    functions: frozenset[str] = frozenset()
    """SQL functions that clients may call in addition to `gateway.sql_functions.FUNCTIONS`."""

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise InvalidInputError(f"max_bytes {self.max_bytes}: must be at least 0; use 0 to refuse all rows")
        if self.max_answer_bytes < 1:
            raise InvalidInputError(f"max_answer_bytes {self.max_answer_bytes}: must be at least 1")
        # Requests and responses are copied once.
        minimum = 2 * max(self.max_bytes, self.max_answer_bytes)
        if self.max_held_bytes is not None and self.max_held_bytes < minimum:
            raise InvalidInputError(
                f"max_held_bytes {self.max_held_bytes}: must be at least {minimum}, the maximum for one request or "
                "response; increase it, or lower max_bytes and max_answer_bytes"
            )

    @property
    def memory(self) -> int:
        """The memory limit, in bytes, of all concurrent requests and responses."""
        if self.max_held_bytes is not None:
            return self.max_held_bytes
        return max(_MEMORY_FACTOR * max(self.max_bytes, self.max_answer_bytes), _MIN_MEMORY)


class Memory:
    """The memory that requests and responses take in this process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        # Responses are built in worker threads.
        self._lock = threading.Lock()

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yields the share of one request, which is returned at the end of the block unless another task keeps it."""
        share = Share(self)
        with share.keep():
            yield share

    def take(self, size: int) -> None:
        """Counts `size` bytes."""
        with self._lock:
            if self._size + size > self._limit:
                message = (
                    f"Service unavailable: the requests and responses in progress use all of the {self._limit} bytes "
                    "that this server allows; try again later"
                )
                raise RequestError(
                    503, ErrorCode.SERVICE_UNAVAILABLE, message, {"Retry-After": "1", "Connection": "close"}
                )
            self._size += size

    def release(self, size: int) -> None:
        """Counts `size` bytes no longer."""
        with self._lock:
            self._size -= size


class Share:
    """The memory of one request."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._size = 0
        self._users = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Counts `size` bytes."""
        with self._lock:
            self._memory.take(size)
            self._size += size

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keeps the counted bytes at least until the end of the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                with self._lock:
                    self._memory.release(self._size)
                    self._size = 0


@asynccontextmanager
async def bulk_request(client: str) -> AsyncIterator[int]:
    """Waits until few requests of this client for many tables are in progress; yields the calls that the next may use.

    Args:
        client: The name of the principal.
    """
    try:
        limiters = _bulk_requests.get()
    except LookupError:
        limiters = WeakValueDictionary()
        _bulk_requests.set(limiters)
    limiter = limiters.get(client)
    if limiter is None:
        limiter = limiters[client] = anyio.CapacityLimiter(_BULK_REQUESTS)
    async with limiter:
        yield _BULK_CALLS // int(limiter.borrowed_tokens)


_bulk_requests: anyio.lowlevel.RunVar[WeakValueDictionary[str, anyio.CapacityLimiter]] = anyio.lowlevel.RunVar(
    "lance_ns_async_bulk_requests"
)

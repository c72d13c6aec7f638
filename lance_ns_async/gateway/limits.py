"""Limits of the gateway: memory, concurrent bulk requests, and the guard of SQL, searches and rows."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio
import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models.query_table_request_full_text_query import QueryTableRequestFullTextQuery

from lance_ns_async.gateway import ipc
from lance_ns_async.gateway.responses import unavailable
from lance_ns_async.gateway.sql_functions import BUILDING, FUNCTIONS, MULTIPLYING, RemoteSqlCheck
from lance_ns_async.operations import searching
from lance_ns_async.storage import fields
from lance_ns_async.storage.guard import Guard, Query
from lance_ns_async.storage.sql_bounds import Texts, tokens

if TYPE_CHECKING:
    from lance import LanceDataset


MAX_BYTES = 1 << 30  # Maximum number of row bytes in one request, both compressed and decompressed.
MAX_ANSWER_BYTES = 256 << 20  # Maximum number of row bytes in one response.
_MEMORY_FACTOR = 4  # Default memory limit, as a multiple of the largest request or response.
_MIN_MEMORY = 512 << 20  # Minimum of the default memory limit, in bytes: enough for seven of the largest JSON bodies.
_BULK_REQUESTS = 4  # Maximum concurrent searches and descriptions of many tables, for one client; more wait.
_BULK_CALLS = 8  # Maximum calls in flight of one of them; several divide it, so that the requests of others proceed.
_MAX_SEARCHES = 100  # Maximum number of vectors of a vector search, or of parts of a full-text query.
_MAX_SEARCHED_ROWS = 1_000_000  # Maximum rows that a search finds for all its vectors, including skipped rows.
_MAX_WORDS = 1_000  # Maximum number of words of a full-text query.
_MAX_WORD_BYTES = 64 << 10  # Maximum number of bytes, in UTF-8, of the words of a full-text query.

_WORD = re.compile(r"\w+")
_BATCH = 8192  # Number of rows for which Lance builds values at a time.


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a gateway; `serving` describes them."""

    max_bytes: int = MAX_BYTES
    max_answer_bytes: int = MAX_ANSWER_BYTES
    max_held_bytes: int | None = None
    functions: frozenset[str] = frozenset()

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
                used = f"the requests and responses in progress use all of the {self._limit} bytes"
                raise unavailable(f"{used} that this server allows", {"Retry-After": "1", "Connection": "close"})
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
    """Waits until few requests of this client for many tables are in progress; yields the calls that it may use."""
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


class RemoteGuard(Guard):
    """The guard of one request; its share counts the memory that Lance and pyarrow allocate for it."""

    def __init__(self, limits: Limits, share: Share) -> None:
        self._limits = limits
        self._share = share

    def check_sql(self, texts: Texts) -> None:
        functions = FUNCTIONS | {name.lower() for name in self._limits.functions}
        RemoteSqlCheck(functions).check(texts)

    def check_search(self, query: Query, vectors: Sequence[Sequence[float]]) -> None:
        """Checks the number of searches, of the rows that they find, and of words."""
        if len(vectors) > _MAX_SEARCHES:
            raise InvalidInputError(
                f"multi_vector: {len(vectors)} vectors; at most {_MAX_SEARCHES} are allowed in one query"
            )
        rows = max(1, len(vectors)) * (query.k + (query.offset or 0))
        if (vectors or query.full_text_query) and rows > _MAX_SEARCHED_ROWS:
            raise InvalidInputError(
                f"k {query.k}: a search may find at most {_MAX_SEARCHED_ROWS} rows, including skipped rows and those "
                "of all vectors; use a smaller k"
            )
        if query.full_text_query:
            _check_full_text(query.full_text_query)

    def check_built_values(
        self, dataset: LanceDataset, texts: Texts, where: str | None = None, *, first: int | None = None
    ) -> bool:
        """Checks that the values that a request builds for one batch of rows fit into a response."""
        size = largest_batch(dataset, texts, where, first, self._limits.max_answer_bytes)
        self._share.take(size or 0)
        return size is not None

    def check_stream(self, stream: pa.Buffer) -> None:
        """Checks the size of the rows after decompression."""
        size = ipc.check(stream, self._limits.max_bytes)
        # Uncompressed buffers are not copied.
        self._share.take(max(0, size - stream.size))

    def check_rows(self, rows: pa.Table) -> None:
        """Checks the bytes that views refer to."""
        ipc.check_views(rows, self._limits.max_bytes)

    def check_response(self, size: int, batch: pa.RecordBatch) -> None:
        """Checks the size of the response with the next batch."""
        limit = self._limits.max_answer_bytes
        # Columns that share memory are written separately.
        if size + batch.nbytes > limit:
            raise InvalidInputError(
                f"k: the response would have more than {limit} bytes; use a smaller k and offset, or "
                "fewer columns, or open the table and read it from its storage"
            )
        # Both the file and its copy as bytes need memory.
        self._share.take(2 * batch.nbytes)


def _check_full_text(request: QueryTableRequestFullTextQuery) -> None:
    words: list[str] = []
    queries = 0
    if request.string_query is not None:
        words.append(request.string_query.query)
        queries += len(request.string_query.columns or ())
    for level in searching.levels(request):
        queries += len(level)
        for query in level:
            words += [clause.terms for clause in (query.match, query.phrase) if clause is not None]
            if query.multi_match is not None:
                queries += len(query.multi_match.match_queries)
                words += [clause.terms for clause in query.multi_match.match_queries]
    if queries > _MAX_SEARCHES:
        raise InvalidInputError(f"full_text_query: {queries} queries; at most {_MAX_SEARCHES} are allowed")
    if sum(len(text.encode("utf-8", "replace")) for text in words) > _MAX_WORD_BYTES:
        raise InvalidInputError(
            f"full_text_query: its words have more than {_MAX_WORD_BYTES} bytes; search for fewer words"
        )
    if sum(len(_WORD.findall(text)) for text in words) > _MAX_WORDS:
        raise InvalidInputError(f"full_text_query: more than {_MAX_WORDS} words; search for fewer words")


def largest_batch(dataset: LanceDataset, texts: Texts, where: str | None, first: int | None, limit: int) -> int | None:
    """Returns the bytes of the values that a request builds at most for one batch of rows; None if it builds none.

    `concat(s, s, ...)` makes a value many times as long, and an update stores it for the next request. Only the columns
    in such texts are read, in this thread; columns of fixed width do not matter. Of the rows that match the filter
    `where`, which is not used if it builds values itself, the `first` ones are read, or all.
    """
    columns = {field.name.lower(): field for field in dataset.schema if not pa.types.is_primitive(field.type)}
    counts: dict[str, int] = {}
    """How often the texts may contain a value of each column."""
    for _, sql in texts:
        if factor := _factor(sql):
            for kind, text in tokens(sql):
                if kind in ("word", "quoted") and (field := columns.get(text.lower())) is not None:
                    counts[field.name] = counts.get(field.name, 0) + factor
    if not counts:
        return None
    if where is not None and _factor(where):
        where = first = None
    largest = 0
    for size in _sizes(dataset, counts, where, first):
        if size > limit:
            raise InvalidInputError(
                f"{', '.join(counts)}: the values that the request builds for {_BATCH} rows could have more than "
                f"{limit} bytes; use fewer columns in concat and similar functions, or select fewer rows"
            )
        largest = max(largest, size)
    return largest


def _sizes(dataset: LanceDataset, counts: dict[str, int], where: str | None, first: int | None) -> Iterator[int]:
    """Yields upper bounds of the bytes built for each batch of rows."""
    scanner = dataset.scanner(
        columns=[fields.join_path([name]) for name in counts],
        filter=where,
        limit=first,
        batch_size=_BATCH,
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in scanner.to_batches():
        yield sum(_nbytes(column) * count for column, count in zip(batch.columns, counts.values(), strict=True))


def _nbytes(column: pa.Array) -> int:
    """Returns the bytes of a column whose dictionary, if it has one, is repeated for each row."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    longest = max(
        (value.nbytes for value in (column.dictionary.slice(i, 1) for i in range(len(column.dictionary)))), default=0
    )
    return int(longest * len(column))


def _factor(sql: str) -> int:
    """Returns how many times as long a value of a column may become for each time that a text contains it.

    It is 0 for a text whose values are not longer than those of its columns.
    """
    literals, factor = 0, 0
    multiplies = False
    for kind, text in tokens(sql):
        match kind:
            case "word" | "quoted" if text.lower() in BUILDING | MULTIPLYING:
                factor = 1
                multiplies |= text.lower() in MULTIPLYING
            case "operator" | "open" if text in ("||", "["):
                factor = 1
            case "string" | "number":
                literals += len(text.encode("utf-8", "surrogatepass"))
    # A function such as replace may insert its literals for each character.
    return factor * (literals + 1) if multiplies else factor

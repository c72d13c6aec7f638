"""The guard of requests from clients of a gateway: limits of SQL, searches, and rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models.query_table_request_full_text_query import QueryTableRequestFullTextQuery

from lance_ns_async.gateway import built_values, ipc
from lance_ns_async.gateway.limits import Limits, Share
from lance_ns_async.gateway.sql_functions import FUNCTIONS, RemoteSqlCheck
from lance_ns_async.operations import searching
from lance_ns_async.storage.guard import Guard, Query
from lance_ns_async.storage.sql_bounds import Texts

if TYPE_CHECKING:
    from lance import LanceDataset

_MAX_SEARCHES = 100
"""Maximum number of vectors of a vector search, or of parts of a full-text query."""

_MAX_SEARCHED_ROWS = 1_000_000
"""Maximum number of rows that a search finds for all its vectors, including skipped rows."""

_MAX_WORDS = 1_000
"""Maximum number of words of a full-text query."""

_MAX_WORD_BYTES = 64 << 10
"""Maximum number of bytes, in UTF-8, of the words of a full-text query."""

_WORD = re.compile(r"\w+")


class RemoteGuard(Guard):
    """The guard of one request.

    Args:
        limits: The limits of the gateway.
        share: Counts the memory that Lance and pyarrow allocate for the request.
    """

    def __init__(self, limits: Limits, share: Share) -> None:
        self._limits = limits
        self._share = share

    def check_sql(self, texts: Texts) -> None:
        """Checks the SQL texts of a request; only some functions are allowed."""
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
        size = built_values.largest_batch(dataset, texts, where, first, self._limits.max_answer_bytes)
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

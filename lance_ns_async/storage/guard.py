"""The guard of requests to Lance: it checks SQL texts, searches, and rows that are received and sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from lance_namespace import AnalyzeTableQueryPlanRequest, QueryTableRequest

from lance_ns_async.storage.sql_bounds import Texts

if TYPE_CHECKING:
    from lance import LanceDataset

Query: TypeAlias = QueryTableRequest | AnalyzeTableQueryPlanRequest


class Guard:
    """The guard for callers in this process: it only prevents endless work and stack overflows of Lance.

    The gateway has a stricter one for its clients. Each method raises InvalidInputError for what it rejects.
    """

    def check_sql(self, texts: Texts) -> None:
        """Checks the SQL texts of a request."""
        texts.check()

    def check_search(self, query: Query, vectors: Sequence[Sequence[float]]) -> None:
        """Checks the effort of a query; `vectors` are those that it searches."""

    def check_built_values(
        self, dataset: LanceDataset, texts: Texts, where: str | None = None, *, first: int | None = None
    ) -> bool:
        """Checks the size of the values that SQL texts build for the rows of a dataset.

        Args:
            dataset: The rows.
            texts: The SQL texts of the request.
            where: The filter of the rows; None for all rows.
            first: The number of rows after the filter for which values are built; None for all.

        Returns:
            Whether the check depends on these very rows, so that the request may not run on others.
        """
        return False

    def check_stream(self, stream: pa.Buffer) -> None:
        """Checks the sizes that an Arrow IPC stream declares, before it is read."""

    def check_rows(self, rows: pa.Table) -> None:
        """Checks the rows of a stream after it was read."""

    def check_response(self, size: int, batch: pa.RecordBatch) -> None:
        """Checks a response of `size` bytes before a batch is added to it."""


_guard: ContextVar[Guard] = ContextVar("lance_ns_async_guard", default=Guard())  # noqa: B039 (it has no state)


def current() -> Guard:
    """Returns the guard of the current request, also in its worker threads."""
    return _guard.get()


@contextmanager
def apply(guard: Guard) -> Iterator[None]:
    """Applies another guard within the block."""
    token = _guard.set(guard)
    try:
        yield
    finally:
        _guard.reset(token)

"""The operations that only a server can perform: other catalogs have no jobs and no transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lance_namespace.errors import (
    UnsupportedOperationError,
)

from lance_ns_async.operations.remote import pass_on
from lance_ns_async.session import Session

T = TypeVar("T")

_NO_JOBS = "it starts a job, and a catalog runs no jobs"
_NO_TRANSACTIONS = "catalogs keep no transactions that outlive a request"

REASONS: Mapping[str, str] = {
    "alter_table_backfill_columns": _NO_JOBS,
    "create_materialized_view": _NO_JOBS,
    "refresh_materialized_view": _NO_JOBS,
    "describe_transaction": _NO_TRANSACTIONS,
    "alter_transaction": _NO_TRANSACTIONS,
}
"""The reason for each operation."""


async def run(session: Session, operation: str, request: object, response: type[T]) -> T:
    """Passes a request on to the server, if the backend has one with this operation.

    Raises:
        UnsupportedOperationError: The catalog is not a server with this operation.
    """
    if not session.backend.passes_on(operation):
        raise UnsupportedOperationError(f"Not supported: {operation} ({REASONS[operation]})")
    result = await pass_on(session, operation, request)
    assert isinstance(result, response)
    return result

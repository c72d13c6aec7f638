"""The operations of the spec that no catalog can perform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from lance_namespace.errors import UnsupportedOperationError

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


class UnsupportedOperations:
    """Operations that no catalog can perform: each raises UnsupportedOperationError without a call."""

    async def alter_table_backfill_columns(self, request: object) -> NoReturn:
        """Raises UnsupportedOperationError: catalogs run no jobs.

        Raises:
            UnsupportedOperationError: Always.
        """
        _refuse("alter_table_backfill_columns")

    async def create_materialized_view(self, request: object) -> NoReturn:
        """Raises UnsupportedOperationError: catalogs run no jobs.

        Raises:
            UnsupportedOperationError: Always.
        """
        _refuse("create_materialized_view")

    async def refresh_materialized_view(self, request: object) -> NoReturn:
        """Raises UnsupportedOperationError: catalogs run no jobs.

        Raises:
            UnsupportedOperationError: Always.
        """
        _refuse("refresh_materialized_view")

    async def describe_transaction(self, request: object) -> NoReturn:
        """Raises UnsupportedOperationError: catalogs keep no transactions.

        Raises:
            UnsupportedOperationError: Always.
        """
        _refuse("describe_transaction")

    async def alter_transaction(self, request: object) -> NoReturn:
        """Raises UnsupportedOperationError: catalogs keep no transactions.

        Raises:
            UnsupportedOperationError: Always.
        """
        _refuse("alter_transaction")


def _refuse(operation: str) -> NoReturn:
    raise UnsupportedOperationError(f"Not supported: {operation} ({REASONS[operation]})")

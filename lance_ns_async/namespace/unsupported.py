"""The operations of the spec that only a server can perform: other catalogs have no jobs and no transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from lance_namespace import (
    AlterTableBackfillColumnsRequest,
    AlterTableBackfillColumnsResponse,
    AlterTransactionRequest,
    AlterTransactionResponse,
    CreateMaterializedViewRequest,
    CreateMaterializedViewResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    RefreshMaterializedViewRequest,
    RefreshMaterializedViewResponse,
)
from lance_namespace.errors import UnsupportedOperationError

from lance_ns_async.namespace.remote_operations import passed_on
from lance_ns_async.namespace.requests import Fields

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
    """Operations that catalogs cannot perform: each raises UnsupportedOperationError without a call.

    A server of the REST protocol may have them: the backend `rest` passes them on.
    """

    @passed_on
    async def alter_table_backfill_columns(
        self, request: AlterTableBackfillColumnsRequest | Fields
    ) -> AlterTableBackfillColumnsResponse:
        """Starts a job that fills a column.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs run no jobs.
        """
        _refuse("alter_table_backfill_columns")

    @passed_on
    async def create_materialized_view(
        self, request: CreateMaterializedViewRequest | Fields
    ) -> CreateMaterializedViewResponse:
        """Creates a materialized view.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs run no jobs.
        """
        _refuse("create_materialized_view")

    @passed_on
    async def refresh_materialized_view(
        self, request: RefreshMaterializedViewRequest | Fields
    ) -> RefreshMaterializedViewResponse:
        """Starts a job that refreshes a materialized view.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs run no jobs.
        """
        _refuse("refresh_materialized_view")

    @passed_on
    async def describe_transaction(self, request: DescribeTransactionRequest | Fields) -> DescribeTransactionResponse:
        """Describes a transaction.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs keep no transactions.
        """
        _refuse("describe_transaction")

    @passed_on
    async def alter_transaction(self, request: AlterTransactionRequest | Fields) -> AlterTransactionResponse:
        """Changes a transaction.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs keep no transactions.
        """
        _refuse("alter_transaction")


def _refuse(operation: str) -> NoReturn:
    raise UnsupportedOperationError(f"Not supported: {operation} ({REASONS[operation]})")

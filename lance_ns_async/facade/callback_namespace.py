"""The namespace that Lance calls back from its own threads during reads and writes."""

from __future__ import annotations

from typing import Any

import lance_namespace as spec

from lance_ns_async.facade.base import Facade
from lance_ns_async.operations import tables, versions


class CallbackNamespace(Facade, spec.LanceNamespace):
    """The operations that Lance calls back: descriptions with new credentials, and the commits of versions.

    It has its own connections, because a dataset may outlive the namespace that opened it, and may be read in the
    thread of that namespace's event loop.
    """

    def describe_table(self, request: Any) -> spec.DescribeTableResponse:
        """See `AsyncNamespace.describe_table`."""
        return self._call(tables.describe_table, request)

    def declare_table(self, request: Any) -> spec.DeclareTableResponse:
        """See `AsyncNamespace.declare_table`."""
        return self._call(tables.declare_table, request)

    def list_table_versions(self, request: Any) -> spec.ListTableVersionsResponse:
        """See `AsyncNamespace.list_table_versions`."""
        return self._call(versions.list_table_versions, request)

    def describe_table_version(self, request: Any) -> spec.DescribeTableVersionResponse:
        """See `AsyncNamespace.describe_table_version`."""
        return self._call(versions.describe_table_version, request)

    def create_table_version(self, request: Any) -> spec.CreateTableVersionResponse:
        """See `AsyncNamespace.create_table_version`."""
        return self._call(versions.create_table_version, request)

    def batch_delete_table_versions(self, request: Any) -> spec.BatchDeleteTableVersionsResponse:
        """See `AsyncNamespace.batch_delete_table_versions`."""
        return self._call(versions.batch_delete_table_versions, request)

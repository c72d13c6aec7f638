"""Temporary credentials that Unity Catalog vends for a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError

from lance_ns_async.backends.unity.wire import credentials
from lance_ns_async.errors import failure_of
from lance_ns_async.model import TableId
from lance_ns_async.transports.http.transport import HttpTransport

Operation = Literal["auto", "read", "read_write", "none"]

"""Permission of the requested credentials; `auto` requests write access, and read access if that is denied."""

_NOT_SET_UP = ("FAILED_PRECONDITION", 404, 405)

"""Codes of a server that is not configured to vend credentials, or that has no such call."""


class CredentialVendor:
    """Requests a table's temporary credentials; caches nothing, because permissions can change at any time."""

    def __init__(self, http: HttpTransport, operation: Operation) -> None:
        self._http = http
        self._operation = operation

    async def vend(self, id: TableId, uuid: str) -> Mapping[str, str]:
        """Returns the credentials as Lance's storage options; empty if the server vends none.

        Cost: one call, or two if write access is denied with `auto`.
        """
        if self._operation == "none":
            return {}
        if self._operation != "auto":
            return await self._request(id, uuid, self._operation)
        try:
            return await self._request(id, uuid, "read_write")
        except PermissionDeniedError:
            return await self._request(id, uuid, "read")

    async def _request(self, id: TableId, uuid: str, operation: str) -> Mapping[str, str]:
        try:
            return await self._http.request(
                "POST",
                "/temporary-table-credentials",
                body={"table_id": uuid, "operation": operation.upper()},
                subject=id,
                operation="vend_credentials",
                decode=credentials,
                safe=True,
            )
        except LanceNamespaceError as e:
            if (failure := failure_of(e)) is not None and failure.codes[0] in _NOT_SET_UP:
                return {}
            raise

"""Credentials that Unity Catalog gives out for a table: asked for to write with, or else to read with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError

from lance_ns_async.backends.unity import wire
from lance_ns_async.errors import failure_of
from lance_ns_async.model import TableId
from lance_ns_async.transports.http.transport import HttpTransport

Operation = Literal["auto", "read", "read_write", "none"]
"""What credentials are asked for; `auto` asks for those to write with, and where that is refused to read with."""

_NOT_SET_UP = ("FAILED_PRECONDITION", 404, 405)
"""How a server answers that is not set up to give out credentials, or has no such call."""


class Credentials:
    """Asks for a table's temporary credentials; remembers nothing, for who may not write now may do so soon."""

    def __init__(self, http: HttpTransport, operation: Operation) -> None:
        self._http = http
        self._operation = operation

    async def given(self, id: TableId, uuid: str) -> Mapping[str, str]:
        """Them as Lance's storage options; empty where the server gives out none. Costs a call, or two if refused."""
        if self._operation == "none":
            return {}
        if self._operation != "auto":
            return await self._asked(id, uuid, self._operation)
        try:
            return await self._asked(id, uuid, "read_write")
        except PermissionDeniedError:
            return await self._asked(id, uuid, "read")

    async def _asked(self, id: TableId, uuid: str, operation: str) -> Mapping[str, str]:
        try:
            return await self._http.request(
                "POST",
                "/temporary-table-credentials",
                body={"table_id": uuid, "operation": operation.upper()},
                subject=id,
                operation="vend_credentials",
                decode=wire.credentials,
                safe=True,
            )
        except LanceNamespaceError as e:
            if (failure := failure_of(e)) is not None and failure.codes[0] in _NOT_SET_UP:
                return {}
            raise

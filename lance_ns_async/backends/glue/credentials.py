"""Temporary credentials that AWS Lake Formation vends for tables of the Glue Data Catalog.

Source: AWS's API reference of Lake Formation (API_GetTemporaryGlueTableCredentials) and of STS (API_GetCallerIdentity).
The permission type `COLUMN_PERMISSION` is the one that Iceberg's client for Lake Formation requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from lance_namespace.errors import PermissionDeniedError

from lance_ns_async.backends.glue import wire
from lance_ns_async.backends.shared.response_checks import text
from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.errors import failure_of, with_failure
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.transports.aws.transport import AwsTransport

Operation = Literal["auto", "read", "read_write"]
"""Permission of the requested credentials; `auto` requests write access, and read access if that is denied."""

_PERMISSIONS: Mapping[Operation, tuple[str, ...]] = {"read": ("SELECT",), "read_write": ("SELECT", "INSERT", "DELETE")}

_FILTERED = "PermissionTypeMismatchException"  # Code for a table with filters of rows or cells.


class LakeFormation:
    """Requests tables' temporary credentials; caches the account, but no credentials, because permissions can change.

    Cost: one call for each table, or two if write access is denied with `auto`; one more, once, if no id of a catalog
    contains the account.
    """

    def __init__(
        self,
        glue: AwsTransport,
        *,
        operation: Operation,
        lifetime: float,
        endpoint: str | None,
        sts_endpoint: str | None,
    ) -> None:
        """Creates the source of credentials; makes no call yet.

        Args:
            glue: The transport to Glue, whose credentials and region are used, and which closes the connections.
            operation: The requested permission.
            lifetime: The requested lifetime in seconds, from 900 to 21600.
            endpoint: The URL of Lake Formation; None means AWS's own endpoint.
            sts_endpoint: The URL of STS; None means AWS's own endpoint.
        """
        self._lake = glue.sibling("lakeformation", endpoint)
        self._sts = glue.sibling("sts", sts_endpoint)
        self._operation = operation
        self._lifetime = int(lifetime)
        self._account: str | None = None
        self._identity = SingleFlight(self._get_account)

    async def vend(self, id: TableId, catalog_id: str | None) -> Mapping[str, str]:
        """Returns the credentials of a table as Lance's storage options.

        Args:
            catalog_id: The id of the table's catalog; None for the caller's own root.
        """
        arn = await self._arn(id, catalog_id)
        if self._operation != "auto":
            return await self._request(id, arn, self._operation)
        try:
            return await self._request(id, arn, "read_write")
        except PermissionDeniedError as e:
            if _is_filtered(e):
                raise
        return await self._request(id, arn, "read")

    async def _arn(self, id: TableId, catalog_id: str | None) -> str:
        account, resource = wire.table_resource(id, catalog_id)
        account = account or await self._identity.outcome(lambda: self._account)
        partition, region = await self._lake.partition_and_region()
        return f"arn:{partition}:glue:{region}:{account}:{resource}"

    async def _request(self, id: TableId, arn: str, operation: Operation) -> Mapping[str, str]:
        arguments: dict[str, Any] = {
            "TableArn": arn,
            "Permissions": list(_PERMISSIONS[operation]),
            "DurationSeconds": self._lifetime,
            "SupportedPermissionTypes": ["COLUMN_PERMISSION"],
        }
        try:
            return await self._lake.call(
                "get_temporary_glue_table_credentials",
                arguments,
                subject=id,
                operation="vend_credentials",
                decode=wire.credentials,
            )
        except PermissionDeniedError as e:
            raise _with_advice(e) from e.__cause__

    async def _get_account(self) -> str:
        self._account = await self._sts.call(
            "get_caller_identity",
            {},
            subject=NamespaceId(),
            operation="get_account",
            decode=lambda answer: text(answer["Account"]),
        )
        return self._account


def _is_filtered(error: PermissionDeniedError) -> bool:
    return (failure := failure_of(error)) is not None and _FILTERED in failure.codes


def _with_advice(error: PermissionDeniedError) -> PermissionDeniedError:
    """Returns the error with advice in its message."""
    advice = (
        "the table has filters of rows or cells in Lake Formation, which Lance cannot apply"
        if _is_filtered(error)
        else "credentials need lakeformation:GetDataAccess, a location that is registered with Lake Formation, and "
        "access for external engines in its settings; otherwise set storage.* options, or vend_credentials to false"
    )
    result = PermissionDeniedError(f"{error}; {advice}")
    return result if (failure := failure_of(error)) is None else with_failure(result, failure)

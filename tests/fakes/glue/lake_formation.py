"""AWS Lake Formation as the fake Glue server has it: the temporary credentials of a table.

Source: AWS's API reference, API_GetTemporaryGlueTableCredentials. The wire is REST with JSON; each call is verified:
its signature for this service, its arguments and the grants of the table.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from moto.core.exceptions import JsonRESTError

from ..faults import Answer, Received
from ..sigv4 import Signatures
from .calls import REQUEST_ID, refusal
from .scopes import CatalogScope

_ARN = re.compile(r"arn:aws:glue:([a-z0-9-]+):([0-9]{12}):table/((?:[^/]+/)*)([^/]+)/([^/]+)")
_PERMISSIONS = {"ALL", "SELECT", "ALTER", "DROP", "DELETE", "INSERT", "DESCRIBE"}
_TYPES = {"COLUMN_PERMISSION", "CELL_FILTER_PERMISSION", "NESTED_PERMISSION", "NESTED_CELL_PERMISSION"}
_DENIED = "Insufficient Lake Formation permission(s) on {}"


class LakeFormation:
    """Grants of tables, and vended credentials."""

    def __init__(self, region: str, root: Callable[[str], CatalogScope]) -> None:
        """Creates it without restrictions: every table that exists is granted.

        Args:
            root: Returns the root catalog of an account.
        """
        self._root = root
        self._region = region
        self._grants: dict[str, frozenset[str]] = {}
        self._filtered: set[str] = set()
        self._lifetime: float | None = None
        self._count = 0

    def grant(self, table: str, permissions: frozenset[str]) -> None:
        """Restricts the permissions for a table, named `database/table` or `catalog/database/table`."""
        self._grants[table] = permissions

    def filter_cells(self, table: str) -> None:
        """Adds a filter of cells to a table."""
        self._filtered.add(table)

    def limit(self, seconds: float | None) -> None:
        """Sets the lifetime of later credentials, whatever is requested; None means as requested."""
        self._lifetime = seconds

    def answer(self, request: Received, keys: Mapping[str, tuple[str, str | None]]) -> Answer:
        """Returns the response to a call.

        Args:
            keys: The secret and the session token of each key that may sign.
        """
        signatures = Signatures("lakeformation", self._region, dict(keys), must_sign=frozenset({"host", "x-amz-date"}))
        if (refused := signatures.refusal(request)) is not None:
            return refused
        parameters = request.json
        if (problem := _problem(parameters)) is not None:
            return refusal(request, "InvalidInputException", problem)
        match = _ARN.fullmatch(parameters["TableArn"])
        if match is None or match[1] != self._region:
            return refusal(request, "InvalidInputException", f"Invalid table ARN: {parameters['TableArn']}")
        _, account, catalogs, database, name = match.groups()
        try:
            table = self._root(account).below(catalogs.split("/")[:-1]).get_table(database, name).as_dict()
        except JsonRESTError:
            return refusal(request, "EntityNotFoundException", "Table not found.")
        return self._decide(request, parameters, f"{catalogs}{database}/{name}", table["StorageDescriptor"]["Location"])

    def _decide(self, request: Received, parameters: Mapping[str, Any], table: str, location: str) -> Answer:
        granted = self._grants.get(table, frozenset({"ALL"}))
        if "ALL" not in granted and not set(parameters.get("Permissions", ())) <= granted:
            return refusal(request, "AccessDeniedException", _DENIED.format(table))
        if table in self._filtered and "CELL_FILTER_PERMISSION" not in parameters.get("SupportedPermissionTypes", ()):
            message = "Cell level permissions exist on the table, which the caller does not support."
            return refusal(request, "PermissionTypeMismatchException", message)
        self._count += 1
        lifetime = parameters.get("DurationSeconds", 3600) if self._lifetime is None else self._lifetime
        body = {
            "AccessKeyId": f"ASIALAKE{self._count:04}",
            "SecretAccessKey": "lake-secret",
            "SessionToken": f"lake-token-{table}",
            "Expiration": time.time() + lifetime,
            "VendedS3Path": [location],
        }
        headers = {"Content-Type": "application/json", "x-amzn-RequestId": REQUEST_ID}
        return Answer(200, json.dumps(body).encode(), headers)


def _problem(parameters: Any) -> str | None:
    """Returns what AWS would reject in the arguments; None if they are valid."""
    if not isinstance(parameters, dict) or not isinstance(parameters.get("TableArn"), str):
        return "TableArn is required."
    if not set(parameters.get("Permissions", ())) <= _PERMISSIONS:
        return "Permissions failed to satisfy constraint."
    types = parameters.get("SupportedPermissionTypes", ["COLUMN_PERMISSION"])
    if not types or not set(types) <= _TYPES:
        return "SupportedPermissionTypes failed to satisfy constraint."
    if not 900 <= parameters.get("DurationSeconds", 3600) <= 21600:
        return "DurationSeconds must be between 900 and 21600."
    return None

"""Output of the command `describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_ns_async.cli.output import Row
from lance_ns_async.model import TableId

if TYPE_CHECKING:
    from lance_ns_async import Namespace

HIDDEN = "***"


def describe(namespace: Namespace, table: str, *, version: int | None, details: bool, show_secrets: bool) -> Row:
    """Returns the catalog's description of a table, with `details` also the dataset's; omits unknown fields."""
    from lance_namespace import DescribeTableRequest

    id = TableId.parse(table)
    request = DescribeTableRequest(id=list(id), version=version, with_table_uri=True, load_detailed_metadata=details)
    found = namespace.describe_table(request).model_dump(by_alias=True, exclude_none=True)
    options = found.get("storage_options")
    if options and not show_secrets:
        # Only the storage defines which options are secret, so all values are hidden; the names show which are set.
        found["storage_options"] = dict.fromkeys(options, HIDDEN)
    return {"id": str(id), **{key: value for key, value in found.items() if value not in ({}, [])}}

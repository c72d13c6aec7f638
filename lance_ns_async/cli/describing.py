"""What `describe` shows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_ns_async.cli import ids
from lance_ns_async.cli.output import Row

if TYPE_CHECKING:
    from lance_ns_async import Namespace

HIDDEN = "***"


def describe(namespace: Namespace, table: str, *, version: int | None, details: bool, show_secrets: bool) -> Row:
    """What the catalog tells of a table, and with `details` the dataset too; what is not known is left out."""
    from lance_namespace import DescribeTableRequest

    id = ids.table(table)
    request = DescribeTableRequest(id=list(id), version=version, with_table_uri=True, load_detailed_metadata=details)
    found = namespace.describe_table(request).model_dump(by_alias=True, exclude_none=True)
    options = found.get("storage_options")
    if options and not show_secrets:
        # Which of them are secret only the storage knows, so all are hidden; their names help to see what is set.
        found["storage_options"] = dict.fromkeys(options, HIDDEN)
    return {"id": ids.written(id), **{key: value for key, value in found.items() if value not in ({}, [])}}

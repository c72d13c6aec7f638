"""The result of a search of many tables, as the Arrow file that the gateway sends."""

from __future__ import annotations

import json
from typing import Any

from lance_namespace.errors import InternalError, LanceNamespaceError, from_error_code

from lance_ns_async.many.row_results import RankedRows
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.storage import arrow

_KEY = b"lance_ns.search"
"""The key of the schema's metadata that has what is not rows."""


def encode(ranked: RankedRows, *, is_complete: bool) -> bytes:
    """Returns the rows as an Arrow IPC file, with the searched tables and the errors in the metadata of its schema.

    Args:
        ranked: The result.
        is_complete: Whether no table was left out for lack of time.
    """
    content = {
        "complete": is_complete,
        "searched": [list(id) for id in ranked.searched],
        "errors": [
            {"kind": id.kind, "id": list(id), "code": int(error.code), "error": str(error)}
            for id, error in ranked.errors.items()
        ],
    }
    metadata = {**(ranked.rows.schema.metadata or {}), _KEY: json.dumps(content).encode()}
    return arrow.file(ranked.rows.replace_schema_metadata(metadata).to_reader())


def decode(data: bytes) -> tuple[RankedRows, bool]:
    """Returns the result in a response, and whether it is complete.

    Raises:
        InternalError: The response is not that of a search.
    """
    rows = arrow.content(data)
    metadata = dict(rows.schema.metadata or {})
    try:
        content = json.loads(metadata.pop(_KEY))
        searched = [TableId(names) for names in content["searched"]]
        errors = {_subject(it): _error(it) for it in content["errors"]}
        return RankedRows(rows.replace_schema_metadata(metadata or None), searched, errors), bool(content["complete"])
    except (ValueError, KeyError, TypeError) as e:
        raise InternalError(f"the response is not that of a search of many tables ({e})") from e


def _subject(fields: Any) -> TableId | NamespaceId:
    return (TableId if fields["kind"] == TableId.kind else NamespaceId)(fields["id"])


def _error(fields: Any) -> LanceNamespaceError:
    return from_error_code(fields["code"], fields["error"])

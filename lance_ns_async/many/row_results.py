"""The results of operations on the rows of many tables, also as the Arrow file that the gateway sends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InternalError, LanceNamespaceError, from_error_code

from lance_ns_async.engine.results import error_rows
from lance_ns_async.errors import raise_first
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import counted
from lance_ns_async.storage import arrow
from lance_ns_async.tabular import Row, Tabular, html_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_KEY = b"lance_ns.search"  # The key of the schema's metadata that has what is not rows.


@dataclass(frozen=True, slots=True, repr=False)
class RankedRows(Tabular):
    """The best rows of many tables. The failure of one table does not affect the others."""

    rows: pa.Table
    """The rows, the best first. `_table` is the id of the row's table; `_distance`, `_score` and `_relevance_score` are
    the values of a search by vector, by text and by both."""
    searched: Sequence[TableId] = ()
    """The tables that were searched; also those without a row in the result."""
    errors: Mapping[TableId | NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    """The error for each table that was not searched, and for each namespace that could not be listed."""

    def raise_for_errors(self) -> RankedRows:
        """Returns itself if everything was searched.

        Raises:
            LanceNamespaceError: The first error, with the number of further errors in its message.
        """
        raise_first(self.errors.values(), len(self.searched) + len(self.errors))
        return self

    def line(self) -> str:
        """Returns the numbers of rows, tables and errors."""
        tables = f"{counted(len(self.searched), 'tables')} searched"
        return f"RankedRows({counted(self.rows.num_rows, 'rows')}, {tables}, {counted(len(self.errors), 'errors')})"

    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each error, and for each table that has rows in the result."""
        counts: dict[str, int] = {}
        for text in self.rows["_table"].to_pylist():
            counts[text] = counts.get(text, 0) + 1
        ids = {str(id): id for id in self.searched}
        return [*error_rows(self.errors), *(Row(ids[text], "ok", fields={"rows": n}) for text, n in counts.items())]

    def _repr_html_(self) -> str:
        problems = Tabular._repr_html_(self) if self.errors else ""
        return html_rows(self.line(), self.rows) + problems

    def to_arrow(self) -> pa.Table:
        """Returns `rows`."""
        return self.rows

    def to_pandas(self) -> pd.DataFrame:
        """Returns `rows` as a pandas DataFrame."""
        return self.rows.to_pandas()


@dataclass(frozen=True, slots=True, repr=False)
class RowCounts(Tabular):
    """The numbers of rows of many tables. The failure of one table does not affect the others."""

    counts: Mapping[TableId, int] = field(default_factory=dict)
    """The number of rows of each table."""
    errors: Mapping[TableId | NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    """The error for each table that was not counted, and for each namespace that could not be listed."""

    @property
    def total(self) -> int:
        """The number of rows of all counted tables."""
        return sum(self.counts.values())

    def raise_for_errors(self) -> RowCounts:
        """Returns itself if everything was counted.

        Raises:
            LanceNamespaceError: The first error, with the number of further errors in its message.
        """
        raise_first(self.errors.values(), len(self.counts) + len(self.errors))
        return self

    def line(self) -> str:
        """Returns the numbers of rows, tables and errors."""
        tables = counted(len(self.counts), "tables")
        return f"RowCounts({counted(self.total, 'rows')}, {tables}, {counted(len(self.errors), 'errors')})"

    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each table."""
        return [*error_rows(self.errors), *(Row(id, "ok", fields={"rows": n}) for id, n in self.counts.items())]


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

"""The spec's responses with short text forms, in which credentials are hidden."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import lance_namespace as spec
from pydantic import BaseModel

from lance_ns_async.errors import shortened
from lance_ns_async.rendering import counted
from lance_ns_async.tabular import EXCERPT, MAX_CELL, html_table

if TYPE_CHECKING:
    _Model = BaseModel
else:
    _Model = object

_MASK = "***"


class _Short(_Model):
    """Leaves out fields without a value, the bytes of rows, and the values of storage options, which may be secrets.

    This applies to `repr`, `str`, notebooks and pytest. All values are in the fields, and in `model_dump`, `to_dict`,
    `to_json` and `to_str`, as in the spec's own model. Instances are equal to those of that model.
    """

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if name == "storage_options" and isinstance(value, dict):
                yield name, dict.fromkeys(value, _MASK)
            elif isinstance(value, bytes):
                yield name, _Bytes(len(value))
            elif isinstance(value, list) and len(value) > 1 and isinstance(value[0], BaseModel):
                yield name, _Items(value)
            elif value is not None:
                yield name, value

    def __eq__(self, other: object) -> bool:
        # pydantic never treats instances of a class and of its subclass as equal.
        if not isinstance(other, type(self).__mro__[2]):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # as in every mutable model


class _Bytes(int):
    """The size of bytes, in place of the bytes."""

    def __repr__(self) -> str:
        return f"<{self:,} bytes>"


class _Items(list[BaseModel]):
    """A list of models, of which only the first is shown."""

    def __repr__(self) -> str:
        return f"[{self[0]!r}, ... {len(self) - 1:,} more]"


def _html(line: str, items: list[Any]) -> str:
    """Returns models as a table for notebooks, with a column for each field that any of the shown ones has."""
    dumped = [item.model_dump(exclude_none=True) for item in items[:EXCERPT]]
    head = list(dict.fromkeys(name for item in dumped for name in item))
    rows = [[shortened(str(item.get(name, "")), MAX_CELL) for name in head] for item in dumped]
    return html_table(line, head, rows, len(items) - EXCERPT)


class CreateTableResponse(_Short, spec.CreateTableResponse):
    """The response to a create, with or without rows."""


class DeclareTableResponse(_Short, spec.DeclareTableResponse):
    """The response to a declare."""


class DescribeTableResponse(_Short, spec.DescribeTableResponse):
    """The response to a describe."""


class ListNamespacesResponse(_Short, spec.ListNamespacesResponse):
    """The names of namespaces."""


class ListTableIndicesResponse(_Short, spec.ListTableIndicesResponse):
    """The indexes of a table."""

    def _repr_html_(self) -> str:
        return _html(counted(len(self.indexes), "indexes"), self.indexes)


class ListTableVersionsResponse(_Short, spec.ListTableVersionsResponse):
    """The versions of a table."""

    def _repr_html_(self) -> str:
        return _html(counted(len(self.versions), "versions"), self.versions)


class ListTablesResponse(_Short, spec.ListTablesResponse):
    """The names of tables."""


class QueryTableResponse(_Short, spec.QueryTableResponse):
    """The rows of a query."""

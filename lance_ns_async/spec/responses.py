"""The spec's responses with short text forms, in which credentials are hidden."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import lance_namespace as spec
from pydantic import BaseModel

if TYPE_CHECKING:
    _Model = BaseModel
else:
    _Model = object

_MASK = "***"


class Short(_Model):
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


class CreateTableResponse(Short, spec.CreateTableResponse):
    """The response to a create, with or without rows."""


class DeclareTableResponse(Short, spec.DeclareTableResponse):
    """The response to a declare."""


class DescribeTableResponse(Short, spec.DescribeTableResponse):
    """The response to a describe."""


class ListNamespacesResponse(Short, spec.ListNamespacesResponse):
    """The names of namespaces."""


class ListTablesResponse(Short, spec.ListTablesResponse):
    """The names of tables."""


class QueryTableResponse(Short, spec.QueryTableResponse):
    """The rows of a query."""

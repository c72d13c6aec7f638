"""The result of an operation on many tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.errors import raise_first
from lance_ns_async.model import TableId
from lance_ns_async.rendering import counted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BulkResult(Generic[T]):
    """The result for each table: the failure of one does not affect the others."""

    tables: Mapping[TableId, T] = field(default_factory=dict)
    """The described, registered or opened tables."""
    errors: Mapping[TableId, LanceNamespaceError] = field(default_factory=dict)
    """The error for each id that is not in `tables`, in the order of the request."""

    def outcome(self, id: TableId) -> T | LanceNamespaceError:
        """Returns the table or the error for an id.

        Raises:
            KeyError: The id was not requested.
        """
        return self.tables[id] if id in self.tables else self.errors[id]

    def raise_for_errors(self) -> BulkResult[T]:
        """Returns itself if there are no errors.

        Raises:
            LanceNamespaceError: The first error, with the number of further errors in its message.
        """
        raise_first(self.errors.values(), len(self))
        return self

    def __len__(self) -> int:
        return len(self.tables) + len(self.errors)

    def __repr__(self) -> str:
        return f"BulkResult({counted(len(self.tables), 'tables')}, {counted(len(self.errors), 'errors')})"

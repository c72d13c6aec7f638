"""The result of an operation on many tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.errors import raise_first, with_notes
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import attempts_of, counted, error_kind
from lance_ns_async.tabular import Row, Tabular

K = TypeVar("K", bound=TableId | NamespaceId)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class BulkResult(Tabular, Generic[T]):
    """The result for each table: the failure of one does not affect the others."""

    tables: Mapping[TableId, T] = field(default_factory=dict)
    """The described, registered or opened tables."""
    errors: Mapping[TableId, LanceNamespaceError] = field(default_factory=dict)
    """The error for each id that is not in `tables`, in the order of the request."""
    unlisted: Mapping[NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    """The error for each namespace that a pattern leads to and that could not be listed."""

    def outcome(self, id: str | Iterable[str]) -> T | LanceNamespaceError:
        """Returns the table or the error for an id.

        Args:
            id: The names of the table, or its text, such as "sales.orders".

        Raises:
            KeyError: The id was not requested.
        """
        key = id if isinstance(id, TableId) else TableId(id)
        if key in self.tables:
            return self.tables[key]
        if key in self.errors:
            return self.errors[key]
        raise KeyError(f"{key} is not among these {counted(len(self), 'tables')}")

    def __getitem__(self, id: str | Iterable[str]) -> T:
        """Returns the table for an id.

        Args:
            id: The names of the table, or its text, such as "sales.orders".

        Raises:
            LanceNamespaceError: The error for this id.
            KeyError: The id was not requested.
        """
        outcome = self.outcome(id)
        if isinstance(outcome, LanceNamespaceError):
            raise outcome from None  # Its message has what the causes say.
        return outcome

    def raise_for_errors(self) -> Self:
        """Returns itself if there are no errors.

        Raises:
            LanceNamespaceError: The first error, with the number of further errors in its message.
        """
        raise_first([*self.errors.values(), *self.unlisted.values()], len(self) + len(self.unlisted))
        return self

    def __iter__(self) -> Iterator[TableId]:
        yield from self.tables
        yield from self.errors

    def __contains__(self, id: str | Iterable[str]) -> bool:
        key = TableId(id)
        return key in self.tables or key in self.errors

    def __len__(self) -> int:
        return len(self.tables) + len(self.errors)

    def line(self) -> str:
        """Returns the numbers of tables and errors."""
        count = len(self.errors) + len(self.unlisted)
        return f"{type(self).__name__}({counted(len(self.tables), 'tables')}, {counted(count, 'errors')})"

    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each id: the location and the version of a table, or the error."""
        unlisted = error_rows(self.unlisted)
        return [*unlisted, *error_rows(self.errors), *(_row(id, table) for id, table in self.tables.items())]


def _row(id: TableId, table: object) -> Row:
    """Returns the row of a described, registered or opened table."""
    location = getattr(table, "location", None) or getattr(table, "uri", None)
    return Row(id, "ok", location=location, fields={"version": getattr(table, "version", None)})


def error_rows(errors: Mapping[K, LanceNamespaceError]) -> Iterator[Row]:
    """Yields a row for each error."""
    for id, error in errors.items():
        yield Row(id, error_kind(error), with_notes(error), attempts=attempts_of(error))

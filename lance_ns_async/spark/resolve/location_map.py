"""Immutable mapping from table ids to locations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId
from lance_ns_async.namespace.patterns import Selection, What, table_id
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.report import Report

M = TypeVar("M", bound="LocationMap")


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class LocationMap(Mapping[TableId, Location]):
    """Immutable mapping from table ids to locations, in the order of the request.

    A key is a TableId, a sequence of names, or a string as in `LocationResolver.prefetch`. The KeyError of a table
    that was requested and not resolved contains the reason. Pickles do not contain the storage options by default.
    """

    report: Report
    """The report of the request, with everything that was not resolved."""
    _by_id: Mapping[TableId, Location]
    _reasons: Mapping[TableId, str]
    """The reasons why requested tables were not resolved."""
    _carries_secrets: bool

    def __init__(self, locations: Iterable[Location], report: Report) -> None:
        object.__setattr__(self, "report", report)
        object.__setattr__(self, "_by_id", {location.id: location for location in locations})
        # Namespaces are left out, because a namespace and a table with the same names are equal keys.
        reasons = {problem.subject: problem.reason for problem in report.problems if type(problem.subject) is TableId}
        object.__setattr__(self, "_reasons", reasons)
        object.__setattr__(self, "_carries_secrets", False)

    def __getitem__(self, id: str | Iterable[str]) -> Location:
        try:
            key = table_id(id)
        except (InvalidInputError, TypeError) as e:
            # An invalid id is no key of the mapping, so `in` and `get` must not raise for it.
            raise KeyError(id) from e
        if (location := self._by_id.get(key)) is None:
            raise KeyError(self._lacks(key))
        return location

    def __iter__(self) -> Iterator[TableId]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def select(self, what: What) -> Self:
        """Returns the locations that `what` selects.

        Args:
            what: Ids, namespaces and patterns, as in `LocationResolver.prefetch`. A pattern may match no table.

        Returns:
            A new mapping in the order of this one, with the same report.

        Raises:
            InvalidInputError: An id in `what` is invalid or is not in this mapping.

        Cost:
            No remote call.
        """
        selection = Selection.read(what)
        strangers = [id for id in selection.ids if id not in self._by_id]
        if strangers:
            raise InvalidInputError(f"select: {self._lacks(strangers[0])}")
        named = frozenset(selection.ids)
        locations = (
            location
            for id, location in self._by_id.items()
            if id in named or any(pattern.matches(id) for pattern in selection.patterns)
        )
        return self._subset(locations)

    def where(self, predicate: Callable[[Location], bool]) -> Self:
        """Returns the locations for which `predicate` is true.

        Args:
            predicate: A function of a Location, such as `lambda location: location.rows > 0`. The rows, the fragments
                and the schema are None for tables that are not pinned.

        Returns:
            A new mapping in the order of this one, with the same report.

        Cost:
            No remote call.
        """
        return self._subset(location for location in self._by_id.values() if predicate(location))

    def _subset(self, locations: Iterable[Location]) -> Self:
        subset = type(self)(locations, self.report)
        return subset.with_secrets() if self._carries_secrets else subset

    def _lacks(self, id: TableId) -> str:
        reason = self._reasons.get(id)
        return f"{id} is not among these {len(self)} locations" + (f": {reason}" if reason else "")

    def with_secrets(self) -> Self:
        """Returns a copy whose pickle contains the storage options; store that pickle where secrets are allowed."""
        same = type(self)(self.values(), self.report)
        object.__setattr__(same, "_carries_secrets", True)
        return same

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self)} tables: {self.report!r}"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        options = {id: at.storage_options for id, at in self.items()} if self._carries_secrets else None
        return _unpickle, (type(self), list(self.values()), self.report, options)


def _unpickle(
    kind: type[M],
    locations: list[Location],
    report: Report,
    options: Mapping[TableId, Mapping[str, str] | None] | None,
) -> M:
    if options is None:
        return kind(locations, report)
    whole = (replace(location, storage_options=options[location.id]) for location in locations)
    return kind(whole, report).with_secrets()

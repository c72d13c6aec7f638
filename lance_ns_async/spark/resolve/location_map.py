"""The locations of many tables, by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.patterns import Wanted, What, table_id
from lance_ns_async.spark.resolve.report import Report

M = TypeVar("M", bound="LocationMap")


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class LocationMap(Mapping[TableId, Location]):
    """The locations of many tables, by their ids and in the order they were asked for.

    Immutable. Pickle, JSON, Arrow and Spark's form leave the storage options out unless they are asked for.
    Looked up by a TableId, by a sequence of names, or by a string as `prefetch` takes it; the KeyError of one that was
    itself asked for in vain says why.
    """

    report: Report
    """What else was asked for and is not here."""
    _by_id: Mapping[TableId, Location]
    _reasons: Mapping[TableId, str]
    """Why those are not here that were asked for."""
    _carries_secrets: bool

    def __init__(self, locations: Iterable[Location], report: Report) -> None:
        object.__setattr__(self, "report", report)
        object.__setattr__(self, "_by_id", {location.id: location for location in locations})
        # A namespace of the same names would be an equal key.
        reasons = {problem.subject: problem.reason for problem in report.problems if type(problem.subject) is TableId}
        object.__setattr__(self, "_reasons", reasons)
        object.__setattr__(self, "_carries_secrets", False)

    def __getitem__(self, id: str | Iterable[str]) -> Location:
        try:
            wanted = table_id(id)
        except (InvalidInputError, TypeError) as e:
            # What can be no id is not here either, so `in` and `get` answer for it.
            raise KeyError(id) from e
        if (found := self._by_id.get(wanted)) is None:
            raise KeyError(self._lacks(wanted))
        return found

    def __iter__(self) -> Iterator[TableId]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def select(self, what: What) -> Self:
        """Those that are asked for, in the words `prefetch` takes; costs nothing.

        A pattern may match none of them; a table that is named but not among them is an InvalidInputError.
        """
        wanted = Wanted.read(what)
        strangers = [id for id in wanted.ids if id not in self._by_id]
        if strangers:
            raise InvalidInputError(f"select: {self._lacks(strangers[0])}")
        named = frozenset(wanted.ids)
        chosen = (
            location
            for id, location in self._by_id.items()
            if id in named or any(pattern.matches(id) for pattern in wanted.patterns)
        )
        found = type(self)(chosen, self.report)
        return found.with_secrets() if self._carries_secrets else found

    def _lacks(self, id: TableId) -> str:
        reason = self._reasons.get(id)
        return f"{id} is not among these {len(self)} locations" + (f": {reason}" if reason else "")

    def with_secrets(self) -> Self:
        """The same, but its pickle keeps the storage options: keep that where they may be seen."""
        same = type(self)(self.values(), self.report)
        object.__setattr__(same, "_carries_secrets", True)
        return same

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self)} tables: {self.report!r}"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        options = {id: at.storage_options for id, at in self.items()} if self._carries_secrets else None
        return _unpickled, (type(self), list(self.values()), self.report, options)


def _unpickled(
    kind: type[M],
    locations: list[Location],
    report: Report,
    options: Mapping[TableId, Mapping[str, str] | None] | None,
) -> M:
    if options is None:
        return kind(locations, report)
    whole = (replace(location, storage_options=options[location.id]) for location in locations)
    return kind(whole, report).with_secrets()

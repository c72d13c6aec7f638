"""Checks that the location of a new table does not overlap with other tables of a directory catalog."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.directory.dropping import Dropping
from lance_ns_async.backends.directory.manifest import Entries
from lance_ns_async.backends.directory.places import OF_LANCE, OutsideError, RootNames, TableLocations, is_within
from lance_ns_async.model import DELIMITER


class Overlaps:
    """The locations of all tables of a manifest, read at the first check, for the checks of many new tables."""

    def __init__(
        self, entries: Entries, places: TableLocations, dropping: Dropping, names: RootNames, except_for: str = ""
    ) -> None:
        """Creates the object; reads nothing.

        Args:
            entries: The entries of the manifest.
            places: The root.
            dropping: Finds datasets in the storage.
            names: The names at the root.
            except_for: The id of a table that does not count.
        """
        self._entries = entries
        self._places = places
        self._dropping = dropping
        self._names = names
        self._except_for = except_for
        self._owners: dict[str, tuple[str, str]] = {}
        """The id and the location of a table at each real location."""

    def check(self, place: str) -> None:
        """Checks the location of a new table."""
        sorted_places = self._places_in_order
        real = self._places.real(place, self._names)
        if (overlap := self._overlapping(real, sorted_places)) is not None:
            id, location = self._owners[overlap]
            raise InvalidInputError(
                f"the location {place!r} overlaps with {location!r}, the location of {id}; "
                "choose one that neither contains it nor is inside it"
            )
        if (above := self._dropping.table_around(real)) is not None:
            raise InvalidInputError(f"the location {place!r} is among the files of the table at {above!r}")

    def add(self, id: str, place: str) -> None:
        """Adds the location of a new table, so that it counts for later checks."""
        sorted_places = self._places_in_order
        real = self._places.real(place, self._names)
        if real not in self._owners:
            self._owners[real] = id, place
            insort(sorted_places, real)

    @cached_property
    def _places_in_order(self) -> list[str]:
        """The real locations in order."""
        for id, location in self._entries.locations():
            # A table at the root is defined by its folder, not by its entry.
            if id == self._except_for or DELIMITER not in id:
                continue
            with suppress(OutsideError):
                real = self._places.real(self._places.normalize(location, self._names), self._names)
                self._owners.setdefault(real, (id, location))
        return sorted(self._owners)

    def _overlapping(self, real: str, sorted_places: Sequence[str]) -> str | None:
        """Returns the location of a table that has `real` among its files, or that is among the files of `real`."""
        above, _, name = real.rpartition("/")
        while above:
            if name in OF_LANCE and above in self._owners:
                return above
            above, _, name = above.rpartition("/")
        for name in OF_LANCE:
            inner = f"{real}/{name}"
            for start in (inner, f"{inner}/"):
                index = bisect_left(sorted_places, start)
                if index < len(sorted_places) and is_within(sorted_places[index], inner):
                    return sorted_places[index]
        return None

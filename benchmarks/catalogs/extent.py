"""The number of tables in a catalog, their names and their locations."""

from collections.abc import Iterator
from dataclasses import dataclass

LATENCY = 0.02
"""Latency of the fakes of Polaris and Unity Catalog, in seconds."""

IN_FLIGHT = 64
"""Maximum number of our client's concurrent requests to them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """One namespace full of tables, those of other formats spread evenly among the Lance tables."""

    namespace: tuple[str, ...]
    tables: int
    others: int
    root: str
    """The root of the tables' locations."""

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yields the name of each table, in order, and whether it is a Lance table."""
        total = self.tables + self.others
        for number in range(total):
            is_lance = number * self.tables // total != (number + 1) * self.tables // total
            yield f"table_{number:06}", is_lance

    def lance(self) -> list[str]:
        """Returns the names of the Lance tables, in order."""
        return [name for name, is_lance in self.names() if is_lance]

    def some(self, count: int) -> list[str]:
        """Returns a number of Lance tables, evenly distributed."""
        names = self.lance()
        return [names[number * len(names) // count] for number in range(min(count, len(names)))]

    def location(self, name: str) -> str:
        """Returns the location of a table."""
        return f"{self.root}/{name}.lance"

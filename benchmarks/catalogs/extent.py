"""The number of tables in a catalog, their names and their locations."""

from collections.abc import Iterator
from dataclasses import dataclass

LATENCY = 0.02
"""Seconds that the fakes of Polaris and Unity Catalog hold every answer: a network."""

IN_FLIGHT = 64
"""Requests that our client may have in flight to those."""


@dataclass(frozen=True, slots=True)
class Extent:
    """One namespace full of tables, those of other formats spread evenly among the Lance tables."""

    namespace: tuple[str, ...]
    tables: int
    others: int
    root: str
    """Where the tables lie."""

    def names(self) -> Iterator[tuple[str, bool]]:
        """Every table's name, in order, and whether it is a Lance table."""
        total = self.tables + self.others
        for number in range(total):
            is_lance = number * self.tables // total != (number + 1) * self.tables // total
            yield f"table_{number:06}", is_lance

    def lance(self) -> list[str]:
        """The names of the Lance tables, in order."""
        return [name for name, is_lance in self.names() if is_lance]

    def some(self, count: int) -> list[str]:
        """So many Lance tables, spread evenly over all."""
        names = self.lance()
        return [names[number * len(names) // count] for number in range(min(count, len(names)))]

    def location(self, name: str) -> str:
        """Where a table claims to lie."""
        return f"{self.root}/{name}.lance"

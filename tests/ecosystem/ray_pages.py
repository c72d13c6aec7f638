"""Pages whose code needs more than the usual tests have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance_namespace
import pytest

from lance_ns_async import Namespace, registry
from lance_ns_async.short_names import CLASS_PATHS
from tests.pages import Block, Page
from tests.reader import Reader, comparable

_CALLED = {
    "dir": "Directory",
    "iceberg": "Iceberg",
    "hive3": "Hive",
    "glue": "Glue",
    "polaris": "Polaris",
    "unity": "Unity",
}


@dataclass(frozen=True)
class Here(Page):
    """A page whose code can be run here, though not everywhere."""

    def blocks(self) -> Iterator[Block]:
        return (replace(block, not_run=None) for block in super().blocks())

    def table(self, first: str) -> list[list[str]]:
        """The cells of the rows of the table whose first column is called so."""
        rows = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", self.text, re.MULTILINE)
        assert rows is not None, first
        return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]

    def costs(self, impl: str) -> dict[str, int]:
        """The calls that each step costs on a catalog, where the page tells a number: `1; Glue 2`."""
        told = {step: cost for step, cost in self.table("step") if re.fullmatch(r"\d+(; .* \d+)?", cost)}
        special = {step: re.search(rf"\b{_CALLED[impl]} (\d+)", cost) for step, cost in told.items()}
        return {step: int(found[1] if (found := special[step]) else cost.split(";")[0]) for step, cost in told.items()}


async def check(page: Here, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Runs the page's code in the directory: each block prints what is shown after it. Gives what it named."""
    monkeypatch.chdir(directory)
    reader = Reader(page, {"/home/you": str(directory)})
    for block, following in pairwise([*page.blocks(), None]):
        if block is not None and block.is_code:
            shown = following.source if following is not None and following.title == "Printed" else ""
            assert await reader.printed(block) == comparable(shown), f"{page.name}:{block.line}"
    return reader._session


def check_places(page: Here, places: Mapping[str, Mapping[str, str]]) -> None:
    """Each catalog of the page takes the properties that it is shown with."""
    paths = [cells[1].strip("`") for cells in page.table("catalog")]
    assert paths == [CLASS_PATHS[impl] for impl in registry.BACKENDS] and [*places] == paths[1:]
    for path, properties in places.items():
        made = lance_namespace.connect(path, dict(properties))
        assert isinstance(made, Namespace)
        made.close()

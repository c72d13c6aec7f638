"""Pages whose code needs a package that the usual tests do not have; the tests of that package run it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, chdir
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance_namespace

from lance_ns_async import Namespace
from lance_ns_async.registry import BACKENDS, CLASS_PATHS
from tests.documentation.pages import Block, Page
from tests.support.operations import NAMES
from tests.support.reader import Reader, comparable, stand_ins


@dataclass(frozen=True)
class Elsewhere(Page):
    """A page with the environment of its package, which runs the blocks that other tests omit."""

    package: str

    def blocks(self) -> Iterator[Block]:
        for block in super().blocks():
            yield replace(block, apart=None) if block.apart == self.package else block

    def table(self, first: str) -> list[list[str]]:
        """Returns the cells of the table whose first column has this title."""
        rows = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", self.text, re.MULTILINE)
        assert rows is not None, first
        return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]

    def costs(self, impl: str) -> dict[str, int]:
        """Returns the calls of each step on a catalog, if the page has a number: `1; Glue 2`."""
        costs = {
            step: cost for step, cost in self.table(f"{self.package} step") if re.fullmatch(r"\d+(; .* \d+)?", cost)
        }
        called = NAMES[impl].split()[0]
        special = {step: re.search(rf"\b{called} (\d+)", cost) for step, cost in costs.items()}
        return {
            step: int(result[1] if (result := special[step]) else cost.split(";")[0]) for step, cost in costs.items()
        }


DAFT = Elsewhere("ray-daft.md", "daft-lance")
LANCEDB = Elsewhere("lancedb.md", "lancedb")
RAY = Elsewhere("ray-daft.md", "lance-ray")
ALL = (DAFT, LANCEDB, RAY)


@asynccontextmanager
async def read(page: Elsewhere, directory: Path) -> AsyncIterator[Mapping[str, Any]]:
    """Returns the variables of the page's code, after all of it has run in the directory with the documented output."""
    with chdir(directory), stand_ins(page.blocks()) as servers:
        reader = Reader(page, {"/home/you": str(directory), **servers})
        for block, following in pairwise([*page.blocks(), None]):
            if block is not None and block.is_code and block.apart is None:
                shown = following.source if following is not None and following.is_output else block.shown
                assert await reader.printed(block) == comparable(shown), f"{page.name}:{block.line}"
        yield reader.named


def check_places(page: Elsewhere, places: Mapping[str, Mapping[str, str]]) -> None:
    """Checks that each catalog of the page accepts the properties in its example."""
    paths = [cells[1].strip("`") for cells in page.table("catalog")]
    assert paths == [CLASS_PATHS[impl] for impl in BACKENDS] and [*places] == paths[1:]
    for path, properties in places.items():
        made = lance_namespace.connect(path, dict(properties))
        assert isinstance(made, Namespace)
        made.close()

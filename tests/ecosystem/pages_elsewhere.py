"""Pages whose code needs a package that the usual tests have not; the tests of that package run it."""

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
from lance_ns_async.registry import CLASS_PATHS
from tests.documentation.pages import Block, Page
from tests.ecosystem.catalogs import TRIED
from tests.support.operations import NAMES
from tests.support.reader import Reader, comparable
from tests.support.stand_ins import stand_ins


@dataclass(frozen=True)
class Elsewhere(Page):
    """A page where its package is: what others do not run is run here."""

    package: str

    def blocks(self) -> Iterator[Block]:
        for block in super().blocks():
            yield replace(block, apart=None) if block.apart == self.package else block

    def table(self, first: str) -> list[list[str]]:
        """The cells of the rows of the table whose first column is called so."""
        rows = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", self.text, re.MULTILINE)
        assert rows is not None, first
        return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]

    def costs(self, impl: str) -> dict[str, int]:
        """The calls that each step costs on a catalog, where the page tells a number: `1; Glue 2`."""
        told = {step: cost for step, cost in self.table("step") if re.fullmatch(r"\d+(; .* \d+)?", cost)}
        called = NAMES[impl].split()[0]
        special = {step: re.search(rf"\b{called} (\d+)", cost) for step, cost in told.items()}
        return {step: int(found[1] if (found := special[step]) else cost.split(";")[0]) for step, cost in told.items()}


DAFT = Elsewhere("daft.md", "daft-lance")
LANCEDB = Elsewhere("lancedb.md", "lancedb")
RAY = Elsewhere("ray.md", "lance-ray")
ALL = (DAFT, LANCEDB, RAY)


@asynccontextmanager
async def read(page: Elsewhere, directory: Path) -> AsyncIterator[Mapping[str, Any]]:
    """What the page's code has named, after all of it ran in the directory and each block printed what is shown."""
    with chdir(directory), stand_ins(page) as servers:
        reader = Reader(page, {"/home/you": str(directory), **servers})
        for block, following in pairwise([*page.blocks(), None]):
            if block is not None and block.is_code:
                shown = following.source if following is not None and following.is_output else block.shown
                assert await reader.printed(block) == comparable(shown), f"{page.name}:{block.line}"
        yield reader.named


def check_places(page: Elsewhere, places: Mapping[str, Mapping[str, str]]) -> None:
    """Each catalog of the page takes the properties that it is shown with."""
    paths = [cells[1].strip("`") for cells in page.table("catalog")]
    assert paths == [CLASS_PATHS[impl] for impl in TRIED] and [*places] == paths[1:]
    for path, properties in places.items():
        made = lance_namespace.connect(path, dict(properties))
        assert isinstance(made, Namespace)
        made.close()

"""The programs on the page of examples: they print what the page shows, and fit on it."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import CODE_COLUMNS, DOCS, Block, Page
from tests.support.budget import thorough
from tests.support.reader import Reader, comparable, stand_ins
from tests.support.spark import SPARK

pytestmark = pytest.mark.long
FOLDER = DOCS / "examples"
PAGE = Page("examples.md")
# Its calls are those of the code for Spark in the README.
MARKS: dict[str, Any] = {"spark_job.py": [*SPARK, thorough]}
SHOWN = {
    Path(block.included).name: following.source if following is not None and following.is_output else ""
    for block, following in pairwise([*PAGE.blocks(), None])
    if block is not None and block.included is not None
}
"""The output of each program on the page, by the name of its file."""


def program(name: str) -> Block:
    return Block("python", name, (FOLDER / name).read_text(encoding="utf-8"), 1, None, None)


async def run(name: str, stands_for: Mapping[str, str]) -> tuple[object, str]:
    """Returns the exit status of a program in the working directory, and what it prints."""
    reader = Reader(PAGE, stands_for)
    printed = await reader.printed(program(name))
    return reader.status, printed


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the lake of the examples into the working directory."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / "write_lake.py"))
    return tmp_path / "lake"


@pytest.mark.parametrize("name", [pytest.param(it, marks=MARKS.get(it, ())) for it in SHOWN])
async def test_a_program_prints_what_the_page_shows(name: str, lake: Path) -> None:
    with stand_ins([program(name)]) as servers:
        assert await run(name, {"/home/you": str(lake.parent), **servers}) == (0, comparable(SHOWN[name]))


@pytest.fixture
def damaged(lake: Path) -> None:
    """Deletes the rows of a table."""
    shutil.rmtree(next(lake.glob("*day1")) / "data")


@pytest.mark.usefixtures("damaged")
async def test_the_audit_fails_for_a_damaged_table() -> None:
    status, printed = await run("audit_in_ci.py", {})
    assert status == 1
    assert printed.startswith("sales$day1 data-missing ")


def test_every_program_is_on_the_page() -> None:
    assert set(SHOWN) == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_program_fits_on_the_page(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40
    assert [line for line in lines if len(line) > CODE_COLUMNS] == []

"""The documentation of Spark SQL: its code runs, and prints the documented output."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.connector.lake import MARKS
from tests.documentation.pages import Page
from tests.support.reader import Reader, comparable

pytestmark = MARKS

PAGE = Page("spark-sql.md")


async def test_the_code_of_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(PAGE, {})
    run = 0
    for block, following in pairwise([*PAGE.blocks(), None]):
        if block is not None and block.language == "python":
            printed = await reader.printed(replace(block, not_run=None))
            shown = following.source if following is not None and following.title == "Prints" else ""
            assert printed == comparable(shown), f"{PAGE.name}:{block.line}"
            run += 1
    assert run > 3

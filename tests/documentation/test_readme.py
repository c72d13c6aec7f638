"""The README's code is run in the way of a reader."""

from __future__ import annotations

import re
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """Returns the code block after the marker of that name."""
    result = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    assert result is not None, f"README.md has no block {name!r}"
    return result[1]


def run(directory: Path, *names: str) -> list[str]:
    """Returns the output of each block, run one after another in the same directory."""
    printed = []
    with chdir(directory):
        for name in names:
            with redirect_stdout(StringIO()) as output:
                exec(block(name), {"__name__": "__main__"})
            printed.append(output.getvalue())
    return printed


def test_async_and_sync(tmp_path: Path) -> None:
    first, second = run(tmp_path, "async", "sync")
    assert first.startswith("200 found; Table not found: sales$nobody")
    assert second.startswith("200 tables\n3 rows at ")


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
@pytest.mark.usefixtures("shared_spark")
def test_spark(tmp_path: Path) -> None:
    *_, shown = run(tmp_path, "async", "sync", "spark")
    assert "200/200" in shown
    assert "|sales$orders_000|" in shown and "16.75" in shown


def test_ci_runs_the_test_command() -> None:
    """The script that CI runs finds its command in the README."""
    assert block("tests").strip().endswith("-m nox")
    assert "<!-- tests -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")

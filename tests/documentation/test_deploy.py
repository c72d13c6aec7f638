"""The files for deployment agree with the command that they start."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lance_ns_async.cli.app import app
from tests.documentation.pages import CODE_COLUMNS

FOLDER = Path(__file__).parents[2] / "docs" / "deploy"


def commands() -> Iterator[list[str]]:
    """Yields the arguments of each `lance-ns serve` in the files."""
    for name, start in (("compose.yaml", r" +command: "), ("Dockerfile", "CMD ")):
        (line,) = re.findall(rf"^{start}(\[[^]]*\])$", (FOLDER / name).read_text(), re.MULTILINE)
        yield json.loads(line)
    (text,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", (FOLDER / "lance-ns.service").read_text(), re.MULTILINE)
    program, *arguments = shlex.split(text.replace("\\\n", ""))
    assert program.endswith("/bin/lance-ns")
    yield arguments


@pytest.mark.parametrize("arguments", [*commands()], ids=["compose", "image", "systemd"])
def test_the_options_exist(arguments: list[str]) -> None:
    assert arguments[0] == "serve"
    shown = CliRunner().invoke(app, ["serve", "--help"]).output
    assert all(it in shown for it in arguments if it.startswith("--"))


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_the_files_fit_on_their_page(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if len(line) > CODE_COLUMNS] == []

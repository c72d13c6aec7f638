"""The command `watch`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lance_ns_async import Namespace
from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.secrets import lock
from tests.support.commands import Run

ROWS = pa.table({"id": [1]})


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a catalog with one table."""
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        namespace.create_namespace("s")
        namespace.write("s.a", ROWS)
    return ["--impl", "dir", "-p", f"root={tmp_path / 'lake'}"]


def change(tmp_path: Path) -> None:
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        namespace.write("s.a", ROWS, mode="append")
        namespace.write("s.b", ROWS)


def test_a_run_goes_on_where_the_last_one_ended(options: list[str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    arguments = ["watch", "s.**", "--once", "--state", str(state), *options]
    assert (Run(*arguments).code, Run(*arguments).out) == (0, "")
    change(tmp_path)
    result = Run(*arguments, "--json")
    assert [(it["change"], it["id"], it["version"]) for it in map(json.loads, result.lines)] == [
        ("version", ["s", "a"], 2),
        ("created", ["s", "b"], 1),
    ]
    assert Run(*arguments).out == "" and state.stat().st_mode & 0o777 == 0o600
    (line,) = Run("watch", "s.a", "--once", "--existing", "--no-versions", *options).lines
    assert line.startswith("created     s$a  file:///")


def test_two_runs_cannot_use_one_file(options: list[str], tmp_path: Path) -> None:
    with lock(tmp_path / "state", 0.0):
        result = Run("watch", "s.**", "--once", "--state", str(tmp_path / "state"), *options)
    assert result.code == Code.USAGE and "state: in use by another lance-ns" in result.err
    assert not (tmp_path / "state").exists()


def test_changes_are_shown_until_an_interrupt(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lance_ns_async.cli", "watch", "s.**", "--existing", "--every", "0.01", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "created     s$a" in process.stdout.readline()
        change(tmp_path)
        assert "created     s$b" in (process.stdout.readline() + process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().startswith("lance-ns: watching s.**; Ctrl-C ends it")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--once"], "--once: pass --state FILE, or --existing"),
        (["--every", "0"], "--every 0.0, --examine-every 60.0: must be numbers of seconds above 0"),
        (["--state", "{junk}", "--once"], "--state: it is not the token of a change, or was cut off; begin anew"),
        (["--state", "{root}", "--once"], "Is a directory"),
    ],
)
def test_bad_options_are_usage_errors(options: list[str], tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "junk").write_text("junk")
    places = {"junk": tmp_path / "junk", "root": tmp_path}
    result = Run("watch", "s.**", *(it.format(**places) for it in arguments), *options)
    assert result.code == 2 and message in result.err and not result.out

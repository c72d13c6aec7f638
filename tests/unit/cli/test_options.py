"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import pytest

from lance_ns_async.cli import errors
from lance_ns_async.cli.errors import Code, use_options
from lance_ns_async.cli.parsing import parse_storage_options
from tests.support.commands import Run

pytestmark = pytest.mark.floors


def test_storage_options_come_from_files(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text("# of the bucket\n\naws_secret_access_key=a=b\n  region = x\n")
    assert parse_storage_options([f"@{file}", "k=v"]) == {"aws_secret_access_key": "a=b", "region": "x", "k": "v"}
    file.write_text("hunter2\n")
    for option in (f"@{file}", f"@{tmp_path / 'none'}", f"@{tmp_path}"):
        bad = Run("discover", str(tmp_path), "-i", "dir", "-p", f"root={tmp_path}", "--storage-option", option)
        assert bad.code == Code.USAGE and "hunter2" not in bad.err and "--storage-option" in bad.err


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("delete: needs mode 'sync'", "--delete: needs mode 'sync'"),
        ("mode 'x': must be 'create' or 'sync'", "--mode 'x': must be 'create' or 'sync'"),
        ("omit one of take_over and data", "omit one of --take-over and data"),
        ("use data=True to clone it", "use --data to clone it"),
        ("no rule of `data` applies", "no rule of --data applies"),
        ("on_error='report' leaves it out", "--on-error report leaves it out"),
        ("table data: no rule applies", "table data: no rule applies"),
    ],
)
def test_messages_name_options(message: str, expected: str) -> None:
    options = {
        "data": "--data",
        "delete": "--delete",
        "mode": "--mode",
        "on_error": "--on-error",
        "take_over": "--take-over",
    }
    errors.set_up(quiet=False, options=options)
    assert use_options(message, is_usage=True) == expected


def test_ids_are_no_options() -> None:
    options = {"take_over": "--take-over", "on_error": "--on-error"}
    message = "Table not found: take_over; on_error='report' leaves it out"
    expected = "Table not found: take_over; --on-error report leaves it out"
    errors.set_up(quiet=False, options=options)
    assert use_options(message) == expected

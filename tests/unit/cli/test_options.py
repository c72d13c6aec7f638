"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.options import parse_storage_options
from tests.unit.cli.test_app import Run


def test_storage_options_come_from_files(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text("# of the bucket\n\naws_secret_access_key=a=b\n  region = x\n")
    assert parse_storage_options([f"@{file}", "k=v"]) == {"aws_secret_access_key": "a=b", "region": "x", "k": "v"}
    file.write_text("hunter2\n")
    for option in (f"@{file}", f"@{tmp_path / 'none'}", f"@{tmp_path}"):
        bad = Run("discover", str(tmp_path), "-i", "dir", "-p", f"root={tmp_path}", "--storage-option", option)
        assert bad.code == Code.USAGE and "hunter2" not in bad.err and "--storage-option" in bad.err

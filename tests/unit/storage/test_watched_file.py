"""A file that is read once for each change, and whose last content stays while it is missing or invalid."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async.storage import watched_file
from lance_ns_async.storage.watched_file import WatchedFile


def test_a_file_is_read_once_for_each_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reads: list[bytes] = []

    def parse(content: bytes) -> bytes:
        reads.append(content)
        if content == b"junk":
            raise ValueError("junk")
        return content

    path = tmp_path / "link"
    file = WatchedFile("some_file", str(path), parse)
    message = rf"some_file '{path}': No such file or directory; give a file that this process can read"
    with pytest.raises(InvalidInputError, match=message):
        file.value()
    with pytest.raises(InvalidInputError, match=f"give the full path, '{Path.home()}/no"):
        WatchedFile("some_file", "~/no such file", parse).value()
    for name in ("a", "b"):
        # The swap of a symbolic link, as in Kubernetes.
        (tmp_path / name).write_text(name)
        (tmp_path / "next").symlink_to(name)
        os.replace(tmp_path / "next", path)
        assert [file.value(now=True) for _ in range(3)] == [name.encode()] * 3
    path.unlink()
    assert file.value(now=True) == b"b" and "No such file" in caplog.text
    path.write_text("junk")
    assert file.value(now=True) == b"b" and f"some_file '{path}': junk; the last content stays in use" in caplog.text
    path.write_text("c")
    # It was looked at less than a second ago.
    assert file.value() == b"b" and file.value(now=True) == b"c"
    assert reads == [b"a", b"b", b"junk", b"c"]


def test_a_change_is_noticed_after_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_file, "_FRESH", 0.0)
    file = WatchedFile("some_file", str(tmp_path / "f"), bytes.decode)
    for text in ("a", "b"):
        (tmp_path / "f").write_text(text)
        assert file.value() == text

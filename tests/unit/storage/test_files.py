"""Files below a location of an object store, whose connections locations share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lance.file import LanceFileSession

from lance_ns_async.storage.files import delete, download, open_files
from tests.fakes.s3 import FakeS3, KeyedS3


@pytest.fixture(scope="module")
def s3() -> Iterator[FakeS3]:
    with FakeS3() as server:
        yield server


@pytest.mark.parametrize("path", ["a_n$t", "a/b c/", "a%20b", "a~b/c", ".a", "(1+2)/x=1,y:2;z@!'&"])
def test_files_have_the_paths_that_pylance_gives_them(s3: FakeS3, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("hello")
    location = f"s3://lake/{path}"
    shared, own = open_files(location, s3.options), LanceFileSession(location, storage_options=s3.options)
    for name in ("data/x", "data/sub/y", ".m/z"):
        shared.upload_file(str(tmp_path / "file"), name)

    def content(session: Any) -> list[object]:
        listings = [session.list(), session.list("data"), session.list("none")]
        levels = [session.list_with_delimiter(), session.list_with_delimiter("data")]
        found = [session.contains("data/x"), session.contains("data"), session.read_range("data/x", 1, 3)]
        return [*map(sorted, listings), *levels, *found]

    assert content(shared) == content(own) and len(own.list()) == 3
    assert download(shared, "data/x", str(tmp_path / "copy")) and (tmp_path / "copy").read_text() == "hello"
    assert not download(shared, "none", str(tmp_path / "copy"))
    for name in ("data/x", "data/sub/y", ".m/z", "none"):
        delete(shared, name)
    assert own.list() == []


def test_keys_of_options_and_of_the_environment_are_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with KeyedS3() as s3:
        options = {**s3.options, "aws_access_key_id": "old"}
        s3.revoked.add("old")
        with pytest.raises(RuntimeError, match="ExpiredToken"):
            open_files("s3://lake/t", options).list()
        assert open_files("s3://lake/t", s3.options).list() == []
        del options["aws_access_key_id"], options["aws_secret_access_key"]
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
        with pytest.raises(RuntimeError, match="ExpiredToken"):
            open_files("s3://lake/t", options).list()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
        assert open_files("s3://lake/t", options).list() == []

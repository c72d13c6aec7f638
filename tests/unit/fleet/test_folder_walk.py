"""The walk over a storage: single looks at folders."""

from __future__ import annotations

from pathlib import Path

from lance_ns_async.fleet.folder_walk import FolderKind, FolderWalker
from lance_ns_async.storage.folders import Folders
from tests.support.folders import make_file, make_table


async def test_a_folder_that_vanishes_is_distinguished(tmp_path: Path) -> None:
    walker = FolderWalker(Folders(str(tmp_path)))
    assert (await walker.look("gone")).kind is FolderKind.VANISHED
    assert (await walker.look("gone.lance")).kind is FolderKind.VANISHED


async def test_similar_names_decide_the_first_request(tmp_path: Path) -> None:
    make_table(tmp_path, "a/t1")
    make_table(tmp_path, "a/t2")
    make_file(tmp_path, "a/day=1/x")
    walker = FolderWalker(Folders(str(tmp_path)))
    assert walker.expects_table("a/t1") is None
    await walker.look("a/t1")
    await walker.look("a/day=1")
    assert walker.expects_table("a/t2") and walker.expects_table("b/t3") and not walker.expects_table("a/day=2")
    before = walker.folders.listings
    assert (await walker.look("a/t2")).kind is FolderKind.TABLE
    assert walker.folders.listings == before + 1

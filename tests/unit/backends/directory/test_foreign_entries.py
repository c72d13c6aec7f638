"""Entries at a local root that are no tables, although their names end with `.lance`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId

ROWS = pa.table({"id": [1]})


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def loop_of_two(path: Path) -> None:
    path.symlink_to("other.lance")
    path.with_name("other.lance").symlink_to(path.name)


def dangling_link(path: Path) -> None:
    path.symlink_to("nothing")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_a_file(path: Path) -> None:
    path.with_name("file").touch()
    path.symlink_to("file")


def loop_inside(path: Path) -> None:
    path.mkdir()
    (path / "x").symlink_to("x")


def loop_upwards(path: Path) -> None:
    path.mkdir()
    (path / "up").symlink_to("..")


NO_FOLDERS: Mapping[str, Callable[[Path], None]] = {
    "loop": loop,
    "loop_of_two": loop_of_two,
    "dangling_link": dangling_link,
    "pipe": pipe,
    "file": Path.touch,
    "link_to_a_file": link_to_a_file,
}


@pytest.mark.parametrize("kind", NO_FOLDERS)
async def test_what_is_no_folder_is_no_table(kind: str, tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "good.lance")
    path = tmp_path / "bad.lance"
    NO_FOLDERS[kind](path)
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        assert (await ns.list_tables({"id": []})).tables == ["good"]
        assert (await ns.list_tables({"id": [], "include_declared": False})).tables == ["good"]
        assert [str(id) async for id in ns.iter_tables()] == ["good"]
        assert not await ns.exists(["bad"])
        for work in (ns.describe_table({"id": ["bad"]}), ns.drop_table({"id": ["bad"]})):
            with pytest.raises(TableNotFoundError):
                await work
        with pytest.raises(InvalidTableStateError, match=str(path)):
            await ns.declare_table({"id": ["bad"]})
        result = await ns.describe_tables([["bad"], ["good"]])
        assert list(result.tables) == [TableId(["good"])] and isinstance(
            result.errors[TableId(["bad"])], TableNotFoundError
        )
    assert path.name in os.listdir(tmp_path)


@pytest.mark.parametrize("make", [loop_inside, loop_upwards])
async def test_a_folder_with_a_loop_affects_no_other_table(make: Callable[[Path], None], tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "good.lance")
    make(tmp_path / "bad.lance")
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        assert (await ns.list_tables({"id": []})).tables == ["bad", "good"]
        for work in (ns.declare_table({"id": ["bad"]}), ns.drop_table({"id": ["bad"]})):
            with pytest.raises(InvalidTableStateError, match=f"{tmp_path}/bad.lance"):
                await work


async def test_a_manifest_that_is_a_loop_is_named(tmp_path: Path) -> None:
    (tmp_path / "__manifest").symlink_to("__manifest")
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        for work in (ns.list_tables({"id": []}), ns.create_namespace({"id": ["n"]})):
            with pytest.raises(InvalidTableStateError, match=f"{tmp_path}/__manifest"):
                await work


async def test_a_table_registered_at_a_loop_is_named(tmp_path: Path) -> None:
    loop(tmp_path / "bad.lance")
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["n"]})
        await ns.register_table({"id": ["n", "t"], "location": "bad.lance"})
        for work in (ns.open(["n", "t"]), ns.count_table_rows({"id": ["n", "t"]}), ns.drop_table({"id": ["n", "t"]})):
            with pytest.raises(LanceNamespaceError, match=f"{tmp_path}/bad.lance") as raised:
                await work
            assert isinstance(raised.value, InvalidTableStateError)

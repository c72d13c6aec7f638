"""Bulk registration in a directory catalog: one commit for a batch, with the checks of a single registration."""

from __future__ import annotations

import itertools
import random
import signal
from pathlib import Path

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import RegisterTableRequest

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.directory.backend import DirectoryBackend
from lance_ns_async.backends.directory.dropping import Dropping
from lance_ns_async.backends.directory.manifest import Directory, ManifestChange, ManifestEntry
from lance_ns_async.backends.directory.overlaps import Overlaps
from lance_ns_async.backends.directory.places import TableLocations, is_file_of
from tests.support.processes import run_script

ROWS = pa.table({"id": [1]})
SIZE = DirectoryBackend.capabilities.declare_batch


def requests(*names: str) -> list[RegisterTableRequest]:
    return [RegisterTableRequest(id=["n", name], location=f"data/{name}") for name in names]


def version(root: Path) -> int:
    return lance.dataset(root / "__manifest").version


async def test_a_batch_is_one_commit(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["n"]})
        before = version(tmp_path)
        (await ns.register_tables(requests(*(f"t{number}" for number in range(SIZE + 1))))).raise_for_errors()
        assert version(tmp_path) == before + 2
        assert len((await ns.list_tables({"id": ["n"]})).tables) == SIZE + 1


async def test_tables_at_the_root_are_folders(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["n"]})
        root = [RegisterTableRequest(id=["a"], location="a.lance"), RegisterTableRequest(id=["b"], location="c.lance")]
        result = await ns.register_tables([*root, *requests("t")])
        assert sorted(map(str, result.tables)) == ["a", "n$t"]
        assert "at the root its location must be" in str(result.errors[next(iter(result.errors))])


async def test_overlaps_within_a_batch_are_refused(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["n"]})
        await ns.register_table(requests("old")[0])
        tables = {"x": "data/old/data/x", "a": "a/data/b", "outer": "a", "between": "a/data", "beside": "a/other"}
        result = await ns.register_tables({"id": ["n", id], "location": place} for id, place in tables.items())
        assert [id.name for id in result.tables] == ["a", "between", "beside"]
        assert {id.name: str(error).split(";")[0] for id, error in result.errors.items()} == {
            "x": "Invalid input: n$x (declare_table: the location 'data/old/data/x' overlaps with 'data/old', the "
            "location of n$old",
            "outer": "Invalid input: n$outer (declare_table: the location 'a' overlaps with 'a/data/b', the location "
            "of n$a",
        }


@pytest.mark.parametrize("seed", range(20))
def test_overlaps_are_those_of_all_pairs(tmp_path: Path, seed: int) -> None:
    """A location is refused if and only if it is inside the files of a table, or contains them."""
    random_ = random.Random(seed)
    names = ["a", "data", "_versions", "data-x", "data.b", "tree"]
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    paths = [
        "/".join(random_.choices(["a", "link"]) + random_.choices(names, k=random_.randint(0, 3))) for _ in "x" * 9
    ]
    places = TableLocations(str(tmp_path))
    directory = Directory(str(tmp_path), None)
    put = [ManifestEntry(f"n$t{number}", "table", path) for number, path in enumerate(paths)]
    directory.change(lambda entries: ManifestChange(put=put))
    overlaps = Overlaps(directory.entries(), places, Dropping(directory, places), places.read_names())
    existing = [path.replace("link", "a") for path in paths]
    for path in {"/".join(it) for k in (1, 2, 3) for it in itertools.product(["a", "link"], *[names] * (k - 1))}:
        real = path.replace("link", "a")
        expected = any(is_file_of(real, other) or is_file_of(other, real) for other in existing)
        try:
            overlaps.check(path)
        except err.InvalidInputError:
            assert expected, path
        else:
            assert not expected, path


async def test_locations_of_tables_at_the_root_are_refused(tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "t.lance")
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["n"]})
        locations = {"a": "t.lance", "b": "free.lance"}
        result = await ns.register_tables({"id": ["n", id], "location": place} for id, place in locations.items())
        assert [id.name for id in result.tables] == ["b"]
        (error,) = result.errors.values()
        assert isinstance(error, err.InvalidInputError) and "of the table 't' at the root" in str(error)


KILLED = """
import asyncio, os, signal, sys
from lance_ns_async import AsyncNamespace
def kill(finished, total):
    os.kill(os.getpid(), signal.SIGKILL)
async def main(root, tables):
    async with AsyncNamespace.connect("dir", {"root": root}) as ns:
        requests = [{"id": ["n", f"t{i}"], "location": f"data/t{i}"} for i in range(tables)]
        await ns.register_tables(requests, progress=kill)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_a_killed_process_leaves_whole_batches(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["n"]})
        assert run_script(KILLED, str(tmp_path), str(2 * SIZE)) == (-signal.SIGKILL, [])
        assert len((await ns.list_tables({"id": ["n"]})).tables) == SIZE
        result = await ns.register_tables(requests(*(f"t{number}" for number in range(2 * SIZE))))
        assert len(result.tables) == len(result.errors) == SIZE

"""Drops in a directory catalog: each once, also on a full disk, and completed after an interruption."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    PermissionDeniedError,
    TableNotFoundError,
)

from lance_ns_async import AsyncNamespace, Namespace, Policy, TableId
from lance_ns_async.backends.base import Backend
from lance_ns_async.backends.directory.backend import DirectoryBackend, DirSettings
from lance_ns_async.backends.directory.places import tombstone
from lance_ns_async.calls.policy import Caller
from lance_ns_async.model import local_path
from lance_ns_async.transports.directory import Change, Directory, Entry
from tests.fakes.s3 import FakeS3

DATA = pa.table({"id": [1, 2]})
HOMES: list[list[str]] = [[], ["s"]]


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as connected:
        await connected.create_namespace({"id": ["s"]})
        yield connected


def backend_at(root: Path) -> Backend:
    """Returns a backend like that of a namespace."""
    return DirectoryBackend.open(DirSettings.parse({"root": str(root)}), Caller(Policy(), DirectoryBackend.errors))


def folders(root: Path) -> list[str]:
    """Returns the content of the root, except for the manifest."""
    return sorted(path.name for path in root.iterdir() if path.name != "__manifest")


def data_files(root: Path) -> list[Path]:
    """Returns the data files of all tables."""
    return [path for path in root.rglob("*.lance") if path.is_file() and "__manifest" not in path.parts]


FULL = """
import resource, sys
from lance_ns_async import Namespace

root, *ids = sys.argv[1:]
with Namespace.connect("dir", {"root": root, "max_retries": "0"}) as ns:
    ns.list_tables({"id": []})
    # From now on no file can be written, not even an empty one: fuller than any disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    for id in ids:
        try:
            ns.drop_table({"id": id.split("/")})
            print("dropped")
        except Exception as e:
            print(type(e).__name__)
"""


async def drop_on_a_full_disk(root: Path, *ids: str) -> list[str]:
    """Returns the outcomes of drops on a disk where no file can be written."""
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FULL, str(root), *ids, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await ran.communicate()
    return told.decode().split()


async def test_a_full_disk_is_freed_and_the_drop_is_finished_later(ns: AsyncNamespace, tmp_path: Path) -> None:
    for id in (["t"], ["s", "t"], ["s", "u"]):
        await ns.write(id, DATA)
    # The entry cannot be removed, but the files can.
    assert await drop_on_a_full_disk(tmp_path, "t", "s/t", "s/u") == ["dropped", "InternalError", "InternalError"]
    assert data_files(tmp_path) == []
    assert (await ns.list_tables({"id": ["s"]})).tables == [] and not await ns.exists(["s", "t"])
    assert len((await ns.describe_tables([["s", name] for name in "tux"])).errors) == 3
    for call in (ns.drop_table({"id": ["s", "u"]}), ns.deregister_table({"id": ["s", "u"]}), ns.open(["s", "u"])):
        with pytest.raises(TableNotFoundError):
            await call
    assert (await ns.write(["s", "t"], DATA)).to_table() == DATA
    assert len(folders(tmp_path)) == 1 and (await ns.list_tables({"id": ["s"]})).tables == ["t"]


@pytest.mark.parametrize("finishes", ["create", "drop", "drop_namespace"])
async def test_what_a_drop_has_left_goes_with_the_next(ns: AsyncNamespace, tmp_path: Path, finishes: str) -> None:
    for id in (["s", "t"], ["other"]):
        await ns.write(id, DATA)
    assert await drop_on_a_full_disk(tmp_path, "s/t") == ["InternalError"]
    # So it uses another one, whose entry was removed and whose files were not.
    (tmp_path / ".lance-ns-dropped-0" / "data" / "x").mkdir(parents=True)
    (tmp_path / ".lance-ns-dropped-0" / "data" / "y.lance").touch()
    match finishes:
        case "create":
            await ns.declare_table({"id": ["s", "new"]})
        case "drop":
            await ns.drop_table({"id": ["other"]})
        case _:
            await ns.drop_namespace({"id": ["s"]})
    assert folders(tmp_path) == ([] if finishes == "drop" else ["other.lance"])
    rows = lance.dataset(str(tmp_path / "__manifest")).to_table(filter="object_id = 's$t'")
    assert rows.num_rows == 0


async def test_what_was_deregistered_is_never_collected(ns: AsyncNamespace, tmp_path: Path) -> None:
    locations = [(await ns.write(id, DATA)).uri for id in (["s", "t"], ["t"])]
    for id in (["s", "t"], ["t"]):
        await ns.deregister_table({"id": id})
    await ns.write(["s", "t"], DATA)
    await ns.drop_table({"id": ["s", "t"]})
    await ns.drop_namespace({"id": ["s"]})
    assert [lance.dataset(location).to_table() for location in locations] == [DATA, DATA]


def compete(root: str, turn: Any, told: Any, operation: str, ids: list[list[str]]) -> None:
    """Performs the operation on one table after the other, at the same moment as other processes."""
    with Namespace.connect("dir", {"root": root, "max_retries": "20"}) as ns:
        for id in ids:
            turn.wait()
            try:
                getattr(ns, operation)({"id": id})
                told.put((id, operation, "ok"))
            except LanceNamespaceError as e:
                told.put((id, operation, type(e).__name__))


@pytest.fixture
def spawning() -> Iterator[Any]:
    yield multiprocessing.get_context("spawn")


REMOVALS = {"deregister": ["deregister_table"] * 3, "drop": ["drop_table"] * 3}
REMOVALS["both"] = [*REMOVALS["deregister"][:2], *REMOVALS["drop"][:2]]


@pytest.mark.parametrize(
    ("removal", "written"), [("deregister", False), ("drop", True), ("both", False), ("both", True)]
)
async def test_of_several_processes_exactly_one_removes(
    ns: AsyncNamespace, tmp_path: Path, spawning: Any, removal: str, written: bool
) -> None:
    ids = [[*home, f"t{i}"] for i in range(8) for home in HOMES]
    locations = {}
    for id in ids:
        await (ns.write(id, DATA) if written else ns.declare_table({"id": id}))
        locations[tuple(id)] = (await ns.open(id)).uri if written else ""
    operations = REMOVALS[removal]
    turn, told = spawning.Barrier(len(operations)), spawning.Queue()
    processes = [
        spawning.Process(target=compete, args=(str(tmp_path), turn, told, operation, ids)) for operation in operations
    ]
    for process in processes:
        process.start()
    outcomes = [await asyncio.to_thread(told.get, True, 60) for _ in range(len(operations) * len(ids))]
    for process in processes:
        process.join()
    winners = {tuple(id): operation for id, operation, outcome in outcomes if outcome == "ok"}
    assert Counter(tuple(id) for id, _, outcome in outcomes if outcome == "ok") == {tuple(id): 1 for id in ids}
    assert {outcome for *_, outcome in outcomes} == {"ok", TableNotFoundError.__name__}
    assert (await ns.list_all_tables({"id": []})).tables == []
    # Only the data that a deregister kept is left.
    kept = {locations[id] for id, operation in winners.items() if written and operation == "deregister_table"}
    assert {(tmp_path / name).as_uri() for name in folders(tmp_path) if data_files(tmp_path / name)} == {
        Path(local_path(location) or "").as_uri() for location in kept
    }
    assert [lance.dataset(location).to_table() for location in kept] == [DATA] * len(kept)


async def mark(root: Path, *ids: str) -> None:
    """Leaves entries like a drop whose process is killed after its first step."""
    rows = lance.dataset(str(root / "__manifest")).to_table().to_pylist()
    entries = [Entry(row["object_id"], "table", row["location"]) for row in rows if row["object_id"] in ids]
    marked = [replace(entry, metadata={"lance_ns.dropping": str(int(time()))}) for entry in entries]
    await asyncio.to_thread(Directory(str(root), None).change, lambda _: Change(put=marked))


@pytest.mark.parametrize("finishes", ["create", "drop", "drop_namespace", "register_there"])
async def test_a_drop_killed_at_its_first_step_is_finished(ns: AsyncNamespace, tmp_path: Path, finishes: str) -> None:
    location = (await ns.write(["s", "t"], DATA)).uri
    await ns.declare_table({"id": ["s", "u"]})
    await ns.write(["other"], DATA)
    await mark(tmp_path, "s$t", "s$u")
    for name in "tu":
        assert not await ns.exists(["s", name])
        with pytest.raises(TableNotFoundError):
            await ns.deregister_table({"id": ["s", name]})
    expected = ["other.lance"]
    match finishes:
        case "create":
            assert (await ns.write(["s", "t"], DATA)).to_table() == DATA
            expected = sorted([*expected, Path((await ns.open(["s", "t"])).uri).name])
        case "drop":
            await ns.drop_table({"id": ["other"]})
            expected = []
        case "drop_namespace":
            await ns.drop_namespace({"id": ["s"]})
        case _:
            await ns.register_table({"id": ["s", "t"], "location": Path(location).name})
    assert folders(tmp_path) == expected
    rows = lance.dataset(str(tmp_path / "__manifest")).to_table(filter="metadata LIKE '%dropping%'")
    assert rows.num_rows == 0


async def test_a_marked_table_keeps_the_files_of_others(ns: AsyncNamespace, tmp_path: Path) -> None:
    place = Path((await ns.write(["s", "t"], DATA)).uri).name
    # Only other tools can do that after the mark was written.
    await mark(tmp_path, "s$t")
    entry = Entry("s$other", "table", place)
    await asyncio.to_thread(Directory(str(tmp_path), None).change, lambda _: Change(put=[entry]))
    await ns.declare_table({"id": ["s", "new"]})
    assert (await ns.list_tables({"id": ["s"]})).tables == ["new", "other"]
    assert (await ns.open(["s", "other"])).to_table() == DATA


async def test_a_drop_at_the_root_killed_before_it_deletes(ns: AsyncNamespace, tmp_path: Path) -> None:
    for name in "tu":
        await ns.write([name], DATA)
    (tmp_path / "t.lance" / ".lance-deregistered").symlink_to(".lance-ns-dropped-")
    (tmp_path / "t.lance").rename(tmp_path / ".lance-ns-dropped-at-t.lance-")
    assert (await ns.list_tables({"id": []})).tables == ["u"] and not await ns.exists(["t"])
    assert (await ns.write(["t"], DATA)).to_table() == DATA
    assert folders(tmp_path) == ["t.lance", "u.lance"]


async def test_data_that_a_deregister_kept_returns_to_its_place(ns: AsyncNamespace, tmp_path: Path) -> None:
    """A drop was killed after it renamed the folder of a table that was deregistered at the same moment."""
    for name in "tu":
        await ns.write([name], DATA)
    await ns.deregister_table({"id": ["t"]})
    for name in "tu":
        (tmp_path / f"{name}.lance").rename(tmp_path / f".lance-ns-dropped-at-{name}.lance-")
    await ns.declare_table({"id": ["s", "new"]})
    assert folders(tmp_path) == ["t.lance"] and lance.dataset(str(tmp_path / "t.lance")).to_table() == DATA


@pytest.mark.parametrize("home", HOMES)
async def test_registrations_are_distinguished(ns: AsyncNamespace, tmp_path: Path, home: list[str]) -> None:
    backend, id = backend_at(tmp_path), TableId([*home, "t"])
    first = await backend.declare_table(id, None, {})
    await ns.write(id, DATA, mode="append")
    assert (await backend.describe_table(id)).registration == first.registration is not None
    await ns.drop_table({"id": [*id]})
    second = await backend.declare_table(id, None, {})
    assert second.registration != first.registration
    with pytest.raises(TableNotFoundError):
        await backend.drop_table(first)
    assert (await backend.describe_table(id)).registration == second.registration


async def test_replacing_is_one_commit_to_the_very_entry(ns: AsyncNamespace, tmp_path: Path) -> None:
    backend, id = backend_at(tmp_path), TableId(["s", "t"])
    old = await backend.declare_table(id, None, {"a": "1"})
    version = lance.dataset(str(tmp_path / "__manifest")).version
    new = await backend.replace_table(old, "elsewhere/t", {"b": "2"})
    assert lance.dataset(str(tmp_path / "__manifest")).version == version + 1
    assert new == await backend.describe_table(id) and new.properties == {"b": "2"}
    assert new.location == (tmp_path / "elsewhere" / "t").as_uri()
    with pytest.raises(ConcurrentModificationError, match="registered again by another client, at elsewhere/t"):
        await backend.replace_table(old, old.location, {})
    with pytest.raises(InvalidInputError, match="is reserved for the catalog"):
        await backend.replace_table(new, new.location, {"lance_ns.dropping": "1"})
    await backend.deregister_table(id)
    with pytest.raises(TableNotFoundError):
        await backend.replace_table(new, new.location, {})


async def test_an_object_store_is_marked_and_finished_by_the_next() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            await ns.create_namespace({"id": ["s"]})
            for id in (["s", "t"], ["t"], ["s", "other"]):
                await ns.write(id, DATA)
            server.fail(403, times=None, match=r"(DELETE /lake/x/(?!__manifest)|POST /lake\?delete)")
            for id in (["s", "t"], ["t"]):
                with pytest.raises(PermissionDeniedError):
                    await ns.drop_table({"id": id})
                assert not await ns.exists(id)
                for call in (ns.open(id), ns.drop_table({"id": id})):
                    with pytest.raises((TableNotFoundError, PermissionDeniedError)):
                        await call
            assert (await ns.list_all_tables({"id": []})).tables == ["s$other"]
            server.heal()
            for id in (["s", "t"], ["t"]):
                assert (await ns.write(id, DATA)).to_table() == DATA
                await ns.drop_table({"id": id})
                assert not await ns.exists(id)
            with pytest.raises(NamespaceNotEmptyError):
                await ns.drop_namespace({"id": ["s"]})
            assert (await ns.open(["s", "other"])).to_table() == DATA
            await ns.drop_table({"id": ["s", "other"]})
            await ns.drop_namespace({"id": ["s"]})
            left: Any = LanceFileSession("s3://lake/x", storage_options=server.options)
            assert [path for path in left.list() if not path.startswith("__manifest/")] == []


async def test_an_object_store_decides_between_drop_and_deregister() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        manifest = Directory("s3://lake/x", server.options)
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", "max_retries": "0", **storage}) as ns:

            async def note(name: str, **metadata: str) -> None:
                entry = Entry(name, "table", f"{name}.lance", {f"lance_ns.{key}": it for key, it in metadata.items()})
                await asyncio.to_thread(manifest.change, lambda _: Change(put=[entry]))

            locations = {name: (await ns.write([name], DATA)).uri for name in "abc"}
            # A drop before the deregister, one during it, and one after it.
            await note("a", dropping=str(int(time())))
            with pytest.raises(TableNotFoundError):
                await ns.deregister_table({"id": ["a"]})
            await note("b", deregistering=str(int(time())))
            with pytest.raises(ConcurrentModificationError, match="another client is deregistering it"):
                await ns.drop_table({"id": ["b"]})
            await ns.deregister_table({"id": ["b"]})
            await ns.deregister_table({"id": ["c"]})
            await note("c", dropping="0")
            await ns.write(["d"], DATA)
            for name in "bc":
                kept = await asyncio.to_thread(lance.dataset, locations[name], storage_options=server.options)
                assert await asyncio.to_thread(kept.to_table) == DATA
            assert (await asyncio.to_thread(manifest.entries)).get("c") is None
            assert (await ns.list_tables({"id": []})).tables == ["d"]


async def test_an_object_store_loses_its_latest_version_first() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            for _ in range(3):
                await ns.write(["t"], DATA, mode="overwrite")
            server.clear()
            await ns.drop_table({"id": ["t"]})
            deleted = [key for it in server.requests for key in re.findall(rb"<Key>(.*?)</Key>", it.body)]
            manifests = [place for place, path in enumerate(deleted) if path.endswith(b".manifest")]
            data = [place for place, path in enumerate(deleted) if b"/data/" in path]
            assert manifests == sorted(manifests) and len(manifests) == 3 and manifests[-1] < data[0]
            # Their names are in descending order.
            assert [deleted[place] for place in manifests] == sorted(deleted[place] for place in manifests)


async def plant(root: str, options: dict[str, str], *entries: Entry) -> None:
    """Adds entries, like another process."""
    await asyncio.to_thread(Directory(root, options).change, lambda _: Change(put=entries))


async def test_nothing_is_put_where_an_object_store_may_still_be_emptied() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", "max_retries": "0", **storage}) as ns:
            await ns.create_namespace({"id": ["s"]})
            begun = {"lance_ns.dropping": str(int(time()))}
            going = [
                Entry(id, "table", place, begun)
                for id, place in (("s$t", "a/b"), ("t", "t.lance"), ("s$v", "v.lance/v"))
            ]
            await plant("s3://lake/x", server.options, *going)
            for location in ("a", "a/b", "a/b/c", "t.lance", "t.lance/c"):
                for call in (
                    ns.register_table({"id": ["s", "u"], "location": location}),
                    ns.declare_table({"id": ["s", "u"], "location": location}),
                ):
                    with pytest.raises(ConcurrentModificationError, match="is being dropped"):
                        await call
            with pytest.raises(ConcurrentModificationError, match=r"s\$v at 'v.lance/v' is being dropped"):
                await ns.declare_table({"id": ["v"]})
            await ns.declare_table({"id": ["s", "u"], "location": "a/c"})
            with pytest.raises(ConcurrentModificationError, match="is being dropped"):
                await ns.register_table({"id": ["s", "u"], "location": "a", "mode": "Overwrite"})


async def test_what_was_registered_since_keeps_its_files_in_an_object_store() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            await ns.create_namespace({"id": ["s"]})
            for place in ("a", "a/u", "b", "t.lance"):
                await asyncio.to_thread(
                    lance.write_dataset, DATA, f"s3://lake/x/{place}", storage_options=server.options
                )
            going = {"s$t": "a", "s$b": "b", "t": "t.lance", "s$bad": "../outside"}
            entries = [Entry(id, "table", place, {"lance_ns.dropping": "0"}) for id, place in going.items()]
            await plant("s3://lake/x", server.options, *entries)
            # Only other tools can do that after the mark was written.
            since = {"s$u": "a/u", "s$root": "t.lance"}
            await plant("s3://lake/x", server.options, *(Entry(id, "table", place) for id, place in since.items()))
            await ns.declare_table({"id": ["s", "new"]})
            assert (await ns.list_tables({"id": ["s"]})).tables == ["new", "root", "u"]
            for name in ("root", "u"):
                assert (await ns.open(["s", name])).to_table() == DATA
            with pytest.raises(ValueError, match="was not found"):
                await asyncio.to_thread(lance.dataset, "s3://lake/x/b", storage_options=server.options)
            left = await asyncio.to_thread(Directory("s3://lake/x", server.options).entries)
            assert not left.with_metadata("lance_ns.dropping")


async def test_undeletable_files_in_an_object_store_block_only_their_own_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", "max_retries": "0", **storage}) as ns:
            await ns.create_namespace({"id": ["s"]})
            await asyncio.to_thread(lance.write_dataset, DATA, "s3://lake/x/a", storage_options=server.options)
            await plant("s3://lake/x", server.options, Entry("s$t", "table", "a", {"lance_ns.dropping": "0"}))
            server.fail(403, times=None, match=r"(DELETE /lake/x/a/|POST /lake\?delete .*x/a/)")
            for name in ("u", "v"):
                await ns.declare_table({"id": ["s", name]})
            assert len([it for it in caplog.messages if "s3://lake/x/a cannot be deleted" in it]) == 1
            with pytest.raises(PermissionDeniedError):
                await ns.declare_table({"id": ["s", "t"]})
            server.heal()
            await ns.declare_table({"id": ["s", "t"]})


async def test_files_of_others_in_an_object_store_are_not_a_dropped_table() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            await ns.declare_table({"id": ["t"]})
            async with httpx.AsyncClient(trust_env=False) as client:
                (await client.put(f"{server.url}/lake/x/t.lance/cat.jpg", content=b"a cat")).raise_for_status()
            with pytest.raises(InvalidTableStateError, match=r"files at t\.lance that Lance did not write; deregister"):
                await ns.drop_table({"id": ["t"]})
            assert (await ns.list_tables({"id": []})).tables == ["t"]
            left: Any = LanceFileSession("s3://lake/x/t.lance", storage_options=server.options)
            assert "cat.jpg" in left.list()
            await ns.deregister_table({"id": ["t"]})


STUCK = """
import asyncio, logging, os, sys
from lance_ns_async import AsyncNamespace

root, other = sys.argv[1:]

async def calls(root):
    async with AsyncNamespace.connect("dir", {"root": root, "max_retries": "0"}) as ns:
        for call in (
            ns.declare_table({"id": ["s", "new"]}), ns.declare_table({"id": ["new"]}),
            ns.drop_table({"id": ["s", "t"]}),
            ns.register_table({"id": ["s", "u"], "location": "u"}), ns.declare_table({"id": ["s", "gone"]}),
            ns.deregister_table({"id": ["s", "gone"]}),
            ns.register_table({"id": ["s", "gone"], "location": "gone"}), ns.exists(["s", "gone"]),
        ):
            try:
                await call
                yield "answered"
            except Exception as e:
                yield type(e).__name__

async def main():
    # What this imports may be root's alone.
    [_ async for _ in calls(other)]
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    async for outcome in calls(root):
        print(outcome)

asyncio.run(main())
"""


def share(folder: Path) -> None:
    """Lets all users write to a folder and its content."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)


async def test_files_that_may_not_be_deleted_are_in_the_way_of_their_own_place_alone() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root, other = Path(temporary, "lake"), Path(temporary, "other")
        for path in (root, other):
            async with AsyncNamespace.connect("dir", {"root": str(path)}) as ns:
                await ns.create_namespace({"id": ["s"]})
                await ns.write(["s", "t"], DATA)
        data = root / tombstone("s$gone", "gone") / "data"
        data.mkdir(parents=True)
        (data / "x.lance").touch()
        share(Path(temporary))
        data.chmod(0o555)
        try:
            command = [sys.executable, "-c", STUCK, str(root), str(other)]
            ran = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            printed, _ = await ran.communicate()
        finally:
            data.chmod(0o777)
        lines = printed.decode().splitlines()
        warnings = [line for line in lines if "cannot be deleted" in line]
        assert len(warnings) == 1 and data.parent.name in warnings[0]
        outcomes = [line for line in lines if line not in warnings]
        assert outcomes == ["answered"] * 6 + [PermissionDeniedError.__name__, "answered"]


class PanicException(BaseException):
    """Like pylance's, which is not an Exception and cannot be imported."""


async def test_a_drop_that_panics_says_that_it_took_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncNamespace.connect("dir", {"root": "shared-memory://a-drop-that-panics"}) as ns:
        await ns.create_namespace({"id": ["s"]})
        await ns.write(["s", "t"], DATA)

        def panic(*_: object) -> None:
            raise PanicException("called `Option::unwrap()` on a `None` value")

        with monkeypatch.context() as patch:
            patch.setattr(LanceFileSession, "delete_file", panic)
            with pytest.raises(InternalError, match=r"Option::unwrap.*; it is dropped, and later drops"):
                await ns.drop_table({"id": ["s", "t"]})
        assert not await ns.exists(["s", "t"])
        assert (await ns.write(["s", "t"], DATA)).to_table() == DATA


@pytest.mark.parametrize("home", HOMES, ids=["root", "namespace"])
@pytest.mark.parametrize("has_data", [True, False], ids=["written", "declared"])
def test_an_incomplete_marker_of_pylance_does_not_keep_a_name_in_use(
    tmp_path: Path, home: list[str], has_data: bool
) -> None:
    # A process that is killed while pylance declares a table leaves such a file.
    id = [*home, "t"]
    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        ns.create_namespace({"id": ["s"]})
        path = local_path(ns.declare_table({"id": id}).location or "")
        assert path is not None
        Path(path).mkdir(exist_ok=True)
        Path(path, "lance-marker.staging.0001a9c3").touch()
        if has_data:
            ns.write(id, DATA, mode="overwrite")
        ns.drop_table({"id": id})
        assert ns.write(id, DATA).count_rows() == 2
        ns.drop_table({"id": id})
        assert folders(tmp_path) == []

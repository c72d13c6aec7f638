"""Drops in a directory catalog: each once, also on a full disk; what is left after an interruption blocks no name."""

from __future__ import annotations

import asyncio
import re
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance.namespace import DirectoryNamespace
from lance_namespace import ListTablesRequest

from lance_ns_async import AsyncNamespace, Namespace, Policy, TableId, fleet
from lance_ns_async.backends.base import Backend
from lance_ns_async.backends.directory.backend import DirectoryBackend, DirSettings
from lance_ns_async.calls.caller import Caller
from lance_ns_async.model import local_path
from tests.fakes.s3 import FakeS3
from tests.support.budget import with_usual
from tests.support.errors import catch
from tests.support.processes import context, run_script
from tests.support.running import running

pytestmark = pytest.mark.long


DATA = pa.table({"id": [1, 2]})
OTHER = pa.table({"id": [3]})
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
    return [path for path in root.rglob("*.lance") if path.is_file() and "__manifest" not in path.parts]


async def unclaimed(ns: AsyncNamespace, root: Path) -> dict[str, int]:
    """Returns the folders that an audit reports as unclaimed, with their sizes."""
    rows = (await fleet.audit(ns, "*", data_under=str(root))).having("unclaimed")
    assert all(row.fields["modified"] for row in rows)
    return {Path(local_path(str(row.location)) or "").name: row.fields["bytes"] for row in rows}


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
    return (await asyncio.to_thread(run_script, FULL, str(root), *ids))[1]


async def test_a_full_disk_is_freed_and_the_drop_is_completed_later(ns: AsyncNamespace, tmp_path: Path) -> None:
    for id in (["t"], ["s", "t"], ["s", "u"], ["s", "v"]):
        await ns.write(id, DATA)
    place = Path(local_path((await ns.open(["s", "v"])).uri) or "")
    await ns.deregister_table({"id": ["s", "v"]})
    await ns.register_table({"id": ["s", "v"], "location": place.name})
    await ns.register_table({"id": ["s", "w"], "location": place.name})
    # The entry cannot be removed, but the files can, unless they also belong to another table.
    outcomes = await drop_on_a_full_disk(tmp_path, "t", "s/t", "s/u", "s/v")
    assert outcomes == ["dropped", "InternalError", "InternalError", "InvalidTableStateError"]
    assert folders(tmp_path) == [place.name]
    assert (await ns.list_tables({"id": []})).tables == []
    for name in "tu":
        # The drop was not acknowledged.
        assert await ns.exists(["s", name])
        await ns.drop_table({"id": ["s", name]})
        await catch(err.TableNotFoundError, ns.drop_table({"id": ["s", name]}))
        assert (await ns.write(["s", name], DATA)).to_table() == DATA
    assert (await ns.open(["s", "w"])).to_table() == DATA


KILLED = """
import os, resource, signal, sys
from lance_ns_async import Namespace

root, id, step, is_full = sys.argv[1:]
begun = 0

def kill(event, arguments):
    global begun
    if event in ("os.rename", "os.remove", "os.rmdir", "os.symlink", "open") and root in str(arguments[0]):
        begun += event != "open" or (arguments[2] & os.O_EXCL != 0)
        if begun == int(step):
            os.kill(os.getpid(), signal.SIGKILL)

with Namespace.connect("dir", {"root": root, "max_retries": "0"}) as ns:
    ns.list_tables({"id": []})
    if is_full == "True":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.addaudithook(kill)
    ns.drop_table({"id": id.split("/")})
"""


@pytest.mark.parametrize(
    ("home", "is_full"),
    with_usual([(home, is_full) for home in HOMES for is_full in (False, True)], (HOMES[0], False), (HOMES[1], True)),
)
async def test_a_killed_drop_blocks_no_name_and_loses_nothing(tmp_path: Path, home: list[str], is_full: bool) -> None:
    """Kills the process before the first, the second and a later change of the file system, or not at all."""

    async def check(step: int) -> int | None:
        root, id = tmp_path / str(step), [*home, "t"]
        async with AsyncNamespace.connect("dir", {"root": str(root)}) as ns:
            await ns.create_namespace({"id": ["s"]})
            await ns.write(["s", "kept"], OTHER)
            await ns.write(id, DATA)
            place = Path(local_path((await ns.open(id)).uri) or "")
            await ns.write(id, DATA, mode="append")
            code, _ = await asyncio.to_thread(run_script, KILLED, str(root), "/".join(id), str(step), str(is_full))
            if step == 1 and (not home or is_full):
                # The next change would have been to rename the folder.
                assert (await ns.open(id)).count_rows() == 4
                await ns.drop_table({"id": id})
            elif is_full and home:
                # The drop was not acknowledged, and is completed by another one.
                assert await ns.exists(id) and place.name not in folders(root)
                await ns.drop_table({"id": id})
            kept = Path((await ns.open(["s", "kept"])).uri)
            left = {path.relative_to(root).parts[0] for path in data_files(root)} - {kept.name}
            reported = await unclaimed(ns, root)
            assert left <= reported.keys() and len(reported) <= 1, step
            assert all(reported[name] >= sum(it.stat().st_size for it in data_files(root / name)) > 0 for name in left)
            if home and not is_full:
                assert left <= {place.name}
            assert not await ns.exists(id) and (await ns.list_tables({"id": home})).tables == (["kept"] if home else [])
            pylances: Any = DirectoryNamespace
            assert pylances(root=str(root), manifest_enabled="false").list_tables(ListTablesRequest(id=[])).tables == []
            assert (await ns.write(id, OTHER)).to_table() == OTHER
            await ns.drop_table({"id": id})
            assert (await unclaimed(ns, root)).keys() == reported.keys()
            assert (await ns.open(["s", "kept"])).to_table() == OTHER
        return code

    codes = [await check(step) for step in (1, 2, 6, 99)]
    assert codes[:3] == [-signal.SIGKILL] * 3 and codes[3] != -signal.SIGKILL


async def test_what_was_deregistered_is_never_collected(ns: AsyncNamespace, tmp_path: Path) -> None:
    locations = [(await ns.write(id, DATA)).uri for id in (["s", "t"], ["t"])]
    for id in (["s", "t"], ["t"]):
        await ns.deregister_table({"id": id})
    await ns.write(["s", "t"], DATA)
    await ns.drop_table({"id": ["s", "t"]})
    await ns.drop_namespace({"id": ["s"]})
    assert [lance.dataset(location).to_table() for location in locations] == [DATA, DATA]


def compete(root: str, turn: Any, outcomes: Any, operation: str, ids: list[list[str]]) -> None:
    """Performs the operation on one table after the other, at the same moment as other processes."""
    with Namespace.connect("dir", {"root": root, "max_retries": "20"}) as ns:
        for id in ids:
            turn.wait()
            try:
                getattr(ns, operation)({"id": id})
                outcomes.put((id, operation, "ok"))
            except err.LanceNamespaceError as e:
                outcomes.put((id, operation, type(e).__name__))


REMOVALS = {"deregister": ["deregister_table"] * 3, "drop": ["drop_table"] * 3}
USUAL = [("drop", True), ("both", False)]
REMOVALS["both"] = [*REMOVALS["deregister"][:2], *REMOVALS["drop"][:2]]


@pytest.mark.parametrize(("removal", "written"), with_usual([("deregister", False), ("both", True), *USUAL], *USUAL))
async def test_one_process_removes(ns: AsyncNamespace, tmp_path: Path, removal: str, written: bool) -> None:
    ids = [[*home, f"t{i}"] for i in range(8) for home in HOMES]
    locations = {}
    for id in ids:
        await (ns.write(id, DATA) if written else ns.declare_table({"id": id}))
        locations[tuple(id)] = (await ns.open(id)).uri if written else ""
    operations = REMOVALS[removal]
    turn, queue = context.Barrier(len(operations)), context.Queue()
    processes = [context.Process(target=compete, args=(str(tmp_path), turn, queue, it, ids)) for it in operations]
    for process in processes:
        process.start()
    outcomes = [await asyncio.to_thread(queue.get, True, 60) for _ in range(len(operations) * len(ids))]
    for process in processes:
        process.join()
    winners = {tuple(id): operation for id, operation, outcome in outcomes if outcome == "ok"}
    assert Counter(tuple(id) for id, _, outcome in outcomes if outcome == "ok") == {tuple(id): 1 for id in ids}
    assert {outcome for *_, outcome in outcomes} == {"ok", err.TableNotFoundError.__name__}
    assert (await ns.list_all_tables({"id": []})).tables == []
    # Only the data that a deregister kept is left.
    kept = {locations[id] for id, operation in winners.items() if written and operation == "deregister_table"}
    assert {(tmp_path / name).as_uri() for name in folders(tmp_path) if data_files(tmp_path / name)} == {
        Path(local_path(location) or "").as_uri() for location in kept
    }
    assert [lance.dataset(location).to_table() for location in kept] == [DATA] * len(kept)


@pytest.mark.parametrize("home", HOMES)
async def test_registrations_are_distinguished(ns: AsyncNamespace, tmp_path: Path, home: list[str]) -> None:
    backend, id = backend_at(tmp_path), TableId([*home, "t"])
    first = await backend.declare_table(id, None, {})
    await ns.write(id, DATA, mode="append")
    assert (await backend.describe_table(id)).registration == first.registration is not None
    await ns.drop_table({"id": [*id]})
    second = await backend.declare_table(id, None, {})
    assert second.registration != first.registration
    await catch(err.TableNotFoundError, backend.drop_table(first))
    assert (await backend.describe_table(id)).registration == second.registration


async def test_replacing_is_one_commit_to_the_very_entry(ns: AsyncNamespace, tmp_path: Path) -> None:
    backend, id = backend_at(tmp_path), TableId(["s", "t"])
    old = await backend.declare_table(id, None, {"a": "1"})
    version = lance.dataset(str(tmp_path / "__manifest")).version
    new = await backend.replace_table(old, "elsewhere/t", {"b": "2"})
    assert lance.dataset(str(tmp_path / "__manifest")).version == version + 1
    assert new == await backend.describe_table(id) and new.properties == {"b": "2"}
    assert new.location == (tmp_path / "elsewhere" / "t").as_uri()
    with pytest.raises(err.ConcurrentModificationError, match="registered again by another client, at elsewhere/t"):
        await backend.replace_table(old, old.location, {})
    await backend.deregister_table(id)
    await catch(err.TableNotFoundError, backend.replace_table(new, new.location, {}))


@asynccontextmanager
async def connect_s3(server: FakeS3, **properties: str) -> AsyncIterator[AsyncNamespace]:
    storage = {f"storage.{key}": value for key, value in server.options.items()}
    async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage, **properties}) as ns:
        yield ns


async def test_errors_of_an_object_store_block_no_name_in_a_namespace() -> None:
    async with running(connect_s3, FakeS3(), max_retries="0") as (server, ns):
        await ns.create_namespace({"id": ["s"]})
        location = (await ns.write(["s", "t"], DATA)).uri
        server.fail(403, times=None, match=r"(DELETE /lake/x/(?!__manifest)|POST /lake\?delete)")
        with pytest.raises(err.PermissionDeniedError, match=re.escape(f"; its remaining data is at {location}")):
            await ns.drop_table({"id": ["s", "t"]})
        await catch(err.TableNotFoundError, ns.drop_table({"id": ["s", "t"]}))
        kept = await asyncio.to_thread(lance.dataset, location, storage_options=server.options)
        assert await asyncio.to_thread(kept.to_table) == DATA
        assert (await ns.write(["s", "t"], OTHER)).to_table() == OTHER
        server.heal()
        report = await fleet.audit(ns, "*", data_under="s3://lake/x")
        assert [row.location for row in report.having("unclaimed")] == [location]
        await ns.register_table({"id": ["s", "again"], "location": location})
        for name in ("t", "again"):
            await ns.drop_table({"id": ["s", name]})
        await ns.drop_namespace({"id": ["s"]})
        left: Any = LanceFileSession("s3://lake/x", storage_options=server.options)
        assert [path for path in left.list() if not path.startswith("__manifest/")] == []


@pytest.mark.parametrize("has_manifest", [True, False])
async def test_what_a_killed_drop_leaves_at_the_root_of_an_object_store(has_manifest: bool) -> None:
    async with running(connect_s3, FakeS3(), max_retries="0") as (server, ns):
        await ns.create_namespace({"id": ["s"]})
        await ns.write(["t"], DATA)
        server.fail(403, times=None, match=rf"POST /lake\?delete \S*/{'_versions' if has_manifest else 'data'}/")
        with pytest.raises(err.PermissionDeniedError, match=r"no longer registered; .* s3://lake/x/t\.lance"):
            await ns.drop_table({"id": ["t"]})
        server.heal()
        assert not await ns.exists(["t"]) and (await ns.list_tables({"id": []})).tables == []
        report = await fleet.audit(ns, "*", data_under="s3://lake/x")
        assert [row.location for row in report.having("unclaimed")] == ["s3://lake/x/t.lance"]
        if has_manifest:
            # It looks like a deregistered table, whose data must stay.
            with pytest.raises(err.TableAlreadyExistsError, match=r"register t\.lance in a namespace"):
                await ns.declare_table({"id": ["t"], "location": "s3://lake/x/t.lance"})
            await ns.register_table({"id": ["s", "t"], "location": "t.lance"})
            assert (await ns.open(["s", "t"])).to_table() == DATA
            await ns.drop_table({"id": ["s", "t"]})
        assert (await ns.write(["t"], OTHER)).to_table() == OTHER
        left: Any = LanceFileSession("s3://lake/x/t.lance", storage_options=server.options)
        assert len(left.list("data")) == 1
        await ns.drop_table({"id": ["t"]})
        assert left.list() == []


@pytest.mark.parametrize("home", HOMES, ids=["root", "namespace"])
async def test_an_object_store_decides_between_drops_and_deregistrations(home: list[str]) -> None:
    with FakeS3() as server:
        async with connect_s3(server) as one, connect_s3(server) as two, connect_s3(server) as three:
            await one.create_namespace({"id": ["s"]})
            for name in "ab":
                request = {"id": [*home, name]}
                location = (await one.write([*home, name], DATA)).uri
                with server.hold(r"POST /lake/x/\S*\.lance/\.lance-deregistered\?uploadId") as hold:
                    calls = [
                        asyncio.ensure_future(call)
                        for call in (one.drop_table(request), two.deregister_table(request), three.drop_table(request))
                    ]
                    if not home:
                        await hold.reached(3)
                    hold.release()
                    outcomes = await asyncio.gather(*calls, return_exceptions=True)
                errors = [it for it in outcomes if isinstance(it, BaseException)]
                assert len(errors) == 2 and all(isinstance(it, err.TableNotFoundError) for it in errors)
                assert not await one.exists([*home, name])
                if errors == [outcomes[0], outcomes[2]]:
                    kept = await asyncio.to_thread(lance.dataset, location, storage_options=server.options)
                    assert await asyncio.to_thread(kept.to_table) == DATA


async def test_the_latest_manifest_is_deleted_after_the_others_and_before_the_data() -> None:
    async with running(connect_s3, FakeS3()) as (server, ns):
        await ns.declare_table({"id": ["t"]})
        for _ in range(3):
            await ns.write(["t"], DATA, mode="overwrite")
        server.clear()
        await ns.drop_table({"id": ["t"]})
        deleted = [key for it in server.requests for key in re.findall(rb"<Key>(.*?)</Key>", it.body)]
        deleted = [key for key in deleted if b".staging" not in key]
        manifests = [place for place, path in enumerate(deleted) if path.endswith(b".manifest")]
        data = [place for place, path in enumerate(deleted) if b"/data/" in path]
        assert manifests == sorted(manifests) and len(manifests) == 3 and manifests[-1] < data[0]
        # Their names are in descending order.
        names = [deleted[place] for place in manifests]
        assert names == sorted(names, reverse=True)
        assert deleted[0].endswith(b".lance-reserved") and deleted[-1].endswith(b".lance-deregistered")


async def test_a_table_at_the_location_of_a_running_drop_keeps_its_files() -> None:
    with FakeS3() as server:
        async with connect_s3(server) as one, connect_s3(server) as two:
            await one.create_namespace({"id": ["s"]})
            await one.declare_table({"id": ["s", "t"], "location": "a"})
            await one.write(["s", "t"], DATA, mode="overwrite")
            with server.hold(r"POST /lake\?delete \S*x/a/data/") as hold:
                drop = asyncio.ensure_future(one.drop_table({"id": ["s", "t"]}))
                await hold.reached()
                await two.declare_table({"id": ["s", "t"], "location": "a"})
                await two.write(["s", "t"], OTHER, mode="overwrite")
                hold.release()
                await drop
            assert (await two.open(["s", "t"])).to_table() == OTHER


async def test_files_of_others_in_an_object_store_are_not_a_dropped_table() -> None:
    async with running(connect_s3, FakeS3()) as (server, ns):
        await ns.declare_table({"id": ["t"]})
        async with httpx.AsyncClient(trust_env=False) as client:
            (await client.put(f"{server.url}/lake/x/t.lance/cat.jpg", content=b"a cat")).raise_for_status()
        with pytest.raises(err.InvalidTableStateError, match=r"files at t\.lance that Lance did not write; deregister"):
            await ns.drop_table({"id": ["t"]})
        assert (await ns.list_tables({"id": []})).tables == ["t"]
        left: Any = LanceFileSession("s3://lake/x/t.lance", storage_options=server.options)
        assert "cat.jpg" in left.list()
        await ns.deregister_table({"id": ["t"]})


AS_NOBODY = """
import asyncio, os, sys
from lance_ns_async import AsyncNamespace

async def outcomes_at(root):
    async with AsyncNamespace.connect("dir", {"root": root, "max_retries": "0"}) as ns:
        for call in CALLS:
            try:
                answer = await call
                yield str(answer) if isinstance(answer, bool) else "answered"
            except Exception as e:
                yield type(e).__name__ + ("/left" if "its remaining data is at" in str(e) else "")

async def main():
    # What this imports may be root's alone.
    [_ async for _ in outcomes_at(sys.argv[2])]
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    async for outcome in outcomes_at(sys.argv[1]):
        print(outcome)

asyncio.run(main())
"""


async def outcomes_for_nobody(root: Path, other: Path, *calls: str) -> list[str]:
    """Returns the outcomes of calls by an unprivileged user, after the same calls in another directory."""
    script = AS_NOBODY.replace("CALLS", f"({', '.join(f'ns.{call}' for call in calls)})")
    return (await asyncio.to_thread(run_script, script, str(root), str(other)))[1]


def share(folder: Path) -> None:
    """Lets all users write to a folder and its content."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777)


async def test_files_that_may_not_be_deleted_block_no_name() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root, other = Path(temporary, "lake"), Path(temporary, "other")
        for path in (root, other):
            async with AsyncNamespace.connect("dir", {"root": str(path)}) as ns:
                await ns.create_namespace({"id": ["s"]})
                for id in (["s", "t"], ["t"], ["s", "u"]):
                    await ns.write(id, DATA)
        share(Path(temporary))
        for path in data_files(root):
            path.parent.chmod(0o000 if "s$u" in str(path) else 0o555)
        calls = [f"{it}({id})" for id in (["s", "t"], ["t"]) for it in ("drop_table", "exists", "declare_table")]
        outcomes = await outcomes_for_nobody(root, other, *calls, "drop_table(['s', 'u'])", "exists(['s', 'u'])")
        share(root)
        dropped = ["PermissionDeniedError/left", "False", "answered"]
        # A folder that cannot be listed is not dropped.
        assert outcomes == [*dropped, *dropped, "PermissionDeniedError", "True"]


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
            with pytest.raises(err.InternalError, match=r"Option::unwrap.*; its remaining data is at"):
                await ns.drop_table({"id": ["s", "t"]})
        assert not await ns.exists(["s", "t"])
        assert (await ns.write(["s", "t"], DATA)).to_table() == DATA


@pytest.mark.parametrize("home", HOMES, ids=["root", "namespace"])
@pytest.mark.parametrize("has_data", [True, False], ids=["written", "declared"])
def test_incomplete_marker_keeps_no_name(tmp_path: Path, home: list[str], has_data: bool) -> None:
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

"""The directory catalog: tables at the root, names, and entries of the manifest; entries at a local root
that are no tables, although their names end with `.lance`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import DescribeTableRequest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.backends.directory.manifest import Directory, Entries, ManifestChange, ManifestEntry
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import COMMON_ERRORS
from lance_ns_async.model import Page
from tests.fakes.s3 import FakeS3
from tests.support.errors import catch

DATA = pa.table({"id": [1, 2]})


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as connected:
        yield connected


async def test_datasets_that_lie_in_the_directory_are_its_tables(ns: AsyncNamespace, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        lance.write_dataset(DATA, tmp_path / f"{name}.lance")
    calls: list[Call] = []
    with ns.observe(calls.append):
        described = (await ns.describe_tables([[name] for name in "abcd"])).raise_for_errors()
    assert len(calls) == 1
    for name in "abcd":
        alone = await ns.describe_table([name])
        assert described.tables[TableId([name])].location == alone.location
        assert lance.dataset(alone.location).count_rows() == 2
    list_tables = ns.session.backend.list_tables
    assert await list_tables(NamespaceId(), None, 2) == Page(["a", "b"], "b")
    assert await list_tables(NamespaceId(), "b", 2) == Page(["c", "d"])
    # The last name of a page may be dropped before the next page.
    assert await list_tables(NamespaceId(), "bb", 1) == Page(["c"], "c")


async def test_an_unused_root_is_an_empty_catalog(tmp_path: Path) -> None:
    fresh, made = (AsyncNamespace.connect("dir", {"root": str(tmp_path / name)}) for name in ("fresh", "made"))
    id = ["sales", "orders"]
    async with fresh, made:
        await made.create_namespace(["other"])
        for ns in (fresh, made):
            assert not await ns.exists(["sales"]) and not await ns.exists(id)
            missing = r"^Table not found: sales\$orders \(describe_table: there is no table of that name\)$"
            for call in (ns.describe_table(id), ns.table_exists(id), ns.open(id), ns.write(id, DATA, mode="append")):
                await catch(err.TableNotFoundError, call, missing)
            for operation in ("list_tables", "list_namespaces", "describe_namespace"):
                missing = rf"^Namespace not found: sales \({operation}: there is no namespace of that name\)$"
                await catch(err.NamespaceNotFoundError, getattr(ns, operation)(["sales"]), missing)
            await catch(err.NamespaceNotFoundError, ns.declare_table(id), r"^Namespace not found: sales \(declare_")
            await catch(err.NamespaceNotFoundError, ns.write(id, DATA), r"^Namespace not found: sales \(")
            assert (await ns.list_tables({"id": []})).tables == []
        assert not (tmp_path / "fresh" / "__manifest").exists()


async def test_a_registered_table_keeps_its_properties(ns: AsyncNamespace, tmp_path: Path) -> None:
    odd = {"it's": 'a "quoted" \\ one', "é": "", "SQL": "' OR 1=1 --"}
    await ns.create_namespace({"id": ["n"]})
    default = (await ns.write(["n", "t"], DATA)).uri
    await ns.declare_table({"id": ["n", "other"], "properties": {"a": "1"}})
    for location, mode in (("mine/t.lance", "overwrite"), (default, "overwrite"), (Path(default).name, "overwrite")):
        answer = await ns.register_table({"id": ["n", "t"], "location": location, "mode": mode, "properties": odd})
        assert (await ns.describe_table({"id": ["n", "t"]})).properties == answer.properties == odd
    assert (await ns.open(["n", "t"])).count_rows() == 2
    assert (await ns.describe_table({"id": ["n", "other"]})).properties == {"a": "1"}
    pylances: Any = DirectoryNamespace
    assert pylances(root=str(tmp_path)).describe_table(DescribeTableRequest(id=["n", "t"])).properties == odd


async def test_many_that_register_at_once_all_keep_their_properties(tmp_path: Path) -> None:
    # Each has a separate transport, so that they conflict.
    async with AsyncExitStack() as stack:
        connected = [AsyncNamespace.connect("dir", {"root": str(tmp_path), "max_retries": "20"}) for _ in range(4)]
        for ns in connected:
            await stack.enter_async_context(ns)
        await connected[0].create_namespace({"id": ["n"]})
        async with asyncio.TaskGroup() as group:
            for i in range(12):
                request = {"id": ["n", f"t{i}"], "location": f"t{i}", "properties": {"i": str(i)}}
                group.create_task(connected[i % 4].register_table(request))
        result = await connected[0].describe_tables([["n", f"t{i}"] for i in range(12)])
        kept = {id.name: table.properties for id, table in result.raise_for_errors().tables.items()}
        assert kept == {f"t{i}": {"i": str(i)} for i in range(12)}


async def test_overwriting_checks_before_it_takes_the_old_one_away(ns: AsyncNamespace) -> None:
    await ns.create_namespace(["db"])
    declared = await ns.declare_table(["db", "t"], properties={"k": "v"})
    await ns.declare_table(["t"])
    for id, location in ((["db", "t"], "/somewhere/else.lance"), (["t"], "other.lance")):
        await catch(err.InvalidInputError, ns.register_table(id, location=location, mode="overwrite"))
    # pylance refuses this one after the old one is gone.
    with pytest.raises(err.InvalidInputError):
        await ns.register_table({"id": ["db", "t"], "location": "../t.lance", "mode": "overwrite"})
    result = await ns.describe_table(["db", "t"])
    assert result.location == declared.location and result.properties == {"k": "v"}
    assert await ns.exists(["t"])


async def test_what_the_directory_cannot_keep_is_refused(ns: AsyncNamespace) -> None:
    await catch(err.InvalidInputError, ns.declare_table(["t"], properties={"k": "v"}), "stores properties only")
    with pytest.raises(err.InvalidInputError, match=r"it has 247 characters .* at most 246"):
        await ns.declare_table(["a" * 123, "b" * 123])
    await catch(err.InvalidInputError, ns.create_namespace(["a" * 245]), r"it has 245 characters .* at most 244")
    await catch(err.InvalidInputError, ns.create_namespace(["a$b"]), r"the name 'a\$b' is invalid .* letters, digits")
    await ns.declare_table(["t"])
    with pytest.raises(err.UnsupportedOperationError, match="does not rename; deregister it"):
        await ns.rename_table(["t"], new_table_name="u")


async def test_storage_options_are_given_out_and_shown_nowhere(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path), "storage.region": "eu", "storage.aws_secret_access_key": "sesame"}
    async with AsyncNamespace.connect("dir", properties) as ns:
        await ns.declare_table(["t"])
        assert (await ns.describe_table(["t"])).storage_options == {"region": "eu", "aws_secret_access_key": "sesame"}
        assert "sesame" not in repr(ns)


async def test_files_of_a_killed_process_at_the_root_block_no_other_table(ns: AsyncNamespace, tmp_path: Path) -> None:
    rows, place = pa.table({"id": [1]}), tmp_path / "t.lance"
    for name in (".lance-reserved", ".lance-deregistered", "data/.tmpAbC"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    assert not await ns.exists(["t"])
    assert (await ns.write(["t"], rows)).to_table() == rows
    await ns.deregister_table({"id": ["t"]})
    await catch(err.TableAlreadyExistsError, ns.declare_table({"id": ["t"]}))
    assert lance.dataset(place).to_table() == rows


async def test_a_conflict_that_cannot_be_looked_into_deletes_nothing() -> None:
    """A commit that is repeated after its response was lost conflicts with itself: its files belong to the manifest."""
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        manifest = "s3://lake/x/__manifest"

        def commit() -> int:
            result = lance.dataset(manifest, storage_options=server.options)
            result.update_metadata({"by": "another process"})
            return result.version

        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            await ns.create_namespace({"id": ["s"]})
            # pylance removes its own transaction after it has noticed the conflict.
            with server.hold(r"POST /lake\?delete .*\.txn") as hold:
                with server.hold(r"PUT \S*__manifest/data/") as written:
                    creating = asyncio.ensure_future(ns.create_namespace({"id": ["n"]}))
                    await written.reached()
                    version = await asyncio.to_thread(commit)
                await hold.reached()
                server.clear()
                server.fail(403, times=None, match=rf"GET \S*/_versions/{2**64 - 1 - version:020d}\.manifest")
            await catch(err.ServiceUnavailableError, creating, r"its writer is unknown; .* took effect is unknown")
            assert not [it for it in server.requests if "/data/" in str(it)]
            server.heal()
            assert (await ns.list_namespaces({"id": []})).namespaces == ["s"]
            await ns.create_namespace({"id": ["n"]})


class Rival:
    """An edit of the manifest during which another process commits first, until `wins` are used up."""

    def __init__(self, root: Path, wins: int) -> None:
        self.root = str(root)
        self.wins = wins
        self.edits = 0

    def edit(self, entries: Entries) -> ManifestChange:
        self.edits += 1
        if self.wins:
            self.wins -= 1
            Directory(self.root, None).change(lambda _: ManifestChange(put=[ManifestEntry("rival", "namespace")]))
        return ManifestChange(put=[ManifestEntry("db", "namespace")])


async def test_lost_race_for_manifest_is_repeated(tmp_path: Path) -> None:
    repeat = Caller(Policy(max_retries=0, backoff_initial=0.0), COMMON_ERRORS).repeat_in_thread
    directory, rival = Directory(str(tmp_path), None, repeat), Rival(tmp_path, 5)
    await asyncio.to_thread(directory.change, rival.edit)
    assert rival.edits >= 6 and directory.entries().get("db") and directory.entries().get("rival")


async def test_races_for_manifest_end_with_time_of_operation(tmp_path: Path) -> None:
    await asyncio.to_thread(Directory(str(tmp_path), None).change, Rival(tmp_path, 0).edit)
    rival = Rival(tmp_path, 20)
    with deadline(0.0), pytest.raises(err.ConcurrentModificationError, match="committed to the manifest first"):
        await asyncio.to_thread(Directory(str(tmp_path), None).change, rival.edit)
    assert rival.edits == 1


ROWS = pa.table({"id": [1]})


LINKS: Mapping[str, Mapping[str, str]] = {
    "loop": {"bad.lance": "bad.lance"},
    "loop of two": {"bad.lance": "other.lance", "other.lance": "bad.lance"},
    "dangling link": {"bad.lance": "nothing"},
    "link to a file": {"bad.lance": "file"},
}


@pytest.mark.parametrize("kind", [*LINKS, "pipe", "file"])
async def test_what_is_no_folder_is_no_table(ns: AsyncNamespace, kind: str, tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "good.lance")
    path = tmp_path / "bad.lance"
    (tmp_path / "file").touch()
    for name, target in LINKS.get(kind, {}).items():
        (tmp_path / name).symlink_to(target)
    if kind not in LINKS:
        os.mkfifo(path) if kind == "pipe" else path.touch()
    assert (await ns.list_tables({"id": []})).tables == ["good"]
    assert (await ns.list_tables({"id": [], "include_declared": False})).tables == ["good"]
    assert [str(id) async for id in ns.iter_tables()] == ["good"]
    assert not await ns.exists(["bad"])
    for work in (ns.describe_table({"id": ["bad"]}), ns.drop_table({"id": ["bad"]})):
        await catch(err.TableNotFoundError, work)
    await catch(err.InvalidTableStateError, ns.declare_table({"id": ["bad"]}), str(path))
    result = await ns.describe_tables([["bad"], ["good"]])
    assert list(result.tables) == [TableId(["good"])]
    assert [type(error) for error in result.errors.values()] == [err.TableNotFoundError]
    assert path.name in os.listdir(tmp_path)


@pytest.mark.parametrize(("name", "target"), [("x", "x"), ("up", "..")])
async def test_a_folder_with_a_loop(ns: AsyncNamespace, tmp_path: Path, name: str, target: str) -> None:
    lance.write_dataset(ROWS, tmp_path / "good.lance")
    (tmp_path / "bad.lance").mkdir()
    (tmp_path / "bad.lance" / name).symlink_to(target)
    assert (await ns.list_tables({"id": []})).tables == ["bad", "good"]
    for work in (ns.declare_table({"id": ["bad"]}), ns.drop_table({"id": ["bad"]})):
        await catch(err.InvalidTableStateError, work, f"{tmp_path}/bad.lance")


@pytest.mark.parametrize(("requested", "limit"), [(1, 1), (64, 64), (1000, 64)])
async def test_a_call_in_flight_is_a_thread_so_few_are_allowed(requested: int, limit: int, tmp_path: Path) -> None:
    policy = Policy(max_in_flight=requested)
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}, policy=policy) as ns:
        assert ns.snapshot().max_in_flight == limit


async def test_a_table_registered_at_a_loop_is_named(ns: AsyncNamespace, tmp_path: Path) -> None:
    (tmp_path / "bad.lance").symlink_to("bad.lance")
    await ns.create_namespace({"id": ["n"]})
    await ns.register_table({"id": ["n", "t"], "location": "bad.lance"})
    for work in (ns.open(["n", "t"]), ns.count_table_rows({"id": ["n", "t"]}), ns.drop_table({"id": ["n", "t"]})):
        await catch(err.InvalidTableStateError, work, f"{tmp_path}/bad.lance")


async def test_a_manifest_that_is_a_loop_is_named(ns: AsyncNamespace, tmp_path: Path) -> None:
    (tmp_path / "__manifest").symlink_to("__manifest")
    for operation in ("list_tables", "create_namespace"):
        await catch(err.InvalidTableStateError, getattr(ns, operation)(["n"]), f"{tmp_path}/__manifest")

"""Locations in a directory catalog: none outside the root, none of somebody else's data, and none twice in a batch."""

from __future__ import annotations

import itertools
import os
import random
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import DescribeTableRequest, RegisterTableRequest

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.backends.directory.backend import DirectoryBackend, DirSettings
from lance_ns_async.backends.directory.dropping import Dropping
from lance_ns_async.backends.directory.manifest import Directory, ManifestChange, ManifestEntry
from lance_ns_async.backends.directory.overlaps import Overlaps
from lance_ns_async.backends.directory.places import TableLocations, is_file_of, masked_uri
from lance_ns_async.gateway import serving
from tests.fakes.s3 import FakeS3
from tests.support.errors import catch
from tests.support.gateway import send_request
from tests.support.processes import run_script
from tests.unit.backends.directory.test_dropping import outcomes_for_nobody

DATA = pa.table({"id": [1, 2]})

OUTSIDE = [
    *("__manifest", "./__manifest", "__manifest/data", "__MANIFEST", "%5F_manifest/../__manifest", "__manifest/.."),
    *(".", "", "  ", "./", "..", "../outside", "a/../../outside", "a/..", "%2e%2e/outside", "a/%2E%2E/%2e%2e/outside"),
    *("%252e%252e/outside", "..%2foutside", "/etc", "file:///etc", "s3://bucket/t", ".lance-ns-dropped-1", "a\nb"),
]


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as connected:
        await connected.create_namespace({"id": ["s"]})
        yield connected


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def add_other_table(root: Path, location: str, id: str = "s$bad") -> None:
    """Adds an entry, like somebody who edits the manifest."""
    manifest = lance.dataset(str(root / "__manifest"))
    row = {"object_id": id, "object_type": "table", "location": location}
    lance.write_dataset(pa.Table.from_pylist([row], schema=manifest.schema), manifest, mode="append")


@pytest.mark.parametrize("location", OUTSIDE)
async def test_no_location_outside_is_registered(ns: AsyncNamespace, location: str) -> None:
    for call in (
        ns.register_table({"id": ["s", "t"], "location": location}),
        ns.register_table({"id": ["s", "t"], "location": location, "mode": "Overwrite"}),
        ns.declare_table({"id": ["s", "t"], "location": location}),
    ):
        await catch(err.InvalidInputError, call)
    assert not await ns.exists(["s", "t"]) and (await ns.list_namespaces({"id": []})).namespaces == ["s"]


@pytest.mark.parametrize("location", OUTSIDE)
async def test_a_bad_entry_is_reported_and_never_deleted(ns: AsyncNamespace, root: Path, location: str) -> None:
    outside = root.parent / "outside"
    lance.write_dataset(DATA, outside)
    add_other_table(root, location)
    for name in ("a", "b"):
        await ns.write(["s", name], DATA)
    alone = (await catch(err.InvalidTableStateError, ns.describe_table({"id": ["s", "bad"]}))).value
    bulk = (await ns.describe_tables([["s", name] for name in ("a", "b", "bad")])).errors[TableId(["s", "bad"])]
    assert type(alone) is type(bulk) and str(alone) == str(bulk)
    assert str(alone).startswith("Invalid table state: s$bad (")
    assert "deregister it" in str(alone) and repr(location) in str(alone)
    for call in (
        ns.drop_table({"id": ["s", "bad"]}),
        ns.delete_from_table({"id": ["s", "bad"], "predicate": "true"}),
        ns.write(["s", "bad"], DATA, mode="overwrite"),
    ):
        await catch(err.InvalidTableStateError, call)
    assert lance.dataset(outside).to_table() == DATA and len((await ns.list_tables({"id": ["s"]})).tables) == 3
    await ns.deregister_table({"id": ["s", "bad"]})
    assert (await ns.list_tables({"id": ["s"]})).tables == ["a", "b"]


async def test_symbolic_links_that_lead_out_are_not_followed(ns: AsyncNamespace, root: Path) -> None:
    outside = root.parent / "outside"
    lance.write_dataset(DATA, outside / "t")
    (root / "link").symlink_to(outside)
    (root / "link.lance").symlink_to(outside / "t")
    for location in ("link/t", "link"):
        await catch(err.InvalidInputError, ns.register_table({"id": ["s", "t"], "location": location}))
    add_other_table(root, "link/t")
    for id in (["s", "bad"], ["link"]):
        for call in (ns.describe_table({"id": id}), ns.drop_table({"id": id}), ns.write(id, DATA, mode="overwrite")):
            await catch(err.InvalidTableStateError, call, "symbolic link")
    assert lance.dataset(outside / "t").to_table() == DATA


async def test_symbolic_links_inside_are_read_and_not_dropped(ns: AsyncNamespace, root: Path) -> None:
    lance.write_dataset(DATA, root / "folder" / "t")
    (root / "link").symlink_to("folder")
    (root / "manifest").symlink_to("__manifest")
    for name, location in {"t": "folder/t", "u": "link/t"}.items():
        await ns.register_table({"id": ["s", name], "location": location})
        assert (await ns.open(["s", name])).to_table() == DATA
    for name in "tu":
        await catch(err.InvalidTableStateError, ns.drop_table({"id": ["s", name]}))
    for location, problem in {
        **dict.fromkeys(("manifest", "manifest/data"), "the catalog's own table"),
        **dict.fromkeys(("folder/t/data", "link/t/data/x", "link/t/_versions"), "overlaps with"),
    }.items():
        await catch(err.InvalidInputError, ns.register_table({"id": ["s", "v"], "location": location}), problem)
    await ns.deregister_table({"id": ["s", "u"]})
    await ns.drop_table({"id": ["s", "t"]})
    assert not (root / "folder" / "t").exists()


async def test_no_place_is_among_the_files_of_a_table_at_the_root(ns: AsyncNamespace) -> None:
    await ns.write(["r"], DATA)
    for location in ("r.lance/data", "r.lance/_versions/x"):
        for call in (
            ns.register_table({"id": ["s", "t"], "location": location}),
            ns.declare_table({"id": ["s", "t"], "location": location}),
        ):
            await catch(err.InvalidInputError, call, "among the files of the table at 'r.lance'")
    await ns.declare_table({"id": ["s", "t"], "location": "u.lance/tree/t"})
    overlap = r"overlaps with 'u.lance/tree/t', the location of s\$t"
    await catch(err.InvalidInputError, ns.declare_table({"id": ["u"]}), overlap)
    await ns.drop_table({"id": ["r"]})


async def test_a_table_of_a_namespace_is_none_of_the_root(ns: AsyncNamespace, root: Path) -> None:
    await ns.write(["t"], DATA)
    await ns.deregister_table({"id": ["t"]})
    await ns.write(["s", "t.lance"], DATA)
    await ns.register_table({"id": ["s", "u"], "location": "t.lance"})
    assert (await ns.list_tables({"id": []})).tables == []
    ghost = (await ns.open(["s", "t.lance"])).uri.rpartition("/")[2].removesuffix(".lance")
    for name in ("t", ghost):
        for operation in ("describe_table", "drop_table", "open", "deregister_table"):
            await catch(err.TableNotFoundError, getattr(ns, operation)([name]))
    await catch(err.TableAlreadyExistsError, ns.declare_table({"id": ["t"]}))
    assert [(await ns.open(["s", name])).to_table() for name in ("t.lance", "u")] == [DATA, DATA]


async def refuse_the_location_of_a_table_at_the_root(ns: AsyncNamespace, *locations: str) -> None:
    await ns.write(["t"], DATA)
    await ns.declare_table({"id": ["declared"]})
    await ns.declare_table({"id": ["s", "old"]})
    for location in ("t.lance", "declared.lance", *locations):
        for operation, request in (
            ("register_table", {"id": ["s", "t"], "location": location}),
            ("declare_table", {"id": ["s", "t"], "location": location}),
            ("register_table", {"id": ["s", "old"], "location": location, "mode": "Overwrite"}),
        ):
            problem = r"that of the table '\w+' at the root; use that table, or deregister it"
            await catch(err.InvalidInputError, getattr(ns, operation)(request), problem)
    assert (await ns.list_tables({"id": []})).tables == ["declared", "t"]
    await ns.deregister_table({"id": ["t"]})
    for location in ("t.lance", "new.lance"):
        await ns.register_table({"id": ["s", "t"], "location": location, "mode": "Overwrite"})
    await ns.register_table({"id": ["s", "u"], "location": "t.lance"})
    # It is not a table at the root any more.
    await ns.register_table({"id": ["s", "v"], "location": "t.lance"})
    assert (await ns.open(["s", "u"])).to_table() == DATA


async def test_the_location_of_a_table_at_the_root_is_refused(ns: AsyncNamespace, root: Path) -> None:
    (root / "link").symlink_to("t.lance")
    await refuse_the_location_of_a_table_at_the_root(ns, str(root / "t.lance"), "link")


async def test_the_location_of_a_table_at_the_root_of_an_object_store_is_refused() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            await ns.create_namespace({"id": ["s"]})
            await refuse_the_location_of_a_table_at_the_root(ns, "s3://lake/x/t.lance")


async def test_one_place_of_two_tables_is_not_deleted(ns: AsyncNamespace) -> None:
    location = (await ns.write(["s", "t"], DATA)).uri
    await ns.register_table({"id": ["s", "u"], "location": location})
    for id, other in (("t", "u"), ("u", "t")):
        with pytest.raises(err.InvalidTableStateError, match=rf"also belong to s\${other}, .*deregister one"):
            await ns.drop_table({"id": ["s", id]})
    for inner in ("data", "data/x", "_versions", "_indices/x"):
        with pytest.raises(err.InvalidInputError, match="overlaps with"):
            await ns.register_table({"id": ["s", "v"], "location": f"{location}/{inner}"})
    await ns.deregister_table({"id": ["s", "u"]})
    await ns.drop_table({"id": ["s", "t"]})
    assert not await ns.exists(["s", "t"])


async def test_what_lance_did_not_write_is_not_deleted(ns: AsyncNamespace, root: Path) -> None:
    (root / "photos" / "data").mkdir(parents=True)
    (root / "photos" / "data" / "cat.jpg").touch()
    (root / "file").touch()
    for location in ("photos", "file"):
        await ns.register_table({"id": ["s", "t"], "location": location})
        await ns.drop_table({"id": ["s", "t"]})
        assert not await ns.exists(["s", "t"])
    assert (root / "photos" / "data" / "cat.jpg").exists() and (root / "file").exists()


@pytest.mark.parametrize("name", ["a b", "a%20b", "é b%20c", "a#b", "a'b\"c", "a^b|c{d}", "x=y", "[z]", "~!$(*)+&=;@:"])
async def test_locations_have_one_spelling_which_is_pylances(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    async with AsyncNamespace.connect("dir", {"root": path}) as ns:
        await ns.create_namespace({"id": ["s"]})
        ids = [*(["s", f"t {i}"] for i in range(3)), *([f"t {i}"] for i in range(3))]
        for id in ids:
            await ns.write(id, DATA)
        bulk = (await ns.describe_tables(ids)).raise_for_errors()
        pylances: Any = DirectoryNamespace
        theirs = pylances(root=path)
        for id in ids:
            alone = await ns.describe_table({"id": id})
            their = theirs.describe_table(DescribeTableRequest(id=id)).location
            assert bulk.tables[TableId(id)].location == alone.location == their
            assert lance.dataset(their).to_table() == DATA
        # The location was accepted.
        again = await ns.register_table({"id": ["s", "again"], "location": bulk.tables[TableId(ids[0])].location})
        assert again.location == bulk.tables[TableId(ids[0])].location


async def test_the_rules_hold_on_an_object_store() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/a b", **storage}) as ns:
            await ns.create_namespace({"id": ["s"]})
            for location in ("__manifest", ".", "../t", "%2e%2e/t", "s3://lake/other/t", "s3://lake/a b", "/t"):
                await catch(err.InvalidInputError, ns.register_table({"id": ["s", "t"], "location": location}))
            response = await ns.register_table({"id": ["s", "t"], "location": "s3://lake/a%20b/x/t"})
            assert response.location == "s3://lake/a%20b/x/t"
            bulk = (await ns.describe_tables([["s", "t"]] * 3)).raise_for_errors()
            assert [table.location for table in bulk.tables.values()] == [response.location]


async def test_a_gateway_refuses_the_catalogs_own_table(ns: AsyncNamespace, root: Path) -> None:
    async with serving(ns, token="t") as gateway:
        for location in ("__manifest", "./__manifest", "../outside", "."):
            for operation in ("register", "declare"):
                answer = await send_request(gateway, "POST", f"/v1/table/s$t/{operation}", {"location": location})
                assert (answer.status, answer.code) == (400, err.InvalidInputError.code)
    assert (await ns.list_tables({"id": ["s"]})).tables == [] and (root / "__manifest").exists()


async def test_memory_is_shared_or_refused() -> None:
    for root in ("memory://", "memory://lake", "MEMORY://lake"):
        with pytest.raises(err.InvalidInputError, match=r"is lost after each call; use shared-memory://lake"):
            AsyncNamespace.connect("dir", {"root": root})
    properties = {"root": "shared-memory://test-directory-places"}
    async with AsyncNamespace.connect("dir", properties) as one, AsyncNamespace.connect("dir", properties) as other:
        await one.create_namespace({"id": ["s"]})
        await one.write(["s", "t"], DATA)
        assert (await other.open(["s", "t"])).to_table() == DATA
        await other.drop_table({"id": ["s", "t"]})
        assert not await one.exists(["s", "t"])
        await one.drop_namespace({"id": ["s"]})


def test_credentials_in_a_root_are_not_shown() -> None:
    for root, visible in {
        "s3://key:sesame@bucket/lake": "s3://***@bucket/lake",
        "az://sesame@container/lake": "az://***@container/lake",
        "abfss://container@account.dfs.core.windows.net/lake": "abfss://container@account.dfs.core.windows.net/lake",
        "abfss://container:sesame@account/lake": "abfss://***@account/lake",
        "/data/a@b?c": "/data/a@b?c",
    }.items():
        ns = AsyncNamespace.connect("dir", {"root": root})
        assert masked_uri(root) == visible and DirSettings.parse({"root": root}).identity() == visible
        assert visible in ns.namespace_id() and "sesame" not in repr(ns) + ns.namespace_id()
    with pytest.raises(err.InvalidInputError) as raised:
        AsyncNamespace.connect("dir", {"root": "az://container/lake?sig=sesame"})
    assert "sesame" not in str(raised.value)


UNREADABLE = [
    *("describe_table(['s', 't'])", "list_tables(['s'])", "list_namespaces([])", "create_namespace(['n'])"),
    *("describe_table(['t'])", "list_tables([])", "declare_table(['u'])"),
]


@pytest.mark.parametrize("folder", [".", "__manifest", "__manifest/_versions", "__manifest/data"])
async def test_what_may_not_be_read_is_denied(folder: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root, other = Path(temporary, "lake"), Path(temporary, "other")
        for path in (root, other):
            async with AsyncNamespace.connect("dir", {"root": str(path)}) as ns:
                await ns.create_namespace({"id": ["s"]})
                await ns.declare_table({"id": ["s", "t"]})
                await ns.declare_table({"id": ["t"]})
        os.chmod(temporary, 0o755)
        os.chmod(root / folder, 0)
        try:
            outcomes = await outcomes_for_nobody(root, other, *UNREADABLE)
        finally:
            os.chmod(root / folder, 0o755)
        assert outcomes == [err.PermissionDeniedError.__name__] * 7


@pytest.mark.parametrize("files", [[], [".lance-reserved#1"]], ids=["nothing", "begun"])
async def test_what_a_killed_declaration_leaves_at_the_root_is_no_table(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "t.lance").mkdir()
    for name in files:
        (tmp_path / "t.lance" / name).touch()
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        assert not (await ns.list_tables({"id": []})).tables and not await ns.exists(["t"])
        await ns.declare_table({"id": ["t"]})
        assert (await ns.list_tables({"id": []})).tables == ["t"]


SIZE = DirectoryBackend.capabilities.declare_batch


def requests(*names: str) -> list[RegisterTableRequest]:
    return [RegisterTableRequest(id=["s", name], location=f"data/{name}") for name in names]


def version(root: Path) -> int:
    return lance.dataset(root / "__manifest").version


async def test_a_batch_is_one_commit(ns: AsyncNamespace, root: Path) -> None:
    before = version(root)
    (await ns.register_tables(requests(*(f"t{number}" for number in range(SIZE + 1))))).raise_for_errors()
    assert version(root) == before + 2
    assert len((await ns.list_tables({"id": ["s"]})).tables) == SIZE + 1


async def test_tables_at_the_root_are_folders(ns: AsyncNamespace) -> None:
    root = [RegisterTableRequest(id=["a"], location="a.lance"), RegisterTableRequest(id=["b"], location="c.lance")]
    result = await ns.register_tables([*root, *requests("t")])
    assert sorted(map(str, result.tables)) == ["a", "s$t"]
    assert "at the root its location must be" in str(result.errors[next(iter(result.errors))])


async def test_overlaps_within_a_batch_are_refused(ns: AsyncNamespace) -> None:
    await ns.register_table(requests("old")[0])
    tables = {"x": "data/old/data/x", "a": "a/data/b", "outer": "a", "between": "a/data", "beside": "a/other"}
    result = await ns.register_tables({"id": ["s", id], "location": place} for id, place in tables.items())
    assert [id.name for id in result.tables] == ["a", "between", "beside"]
    messages = {id.name: str(error).split(";")[0] for id, error in result.errors.items()}
    assert messages.keys() == {"x", "outer"}
    assert messages["x"].endswith("'data/old/data/x' overlaps with 'data/old', the location of s$old")
    assert messages["outer"].endswith("the location 'a' overlaps with 'a/data/b', the location of s$a")


@pytest.mark.parametrize("seed", range(20))
def test_overlaps_are_those_of_all_pairs(tmp_path: Path, seed: int) -> None:
    """A location is refused if and only if it is inside the files of a table, or contains them."""
    random_ = random.Random(seed)
    names = ["a", "data", "_versions", "data-x", "data.b", "tree"]
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    paths = ["/".join(random_.choices(["a", "link"]) + random_.choices(names, k=random_.randrange(4))) for _ in "x" * 9]
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


KILLED_BATCH = """
import asyncio, os, signal, sys
from lance_ns_async import AsyncNamespace
def kill(finished, total):
    os.kill(os.getpid(), signal.SIGKILL)
async def main(root, tables):
    async with AsyncNamespace.connect("dir", {"root": root}) as ns:
        requests = [{"id": ["s", f"t{i}"], "location": f"data/t{i}"} for i in range(tables)]
        await ns.register_tables(requests, progress=kill)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_a_killed_process_leaves_whole_batches(ns: AsyncNamespace, root: Path) -> None:
    assert run_script(KILLED_BATCH, str(root), str(2 * SIZE)) == (-signal.SIGKILL, [])
    assert len((await ns.list_tables({"id": ["s"]})).tables) == SIZE
    result = await ns.register_tables(requests(*(f"t{number}" for number in range(2 * SIZE))))
    assert len(result.tables) == len(result.errors) == SIZE

"""Discovery of tables in folders and catalogs, and the search by conditions."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.fleet import Conditions, Report, discover, sync
from lance_ns_async.fleet.discovery import folder_names, original_names
from lance_ns_async.fleet.folder_walk import FolderKind, FolderWalker
from lance_ns_async.storage.folders import Folders, place_key
from lance_ns_async.storage.locations import default_location, unique_location
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import FakeS3
from tests.support.errors import catch
from tests.support.lake import make_file, make_table, make_traps
from tests.support.processes import run_script

ROWS = pa.table({"x": [1, 2]})


def ids(report: Report, outcome: str) -> list[str]:
    return sorted(str(row.id) for row in report.having(outcome))


def connect(root: Path) -> AsyncNamespace:
    return AsyncNamespace.connect("dir", {"root": str(root)})


def put(server: FakeS3, *keys: str) -> None:
    for key in keys:
        httpx.put(f"{server.url}/lake/{quote(key)}", trust_env=False).raise_for_status()


async def registered(namespace: AsyncNamespace, into: Sequence[str]) -> dict[str, str]:
    tables = [id async for id in namespace.iter_tables(into, recursive=True)]
    described = (await namespace.describe_tables(tables)).raise_for_errors()
    return {str(id): table.location for id, table in described.tables.items()}


async def test_tables_are_distinguished_from_traps(tmp_path: Path) -> None:
    make_traps(tmp_path)
    make_table(tmp_path, "a/b/c.lance", "1.manifest")
    make_table(tmp_path, "a/plain")
    async with connect(tmp_path) as namespace:
        report = await discover(namespace, str(tmp_path), into=["lake"])
        assert ids(report, "registered") == ["lake$a$b$c", "lake$a$plain", "lake$traps$outer"]
        assert sorted(await registered(namespace, ["lake"])) == ids(report, "registered")
        unfinished = [Path(str(row.location)).name for row in report.having("unfinished")]
        assert sorted(unfinished) == ["detached", "empty.lance", "nothing.lance", "staged"]
        assert not report.problems and len(report.rows) == 7
        again = await discover(namespace, str(tmp_path), into=["lake"])
        assert ids(again, "present") == ids(report, "registered") and not again.having("registered")


async def test_what_an_interrupted_drop_left_is_not_registered(tmp_path: Path) -> None:
    """Tables without rows and shallow clones have no data files of their own, and are complete."""
    # At the root of a directory catalog, they would be tables already.
    data = tmp_path / "data"
    for name in ("whole", "half"):
        lance.write_dataset(ROWS, data / f"{name}.lance")
        lance.write_dataset(ROWS, data / f"{name}.lance", mode="append")
    lance.write_dataset(ROWS.slice(0, 0), data / "empty.lance")
    lance.dataset(data / "whole.lance").shallow_clone(data / "shallow.lance", 2)
    next((data / "half.lance" / "data").iterdir()).unlink()
    async with connect(tmp_path) as namespace:
        for dry_run in (True, False):
            report = await discover(namespace, str(data), into="n", dry_run=dry_run)
            assert ids(report, "registered") == ["n$empty", "n$shallow", "n$whole"]
            (row,) = report.problems
            assert (row.outcome, str(row.id)) == ("half-deleted", "n$half") and "names 1 data files" in row.reason
        assert "n$half" not in await registered(namespace, ["n"])


async def test_other_registrations_are_reported(tmp_path: Path) -> None:
    for path in ("a", "b", "c"):
        make_table(tmp_path, f"{path}.lance")
    async with connect(tmp_path) as namespace:
        for name in ("n", "m"):
            await namespace.create_namespace({"id": [name]})
        for name, id in (("b", ["n", "a"]), ("c", ["m", "c2"])):
            await namespace.deregister_table({"id": [name]})
            await namespace.register_table({"id": id, "location": str(tmp_path / f"{name}.lance")})
        report = await discover(namespace, str(tmp_path), into=["n"], dry_run=True)
        outcomes = {str(row.id): row.outcome for row in report.rows}
        assert outcomes == {"n$a": "elsewhere", "n$b": "other name", "n$c": "registered"}
        assert [row.fields["other_id"] for row in report.having("other name")] == ["n$a"]
        assert report.having("elsewhere")[0].fields["other_location"].endswith("/b.lance")
        wide = await discover(namespace, str(tmp_path), into=["n"], dry_run=True, whole_catalog=True)
        assert "n$c" in ids(wide, "other name")


async def test_names_can_be_chosen_and_conflicts_are_refused(tmp_path: Path) -> None:
    for path in ("a/t.lance", "b/t.lance", "c/u.lance", "d/skip.lance"):
        make_table(tmp_path, path)

    def last(path: str) -> list[str] | None:
        return None if "skip" in path else [Path(path).stem]

    async with connect(tmp_path) as namespace:
        report = await discover(namespace, str(tmp_path), into=["n"], name=last)
        assert ids(report, "conflict") == ["n$t", "n$t"] and ids(report, "registered") == ["n$u"]
        assert len(report.problems) == 2 and "b/t.lance" in repr(report)


@pytest.mark.parametrize("impl", ["dir", "iceberg"])
async def test_a_lost_catalog_gets_its_names_back(impl: str, tmp_path: Path) -> None:
    root = {"root": tmp_path.as_uri()}
    names = [["sales", "orders"], ["sales", "ord-ers.1"], ["sales", "in ner", "a b"], ["x-0123456789ab", "t"]]
    lost, restored = FakeIceberg(), FakeIceberg()
    with lost, restored:
        for server, is_lost in ((lost, True), (restored, False)):
            properties = root if impl == "dir" else {**root, "endpoint": server.endpoint}
            async with AsyncNamespace.connect(impl, properties) as namespace:
                if is_lost:
                    for parent in (["sales"], ["sales", "in ner"], ["x-0123456789ab"]):
                        await namespace.create_namespace({"id": parent})
                    for id in names:
                        lance.write_dataset(ROWS, str((await namespace.declare_table({"id": id})).location))
                    before = await registered(namespace, [])
                    shutil.rmtree(tmp_path / "__manifest", ignore_errors=True)
                    continue
                report = await discover(namespace, str(tmp_path))
                assert report.counts == {"registered": len(names)}, report
                assert {id: place_key(at) for id, at in (await registered(namespace, [])).items()} == {
                    id: place_key(at) for id, at in before.items()
                }


async def test_folders_that_could_be_one_table_keep_their_names(tmp_path: Path) -> None:
    for path in (
        *("n/t-0123456789ab", "n/t-ba9876543210.lance", "n/u-0123456789ab", "n/v", "n/v-0123456789ab"),
        *("01234567_n$w", "76543210_n$w", "01234567_n$n$w", "n/y-0123456789ab", "n/y-ba9876543210"),
    ):
        make_table(tmp_path, path)
    with FakeIceberg() as server:
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
            await namespace.create_namespace({"id": ["n"]})
            await namespace.register_table({"id": ["n", "y"], "location": f"{tmp_path.as_uri()}/n/y-0123456789ab"})
            for dry_run in (True, False):
                report = await discover(namespace, tmp_path.as_uri(), dry_run=dry_run)
                rows = {str(row.id): row.reason for row in report.having("registered")}
                shared = {
                    *("n$t-0123456789ab", "n$t-ba9876543210", "n$v-0123456789ab"),
                    *("n$01234567_w", "n$76543210_w", "n$y-ba9876543210"),
                }
                assert rows.keys() == shared | {"n$u", "n$v", "n$n$w"}
                assert {id for id, reason in rows.items() if "other folders could be" in reason} == shared
                assert ids(report, "present") == ["n$y"]
            assert (await discover(namespace, tmp_path.as_uri())).counts == {"present": 10}


async def test_a_name_that_the_catalog_refuses_is_that_of_the_folder(tmp_path: Path) -> None:
    """A directory catalog has tables at its root in folders of their names only."""
    make_table(tmp_path, "t-0123456789ab.lance")
    async with connect(tmp_path) as namespace:
        assert ids(await discover(namespace, str(tmp_path), dry_run=True), "registered") == []
    make_table(tmp_path / "deep", "n/01234567_t$")
    with FakeIceberg() as server:
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
            report = await discover(namespace, str(tmp_path / "deep"), dry_run=True)
            assert ids(report, "registered") == ["n$01234567_t$"]


async def test_filters_select_tables_and_prune_folders_and_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    for path in ("a/x.lance", "a/y.lance", "b/x.lance"):
        make_table(tmp_path, path)
    async with connect(tmp_path) as namespace:
        report = await discover(namespace, str(tmp_path), into=["n"], include=["*/x.lance"], exclude=["b"])
        assert ids(report, "registered") == ["n$a$x"] and report.counters["tables"] == 2
        await catch(InvalidInputError, discover(namespace, str(tmp_path / "nothing")), "no such folder")
        await catch(InvalidInputError, discover(namespace, "s3:///x"), "no bucket")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
async def test_a_refused_folder_is_reported(tmp_path: Path) -> None:
    make_table(tmp_path, "a/t.lance")
    (tmp_path / "closed").mkdir(mode=0)
    async with connect(tmp_path) as namespace:
        report = await discover(namespace, str(tmp_path), into=["n"])
        assert ids(report, "registered") == ["n$a$t"] and len(report.having("denied")) == 1


async def test_listings_stay_within_the_bound(tmp_path: Path) -> None:
    """Tables with and without the suffix, among folders that are not tables."""
    for n in range(200):
        make_table(tmp_path, f"sales/y{n % 3}/t{n}.lance")
        make_table(tmp_path, f"plain/t{n}")
        make_table(tmp_path, f"mixed/t{n}")
        make_file(tmp_path, f"mixed/day={n}/1.parquet")
        make_file(tmp_path, f"raw/day={n}/1.parquet")
    async with connect(tmp_path) as namespace:
        report = await discover(namespace, str(tmp_path), into=["n"], dry_run=True)
    counters = report.counters
    assert counters["tables"] == 600 and counters["folders"] == 408
    assert counters["listings"] <= 1.1 * (counters["tables"] + counters["folders"])


KILLED = """
import asyncio, os, signal, sys
from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet import discover
root, file, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
def kill(finished, total):
    if finished >= most:
        os.kill(os.getpid(), signal.SIGKILL)
async def main():
    async with AsyncNamespace.connect("dir", {"root": root}) as namespace:
        await discover(namespace, root, into=["n"], journal=file, progress=kill)
asyncio.run(main())
"""


async def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    root, file = tmp_path / "lake", tmp_path / "journal"
    for n in range(120):
        make_table(root, f"s{n % 4}/t{n}.lance")
    for most in (3, 60, 140, 30):
        assert run_script(KILLED, str(root), str(file), str(most)) == (-signal.SIGKILL, [])
    async with connect(root) as namespace:
        report = await discover(namespace, str(root), into=["n"], journal=file)
        assert len(await registered(namespace, ["n"])) == 120
        assert len({row.id for row in report.rows}) == len(report.rows) == 120
        assert not report.problems and report.counters["listings"] < 120
        again = await discover(namespace, str(root), into=["n"], journal=file)
        assert again.counts == {"present": 120} and again.counters["listings"] >= 120


async def test_a_listing_that_is_refused_does_not_stop_the_rest() -> None:
    with FakeS3() as server, FakeIceberg() as catalog:
        put(server, *(f"x/{area}/t{n}.lance/_versions/1.manifest" for area in "ab" for n in range(3)))
        before = len(server.requests)
        server.fail(403, match=r"prefix=x(%2F|/)b(%2F|/)(&|$)", body=b"<Error><Code>AccessDenied</Code></Error>")
        async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as namespace:
            report = await discover(namespace, "s3://lake/x", into=["n"], storage_options=server.options, dry_run=True)
            assert report.counts == {"registered": 3, "denied": 1}, report
            assert [row.location for row in report.having("denied")] == ["s3://lake/x/b"]
            # Each of the new tables is listed and opened, too; their manifests are empty.
            assert report.counters["listings"] == 6 and report.counters["not opened"] == 3
            assert len(server.requests) - before == 6 + 3 * 3


async def test_a_bucket_is_walked() -> None:
    names = ["plain.lance", "with space.lance", "prozent%20.lance", "ü.lance", "~t'(1).lance", "k" * 900]
    with FakeS3() as server, FakeIceberg() as catalog:
        put(server, *(f"x/{name}/_versions/1.manifest" for name in names), "x/marker.lance/_versions/")
        async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as namespace:
            # No table gets an id, because moto cannot serve the files of some of them.
            report = await discover(
                namespace, "s3://lake/x", name=lambda path: None, storage_options=server.options, dry_run=True
            )
            assert report.counters["tables"] == len(names), report
            assert [row.location for row in report.having("unfinished")] == ["s3://lake/x/marker.lance"]
            with pytest.raises(InvalidInputError, match="NoSuchBucket"):
                await discover(namespace, "s3://nothing/x", into=["n"], storage_options=server.options)
            with pytest.raises(InvalidInputError, match="no such folder"):
                await discover(namespace, "s3://lake/nothing", into=["n"], storage_options=server.options)


async def test_a_folder_that_the_catalog_cannot_have_is_one_error_before_the_walk(tmp_path: Path) -> None:
    make_table(tmp_path / "elsewhere", "t.lance")
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    async with connect(tmp_path / "lake") as namespace:
        for uri in (tmp_path / "elsewhere", f"file://{tmp_path}/elsewhere", "s3://bucket/lake", tmp_path / "lake2"):
            with pytest.raises(InvalidInputError, match="this catalog has only tables inside its root"):
                await discover(namespace, str(uri), into=["n"])
        for uri in (tmp_path / "lake", tmp_path):
            report = await discover(namespace, str(uri), dry_run=True)
            assert [row.outcome for row in report.rows] == (["failed"] if uri == tmp_path else [])
    async with connect(tmp_path / "link") as namespace:
        make_table(tmp_path / "lake", "a/t.lance")
        assert ids(await discover(namespace, str(tmp_path / "lake")), "registered") == ["a$t"]


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_names_of_default_locations_are_those_of_the_table(names: list[str]) -> None:
    location = unique_location(default_location("s3://lake/x", TableId(names)))
    # Whether this suffix belongs to the name or to the folder is unknown.
    expected = [*names[:-1], names[-1].removesuffix(".lance") or names[-1]]
    assert original_names(location.removeprefix("s3://lake/x/")) == expected


@pytest.mark.parametrize(
    ("path", "original", "folder"),
    [
        *(("a/t.lance", ["a", "t"], ["a", "t"]), ("a~20b/t~20", ["a~20b", "t~20"], ["a~20b", "t~20"])),
        ("a/t-0123456789ab", ["a", "t"], ["a", "t-0123456789ab"]),
        ("a/t-0123456789ab.lance", ["a", "t"], ["a", "t-0123456789ab"]),
        ("a/t-0123456789AB", ["a", "t-0123456789AB"], ["a", "t-0123456789AB"]),
        ("a/-0123456789ab", ["a", "-0123456789ab"], ["a", "-0123456789ab"]),
        ("x/01234567_n$m$t", ["x", "n", "m", "t"], ["x", "n", "m", "01234567_t"]),
        *(("01234567_t", ["01234567_t"], ["01234567_t"]), ("01234567_n$", ["01234567_n$"], ["01234567_n$"])),
        (".lance", [".lance"], [".lance"]),
    ],
)
def test_digits_are_removed_only_where_a_name_remains(path: str, original: list[str], folder: list[str]) -> None:
    assert (list(original_names(path)), list(folder_names(path))) == (original, folder)


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
    assert (await walker.look("a/t2")).kind is FolderKind.TABLE and walker.folders.listings == before + 1
    # A folder that vanishes is distinguished.
    assert (await walker.look("gone")).kind is FolderKind.VANISHED
    assert (await walker.look("gone.lance")).kind is FolderKind.VANISHED


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.0] * 24, pa.float32()), 8)
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.write(["vectors"], pa.table({"id": range(3), "vec": vectors}))
        namespace.write(["indexed"], pa.table({"id": range(5)})).create_scalar_index("id", "BTREE")
        namespace.write(["stale"], pa.table({"id": range(5)})).create_scalar_index("id", "BTREE")
        namespace.write(["stale"], pa.table({"id": range(2)}), mode="append")
        namespace.declare_table({"id": ["declared"]})
        yield namespace


def names(report: Report) -> list[str]:
    assert not report.problems
    return [str(row.id) for row in report.rows]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["indexed", "stale", "vectors"]),
        (Conditions(columns=["vec:fixed_size_list[8]"]), ["vectors"]),
        (Conditions(columns=["vec:vector<float>[8]"]), ["vectors"]),
        (Conditions(columns=[":vector[9]"]), []),
        (Conditions(columns=["id:int64"], max_rows=5), ["indexed", "vectors"]),
        *((Conditions(columns=["id:int32"]), []), (Conditions(min_rows=6), ["stale"])),
        *((Conditions(min_size="1GB"), []), (Conditions(older_than="1d"), [])),
        (Conditions(newer_than="1d"), ["indexed", "stale", "vectors"]),
        *((Conditions(min_versions=3), ["stale"]), (Conditions(index=["id"]), ["indexed", "stale"])),
        *((Conditions(no_index=["id"]), ["vectors"]), (Conditions(no_index=["vec"]), ["vectors"])),
        *((Conditions(stale_index=["*"]), ["stale"]), (Conditions(properties={"owner": "ann"}), [])),
    ],
)
def test_conditions_select_tables(namespace: Namespace, where: Conditions | None, expected: list[str]) -> None:
    assert names(sync.find(namespace, "**", where)) == expected


def test_results_are_sorted_limited_and_chosen_by_functions(namespace: Namespace) -> None:
    assert names(sync.find(namespace, "**", sort="-rows", limit=2)) == ["stale", "indexed"]
    report = sync.find(namespace, "**", lambda facts: facts.rows == 3, columns="id:int64", max_rows=3)
    assert names(report) == ["vectors"]
    assert "vectors  rows 3, size " in repr(report) and "vectors" in report._repr_html_()
    assert report.rows[0].fields["rows"] == 3 and report.counters == {"tables": 4, "without data": 1}
    assert report.to_arrow().num_rows == 1 and '"rows": 3' in report.to_json()


def test_conditions_that_cannot_be_are_refused(namespace: Namespace) -> None:
    for word in ("int46", "text64", "vector"):
        with pytest.raises(InvalidInputError, match=f"columns 'id:{word}': Arrow has no type '{word}'; "):
            Conditions(columns=[f"id:{word}"])
    Conditions(
        columns=[f"id:{it}" for it in ("float16", "string_view", "list<item: int64>", "timestamp[us]", "vector[8]")]
    )
    for age in ("30", "d", "30y", "9" * 20 + "w"):
        with pytest.raises(InvalidInputError, match="older_than"):
            Conditions(older_than=age)
    with pytest.raises(InvalidInputError, match="sort 'age'"):
        sync.find(namespace, "**", sort="age")
    with pytest.raises(InvalidInputError, match="limit 0"):
        sync.find(namespace, "**", limit=0)
    with pytest.raises(InvalidInputError, match=r"no argument 'min_row'; did you mean min_rows\?"):
        sync.find(namespace, "**", min_row=5)


def test_damaged_tables_are_failures_beside_the_matches(namespace: Namespace, tmp_path: Path) -> None:
    for manifest in (tmp_path / "stale.lance" / "_versions").iterdir():
        manifest.write_bytes(b"no manifest")
    report = sync.find(namespace, "**")
    outcomes = [(str(row.id), row.outcome) for row in report.rows]
    assert outcomes == [("indexed", "match"), ("vectors", "match"), ("stale", "failed")]

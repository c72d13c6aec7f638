"""Audits of catalogs on disk with planted faults."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.fleet import Report, sync
from lance_ns_async.fleet.audit_checks import StorageState, check_namespaces, check_places, check_table
from lance_ns_async.fleet.audits import audit
from lance_ns_async.model import NamespaceId, Table, TableId
from tests.fakes.hive3 import FakeHive
from tests.fakes.hive3.objects import EXTERNAL, MANAGED
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import FakeS3
from tests.fakes.unity import FakeUnity
from tests.support.errors import catch
from tests.support.lake import make_file

ROWS = pa.table({"id": [1]})
LANCE = {"table_type": "lance", "gc.enabled": "false"}
TABLES, EACH = 200, 2
"""Number of sound tables, and of tables with each fault."""


def ids_by_kind(report: Report) -> dict[str, set[str]]:
    ids: dict[str, set[str]] = {}
    for row in report.rows:
        ids.setdefault(row.outcome, set()).add(str(row.id))
    return ids


def files_in(root: Path) -> Counter[str]:
    return Counter(os.fspath(path) for path in root.rglob("*") if path.is_file())


def add_other_table(server: FakeIceberg, root: Path) -> dict[str, set[str]]:
    """Plants sound tables and eight kinds of faults; returns the ids by kind."""
    sound = root / "sound"
    lance.write_dataset(ROWS, sound)
    planted: dict[str, set[str]] = {}

    def add(name: str, *, properties: dict[str, str] = LANCE, location: str | None = None, data: bool = True) -> Path:
        folder = root / name
        if data:
            shutil.copytree(sound, folder)
        server.add_table(["ns"], name, properties=properties, location=location or folder.as_uri())
        return folder

    def expect(kind: str, names: Iterable[str]) -> None:
        planted.setdefault(kind, set()).update(f"ns${name}" for name in names)

    for i in range(TABLES):
        add(f"t{i}")
    for i in range(EACH):
        add(f"gone{i}", data=False)
        add(f"unmounted{i}", location=(root / "no" / f"x{i}").as_uri(), data=False)
        add(f"empty{i}", data=False).mkdir()
        shutil.rmtree(add(f"half{i}") / "_versions")
        for manifest in (add(f"broken{i}") / "_versions").iterdir():
            manifest.write_bytes(b"no manifest")
        add(f"twin{i}", location=(root / f"t{i}").as_uri(), data=False)
        add(f"inner{i}", location=(add(f"outer{i}") / "data").as_uri(), data=False)
        add(f"open{i}", properties={"table_type": "lance"})
        (add(f"hidden{i}") / ".lance-deregistered").touch()
        expect("location-missing", [f"gone{i}"])
        expect("parent-missing", [f"unmounted{i}"])
        expect("declared-only", [f"empty{i}"])
        expect("manifest-missing", [f"half{i}", f"inner{i}"])
        expect("unreadable", [f"broken{i}"])
        expect("shared-location", [f"t{i}", f"twin{i}"])
        expect("nested-location", [f"inner{i}"])
        expect("unprotected", [f"open{i}"])
        expect("hidden-marker", [f"hidden{i}"])
    return planted


async def test_each_fault_is_reported_a_second_fix_changes_nothing_and_data_stays(tmp_path: Path) -> None:
    fix = ("location-missing", "declared-only", "unprotected")
    with FakeIceberg() as server:
        planted = add_other_table(server, tmp_path)
        files = files_in(tmp_path)
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
            assert ids_by_kind(await audit(namespace, "ns.*")) == planted
            first = ids_by_kind(await audit(namespace, "ns.*", fix=fix))
            rest = {kind: ids for kind, ids in planted.items() if kind not in fix}
            assert first == {**rest, "fixed": set().union(*(planted[kind] for kind in fix))}
            assert ids_by_kind(await audit(namespace, "ns.*", fix=fix)) == rest
        assert files_in(tmp_path) == files


async def test_unknown_and_undecidable_fixes_are_refused_before_any_call(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "absent")}) as namespace:
        await catch(InvalidInputError, audit(namespace, "**", fix=["unprotectd"]), "did you mean 'unprotected'")
        with pytest.raises(InvalidInputError, match="fix 'everything': unknown, known are location-missing, "):
            await audit(namespace, "**", fix="everything")
        await catch(InvalidInputError, audit(namespace, "**", fix="nested-location"), "only you can decide")


async def test_tables_that_are_written_between_two_looks_are_no_findings(tmp_path: Path) -> None:
    """The progress callback writes the tables between the first look and the second."""
    with FakeIceberg() as server:
        for name in ("one", "other"):
            server.add_table(["ns"], name, properties=LANCE, location=(tmp_path / name).as_uri())
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
            changed = False

            def change(finished: int, total: int) -> None:
                nonlocal changed
                if finished == 2 and not changed:
                    changed = True
                    lance.write_dataset(ROWS, tmp_path / "one")
                    lance.write_dataset(ROWS, tmp_path / "other")

            report = await audit(namespace, "ns.*", progress=change)
            assert changed and ids_by_kind(report) == {}


async def test_tables_are_opened_while_others_are_still_described(tmp_path: Path) -> None:
    with FakeIceberg() as server:
        for name in ("one", "other", "last"):
            lance.write_dataset(ROWS, tmp_path / name)
            server.add_table(["ns"], name, properties=LANCE, location=(tmp_path / name).as_uri())
        opened = asyncio.Event()

        def advance(finished: int, total: int) -> None:
            if finished == 2:
                opened.set()

        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
            with server.hold("GET .*/last") as hold:
                async with asyncio.TaskGroup() as group, asyncio.timeout(60):
                    task = group.create_task(audit(namespace, "ns.*", progress=advance))
                    await opened.wait()
                    hold.release()
            assert ids_by_kind(task.result()) == {} and task.result().counters["tables"] == 3


async def test_a_catalog_that_dies_in_the_middle_leaves_errors_and_no_findings(tmp_path: Path) -> None:
    """Tables that could not be described are failures; they are not reported as missing."""
    with FakeIceberg() as server:
        add_other_table(server, tmp_path)
        properties = {"endpoint": server.endpoint, "max_retries": "0"}
        server.fail(500, match="GET .*/tables/(gone|empty|open)", times=None)
        async with AsyncNamespace.connect("iceberg", properties) as namespace:
            ids = ids_by_kind(await audit(namespace, "ns.*", fix=["location-missing", "declared-only", "unprotected"]))
        assert not ids.keys() & {"location-missing", "declared-only", "unprotected", "fixed"}
        assert len(ids["failed"]) == 3 * EACH


async def test_storage_that_denies_is_unreadable_and_never_missing(tmp_path: Path) -> None:
    with FakeIceberg() as server, FakeS3() as storage:
        lance.write_dataset(ROWS, "s3://lake/t", storage_options=storage.options)
        for name in ("t", "gone", "denied"):
            server.add_table(["ns"], name, properties=LANCE, location=f"s3://lake/{name}")
        storage.fail(403, match="denied", times=None, body="<Error><Code>AccessDenied</Code></Error>")
        options = {f"storage.{key}": value for key, value in storage.options.items()}
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, **options}) as namespace:
            report = await audit(namespace, "ns.*", fix=["location-missing"])
            assert ids_by_kind(report) == {"unreadable": {"ns$denied"}, "fixed": {"ns$gone"}}
            assert "denied" in report.having("unreadable")[0].reason


@pytest.mark.parametrize("version", ["3.1.3", "4.0.1"])
async def test_hive_tables_become_external(tmp_path: Path, version: Literal["3.1.3", "4.0.1"]) -> None:
    with FakeHive(tmp_path / "hive", version=version) as server:
        server.add_database("hive", "ns")
        for name, parameters in (
            ("sound", {"table_type": "lance", "EXTERNAL": "true"}),
            ("owned", {"table_type": "lance", "a": "b"}),
            ("off", {"table_type": "lance", "EXTERNAL": "FALSE"}),
        ):
            lance.write_dataset(ROWS, tmp_path / name)
            location = (tmp_path / name).as_uri()
            kind = EXTERNAL if name == "sound" else MANAGED
            server.add_table("hive", "ns", name, parameters=parameters, location=location, table_type=kind)
        async with AsyncNamespace.connect("hive3", {"uri": server.uri, "root": tmp_path.as_uri()}) as namespace:
            owned = {"hive$ns$owned", "hive$ns$off"}
            assert ids_by_kind(await audit(namespace, "hive.ns.*")) == {"not-external": owned}
            assert ids_by_kind(await audit(namespace, "hive.ns.*", fix="not-external")) == {"fixed": owned}
            assert ids_by_kind(await audit(namespace, "hive.ns.*", fix="not-external")) == {}
            described = await namespace.describe_table({"id": ["hive", "ns", "owned"]})
            assert described.properties == {"table_type": "lance", "a": "b"} and (tmp_path / "owned").is_dir()


async def test_data_that_no_table_claims_is_found(tmp_path: Path) -> None:
    """A table outside of the selection, a spelling of a location and branches are no findings."""
    with FakeIceberg() as server:
        for name, location in (("one", "a/one"), ("two", "two.lance"), ("spelled", "spelled.lance/")):
            lance.write_dataset(ROWS, tmp_path / location)
            server.add_table(["ns"], name, properties=LANCE, location=f"{tmp_path.as_uri()}/{location}")
        lance.write_dataset(ROWS, tmp_path / "b" / "lost.lance")
        make_file(tmp_path, "b/half.lance/data/1.lance")
        make_file(tmp_path, "b/other/1.parquet")
        lance.write_dataset(ROWS, tmp_path / "two.lance" / "tree" / "branch")
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
            report = await audit(namespace, "ns.one", data_under=str(tmp_path))
            assert ids_by_kind(report) == {
                "unclaimed": {str(tmp_path / "b" / it) for it in ("lost.lance", "half.lance")}
            }
            sizes = {Path(str(row.location)).name: row.fields["bytes"] for row in report.rows}
            lost = [path for path in (tmp_path / "b" / "lost.lance").rglob("*") if path.is_file()]
            assert sizes == {"half.lance": 0, "lost.lance": sum(path.stat().st_size for path in lost)}
            assert all(datetime.fromisoformat(row.fields["modified"]) <= datetime.now(UTC) for row in report.rows)
            assert "data_under" not in str(report) and report.counters["tables"] == 1
            with pytest.raises(InvalidInputError, match="no such folder"):
                await audit(namespace, "ns.one", data_under=str(tmp_path / "absent"))
            with pytest.raises(InvalidInputError, match="only you can decide"):
                await audit(namespace, "ns.one", data_under=str(tmp_path), fix="unclaimed")


async def test_half_deleted_data_is_reported_with_its_size_and_age(tmp_path: Path) -> None:
    """In a bucket they are those of the newest version."""
    with FakeS3() as storage:
        for name in ("whole", "half"):
            lance.write_dataset(ROWS, f"s3://lake/{name}.lance", storage_options=storage.options)
        files = LanceFileSession("s3://lake/half.lance", storage_options=storage.options)
        for path in files.list("data"):
            files.delete_file(path)
        async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as namespace:
            report = await audit(namespace, "*", data_under="s3://lake", storage_options=storage.options)
            rows = {str(row.location): row for row in report.having("unclaimed")}
            assert [*rows] == ["s3://lake/half.lance", "s3://lake/whole.lance"]
            assert all(row.fields["bytes"] > 100 and row.fields["modified"] for row in rows.values())
            assert "restore them, or delete the folder" in rows["s3://lake/half.lance"].reason
            reason = rows["s3://lake/whole.lance"].reason
            assert re.search(r"last changed [\d.]+ (ms|s|seconds?) ago", reason)


async def test_the_columns_in_the_catalog_become_those_of_the_dataset(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]})
    with FakeUnity() as server:
        properties = {"endpoint": server.endpoint, "catalog": "main", "root": tmp_path.as_uri()}
        async with AsyncNamespace.connect("unity", properties) as namespace:
            await namespace.create_namespace({"id": ["main", "ns"]})
            for name, schema in (("same", rows.schema), ("other", pa.schema([("id", pa.string())]))):
                declared = await namespace.declare_table(
                    {"id": ["main", "ns", name], "properties": {"a": "b"}}, schema=schema
                )
                lance.write_dataset(rows, str(declared.location))
            assert ids_by_kind(await audit(namespace, "main.ns.*")) == {"columns-differ": {"main$ns$other"}}
            assert ids_by_kind(await audit(namespace, "main.ns.*", fix="columns-differ")) == {
                "fixed": {"main$ns$other"}
            }
            assert ids_by_kind(await audit(namespace, "main.ns.*", fix="columns-differ")) == {}
            described = await namespace.describe_table({"id": ["main", "ns", "other"]})
            assert described.properties is not None and described.properties["a"] == "b"


async def test_a_listed_table_without_metadata_is_a_finding(tmp_path: Path) -> None:
    gone = b'{"error": {"message": "Table does not exist: ns.lost", "type": "NoSuchTableException", "code": 404}}'
    with FakeIceberg() as server:
        server.add_namespace(("ns",))
        for name in ("lost", "dropped", "sound"):
            server.add_table(("ns",), name, location=(tmp_path / name).as_uri())
        lance.write_dataset(ROWS, tmp_path / "sound")
        server.fail(404, match="GET .*tables/lost", body=gone, times=9)
        server.fail(404, match="GET .*tables/dropped", body=gone, times=1)
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as namespace:
            found = ids_by_kind(await audit(namespace, "ns.*"))
        assert found["metadata-missing"] == {"ns$lost"} and "ns$dropped" not in found.get("metadata-missing", ())


async def test_a_deep_audit_finds_files_that_are_missing_or_damaged(tmp_path: Path) -> None:
    def data_file(name: str) -> Path:
        location = str(namespace.describe_table({"id": ["ns", name]}).location).removeprefix("file://")
        return next(Path(location, "data").iterdir())

    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.create_namespace({"id": ["ns"]})
        for name in ("sound", "missing", "short", "garbage", "no-deletions", "empty"):
            namespace.write(["ns", name], pa.table({"id": range(0 if name == "empty" else 100)}))
        for name in ("sound", "no-deletions"):
            namespace.open(["ns", name]).delete("id < 10")
        clone = namespace.declare_table({"id": ["ns", "clone"]}).location
        assert clone
        namespace.open(["ns", "sound"]).shallow_clone(clone, 2)
        assert ids_by_kind(sync.audit(namespace, "**", deep=True)) == {}
        data_file("missing").unlink()
        size = data_file("garbage").stat().st_size
        data_file("garbage").write_bytes(b"x" * size)
        data_file("short").write_bytes(data_file("short").read_bytes()[:-20])
        shutil.rmtree(data_file("no-deletions").parent.parent / "_deletions")
        assert ids_by_kind(sync.audit(namespace, "**")) == {}
        report = sync.audit(namespace, "**", deep=True)
    assert ids_by_kind(report) == {
        "data-missing": {"ns$missing", "ns$no-deletions"},
        "data-damaged": {"ns$short", "ns$garbage"},
    }
    assert all(row.reason.startswith("1 file of the newest version: ") for row in report.problems)


STORED = pa.schema([("id", pa.int64()), ("name", pa.string())])


def kinds_at(*locations: str) -> list[tuple[str, str]]:
    tables = {TableId([str(i)]): Table(TableId([str(i)]), location) for i, location in enumerate(locations)}
    return sorted((finding.kind, str(finding.id)) for finding in check_places(tables))


@pytest.mark.parametrize(
    ("locations", "expected"),
    [
        (("s3://b/t", "s3://b/t2", "s3://b/t-old"), []),
        (("s3://b/t", "s3://b/t/"), [("shared-location", "0"), ("shared-location", "1")]),
        (("/data/t", "file:///data/t"), [("shared-location", "0"), ("shared-location", "1")]),
        (("s3://b/t", "s3://b/t-2", "s3://b/t/x", "s3://b/t2"), [("nested-location", "2")]),
    ],
)
def test_shared_and_nested_locations_in_any_spelling(locations: tuple[str, ...], expected: list[object]) -> None:
    assert kinds_at(*locations) == expected


@pytest.mark.parametrize(
    ("schema", "difference"),
    [
        (STORED, None),
        (STORED.append(pa.field("new", pa.int8())), "new: no column in the catalog, int8 in the dataset"),
        (STORED.remove(1), "name: string in the catalog, no column in the dataset"),
    ],
)
def test_columns_that_differ_are_named(schema: pa.Schema, difference: str | None) -> None:
    state = StorageState(has_manifest=True, has_data=True, schema=schema)
    table = Table(TableId(["t"]), "s3://b/t", schema=STORED)
    findings = list(check_table(table, state, needs_protection=False, uses_markers=False))
    assert [finding.seen for finding in findings] == ([] if difference is None else [difference])


def test_storage_and_namespaces_with_problems_are_findings() -> None:
    state = StorageState(error=PermissionDeniedError("no"))
    findings = list(check_table(Table(TableId(["t"]), "s3://b/t"), state, needs_protection=False, uses_markers=False))
    assert [finding.kind for finding in findings] == ["unreadable"] and "denied" in findings[0].seen
    namespaces = {NamespaceId(["a"]): {"location": "relative"}, NamespaceId(["b"]): {"location": "s3://bucket"}}
    assert [finding.id for finding in check_namespaces(namespaces, ["location"])] == [NamespaceId(["a"])]

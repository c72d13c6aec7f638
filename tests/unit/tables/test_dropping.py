"""Drops that are interrupted at each of their steps, and the next call."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidTableStateError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import AsyncNamespace
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.fakes.s3 import FakeS3

OLD, NEW = pa.table({"x": [1, 2, 3]}), pa.table({"y": ["new"]})
T: list[str] = ["a", "t"]

FIRST, LATEST = "_versions/18446744073709551614", "_versions/18446744073709551612"

STARTED_WITHIN = 60.0
"""Seconds for a process to start and to reach its hold."""

AGES = 1000.0
"""Seconds; no operation takes as long."""

_CHILD = """
import asyncio, json, sys
from lance_ns_async import AsyncNamespace

async def main():
    async with AsyncNamespace.connect("iceberg", json.loads(sys.argv[1])) as ns:
        await ns.drop_table({"id": ["a", "t"]})

asyncio.run(main())
"""


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        running.add_namespace(["a"])
        yield running


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as running:
        yield running


@pytest.fixture
def properties(server: FakeIceberg, tmp_path: Path) -> Mapping[str, str]:
    return {"endpoint": server.endpoint, "root": tmp_path.as_uri()}


@pytest.fixture
def on_s3(server: FakeIceberg, s3: FakeS3) -> Mapping[str, str]:
    options = {f"storage.{key}": value for key, value in s3.options.items()}
    return {"endpoint": server.endpoint, "root": "s3://lake/tables", **options}


@pytest.fixture
async def ns(properties: Mapping[str, str]) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("iceberg", properties) as namespace:
        yield namespace


@contextmanager
def dropping(properties: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Provides a process that drops the table T, and kills it at the end."""
    with subprocess.Popen([sys.executable, "-c", _CHILD, json.dumps(dict(properties))]) as process:
        try:
            yield process
        finally:
            process.kill()


async def written(properties: Mapping[str, str], versions: int = 3) -> str:
    """Writes the table T, the oldest versions with fewer rows; returns its location."""
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        await ns.write(T, OLD.slice(0, 1))
        for _ in range(versions - 2):
            await ns.write(T, OLD.slice(1, 1), mode="append")
        await ns.write(T, OLD, mode="overwrite")
        return str((await ns.describe_table({"id": T})).location)


def files(location: str) -> set[str]:
    """Returns the files at a local location."""
    return set(LanceFileSession(location).list())


def rows(location: str, **options: Any) -> list[dict[str, Any]] | None:
    """Returns the rows that a reader by path finds; None if there is no table."""
    try:
        found: list[dict[str, Any]] = lance.dataset(location, **options).to_table().to_pylist()
        return found
    except ValueError as e:
        assert "was not found" in str(e)
        return None


async def test_a_kill_before_the_catalog_acts_leaves_the_table(
    server: FakeIceberg, properties: Mapping[str, str]
) -> None:
    await written(properties)
    with server.hold("^DELETE ") as hold, dropping(properties):
        await hold.reached(within=STARTED_WITHIN)
        server.stop()
    server.start()
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        assert (await ns.open(T)).to_table() == OLD
        await ns.write(T, OLD, mode="append")
        await ns.deregister_table({"id": T})
        # A deregistered table is kept on purpose, whatever the drop has left there.
        with pytest.raises(TableAlreadyExistsError, match="there is data"):
            await ns.write(T, NEW)
        await ns.register_table({"id": T, "location": f"{properties['root']}/a/t"})
        assert (await ns.open(T)).count_rows() == 6
        await ns.drop_table({"id": T})
        await ns.write(T, NEW)
        assert (await ns.open(T)).to_table() == NEW


@pytest.mark.parametrize("kept_by", ["rename", "deregister"])
async def test_data_that_is_kept_on_purpose_outlasts_a_drop_that_was_cut_off(
    server: FakeIceberg, properties: Mapping[str, str], kept_by: str
) -> None:
    location = await written(properties)
    with server.hold("^DELETE ") as hold, dropping(properties):
        await hold.reached(within=STARTED_WITHIN)
        server.stop()
    server.start()
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        if kept_by == "rename":
            await ns.rename_table({"id": T, "new_table_name": "u"})
        else:
            await ns.deregister_table({"id": T})
        with pytest.raises(TableNotFoundError):
            await ns.drop_table({"id": T})
        with pytest.raises(TableAlreadyExistsError, match="there is data"):
            await ns.write(T, NEW)
        assert rows(location) == OLD.to_pylist()


@pytest.mark.parametrize("then", ["write", "drop"])
async def test_a_kill_while_the_catalog_acts_leaves_a_name_that_can_be_used(
    server: FakeIceberg, properties: Mapping[str, str], then: str
) -> None:
    location = await written(properties)
    with server.hold("^DELETE ") as hold, dropping(properties) as process:
        await hold.reached(within=STARTED_WITHIN)
        process.kill()
        process.wait()
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        assert not await ns.exists(T)
        assert rows(location) == OLD.to_pylist()
        if then == "drop":
            await ns.drop_table({"id": T})
            assert rows(location) is None
            with pytest.raises(TableNotFoundError):
                await ns.drop_table({"id": T})
        await ns.write(T, NEW)
        assert (await ns.open(T)).to_table() == NEW


async def test_a_table_that_others_renamed_keeps_what_a_drop_has_marked(
    server: FakeIceberg, properties: Mapping[str, str]
) -> None:
    location = await written(properties)
    with server.hold("^DELETE ") as hold, dropping(properties):
        await hold.reached(within=STARTED_WITHIN)
        server.stop()
    server.start()
    ends = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["a"], "name": "u"}}
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        async with httpx.AsyncClient(trust_env=False) as another:
            (await another.post(f"{server.endpoint}/v1/tables/rename", json=ends)).raise_for_status()
        with pytest.raises(TableAlreadyExistsError, match="there is data"):
            await ns.write(T, NEW)
        with pytest.raises(TableNotFoundError):
            await ns.drop_table({"id": T})
        assert rows(location) == OLD.to_pylist()


@pytest.mark.parametrize(
    ("match", "then"),
    [(FIRST, "write"), (LATEST, "write"), ("data/", "write"), (FIRST, "declare"), (FIRST, "drop"), ("data/", "drop")],
)
async def test_a_kill_while_data_is_deleted_leaves_a_name_that_can_be_used(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], match: str, then: str
) -> None:
    location = await written(on_s3)
    with s3.hold(f"delete .*({match})") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        # A reader by path never finds an older version than the latest.
        assert rows(location, storage_options=s3.options) == (None if match == "data/" else OLD.to_pylist())
        process.kill()
        process.wait()
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        assert not await ns.exists(T)
        if then == "write":
            await ns.write(T, NEW)
            assert (await ns.open(T)).to_table() == NEW
        elif then == "declare":
            await ns.declare_table({"id": T})
            assert rows(location, storage_options=s3.options) is None
        elif match == "data/":
            with pytest.raises(TableNotFoundError):
                await ns.drop_table({"id": T})
        else:
            await ns.drop_table({"id": T})
            assert rows(location, storage_options=s3.options) is None


async def test_a_drop_under_way_is_left_to_its_process(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str]
) -> None:
    await written(on_s3)
    with s3.hold("delete .*_versions") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        async with AsyncNamespace.connect("iceberg", on_s3) as ns:
            with pytest.raises(TableAlreadyExistsError, match=r"if a drop of it is running, try again"):
                await ns.write(T, NEW)
            with pytest.raises(TableNotFoundError):
                await ns.drop_table({"id": T})
            hold.release()
            assert process.wait() == 0
            await ns.write(T, NEW)
            assert (await ns.open(T)).to_table() == NEW


async def test_a_version_written_since_the_drop_was_cut_off_is_never_deleted(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str]
) -> None:
    location = await written(on_s3)
    with s3.hold(f"delete .*{FIRST}") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        process.kill()
        process.wait()
    lance.write_dataset(OLD, location, mode="append", storage_options=s3.options)
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        with pytest.raises(TableAlreadyExistsError):
            await ns.write(T, NEW)
        with pytest.raises(TableNotFoundError):
            await ns.drop_table({"id": T})
    assert len(rows(location, storage_options=s3.options) or []) == 6


@pytest.mark.parametrize("match", [LATEST, "data/"])
async def test_a_version_committed_during_a_drop_goes_with_the_table(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], match: str
) -> None:
    """Otherwise it would be unknown, and would prevent the next table of that name."""
    location = await written(on_s3)
    late = lance.dataset(location, storage_options=s3.options)
    with s3.hold(f"delete .*{match}") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        lance.write_dataset(OLD, late, mode="append", storage_options=s3.options)
        hold.release()
        assert process.wait() == 0
    assert LanceFileSession(location, storage_options=s3.options).list() == []
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        await ns.write(T, NEW)
        assert (await ns.open(T)).to_table() == NEW


async def test_a_version_committed_to_a_name_registered_during_a_drop_stays(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str]
) -> None:
    location = await written(on_s3)
    with s3.hold(f"delete .*{LATEST}") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        async with AsyncNamespace.connect("iceberg", on_s3) as ns:
            await ns.register_table({"id": T, "location": location})
            await ns.write(T, NEW, mode="overwrite")
            hold.release()
            assert process.wait() == 0
            assert (await ns.open(T)).to_table() == NEW


@pytest.mark.parametrize("killed", [False, True])
async def test_metadata_written_during_a_drop_belongs_to_the_next_table(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], tmp_path: Path, killed: bool
) -> None:
    """A catalog that registers the name again writes its own file there before any client knows of it."""
    location = await written(on_s3)
    files = LanceFileSession(location, storage_options=s3.options)
    (tmp_path / "metadata").write_text(json.dumps(server.metadata(["a"], "t")))
    files.upload_file(str(tmp_path / "metadata"), "metadata/00000-old.metadata.json")
    (tmp_path / "metadata").write_text(json.dumps({"table-uuid": str(uuid4())}))
    files.upload_file(str(tmp_path / "metadata"), "metadata/00000-early.metadata.json")
    with s3.hold(f"delete .*{FIRST}") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        files.upload_file(str(tmp_path / "metadata"), "metadata/00000-new.metadata.json")
        if killed:
            process.kill()
        else:
            hold.release()
        process.wait()
    if killed:
        async with AsyncNamespace.connect("iceberg", on_s3) as ns:
            await ns.drop_table({"id": T})
    assert sorted(files.list()) == ["metadata/00000-early.metadata.json", "metadata/00000-new.metadata.json"]


async def test_data_deregistered_by_others_during_a_drop_stays(
    server: FakeIceberg, properties: Mapping[str, str]
) -> None:
    location = await written(properties)
    async with AsyncNamespace.connect("iceberg", properties) as ns, httpx.AsyncClient(trust_env=False) as another:
        with server.hold("^DELETE .*purgeRequested=false") as hold:
            dropped = asyncio.create_task(ns.drop_table({"id": T}))
            await hold.reached(within=STARTED_WITHIN)
            (await another.delete(f"{server.endpoint}/v1/namespaces/a/tables/t")).raise_for_status()
            hold.release()
            with pytest.raises(TableNotFoundError):
                await dropped
        with pytest.raises(TableAlreadyExistsError, match="there is data"):
            await ns.write(T, NEW)
    assert rows(location) == OLD.to_pylist()


@pytest.mark.parametrize(("status", "error"), [(403, PermissionDeniedError), (503, ServiceUnavailableError)])
async def test_a_drop_that_the_catalog_refuses_deletes_nothing(
    server: FakeIceberg, ns: AsyncNamespace, properties: Mapping[str, str], status: int, error: type[Exception]
) -> None:
    location = await written(properties)
    before = files(location)
    server.fail(status, match="^DELETE ", times=None)
    with pytest.raises(error):
        await ns.drop_table({"id": T})
    assert files(location) == before
    assert (await ns.open(T)).to_table() == OLD


async def test_a_place_that_two_tables_share_is_not_deleted(ns: AsyncNamespace) -> None:
    """Declared, renamed, and declared again: both have the default location of the first name."""
    await ns.declare_table({"id": T})
    await ns.rename_table({"id": T, "new_table_name": "u"})
    await ns.write(T, OLD)
    with pytest.raises(InvalidTableStateError, match=r"a\$t"):
        await ns.drop_table({"id": ["a", "u"]})
    assert (await ns.open(T)).to_table() == OLD
    await ns.deregister_table({"id": ["a", "u"]})
    await ns.drop_table({"id": T})
    assert not await ns.exists(T)


async def test_a_default_location_of_another_hive_database_is_not_deleted(tmp_path: Path) -> None:
    with FakeHive(tmp_path / "hive", version="4.0.1") as hive:
        for database in ("a", "b"):
            hive.add_database("hive", database)
        properties = {"uri": hive.uri, "root": tmp_path.as_uri()}
        async with AsyncNamespace.connect("hive3", properties) as ns:
            await ns.write(["hive", "a", "t"], OLD)
            location = (await ns.describe_table({"id": ["hive", "a", "t"]})).location
            await ns.register_table({"id": ["hive", "b", "u"], "location": location})
            with pytest.raises(InvalidTableStateError, match=r"table hive\$a\$t is also registered at its location"):
                await ns.drop_table({"id": ["hive", "b", "u"]})
            assert rows(str(location)) == OLD.to_pylist()


async def test_the_default_location_of_a_glue_database_is_not_deleted(
    tmp_path: Path,
) -> None:
    with FakeGlue() as glue:
        glue.add_database("", "a", location=(tmp_path / "somewhere").as_uri())
        async with AsyncNamespace.connect("glue", {**glue.properties, "root": tmp_path.as_uri()}) as ns:
            await ns.write(T, OLD)
            location = (await ns.describe_table({"id": T})).location
            await ns.register_table({"id": ["a", "u"], "location": location})
            with pytest.raises(InvalidTableStateError, match=r"a\$t is also registered at its location"):
                await ns.drop_table({"id": ["a", "u"]})
            assert rows(str(location)) == OLD.to_pylist()


@pytest.fixture
async def cut_off(server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str]) -> str:
    """Returns the location of a table whose drop was interrupted during the deletion of data."""
    location = await written(on_s3)
    with s3.hold(f"delete .*{FIRST}") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        process.kill()
        process.wait()
    return location


@pytest.mark.parametrize("kept_by", ["register_table", "deregister_table"])
async def test_a_mark_is_removed_also_where_only_the_catalog_has_credentials(s3: FakeS3, kept_by: str) -> None:
    key = {"s3.access-key-id": "key", "s3.secret-access-key": "hush", "client.region": "us-east-1"}
    vends = [{"prefix": "s3://", "config": {**key, "s3.endpoint": s3.url}}]
    with FakePolaris(base="s3://lake", vends=vends) as polaris:
        polaris.add_catalog("lake")
        async with AsyncNamespace.connect("polaris", polaris.properties) as ns:
            for name in ("a", "b"):
                await ns.create_namespace({"id": ["lake", name]})
            old = ["lake", "a", "t"]
            await ns.write(old, OLD)
            s3.fail(403, match="(?i)(delete|post) .*_versions/", times=None)
            with pytest.raises(PermissionDeniedError, match="no longer registered; its remaining data") as caught:
                await ns.drop_table({"id": old})
            s3.heal()
            location = str(caught.value).rpartition(" is at ")[2]
            if kept_by == "deregister_table":
                # Another client, which does not remove marks, has registered it again.
                polaris.add_table("lake", ["a"], "t", base_location=location)
                await ns.deregister_table({"id": old})
            else:
                await ns.register_table({"id": ["lake", "b", "u"], "location": location})
            with pytest.raises(TableAlreadyExistsError, match="there is data"):
                await ns.write(old, NEW)
        assert rows(location, storage_options=s3.options) == OLD.to_pylist()


async def test_a_mark_that_cannot_be_read_is_not_taken_for_none(
    s3: FakeS3, on_s3: Mapping[str, str], cut_off: str
) -> None:
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        s3.fail(403, match=r"(?i)(get|head) .*\.lance-dropping-", times=None)
        with pytest.raises(PermissionDeniedError):
            await ns.write(T, NEW)
        s3.heal()
        await ns.write(T, NEW)
        assert (await ns.open(T)).to_table() == NEW


async def test_a_name_that_is_not_there_is_not_found_also_where_data_is_left(
    s3: FakeS3, on_s3: Mapping[str, str], cut_off: str
) -> None:
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        s3.fail(403, match=f"(?i)(delete|post) .*{LATEST}", times=None)
        with pytest.raises(TableNotFoundError) as caught:
            await ns.drop_table({"id": T})
        [note] = caught.value.__notes__
        assert cut_off in note and "was not deleted (Permission denied" in note
        s3.heal()
        await ns.drop_table({"id": T})
        assert rows(cut_off, storage_options=s3.options) is None


async def test_a_drop_whose_files_cannot_all_be_looked_at_removes_nothing(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], tmp_path: Path
) -> None:
    location = await written(on_s3)
    files = LanceFileSession(location, storage_options=s3.options)
    (tmp_path / "metadata").write_text(json.dumps(server.metadata(["a"], "t")))
    files.upload_file(str(tmp_path / "metadata"), "metadata/00000-old.metadata.json")
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        s3.fail(400, match=r"(?i)get .*00000-old", times=None)
        with pytest.raises(InternalError):
            await ns.drop_table({"id": T})
        s3.heal()
        assert (await ns.open(T)).to_table() == OLD


async def test_a_drop_whose_time_is_over_deletes_no_more_of_the_names_that_others_use(
    s3: FakeS3, on_s3: Mapping[str, str], server: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = await written(on_s3, versions=20)
    now = time.time()
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        with s3.hold("delete .*_versions/") as hold:
            dropped = asyncio.create_task(ns.drop_table({"id": T}))
            await hold.reached(16)
            monkeypatch.setattr(time, "time", lambda: now + AGES)
            hold.release()
            with pytest.raises(ServiceUnavailableError, match=r"not deleted within .* no longer registered"):
                await dropped
    left = [it for it in LanceFileSession(location, storage_options=s3.options).list("_versions") if "manifest" in it]
    assert len(left) == 20 - 16
    assert rows(location, storage_options=s3.options) == OLD.to_pylist()


async def test_a_drop_leaves_data_that_another_name_got_meanwhile(
    server: FakeIceberg, ns: AsyncNamespace, properties: Mapping[str, str]
) -> None:
    location = await written(properties)
    async with AsyncNamespace.connect("iceberg", properties) as other:
        with server.hold("^DELETE .*/tables/t") as hold:
            dropped = asyncio.create_task(ns.drop_table({"id": T}))
            await hold.reached()
            await other.register_table({"id": ["a", "u"], "location": location})
            hold.release()
            with pytest.raises(
                ConcurrentModificationError, match=r"remaining data was not deleted.*no longer registered"
            ):
                await dropped
        assert (await other.open(["a", "u"])).to_table() == OLD


async def test_a_name_that_was_renamed_away_does_not_give_its_rows(
    server: FakeIceberg, ns: AsyncNamespace, properties: Mapping[str, str]
) -> None:
    """The location is examined before the name is declared, so that no kill can leave both names at one location."""
    await written(properties)
    await ns.rename_table({"id": T, "new_table_name": "u"})
    server.clear()
    for attempt in (ns.write(T, NEW), ns.declare_table({"id": T})):
        with pytest.raises(TableAlreadyExistsError, match="there is data"):
            await attempt
    assert not [it for it in server.requests if it.method == "POST"]
    assert (await ns.open(["a", "u"])).to_table() == OLD


@pytest.mark.parametrize("what", ["deregister_table", "drop_table"])
async def test_a_name_whose_metadata_is_lost_can_be_freed(server: FakeIceberg, ns: AsyncNamespace, what: str) -> None:
    """Iceberg servers list such a table, and return 404 with another type than for a missing one."""
    await ns.declare_table({"id": T})
    lost = {"error": {"message": "Failed to open input stream for file: f", "type": "NotFoundException", "code": 404}}
    server.fail(404, match="^(GET|POST) .*/tables/t", times=None, body=lost)
    with pytest.raises(TableNotFoundError, match="deregister_table frees the name"):
        await ns.describe_table({"id": T})
    with pytest.raises(TableAlreadyExistsError, match="deregister_table frees the name"):
        await ns.declare_table({"id": T})
    await getattr(ns, what)({"id": T})
    server.heal()
    await ns.write(T, NEW)
    assert (await ns.open(T)).to_table() == NEW

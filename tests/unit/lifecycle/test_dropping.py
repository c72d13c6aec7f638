"""Drops that are interrupted at each of their steps, and drops during other changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.file import LanceFileSession

from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.steps import Step, scheduler
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import FakeS3
from tests.support.errors import catch
from tests.support.processes import started

pytestmark = [pytest.mark.environment, pytest.mark.long]
OLD, NEW = pa.table({"x": [1, 2, 3]}), pa.table({"y": ["new"]})
T: list[str] = ["a", "t"]
FIRST, LATEST = "_versions/18446744073709551614", "_versions/18446744073709551612"
STARTED_WITHIN = 60.0
"""Seconds for a process to start and to reach its hold."""


def drop(_: Connection, properties: Mapping[str, str]) -> None:
    """Drops the table T, in a process of its own."""

    async def main() -> None:
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.drop_table({"id": T})

    asyncio.run(main())


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
def dropping(properties: Mapping[str, str]) -> Iterator[BaseProcess]:
    """Provides a process that drops the table T, and kills it at the end."""
    with started(drop, dict(properties)) as (process, _):
        yield process


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
        result: list[dict[str, Any]] = lance.dataset(location, **options).to_table().to_pylist()
        return result
    except ValueError as e:
        assert "was not found" in str(e)
        return None


async def test_an_early_kill_leaves_the_table(server: FakeIceberg, properties: Mapping[str, str]) -> None:
    await written(properties)
    with server.hold("^DELETE ") as hold, dropping(properties):
        await hold.reached(within=STARTED_WITHIN)
        server.stop()
    server.start()
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        assert (await ns.open(T)).to_table() == OLD
        await ns.write(T, OLD, mode="append")
        location = (await ns.describe_table({"id": T})).location
        await ns.deregister_table({"id": T})
        await ns.write(T, NEW)
        await ns.drop_table({"id": T})
        await ns.register_table({"id": T, "location": location})
        assert (await ns.open(T)).count_rows() == 6


@pytest.mark.parametrize("match", [FIRST, LATEST, "data/"])
async def test_a_late_kill_frees_the_name(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], match: str
) -> None:
    location = await written(on_s3)
    with s3.hold(f"delete .*({match})") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        # A reader by path never finds an older version than the latest.
        assert rows(location, storage_options=s3.options) == (None if match == "data/" else OLD.to_pylist())
        process.kill()
        process.join()
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        assert not await ns.exists(T)
        server.clear()
        await catch(err.TableNotFoundError, ns.drop_table({"id": T}))
        assert len(server.requests) == 1
        await ns.write(T, NEW)
        assert (await ns.open(T)).to_table() == NEW


@pytest.mark.parametrize("match", [LATEST, "data/"])
async def test_a_version_during_a_drop_blocks_no_name(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], match: str
) -> None:
    late = lance.dataset(await written(on_s3), storage_options=s3.options)
    with s3.hold(f"delete .*{match}") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        lance.write_dataset(OLD, late, mode="append", storage_options=s3.options)
        hold.release()
        process.join()
        assert process.exitcode == 0
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        await ns.write(T, NEW)
        assert (await ns.open(T)).to_table() == NEW
        await ns.drop_table({"id": T})
        assert not await ns.exists(T)


async def test_a_version_of_a_new_registration_stays(server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str]) -> None:
    location = await written(on_s3)
    with s3.hold(f"delete .*{LATEST}") as hold, dropping(on_s3) as process:
        await hold.reached(within=STARTED_WITHIN)
        async with AsyncNamespace.connect("iceberg", on_s3) as ns:
            await ns.register_table({"id": T, "location": location})
            await ns.write(T, NEW, mode="overwrite")
            hold.release()
            process.join()
            assert process.exitcode == 0 and (await ns.open(T)).to_table() == NEW


async def test_metadata_of_others_stays(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], tmp_path: Path
) -> None:
    """A catalog that registers the name again writes its own file there before any client knows of it."""
    properties = {**on_s3, "unique_locations": "false"}
    files = LanceFileSession(await written(properties), storage_options=s3.options)
    (tmp_path / "metadata").write_text(json.dumps(server.metadata(["a"], "t")))
    files.upload_file(str(tmp_path / "metadata"), "metadata/00000-old.metadata.json")
    (tmp_path / "metadata").write_text(json.dumps({"table-uuid": str(uuid4())}))
    files.upload_file(str(tmp_path / "metadata"), "metadata/00000-early.metadata.json")
    with s3.hold(f"delete .*{FIRST}") as hold, dropping(properties) as process:
        await hold.reached(within=STARTED_WITHIN)
        files.upload_file(str(tmp_path / "metadata"), "metadata/00000-new.metadata.json")
        hold.release()
        process.join()
        assert process.exitcode == 0
    assert sorted(files.list()) == ["metadata/00000-early.metadata.json", "metadata/00000-new.metadata.json"]


async def test_data_that_others_deregister_stays(server: FakeIceberg, properties: Mapping[str, str]) -> None:
    location = await written(properties)
    async with AsyncNamespace.connect("iceberg", properties) as ns, httpx.AsyncClient(trust_env=False) as another:
        with server.hold("^DELETE .*purgeRequested=false") as hold:
            dropped = asyncio.create_task(ns.drop_table({"id": T}))
            await hold.reached(within=STARTED_WITHIN)
            (await another.delete(f"{server.endpoint}/v1/namespaces/a/tables/t")).raise_for_status()
            await ns.register_table({"id": ["a", "u"], "location": location})
            hold.release()
            with pytest.raises(err.TableNotFoundError):
                await dropped
        assert (await ns.open(["a", "u"])).to_table() == OLD


@pytest.mark.parametrize(("status", "error"), [(403, err.PermissionDeniedError), (503, err.ServiceUnavailableError)])
async def test_a_refused_drop_deletes_nothing(
    server: FakeIceberg, ns: AsyncNamespace, properties: Mapping[str, str], status: int, error: type[Exception]
) -> None:
    location = await written(properties)
    before = files(location)
    server.fail(status, match="^DELETE ", times=None)
    await catch(error, ns.drop_table({"id": T}))
    assert files(location) == before and (await ns.open(T)).to_table() == OLD


@pytest.mark.parametrize("folder", ["mine", "mine-3f9a01c2b7d4"])
async def test_foreign_files_stay_without_a_version(ns: AsyncNamespace, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder / "data").mkdir(parents=True)
    (tmp_path / folder / "data" / "raw.csv").write_text("1")
    await ns.declare_table({"id": T, "location": (tmp_path / folder).as_uri()})
    await ns.drop_table({"id": T})
    assert (tmp_path / folder / "data" / "raw.csv").read_text() == "1" and not await ns.exists(T)


async def test_data_files_of_a_writer_that_died_go_with_the_table(ns: AsyncNamespace, tmp_path: Path) -> None:
    location = (await ns.declare_table({"id": T})).location
    lance.fragment.write_fragments(OLD, str(location))
    # Of a writer that was killed while it wrote the file.
    folder = tmp_path / str(location).removeprefix(f"{tmp_path.as_uri()}/")
    (folder / "data" / "x.lance#1").touch()
    assert files(str(location))
    await ns.drop_table({"id": T})
    assert not folder.exists()


async def test_an_alias_in_another_database_leaves_the_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with FakeHive(tmp_path / "hive", version="4.0.1") as hive:
        for database in ("a", "b"):
            hive.add_database("hive", database)
        properties = {"uri": hive.uri, "root": tmp_path.as_uri(), "allow_aliases": "true"}
        async with AsyncNamespace.connect("hive3", properties) as ns:
            await ns.write(["hive", "a", "t"], OLD)
            location = (await ns.describe_table({"id": ["hive", "a", "t"]})).location
            await ns.register_table({"id": ["hive", "b", "u"], "location": location})
            await ns.drop_table({"id": ["hive", "b", "u"]})
            assert not await ns.exists(["hive", "b", "u"]) and rows(str(location)) == OLD.to_pylist()
    assert "hive$b$u was only deregistered, because table hive$a$t is also at" in caplog.text


@pytest.mark.glue
async def test_an_alias_in_a_glue_database_with_a_location_leaves_the_data(tmp_path: Path) -> None:
    with FakeGlue() as glue:
        glue.add_database("", "a", location=(tmp_path / "somewhere").as_uri())
        properties = {**glue.properties, "root": tmp_path.as_uri(), "allow_aliases": "true"}
        async with AsyncNamespace.connect("glue", properties) as ns:
            await ns.write(T, OLD)
            location = (await ns.describe_table({"id": T})).location
            await ns.register_table({"id": ["a", "u"], "location": location})
            await ns.drop_table({"id": ["a", "u"]})
            assert rows(str(location)) == OLD.to_pylist()


async def test_unreadable_files_are_not_removed(
    server: FakeIceberg, s3: FakeS3, on_s3: Mapping[str, str], tmp_path: Path
) -> None:
    properties = {**on_s3, "unique_locations": "false"}
    files = LanceFileSession(await written(properties), storage_options=s3.options)
    (tmp_path / "metadata").write_text(json.dumps(server.metadata(["a"], "t")))
    files.upload_file(str(tmp_path / "metadata"), "metadata/00000-old.metadata.json")
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        s3.fail(400, match=r"(?i)get .*00000-old", times=None)
        await catch(err.InternalError, ns.drop_table({"id": T}))
        s3.heal()
        assert (await ns.open(T)).to_table() == OLD


async def test_an_abandoned_drop_deletes_no_more(s3: FakeS3, on_s3: Mapping[str, str], server: FakeIceberg) -> None:
    location = await written(on_s3, versions=20)
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        with s3.hold("delete .*_versions/") as hold:
            dropped = asyncio.create_task(ns.drop_table({"id": T}))
            await hold.reached(16)
            dropped.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await dropped
            hold.release()
    assert f"its remaining data is at {location}" in caught.value.__notes__[0]
    files = LanceFileSession(location, storage_options=s3.options)
    assert rows(location, storage_options=s3.options) == OLD.to_pylist()
    assert len([it for it in files.list("_versions") if "manifest" in it]) >= 20 - 16


async def test_undeleted_files_are_reported(s3: FakeS3, on_s3: Mapping[str, str], server: FakeIceberg) -> None:
    location = await written(on_s3)
    async with AsyncNamespace.connect("iceberg", on_s3) as ns:
        s3.fail(403, match=f"(?i)(delete|post) .*{LATEST}", times=None)
        with pytest.raises(err.PermissionDeniedError, match="no longer registered; its remaining data is at") as caught:
            await ns.drop_table({"id": T})
        assert location in str(caught.value) and not await ns.exists(T)


async def test_a_failed_check_names_the_location(
    server: FakeIceberg, ns: AsyncNamespace, properties: Mapping[str, str]
) -> None:
    location = await written(properties)
    before = files(location)

    @asynccontextmanager
    async def refuse_listings(step: Step) -> AsyncIterator[None]:
        yield
        if step.name == "deregister_table":
            server.fail(500, match=r"^GET .*/tables(\?|$)", times=None)

    token = scheduler.set(refuse_listings)
    caught = await catch(err.InternalError, ns.drop_table({"id": T}), "no longer registered; its remaining data is at")
    scheduler.reset(token)
    assert location in str(caught.value) and files(location) == before


@pytest.mark.parametrize("what", ["deregister_table", "drop_table"])
async def test_a_name_whose_metadata_is_lost_can_be_freed(server: FakeIceberg, ns: AsyncNamespace, what: str) -> None:
    """Iceberg servers list such a table, and return 404 with another type than for a missing one."""
    await ns.declare_table({"id": T})
    lost = {"error": {"message": "Failed to open input stream for file: f", "type": "NotFoundException", "code": 404}}
    server.fail(404, match="^(GET|POST) .*/tables/t", times=None, body=lost)
    await catch(err.TableNotFoundError, ns.describe_table({"id": T}), "deregister_table frees the name")
    await catch(err.TableAlreadyExistsError, ns.declare_table({"id": T}), "deregister_table frees the name")
    await getattr(ns, what)({"id": T})
    server.heal()
    await ns.write(T, NEW)
    assert (await ns.open(T)).to_table() == NEW

"""A copy is killed five times and resumed: nothing is lost, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId
from tests.consistency import copies
from tests.consistency.copies import Job
from tests.contract.real_sites import hive_site
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.support.budget import rounds, with_usual

pytestmark = pytest.mark.long


COUNT = rounds(90, 300)
KILLS = 5


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[tuple[str, dict[str, str], NamespaceId]]:
    (tmp_path / "hive").mkdir()
    with FakeHive(tmp_path / "hive") as server:
        site = hive_site(server.uri, tmp_path)
        yield site.impl, {**site.properties}, site.above.child("home")


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        yield server


def properties(server: FakeIceberg, tmp_path: Path) -> dict[str, str]:
    return {"endpoint": server.endpoint, "root": (tmp_path / "iceberg").as_uri()}


async def plant(impl: str, properties: dict[str, str], home: NamespaceId, count: int, tmp_path: Path) -> None:
    async with AsyncNamespace.connect(impl, properties) as ns:
        await ns.create_namespace({"id": list(home), "mode": "exist_ok"})
        for i in range(count):
            location = (tmp_path / "data" / f"t{i}").as_uri()
            await ns.declare_table({"id": [*home, f"t{i}"], "location": location, "properties": {"i": str(i)}})


@pytest.mark.parametrize("seed", with_usual(range(3), 0))
async def test_a_copy_that_is_killed_goes_on(
    seed: int, hive: tuple[str, dict[str, str], NamespaceId], iceberg: FakeIceberg, tmp_path: Path
) -> None:
    impl, where, home = hive
    await plant(impl, where, home, COUNT, tmp_path)
    arguments = {"to": {str(home): "lake"}, "journal": str(tmp_path / "journal")}
    job = Job((impl, where), ("iceberg", properties(iceberg, tmp_path)), f"{home}$*", arguments)
    outcome = copies.run(job, changes=COUNT, kills=KILLS, seed=seed)
    finish = outcome.finish
    assert not finish.problems and finish.counts == {"created": COUNT}, outcome.kills
    assert set(finish.targets.values()) == {1} and len(finish.targets) == COUNT
    assert await copies.differences(job, "lake") == (COUNT, [])
    declarations = [it for it in iceberg.requests if it.method == "POST" and "/namespaces/lake/" in it.path]
    assert len(declarations) == COUNT, "a table was declared twice"
    again = copies.finish(job)
    assert again.counts == {"unchanged": COUNT} and not again.changes and not again.resumed


async def test_a_sync_that_is_killed_goes_on(
    hive: tuple[str, dict[str, str], NamespaceId], iceberg: FakeIceberg, tmp_path: Path
) -> None:
    impl, where, home = hive
    await plant(impl, where, home, COUNT, tmp_path)
    target = properties(iceberg, tmp_path)
    # A third is extra, a third differs, and a third is missing.
    third = COUNT // 3
    for i in range(third):
        table_properties = {"table_type": "lance", "i": "old"}
        iceberg.add_table(["lake"], f"t{i}", properties=table_properties, location=f"file:///old/t{i}")
        iceberg.add_table(["lake"], f"extra{i}", properties=table_properties, location=f"file:///old/extra{i}")
    arguments = {"to": {str(home): "lake"}, "mode": "sync", "delete": True, "journal": str(tmp_path / "journal")}
    job = Job((impl, where), ("iceberg", target), f"{home}$*", arguments)
    outcome = copies.run(job, changes=COUNT + third, kills=KILLS, seed=1)
    finish = outcome.finish
    expected = {"created": COUNT - third, "changed": third, "deregistered": third}
    assert not finish.problems and finish.counts == expected, (outcome.kills, finish)
    assert set(finish.targets.values()) == {1}
    assert await copies.differences(job, "lake") == (COUNT, [])
    again = copies.finish(job)
    assert again.counts == {"unchanged": COUNT} and not again.changes


async def test_a_clone_that_is_killed_goes_on(tmp_path: Path) -> None:
    count = 120
    source, target = {"root": str(tmp_path / "source")}, {"root": str(tmp_path / "target")}
    rows = pa.table({"id": [1, 2, 3]})
    async with AsyncNamespace.connect("dir", source) as ns:
        await ns.create_namespace({"id": ["home"]})
        for i in range(count):
            made = await ns.declare_table({"id": ["home", f"t{i}"], "properties": {"i": str(i)}})
            lance.write_dataset(rows, made.location)
    arguments = {"data": True, "journal": str(tmp_path / "journal")}
    job = Job(("dir", source), ("dir", target), "home$*", arguments)
    outcome = copies.run(job, changes=count, kills=KILLS, seed=2)
    finish = outcome.finish
    assert not finish.problems and finish.counts == {"created": count}, (outcome.kills, finish)
    assert await copies.differences(job, "home") == (count, [])
    async with AsyncNamespace.connect("dir", target) as ns:
        tables = (await ns.describe_tables([["home", f"t{i}"] for i in range(count)])).raise_for_errors().tables
    assert all(lance.dataset(table.location).to_table() == rows for table in tables.values())
    folders = {it.parent for it in (tmp_path / "target").rglob("_versions") if "__manifest" not in str(it)}
    assert len(folders) == count, "a clone was left without a table"

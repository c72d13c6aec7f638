"""Copies of more tables than a page has: the target's own log of requests shows what was changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DeregisterTableRequest, RegisterTableRequest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.fleet.copies import copy
from tests.contract.real_sites import hive_site
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity
from tests.support.budget import with_usual
from tests.support.lake import table_counts

pytestmark = pytest.mark.long
COUNT = 110
Place = tuple[str, dict[str, str], NamespaceId, Callable[[], list[str]]]
"""A kind of catalog, its properties, where namespaces of tables can be, and the changes in the log of the server."""


def http_changes(server: Any) -> list[str]:
    requests = [it for it in server.requests if it.method not in ("GET", "HEAD") and "/oauth/" not in it.path]
    return [f"{it.method} {it.path}" for it in requests]


@contextmanager
def iceberg(tmp: Path) -> Iterator[Place]:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp.as_uri()}
        yield "iceberg", properties, NamespaceId(), lambda: http_changes(server)


@contextmanager
def polaris(tmp: Path) -> Iterator[Place]:
    with FakePolaris(base=tmp.as_uri()) as server:
        server.add_catalog("lake")
        yield "polaris", server.properties, NamespaceId(["lake"]), lambda: http_changes(server)


@contextmanager
def unity(tmp: Path) -> Iterator[Place]:
    with FakeUnity() as server:
        properties = {"endpoint": server.endpoint, "catalog": "main", "root": tmp.as_uri()}
        yield "unity", properties, NamespaceId(["main"]), lambda: http_changes(server)


@contextmanager
def hive(tmp: Path) -> Iterator[Place]:
    with FakeHive(tmp / "hive") as server:
        site = hive_site(server.uri, tmp)
        changes = ("create", "alter", "drop")
        yield site.impl, {**site.properties}, site.above, lambda: [it for it in server.calls if it.startswith(changes)]


@contextmanager
def glue(tmp: Path) -> Iterator[Place]:
    with FakeGlue() as server:
        properties = {**server.properties, "root": tmp.as_uri()}
        yield "glue", properties, NamespaceId(), lambda: [it for it in server.calls if not it.startswith("Get")]


Open = Callable[[Path], AbstractContextManager[Place]]


@pytest.mark.parametrize(
    ("open_source", "open_target"),
    with_usual(
        [(iceberg, polaris), (hive, iceberg), (glue, unity), (unity, hive), (polaris, glue), (unity, unity)],
        (hive, iceberg),
        (glue, unity),
    ),
    ids=lambda open: open.__wrapped__.__name__,
)
async def test_a_target_follows_its_source(open_source: Open, open_target: Open, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    with open_source(tmp_path / "source") as first, open_target(tmp_path / "target") as second:
        source_impl, source_properties, source_above, _ = first
        target_impl, target_properties, target_above, changes = second
        home = source_above.child("home")
        to = {str(source_above) if source_above else "": str(target_above) if target_above else ""}
        async with (
            AsyncNamespace.connect(source_impl, source_properties) as source,
            AsyncNamespace.connect(target_impl, target_properties) as target,
        ):

            def location(name: str) -> str:
                return (tmp_path / "data" / name).as_uri()

            async def compare() -> None:
                originals = await states(source, home)
                assert originals == await states(target, target_above.child("home"))
                before = len(changes())
                report = await copy(source, target, home, to=to, mode="sync", delete=True)
                assert table_counts(report) == {"unchanged": len(originals)} and len(changes()) == before

            await source.create_namespace(CreateNamespaceRequest(id=list(home)))
            for i in range(COUNT):
                request = DeclareTableRequest(id=[*home, f"t{i}"], location=location(f"t{i}"), properties={"i": str(i)})
                await source.declare_table(request)
            report = await copy(source, target, home, to=to)
            assert table_counts(report) == {"created": COUNT}
            await compare()
            await source.deregister_table(DeregisterTableRequest(id=[*home, "t0"]))
            for name, place in (("t1", "moved"), ("t2", "t2")):
                moved = RegisterTableRequest(id=[*home, name], location=location(place), properties={"new": "1"})
                # Not every source can change a registration.
                await source.deregister_table(DeregisterTableRequest(id=moved.id))
                await source.register_table(moved)
            await source.declare_table(DeclareTableRequest(id=[*home, "extra"], location=location("extra")))
            report = await copy(source, target, home, to=to)
            assert table_counts(report) == {"created": 1, "conflict": 2, "unchanged": COUNT - 3}
            report = await copy(source, target, home, to=to, mode="sync", delete=True, dry_run=True)
            expected = {"changed": 2, "deregistered": 1, "unchanged": COUNT - 2}
            assert table_counts(report) == expected
            assert len(await states(target, target_above.child("home"))) == COUNT + 1
            report = await copy(source, target, home, to=to, mode="sync", delete=True)
            assert table_counts(report) == expected
            await compare()


async def states(ns: AsyncNamespace, home: NamespaceId) -> dict[str, tuple[str, dict[str, str]]]:
    """Returns the location and the properties of each table, those of the catalog left out."""
    ids: list[TableId] = [id async for id in ns.iter_tables(home)]
    tables = (await ns.describe_tables(ids)).raise_for_errors().tables
    return {
        id.name: (table.location, {key: it for key, it in (table.properties or {}).items() if key in (("i", "new"))})
        for id, table in tables.items()
    }


async def test_a_namespace_that_the_target_cannot_have_is_refused_and_the_rest_is_copied(tmp_path: Path) -> None:
    impossible = (["v1.2"], ["holder.lance"], ["holder.lance", "inner"])
    with FakeIceberg() as server:
        async with (
            AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as source,
            AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as target,
        ):
            for namespace in (*impossible, ["ok"]):
                await source.create_namespace(CreateNamespaceRequest(id=namespace))
                if namespace != ["holder.lance"]:
                    await source.declare_table(DeclareTableRequest(id=[*namespace, "t"]))
            assert table_counts(await copy(source, target, ["**"])) == {"refused": 2, "not tried": 1}
            assert http_changes(server) == []
            report = await copy(source, target, ["**"], partial=True)
            assert table_counts(report) == {"refused": 2, "created": 1}
            assert {str(row.id) for row in report.having("refused")} == {"v1.2$t", "holder.lance$inner$t"}
            assert all("cannot address a level" in row.reason for row in report.problems)
            assert [id async for id in target.iter_tables(recursive=True)] == [TableId(["ok", "t"])]


async def test_a_dry_run_refuses_what_only_an_administrator_can_create(tmp_path: Path) -> None:
    with FakePolaris(base=tmp_path.as_uri()) as server:
        server.add_catalog("lake")
        async with (
            AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as source,
            AsyncNamespace.connect("polaris", server.properties) as target,
        ):
            await source.create_namespace(CreateNamespaceRequest(id=["sales"]))
            await source.declare_table(DeclareTableRequest(id=["sales", "t"]))
            for home, outcome in (("gone.s", "refused"), ("lake.s", "created")):
                report = await copy(source, target, ["**"], to={"sales": home}, dry_run=True)
                assert table_counts(report) == {outcome: 1}, report

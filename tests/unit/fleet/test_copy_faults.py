"""Copies between catalogs of each kind, which may fail, and copies with bad input."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DescribeNamespaceRequest
from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from lance_ns_async import AsyncNamespace, Call, NamespaceId, Policy, TableId
from lance_ns_async.fleet.copies import copy
from lance_ns_async.model import place_of
from tests.contract.site import Site
from tests.contract.sites import REAL, SITES, VARIANTS
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.support.budget import with_usual
from tests.support.lake import table_counts

QUICK = Policy(max_retries=1, backoff_initial=0.0, backoff_max=0.0)
LANCE = {"table_type": "lance"}


@dataclass(frozen=True)
class Pair:
    """A source with tables, and an empty target."""

    source_server: FakeIceberg
    target_server: FakeIceberg
    source: AsyncNamespace
    target: AsyncNamespace

    def add_other_table(self, *names: str, namespace: str = "sales") -> None:
        for name in names:
            place = f"file:///data/{namespace}/{name}"
            self.source_server.add_table([namespace], name, properties=LANCE, location=place)

    def changes(self) -> list[str]:
        return [it.path for it in self.target_server.requests if it.method not in ("GET", "HEAD")]

    async def names(self, namespace: str = "sales") -> set[str]:
        return {id.name async for id in self.target.iter_tables([namespace])}


@pytest.fixture
def servers() -> Iterator[tuple[FakeIceberg, FakeIceberg]]:
    with FakeIceberg() as source, FakeIceberg() as target:
        yield source, target


@pytest.fixture
async def pair(servers: tuple[FakeIceberg, FakeIceberg]) -> AsyncIterator[Pair]:
    first, second = ({"endpoint": server.endpoint, "root": "file:///data"} for server in servers)
    async with (
        AsyncNamespace.connect("iceberg", first, policy=QUICK) as source,
        AsyncNamespace.connect("iceberg", second, policy=QUICK) as target,
    ):
        yield Pair(*servers, source, target)


async def test_a_copy_within_one_catalog_gives_no_location_a_second_name(pair: Pair) -> None:
    with pytest.raises(InvalidInputError, match="source and target are the same catalog"):
        await copy(pair.source, pair.source, "**", to="backup")
    assert not pair.source_server.requests


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"mode": "mirror"}, "mode 'mirror'"),
        ({"delete": True}, "delete: needs mode 'sync'"),
        ({"delete": True, "mode": "sync", "to": lambda id: id}, "traced back"),
        ({"take_over": True, "data": True}, "omit one of take_over and data"),
        ({"what": "sales..t"}, "non-empty string"),
    ],
)
async def test_arguments_that_contradict_are_refused(pair: Pair, arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await copy(pair.source, pair.target, **arguments)  # type: ignore[arg-type]
    assert not pair.source_server.requests and not pair.target_server.requests


async def test_nothing_is_changed_if_two_tables_would_have_one_name(pair: Pair) -> None:
    pair.add_other_table("orders", "stock")
    pair.add_other_table("orders", namespace="archive")
    to = {"sales": "all", "archive": "all"}
    report = await copy(pair.source, pair.target, to=to)
    assert table_counts(report) == {"refused": 2, "not tried": 1} and not pair.changes()
    report = await copy(pair.source, pair.target, to=to, partial=True)
    assert table_counts(report) == {"refused": 2, "created": 1} and await pair.names("all") == {"stock"}


async def test_missing_tables_and_namespaces_are_reported(pair: Pair) -> None:
    pair.add_other_table("orders")
    report = await copy(pair.source, pair.target, ["sales.orders", "sales.gone", NamespaceId(["nowhere"])])
    assert table_counts(report) == {"missing": 2, "created": 1}


async def test_a_listing_that_is_denied_prevents_removals(pair: Pair) -> None:
    pair.add_other_table("a", "b")
    pair.add_other_table("c", namespace="stock")
    await copy(pair.source, pair.target)
    pair.source_server.fail(403, match="/namespaces/stock/tables", times=None)
    report = await copy(pair.source, pair.target, mode="sync", delete=True)
    assert table_counts(report) == {"denied": 1, "unchanged": 2} and await pair.names("stock") == {"c"}
    pair.source_server.heal()
    report = await copy(pair.source, pair.target, "sales.**", mode="sync", delete=True)
    assert table_counts(report) == {"unchanged": 2} and await pair.names("stock") == {"c"}


async def test_a_target_that_cannot_be_read_ends_the_copy(pair: Pair) -> None:
    pair.add_other_table("a")
    pair.target_server.fail(403, match="/namespaces/sales", times=None)
    with pytest.raises(PermissionDeniedError):
        await copy(pair.source, pair.target)
    assert not pair.changes()


async def test_tables_fail_with_their_namespace(pair: Pair) -> None:
    pair.add_other_table("a", "b")
    pair.add_other_table("c", namespace="stock")
    with FakePolaris(base="file:///data") as server:
        server.add_catalog("lake")
        server.fail(403, match="POST /api/catalog/v1/lake/namespaces", times=1)
        async with AsyncNamespace.connect("polaris", server.properties, policy=QUICK) as polaris:
            report = await copy(pair.source, polaris, "sales.*", to={"sales": "lake.new.sales"})
            assert table_counts(report) == {"denied": 4}
            assert str(report.problems).count("the namespace lake$new could not be created") == 3
            assert [it.method for it in server.requests if "generic-tables" in it.path] == []


async def test_a_target_that_ends_in_the_middle_is_completed_by_the_journal(pair: Pair, tmp_path: Path) -> None:
    names = {f"t{number:03}" for number in range(100)}
    pair.add_other_table(*names)
    journal = tmp_path / "journal"
    declared = 0

    def cut_connections(call: Call) -> None:
        # The server keeps its port, which a server of another test could otherwise take.
        nonlocal declared
        declared += call.operation == "declare_table"
        if declared == 25:
            pair.target_server.cut(times=None)

    with pair.target.observe(cut_connections):
        report = await copy(pair.source, pair.target, journal=journal)
    counts = table_counts(report)
    assert set(counts) == {"created", "failed"} and sum(counts.values()) == 100 and counts["failed"] > 25
    pair.target_server.heal()
    async with AsyncNamespace.connect("iceberg", {"endpoint": pair.target_server.endpoint}) as target:
        report = await copy(pair.source, target, journal=journal)
        assert table_counts(report) == {"created": 100} and await pair.names() == names
        assert len({row.fields["target"] for row in report.rows if "target" in row.fields}) == 100
        pair.target_server.clear()
        report = await copy(pair.source, target, journal=journal)
    assert table_counts(report) == {"unchanged": 100} and not pair.changes()


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        ({"what": "stock.**"}, "what is"),
        ({"what": "sales.**", "mode": "sync"}, "mode is"),
        ({"what": "sales.**", "to": "lake"}, "to is"),
        ({"what": "sales.**", "rename": "lower"}, "rename is"),
        ({"what": "sales.**", "data": True}, "data is"),
    ],
)
async def test_a_foreign_journal_is_refused(
    pair: Pair, tmp_path: Path, arguments: dict[str, object], difference: str
) -> None:
    pair.add_other_table("orders", "returns")
    journal = tmp_path / "journal"
    pair.target_server.fail(403, match="POST .*/sales/", times=1)
    assert table_counts(await copy(pair.source, pair.target, "sales.**", journal=journal))["denied"] == 1
    pair.source_server.clear()
    pair.target_server.clear()
    with pytest.raises(InvalidInputError, match=rf"belongs to another run \({difference}"):
        await copy(pair.source, pair.target, **arguments, journal=journal)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"belongs to another run \((source|target) is"):
        await copy(pair.target, pair.source, "sales.**", journal=journal)
    assert not pair.source_server.requests and not pair.target_server.requests
    report = await copy(pair.source, pair.target, "sales.**", journal=journal)
    assert table_counts(report) == {"created": 2} and report.resumed == 1


async def test_after_a_401_the_rest_fails_without_a_call(pair: Pair) -> None:
    pair.add_other_table(*(f"t{number:03}" for number in range(200)))
    await copy(pair.source, pair.target, "sales.t000")
    pair.target_server.clear()
    pair.target_server.fail(401, match="/tables/", times=None)
    report = await copy(pair.source, pair.target, "sales.t1*")
    assert table_counts(report) == {"denied": 100} and "not authenticated" in str(report.problems)
    assert len(pair.changes()) < 70


async def test_names_of_other_formats_are_conflicts(pair: Pair) -> None:
    pair.add_other_table("orders", "view")
    pair.target_server.add_table(["sales"], "view", properties={}, location="file:///other")
    report = await copy(pair.source, pair.target, mode="sync", delete=True)
    assert table_counts(report) == {"conflict": 1, "created": 1}
    assert report.problems[0].id == TableId(["sales", "view"])


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
            assert not [it.path for it in server.requests if it.method not in ("GET", "HEAD")]
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


REST = "rest-on-a-gateway-to-iceberg"
"""A server of the protocol in front of the catalog that adds the most properties to its tables."""

NAMES = [
    *(name for name in SITES if name not in REAL | VARIANTS.keys() and not name.startswith(("rest-", "dir-"))),
    REST,
]
"""One site of each backend."""

RUNS: list[Any] = [{"mode": "create"}, {"mode": "sync"}, {"mode": "sync", "delete": True}]
"""The options of runs, none of which changes a target that is like its source."""

MORE_THAN_A_PAGE = ("unity-fake", "glue")
"""The source and the target with more tables than a page of theirs has."""

_CHANGES = set(
    """
    create_namespace declare_table declare_tables deregister_table drop_table register_table rename_table
    replace_table
""".split()
)
_numbers = itertools.count()
Open = Callable[[str, str], Site]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def open_site(base: Path) -> Iterator[Open]:
    """Opens a site as a source or as a target, each once; a target directory contains a source directory."""
    sites: dict[tuple[str, str], Site] = {}
    with ExitStack() as stack:

        def open(role: str, name: str) -> Site:
            if (role, name) not in sites:
                folder = base if role == "target" else base / "source"
                # A gateway may register only what is below the root of its catalog.
                if name not in ("dir", REST):
                    folder = folder / f"{role}-{name}"
                folder.mkdir(parents=True, exist_ok=True)
                sites[role, name] = stack.enter_context(SITES[name](folder))
            return sites[role, name]

        yield open


# A source and a target do not know each other's kind. In the usual run, each is a source and a target three times,
# once for its own kind.
PAIRS = list(itertools.product(NAMES, NAMES))
USUAL = [(NAMES[i], NAMES[i - j]) for i in range(len(NAMES)) for j in (0, 1, 3)]


@pytest.mark.parametrize(("source_name", "target_name"), with_usual(PAIRS, *USUAL))
async def test_catalogs_are_copied(source_name: str, target_name: str, open_site: Open, base: Path) -> None:
    source_site, target_site = open_site("source", source_name), open_site("target", target_name)
    name = f"home{next(_numbers):03}"
    home, copied_home = source_site.above.child(name), target_site.above.child(name)
    count = 110 if (source_name, target_name) == MORE_THAN_A_PAGE else 5
    in_batches = target_site.impl == "dir"
    one = "register_table" if target_site.impl == "rest" else "declare_table"
    created = {"create_namespace", "declare_tables" if in_batches else one}
    async with (
        AsyncNamespace.connect(source_site.impl, source_site.properties) as source,
        AsyncNamespace.connect(target_site.impl, target_site.properties) as target,
    ):

        def location(name: str) -> str:
            return (base / "source" / "data" / home.name / name).as_uri()

        async def run(**options: Any) -> tuple[dict[str, int], set[str]]:
            """Returns the outcomes of a copy, and the changes that it made."""
            calls: list[Call] = []
            with target.observe(calls.append):
                report = await copy(source, target, home, to={text(home): text(copied_home)}, **options)
            return table_counts(report), {call.operation for call in calls} & _CHANGES

        async def compare() -> None:
            originals = await states(source, home)
            assert originals == await states(target, copied_home)
            for options in RUNS:
                assert await run(**options) == ({"unchanged": len(originals)}, set())

        await source.create_namespace(CreateNamespaceRequest(id=list(home), properties={"team": "lake"}))
        for i in range(count):
            request = DeclareTableRequest(id=[*home, f"t{i}"], location=location(f"t{i}"), properties={"i": str(i)})
            await source.declare_table(request)
        assert await run() == ({"created": count}, created)
        await compare()
        namespace = await target.describe_namespace(DescribeNamespaceRequest(id=list(copied_home)))
        assert (namespace.properties or {})["team"] == "lake"
        await source.deregister_table([*home, "t0"])
        for name, place in (("t1", "moved"), ("t2", "t2")):
            # Not every source can change a registration.
            await source.deregister_table([*home, name])
            await source.register_table([*home, name], location=location(place), properties={"new": "1"})
        await source.declare_table([*home, "extra"], location=location("extra"))
        assert (await run())[0] == {"created": 1, "conflict": 2, "unchanged": count - 3}
        expected = {"changed": 2, "deregistered": 1, "unchanged": count - 2}
        assert await run(mode="sync", delete=True, dry_run=True) == (expected, set())
        assert len(await states(target, copied_home)) == count + 1
        assert (await run(mode="sync", delete=True))[0] == expected
        await compare()


async def states(ns: AsyncNamespace, home: NamespaceId) -> dict[str, tuple[str, dict[str, str]]]:
    """Returns the location and the properties of each table, those of the catalog left out."""
    ids: list[TableId] = [id async for id in ns.iter_tables(home)]
    tables = (await ns.describe_tables(ids)).raise_for_errors().tables
    return {
        id.name: (place_of(it.location), {key: it for key, it in (it.properties or {}).items() if key in ("i", "new")})
        for id, it in tables.items()
    }


def text(id: NamespaceId) -> str:
    return str(id) if id else ""

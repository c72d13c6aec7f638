"""Copies of tables whose versions a catalog commits, and of data."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as spec
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace, NamespaceId, Table, TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.fleet import copy_plan as plans
from lance_ns_async.fleet.copies import copy
from lance_ns_async.fleet.reading import Reading
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import FakeS3
from tests.fakes.server import Answer, Received
from tests.support.lake import ROWS, stream, table_counts

ANY = Capabilities(min_depth=0, max_depth=None)
FOLDS = replace(ANY, folds_case=True)
TWO_LEVELS = Capabilities(min_depth=2, max_depth=2)
OWN = replace(ANY, own_properties=("table_type", "nessie.*"), own_namespace_properties=("location",))
COLUMNS = replace(ANY, stores_columns=True)
MANAGES = replace(ANY, commits_versions=True, own_properties=("managed_by",))
A, B = pa.schema({"a": pa.int64()}), pa.schema({"b": pa.string()})


def table(id: str, location: str | None = None, **more: Any) -> Table:
    return Table(TableId(id), location or f"s3://b/{id}", **{"properties": {}, **more})


def accept(id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
    return None


def refuse(id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
    raise InvalidInputError(f"table {id}: not here")


def refuse_locations(id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
    if location is not None:
        refuse(id, location, properties)


def make_plan(
    tables: list[Table],
    there: list[Table] = [],  # noqa: B006
    *,
    to: Any = None,
    source: Capabilities = ANY,
    target: Capabilities = ANY,
    namespaces: Mapping[NamespaceId, Mapping[str, str]] | None = None,
    existing: Mapping[NamespaceId, Mapping[str, str]] | None = None,
    errors: Mapping[TableId, Any] | None = None,
    extra: list[Table] = [],  # noqa: B006
    check: plans.CheckDeclaration = accept,
    pairs: Mapping[TableId, plans.DataPair] | None = None,
    unfinished: Collection[TableId] = (),
    **options: Any,
) -> plans.CopyPlan:
    mapping = plans.IdMapping.parse(to)
    by_id = {it.id: it for it in tables}
    planner = plans.CopyPlanner(
        source=Reading(by_id, namespaces or {}, source),
        target=plans.TargetState({it.id: it for it in there}, errors or {}, existing or {}, target, extra),
        mapped=plans.map_tables(by_id, mapping, target),
        mapping=mapping,
        options=plans.CopyOptions(**options),
        check=check,
        pairs=pairs or {},
        unfinished=unfinished,
    )
    return planner.plan()


def test_ids_that_the_target_cannot_have_or_would_have_twice_are_refused() -> None:
    mapped = plans.map_tables([TableId(["a", "T"]), TableId(["a", "t"])], plans.IdMapping.parse(None), FOLDS)
    assert [*mapped.targets] == [("a", "t")]
    assert "stores names in lower case, and 'T' has upper case" in mapped.refusals[0].reason
    mapped = plans.map_tables([TableId(["a", "t"])], plans.IdMapping.parse(None), TWO_LEVELS)
    assert "requires exactly 2 namespace levels" in mapped.refusals[0].reason
    ids = [TableId(["a", "t"]), TableId(["b", "t"]), TableId(["b", "u"])]
    assert plans.map_tables(ids, plans.IdMapping.parse({"a": "x", "b": "x"}), ANY) == plans.MappedIds(
        {ids[2]: TableId(["x", "u"])},
        [
            plans.Refusal(ids[0], TableId(["x", "t"]), "table a$t: it would become x$t, as would b$t"),
            plans.Refusal(ids[1], TableId(["x", "t"]), "table b$t: it would become x$t, as would a$t"),
        ],
    )
    folded = plans.map_tables([TableId(["T"]), TableId(["t"])], plans.IdMapping.parse(None, "lower"), FOLDS)
    assert len(folded.refusals) == 2 and not folded.targets


def test_new_tables_are_declared_with_their_own_properties() -> None:
    source = table("a.t", properties={"k": "v", "table_type": "lance", "Nessie.commit": "1"}, schema=A)
    plan = make_plan([source], source=OWN, target=COLUMNS)
    assert plan.steps == [plans.Declare(source, source.id, {"k": "v"})]
    assert plan.namespaces == [plans.NewNamespace(NamespaceId(["a"]), {})] and not plan.losses
    plan = make_plan([source], source=COLUMNS, target=OWN)
    assert plan.losses == [
        (source.id, "properties that the target sets itself: Nessie.commit, table_type"),
        ("columns", "the target stores no columns; the datasets have them"),
    ]
    # A table with data must not become one whose versions the catalog commits.
    assert make_plan([source], target=MANAGES).steps[0].properties["managed_by"] == "storage"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("there", "changes"),
    [
        (table("a.t"), ["properties"]),
        (table("a.t", properties={"k": "w"}), ["properties"]),
        (table("a.t", "s3://b/other", properties={"k": "v"}), ["location"]),
        (table("a.t", properties={"k": "v"}, schema=B), ["columns"]),
        (table("a.t", "s3://c", schema=B), ["location", "properties", "columns"]),
    ],
)
def test_tables_that_differ_are_changed_by_a_sync_alone(there: Table, changes: list[str]) -> None:
    source = table("a.t", properties={"k": "v"}, schema=A)
    plan = make_plan([source], [there], target=COLUMNS, mode="sync")
    assert plan.steps == [plans.Replace(source, there, {"k": "v"}, changes)]
    plan = make_plan([source], [there], target=COLUMNS)
    assert isinstance(plan.steps[0], plans.Conflict)
    assert f"another {', '.join(changes)}" in plan.steps[0].reason


def test_tables_that_are_equal_and_properties_of_the_target_stay() -> None:
    source = table("a.t", "s3a://b/t", properties={"k": "v"}, schema=A)
    there = table("a.t", "s3://b/t/", properties={"k": "v", "table_type": "lance"})
    for mode in ("create", "sync"):
        plan = make_plan([source], [there], target=OWN, mode=mode, existing={NamespaceId(["a"]): {}})
        assert plan == plans.CopyPlan([], [plans.Keep(source.id, there.id)], [], [])
    source, there = table("a.t"), table("a.t", properties={"own": "1", "nessie.x": "2"})
    assert isinstance(make_plan([source], [there], target=OWN, mode="sync").steps[0], plans.Keep)
    plan = make_plan([source], [there], target=OWN, mode="sync", delete=True)
    assert plan.steps == [plans.Replace(source, there, {}, ["properties"])]
    moved = replace(source, location="s3://b/other")
    assert make_plan([moved], [there], target=OWN, mode="sync").steps[0].properties == {"own": "1"}  # type: ignore[union-attr]


def test_extra_tables_names_in_use_and_what_the_target_rejects() -> None:
    extra, managed = table("a.gone"), table("a.managed", managed_versioning=True)
    assert make_plan([], extra=[extra], mode="sync").steps == []
    plan = make_plan([], extra=[extra, managed], mode="sync", delete=True)
    assert plan.steps[0] == plans.Deregister(extra)
    assert isinstance(plan.steps[1], plans.Conflict) and "commits its versions" in plan.steps[1].reason
    source = table("a.t")
    plan = make_plan([source], errors={source.id: NotALanceTableError("it is a view")}, mode="sync")
    assert plan.steps == [plans.Conflict(source.id, source.id, "it is a view")]
    plan = make_plan([table("a.t")], check=refuse)
    assert plan.refusals == [plans.Refusal(TableId(["a", "t"]), TableId(["a", "t"]), "table a$t: not here")]
    assert not plan.steps and not plan.namespaces


def test_versions_that_a_catalog_commits_are_refused_or_handed_over_or_cloned() -> None:
    source = table("a.t", managed_versioning=True, version=3)
    plan = make_plan([source])
    assert not plan.steps and "use take_over" in plan.refusals[0].reason
    assert make_plan([source], take_over=True).steps == [plans.Declare(source, source.id, {}, takes_over=True)]
    assert make_plan([source], data=True).steps == [plans.Declare(source, source.id, {})]
    there = table("a.t")
    plan = make_plan([source], [there], take_over=True, mode="sync")
    assert plan.steps == [plans.Replace(source, there, {}, [], takes_over=True)]
    managed = make_plan([table("a.t", "s3://b/u")], [replace(there, managed_versioning=True)], mode="sync")
    assert isinstance(managed.steps[0], plans.Conflict) and "managed_by=impl" in managed.steps[0].reason


def test_clones_are_compared_by_their_data() -> None:
    source, there = table("a.t"), table("a.t", "s3://copies/t.lance", properties={"k": "v"})
    id = source.id
    three, other, two = plans.StoredData(3, "a"), plans.StoredData(3, "b"), plans.StoredData(2, "a")

    def plan(
        original: plans.StoredData | None, copy: plans.StoredData | None, is_clone: bool = False, **more: Any
    ) -> Any:
        return make_plan(
            [source], [there], data=True, pairs={id: plans.DataPair(original, copy, is_clone)}, **more
        ).steps[0]

    assert plan(three, three) == plans.Keep(id, id)
    assert "version 2, that of the source 3, and it was not cloned" in plan(three, two, mode="sync").reason
    assert "version 3 as the source has, but other files" in plan(three, other, mode="sync").reason
    assert "use mode='sync' to clone the data again" in plan(three, other, True).reason
    assert "nothing was written to the source" in plan(None, other, True, mode="sync").reason
    again = plan(three, other, True, mode="sync")
    assert isinstance(again, plans.Replace) and again.changes == ["data"] and again.cloned == other
    assert (again.clone_location or "").startswith("s3://copies/t-") and again.properties == {"k": "v"}
    assert plan(three, other, True, mode="sync", delete=True).properties == {}
    assert "drop it to clone the data again" in plan(three, other, True, mode="sync", check=refuse_locations).reason
    assert "exists without data" in plan(three, None).reason
    unfinished = plans.Declare(source, id, {}, there=there)
    assert plan(three, None, mode="sync") == plan(three, None, unfinished=[id]) == unfinished


def test_namespaces_come_with_their_properties_parents_first_and_existing_ones_stay() -> None:
    hive, sales, empty = NamespaceId(["hive"]), NamespaceId(["hive", "sales"]), NamespaceId(["hive", "empty"])
    namespaces = {hive: {"h": "1"}, sales: {"s": "1", "location": "s3://x"}, empty: {}}
    nests = replace(ANY, parent_properties=(("kind", "catalog"),))
    plan = make_plan([table("hive.sales.t")], to={"hive": "lake"}, namespaces=namespaces, source=OWN, target=nests)
    assert plan.namespaces == [
        plans.NewNamespace(NamespaceId(["lake"]), {"h": "1", "kind": "catalog"}),
        plans.NewNamespace(NamespaceId(["lake", "sales"]), {"s": "1"}),
        plans.NewNamespace(NamespaceId(["lake", "empty"]), {}),
    ]
    assert plan.losses == [(sales, "properties of the source's catalog: location")]
    lake, sales = NamespaceId(["lake"]), NamespaceId(["lake", "sales"])
    source = {lake: {"l": "1"}, sales: {"s": "1"}}
    plan = make_plan([table("lake.sales.t")], namespaces=source, existing={sales: {"s": "1", "more": "2"}})
    assert not plan.namespaces and not plan.losses
    plan = make_plan([], namespaces=source, existing={sales: {"s": "2"}})
    assert plan.losses == [(sales, "the properties of lake$sales differ; catalogs have no call to change them")]


Lakes = tuple[AsyncNamespace, AsyncNamespace]
ORDERS = TableId(["sales", "orders"])


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """A catalog that commits the versions of `sales.orders`, which has two."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": (tmp_path / "source").as_uri(), "managed_by": "impl"}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.create_namespace(spec.CreateNamespaceRequest(id=["sales"]))
            await ns.create_table(spec.CreateTableRequest(id=list(ORDERS), properties={"k": "v"}), stream(ROWS))
            await insert(ns)
            yield ns


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """An empty catalog that would commit the versions of tables, too."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": (tmp_path / "target").as_uri(), "managed_by": "impl"}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            yield ns


async def insert(ns: AsyncNamespace) -> None:
    await ns.insert_into_table(spec.InsertIntoTableRequest(id=list(ORDERS)), stream(ROWS))


async def count(ns: AsyncNamespace) -> int | None:
    return (await ns.count_table_rows(spec.CountTableRowsRequest(id=list(ORDERS)))).count


async def describe(ns: AsyncNamespace) -> Table:
    return (await ns.describe_tables([ORDERS])).raise_for_errors().tables[ORDERS]


async def test_versions_are_handed_over_to_the_storage(source: AsyncNamespace, target: AsyncNamespace) -> None:
    assert table_counts(await copy(source, target, take_over=True)) == {"created": 1}
    for ns in (source, target):
        table = await describe(ns)
        assert not table.managed_versioning and (table.properties or {})["k"] == "v"
        assert await count(ns) == 6
    await insert(target)
    await insert(source)
    assert await count(source) == await count(target) == 12
    assert table_counts(await copy(source, target, take_over=True, mode="sync", delete=True)) == {"unchanged": 1}


async def test_no_hand_over_if_catalog_and_storage_differ(source: AsyncNamespace, target: AsyncNamespace) -> None:
    folder = Path((await describe(source)).location.removeprefix("file://")) / "_versions"
    second = min(folder.iterdir())
    number = 2**64 - 1 - 3
    shutil.copy(second, folder / f"{number:020}.manifest")
    report = await copy(source, target, take_over=True)
    assert "its catalog committed version 2, and the newest manifest" in str(report.problems)
    assert (await describe(source)).managed_versioning and not await target.exists(ORDERS)


class OtherS3(FakeS3):
    """An S3 whose bucket `lake` is another one than that of FakeS3."""

    def handle(self, request: Received) -> Answer:
        return super().handle(replace(request, path=request.path.replace("/lake", "/elsewhere")))


async def test_no_hand_over_to_a_catalog_whose_storage_has_other_data() -> None:
    async with AsyncExitStack() as stack:
        catalogs = []
        for s3 in (FakeS3(), OtherS3()):
            endpoint = stack.enter_context(FakeIceberg()).endpoint
            options = {f"storage.{key}": value for key, value in stack.enter_context(s3).options.items()}
            properties = {"endpoint": endpoint, "root": "s3://lake", "managed_by": "impl", **options}
            catalogs.append(await stack.enter_async_context(AsyncNamespace.connect("iceberg", properties)))
        source, target = catalogs
        await source.create_namespace(spec.CreateNamespaceRequest(id=["sales"]))
        await source.create_table(spec.CreateTableRequest(id=list(ORDERS)), stream(ROWS))
        report = await copy(source, target, take_over=True)
        assert "finds no version at its location, but the source version 1" in str(report.problems)
        assert await count(source) == 3 and not await target.exists(ORDERS)


async def test_data_is_cloned_to_the_target(source: AsyncNamespace, target: AsyncNamespace, tmp_path: Path) -> None:
    await source.declare_table(spec.DeclareTableRequest(id=["sales", "empty"]))
    assert table_counts(await copy(source, target, data=True, take_over=False)) == {"created": 2}
    original, clone = await describe(source), await describe(target)
    assert original.managed_versioning and not clone.managed_versioning
    assert clone.location.startswith((tmp_path / "target").as_uri()) and (clone.properties or {})["k"] == "v"
    assert await target.exists(["sales", "empty"])
    assert table_counts(await copy(source, target, data=True, mode="sync")) == {"unchanged": 2}
    shutil.rmtree(tmp_path / "source")
    assert await count(target) == 6


async def test_a_sync_clones_later_versions_to_a_new_location(source: AsyncNamespace, target: AsyncNamespace) -> None:
    await copy(source, target, data=True)
    earlier = await describe(target)
    await insert(source)
    report = await copy(source, target, data=True)
    assert table_counts(report) == {"conflict": 1}
    assert "its data has version 2, that of the source 3; use mode='sync'" in str(report.problems)
    report = await copy(source, target, data=True, mode="sync")
    assert table_counts(report) == {"changed": 1} and earlier.location in report.rows[0].reason
    later = await describe(target)
    assert later.location != earlier.location and not later.managed_versioning
    assert await count(target) == 9 and len(lance.dataset(earlier.location)) == 6
    assert table_counts(await copy(source, target, data=True, mode="sync", delete=True)) == {"unchanged": 1}


@pytest.fixture
async def lakes(tmp_path: Path) -> AsyncIterator[Lakes]:
    async with (
        AsyncNamespace.connect("dir", {"root": str(tmp_path / "a")}) as one,
        AsyncNamespace.connect("dir", {"root": str(tmp_path / "b")}) as other,
    ):
        for ns in (one, other):
            await ns.create_namespace({"id": ["sales"]})
        yield one, other


@pytest.mark.parametrize("mode", ["create", "sync"])
async def test_a_table_of_others_with_the_same_version_is_a_conflict(lakes: Lakes, mode: plans.Mode) -> None:
    source, target = lakes
    others = pa.table({"other": ["a"]})
    await source.write(ORDERS, ROWS)
    await target.write(ORDERS, others)
    report = await copy(source, target, data=True, mode=mode)
    assert table_counts(report) == {"conflict": 1} and "but other files, and it was not cloned" in str(report.problems)
    assert (await target.open(ORDERS)).to_table() == others


@pytest.mark.parametrize("mode", ["create", "sync"])
async def test_a_source_that_was_created_again_is_another_one(lakes: Lakes, mode: plans.Mode) -> None:
    source, target = lakes
    await source.write(ORDERS, ROWS)
    await copy(source, target, data=True)
    await source.drop_table({"id": list(ORDERS)})
    new = ROWS.slice(1)
    await source.write(ORDERS, new)
    report = await copy(source, target, data=True, mode=mode)
    assert table_counts(report) == ({"conflict": 1} if mode == "create" else {"changed": 1})
    assert (await target.open(ORDERS)).to_table() == (ROWS if mode == "create" else new)


async def test_a_clone_that_others_changed_is_a_conflict(lakes: Lakes) -> None:
    """Both sides have the same version afterwards."""
    source, target = lakes
    await source.write(ORDERS, ROWS)
    await copy(source, target, data=True)
    for ns in lakes:
        await insert(ns)
    report = await copy(source, target, data=True, mode="sync")
    assert table_counts(report) == {"conflict": 1} and await count(target) == 6


async def test_a_second_clone_that_fails_leaves_the_first(lakes: Lakes, tmp_path: Path) -> None:
    source, target = lakes
    await source.write(ORDERS, ROWS)
    await copy(source, target, data=True)
    before = sorted(path for path in (tmp_path / "b").rglob("*") if path.is_file())
    await insert(source)
    folder = Path((await describe(source)).location.removeprefix("file://")) / "data"
    max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns).unlink()
    assert table_counts(await copy(source, target, data=True, mode="sync")) == {"failed": 1}
    assert await count(target) == 3
    assert sorted(path for path in (tmp_path / "b").rglob("*") if path.is_file()) == before


async def test_a_registration_without_data_gets_it_by_a_sync(source: AsyncNamespace, target: AsyncNamespace) -> None:
    await target.create_namespace(spec.CreateNamespaceRequest(id=["sales"]))
    await target.declare_table(spec.DeclareTableRequest(id=list(ORDERS), properties={"managed_by": "storage"}))
    report = await copy(source, target, data=True)
    assert table_counts(report) == {"conflict": 1} and "exists without data" in str(report.problems)
    assert table_counts(await copy(source, target, data=True, mode="sync")) == {"created": 1}
    assert await count(target) == 6


async def test_a_failed_clone_leaves_nothing(source: AsyncNamespace, target: AsyncNamespace, tmp_path: Path) -> None:
    folder = Path((await describe(source)).location.removeprefix("file://")) / "data"
    max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns).unlink()
    assert table_counts(await copy(source, target, data=True)) == {"failed": 1}
    assert not await target.exists(ORDERS)
    assert not [path for path in (tmp_path / "target").rglob("*") if path.is_file()]


async def test_data_is_cloned_into_a_directory(source: AsyncNamespace, tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as lake:
        assert table_counts(await copy(source, lake)) == {"refused": 1}
        assert table_counts(await copy(source, lake, data=True)) == {"created": 1}
        assert await count(lake) == 6

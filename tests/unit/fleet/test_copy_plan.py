from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import NamespaceId, Table, TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.fleet.copy_plan import (
    CheckDeclaration,
    Conflict,
    CopyOptions,
    CopyPlan,
    CopyPlanner,
    DataPair,
    Declare,
    Deregister,
    IdMapping,
    Keep,
    MappedIds,
    NewNamespace,
    Refusal,
    Replace,
    StoredData,
    TargetState,
    map_tables,
)
from lance_ns_async.fleet.reading import Reading

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
    check: CheckDeclaration = accept,
    pairs: Mapping[TableId, DataPair] | None = None,
    unfinished: Collection[TableId] = (),
    **options: Any,
) -> CopyPlan:
    mapping = IdMapping.parse(to)
    by_id = {it.id: it for it in tables}
    planner = CopyPlanner(
        source=Reading(by_id, namespaces or {}, source),
        target=TargetState({it.id: it for it in there}, errors or {}, existing or {}, target, extra),
        mapped=map_tables(by_id, mapping, target),
        mapping=mapping,
        options=CopyOptions(**options),
        check=check,
        pairs=pairs or {},
        unfinished=unfinished,
    )
    return planner.plan()


def test_ids_that_the_target_cannot_have_are_refused() -> None:
    mapped = map_tables([TableId(["a", "T"]), TableId(["a", "t"])], IdMapping.parse(None), FOLDS)
    assert [*mapped.targets] == [("a", "t")]
    assert "stores names in lower case, and 'T' has upper case" in mapped.refusals[0].reason
    mapped = map_tables([TableId(["a", "t"])], IdMapping.parse(None), TWO_LEVELS)
    assert "requires exactly 2 namespace levels" in mapped.refusals[0].reason


def test_two_tables_of_one_target_name_are_both_refused() -> None:
    ids = [TableId(["a", "t"]), TableId(["b", "t"]), TableId(["b", "u"])]
    mapped = map_tables(ids, IdMapping.parse({"a": "x", "b": "x"}), ANY)
    assert mapped == MappedIds(
        {ids[2]: TableId(["x", "u"])},
        [
            Refusal(ids[0], TableId(["x", "t"]), "table a$t: it would become x$t, as would b$t"),
            Refusal(ids[1], TableId(["x", "t"]), "table b$t: it would become x$t, as would a$t"),
        ],
    )
    folded = map_tables([TableId(["T"]), TableId(["t"])], IdMapping.parse(None, "lower"), FOLDS)
    assert len(folded.refusals) == 2 and not folded.targets


def test_new_tables_are_declared_with_their_own_properties() -> None:
    source = table("a.t", properties={"k": "v", "table_type": "lance", "Nessie.commit": "1"}, schema=A)
    plan = make_plan([source], source=OWN, target=COLUMNS)
    assert plan.steps == [Declare(source, source.id, {"k": "v"})]
    assert plan.namespaces == [NewNamespace(NamespaceId(["a"]), {})]
    assert not plan.losses
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
    assert plan.steps == [Replace(source, there, {"k": "v"}, changes)]
    plan = make_plan([source], [there], target=COLUMNS)
    assert isinstance(plan.steps[0], Conflict)
    assert f"another {', '.join(changes)}" in plan.steps[0].reason


def test_tables_that_are_equal_stay() -> None:
    source = table("a.t", "s3a://b/t", properties={"k": "v"}, schema=A)
    there = table("a.t", "s3://b/t/", properties={"k": "v", "table_type": "lance"})
    for mode in ("create", "sync"):
        plan = make_plan([source], [there], target=OWN, mode=mode, existing={NamespaceId(["a"]): {}})
        assert plan == CopyPlan([], [Keep(source.id, there.id)], [], [])


def test_properties_of_the_target_alone_go_only_with_delete() -> None:
    source, there = table("a.t"), table("a.t", properties={"own": "1", "nessie.x": "2"})
    assert isinstance(make_plan([source], [there], target=OWN, mode="sync").steps[0], Keep)
    plan = make_plan([source], [there], target=OWN, mode="sync", delete=True)
    assert plan.steps == [Replace(source, there, {}, ["properties"])]
    moved = replace(source, location="s3://b/other")
    assert make_plan([moved], [there], target=OWN, mode="sync").steps[0].properties == {"own": "1"}  # type: ignore[union-attr]


def test_extra_tables_are_deregistered_only_with_delete() -> None:
    extra, managed = table("a.gone"), table("a.managed", managed_versioning=True)
    assert make_plan([], extra=[extra], mode="sync").steps == []
    plan = make_plan([], extra=[extra, managed], mode="sync", delete=True)
    assert plan.steps[0] == Deregister(extra)
    assert isinstance(plan.steps[1], Conflict) and "commits its versions" in plan.steps[1].reason


def test_names_in_use_by_other_tables_are_conflicts() -> None:
    source = table("a.t")
    plan = make_plan([source], errors={source.id: NotALanceTableError("it is a view")}, mode="sync")
    assert plan.steps == [Conflict(source.id, source.id, "it is a view")]


def test_versions_that_a_catalog_commits_are_refused_or_handed_over_or_cloned() -> None:
    source = table("a.t", managed_versioning=True, version=3)
    plan = make_plan([source])
    assert not plan.steps and "use take_over" in plan.refusals[0].reason
    assert make_plan([source], take_over=True).steps == [Declare(source, source.id, {}, takes_over=True)]
    assert make_plan([source], data=True).steps == [Declare(source, source.id, {})]
    there = table("a.t")
    plan = make_plan([source], [there], take_over=True, mode="sync")
    assert plan.steps == [Replace(source, there, {}, [], takes_over=True)]
    managed = make_plan([table("a.t", "s3://b/u")], [replace(there, managed_versioning=True)], mode="sync")
    assert isinstance(managed.steps[0], Conflict) and "managed_by=impl" in managed.steps[0].reason


def test_what_the_target_rejects_is_refused() -> None:
    plan = make_plan([table("a.t")], check=refuse)
    assert plan.refusals == [Refusal(TableId(["a", "t"]), TableId(["a", "t"]), "table a$t: not here")]
    assert not plan.steps and not plan.namespaces


def test_clones_are_compared_by_their_data() -> None:
    source, there = table("a.t"), table("a.t", "s3://copies/t.lance", properties={"k": "v"})
    id = source.id
    three, other, two = StoredData(3, "a"), StoredData(3, "b"), StoredData(2, "a")

    def plan(original: StoredData | None, copy: StoredData | None, is_clone: bool = False, **more: Any) -> Any:
        pairs = {id: DataPair(original, copy, is_clone)}
        return make_plan([source], [there], data=True, pairs=pairs, **more).steps[0]

    assert plan(three, three) == Keep(id, id)
    assert "version 2, that of the source 3, and it was not cloned" in plan(three, two, mode="sync").reason
    assert "version 3 as the source has, but other files" in plan(three, other, mode="sync").reason
    assert "use mode='sync' to clone the data again" in plan(three, other, True).reason
    assert "nothing was written to the source" in plan(None, other, True, mode="sync").reason
    again = plan(three, other, True, mode="sync")
    assert isinstance(again, Replace) and again.changes == ["data"] and again.cloned == other
    assert (again.clone_location or "").startswith("s3://copies/t-") and again.properties == {"k": "v"}
    assert plan(three, other, True, mode="sync", delete=True).properties == {}
    assert "drop it to clone the data again" in plan(three, other, True, mode="sync", check=refuse_locations).reason
    assert "exists without data" in plan(three, None).reason
    unfinished = Declare(source, id, {}, there=there)
    assert plan(three, None, mode="sync") == plan(three, None, unfinished=[id]) == unfinished


def test_namespaces_come_with_their_properties_parents_first() -> None:
    hive, sales, empty = NamespaceId(["hive"]), NamespaceId(["hive", "sales"]), NamespaceId(["hive", "empty"])
    namespaces = {hive: {"h": "1"}, sales: {"s": "1", "location": "s3://x"}, empty: {}}
    nests = replace(ANY, parent_properties=(("kind", "catalog"),))
    plan = make_plan([table("hive.sales.t")], to={"hive": "lake"}, namespaces=namespaces, source=OWN, target=nests)
    assert plan.namespaces == [
        NewNamespace(NamespaceId(["lake"]), {"h": "1", "kind": "catalog"}),
        NewNamespace(NamespaceId(["lake", "sales"]), {"s": "1"}),
        NewNamespace(NamespaceId(["lake", "empty"]), {}),
    ]
    assert plan.losses == [(sales, "properties of the source's catalog: location")]


def test_existing_namespaces_stay() -> None:
    lake, sales = NamespaceId(["lake"]), NamespaceId(["lake", "sales"])
    source = {lake: {"l": "1"}, sales: {"s": "1"}}
    plan = make_plan([table("lake.sales.t")], namespaces=source, existing={sales: {"s": "1", "more": "2"}})
    assert not plan.namespaces and not plan.losses
    plan = make_plan([], namespaces=source, existing={sales: {"s": "2"}})
    assert plan.losses == [(sales, "the properties of lake$sales differ; catalogs have no call to change them")]

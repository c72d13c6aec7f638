"""Maintenance of many tables without Spark: plans, compaction, indexes, clean-up, conflicts and stopped runs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async import Namespace, TableId
from lance_ns_async.engine.locate import Vend
from lance_ns_async.fleet import CleanupOptions, CompactOptions, IndexOptions, MaintenancePlan, Report, sync
from lance_ns_async.fleet.maintenance.engine import Job, LocalEngine, Settle
from lance_ns_async.fleet.maintenance.plan import TablePlan, by_worth, tables_to_leave
from lance_ns_async.operations import maintaining
from lance_ns_async.storage.opening import Opener
from tests.fakes.iceberg import FakeIceberg

TABLES = 6
ALL_OLD = CleanupOptions(older_than=None, delete_unverified=True)
MERGE_ALL = CompactOptions(max_small_fragments=1)

maintain_now = partial(sync.maintain, compact=MERGE_ALL)
plan_now = partial(sync.plan_maintenance, compact=MERGE_ALL)


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace.connect("dir", {"root": str(tmp_path), "storage.secret_key": "hush"}) as namespace:
        namespace.create_namespace({"id": ["db"]})
        for n in range(TABLES):
            fill(namespace, f"t{n}")
        yield namespace


def fill(namespace: Namespace, name: str, fragments: int = 5, first: int = 0) -> None:
    for n in range(first, first + fragments):
        rows = pa.table({"id": range(n * 10, n * 10 + 10), "text": ["a b"] * 10})
        namespace.write(["db", name], rows, mode="create" if n == 0 else "append")


def ids(namespace: Namespace, name: str) -> list[int]:
    result: list[int] = sorted(namespace.open(["db", name]).to_table()["id"].to_pylist())
    return result


def fragments(namespace: Namespace, name: str) -> int:
    return len(namespace.open(["db", name]).get_fragments())


def folder(namespace: Namespace, name: str) -> Path:
    location = namespace.describe_table({"id": ["db", name]}).location
    assert location is not None
    return Path(location.removeprefix("file://"))


def outcomes(report: Report) -> dict[str, str]:
    return {str(row.id).removeprefix("db$"): row.outcome for row in report.rows}


class Interfering(LocalEngine):
    """The local engine, and something that others do before the results arrive; `before` gets each job."""

    def __init__(self, before: Callable[[Job], object]) -> None:
        super().__init__(Opener(), timeout=60)
        self.before = before
        self.rounds: list[int] = []

    async def run(self, jobs: Sequence[Job], settle: Settle, vend: Vend) -> None:
        self.rounds.append(len(jobs))
        results: list[Any] = []
        await super().run(jobs, results.append, vend)
        for job in jobs:
            await anyio.to_thread.run_sync(self.before, job)
        for result in results:
            settle(result)


def test_a_plan_says_what_there_is_to_do_and_changes_nothing(namespace: Namespace) -> None:
    maintain_now(namespace, "db.t1", cleanup=ALL_OLD)
    before = {n: namespace.open(["db", f"t{n}"]).version for n in range(TABLES)}
    plan = plan_now(namespace, "db.*", cleanup=replace(ALL_OLD, retain_versions=2))
    assert isinstance(plan, MaintenancePlan)
    assert [str(table.id) for table in plan.pending] == ["db$t0", "db$t2", "db$t3", "db$t4", "db$t5"]
    first = plan.pending[0]
    assert first.steps == ("compact", "clean up")
    assert (first.tasks, first.task_fragments, first.state.fragments, first.state.rows) == (1, 5, 5, 50)
    assert (first.state.small_fragments, first.state.versions, first.state.old_versions) == (5, 5, 3)
    assert first.task_bytes == first.state.size > 0 and first.requests == 16 + 20 + 18
    assert "compact 5 tables (25 fragments" in repr(plan) and "clean up 3 of 5 versions" in repr(plan)
    assert {n: namespace.open(["db", f"t{n}"]).version for n in range(TABLES)} == before
    assert json.loads(plan.to_json())["tables"][0]["fragments"] == 5


def test_a_plan_has_no_secrets(namespace: Namespace) -> None:
    plan = plan_now(namespace, "db.*")
    assert "hush" not in f"{plan!r} {plan.tables!r} {plan.to_json()} {plan._repr_html_()}"


def test_tables_are_compacted_once_and_keep_their_rows(namespace: Namespace) -> None:
    report = maintain_now(namespace, "db.*", cleanup=ALL_OLD)
    assert report.counts == {"maintained": TABLES}
    assert report.counters["fragments before"] == TABLES * 5 and report.counters["fragments after"] == TABLES
    row = report.rows[0]
    assert row.reason == "compact, clean up" and row.fields["fragments_after"] == 1 and row.fields["rows"] == 50
    for n in range(TABLES):
        assert ids(namespace, f"t{n}") == [*range(50)] and fragments(namespace, f"t{n}") == 1
        assert len(namespace.open(["db", f"t{n}"]).versions()) == 1
    versions = [namespace.open(["db", f"t{n}"]).version for n in range(TABLES)]
    assert maintain_now(namespace, "db.*", cleanup=ALL_OLD).counts == {"unchanged": TABLES}
    assert [namespace.open(["db", f"t{n}"]).version for n in range(TABLES)] == versions


def test_steps_can_be_omitted_and_deleted_rows_are_removed(namespace: Namespace) -> None:
    assert maintain_now(namespace, "db.t0", compact=False).counts == {"unchanged": 1}
    assert maintain_now(namespace, "db.t0", compact=CompactOptions(max_small_fragments=5)).counts == {"unchanged": 1}
    assert maintain_now(namespace, "db.t0", cleanup=False).counts == {"maintained": 1}
    assert len(namespace.open(["db", "t0"]).versions()) == 7
    with pytest.raises(InvalidInputError, match="all are False"):
        maintain_now(namespace, "db.t0", compact=False, index=False, cleanup=False)
    namespace.open(["db", "t1"]).delete("id % 10 < 5")
    (row,) = maintain_now(namespace, "db.t1", compact=CompactOptions(max_small_fragments=100)).rows
    assert (row.fields["deleted_rows_before"], row.fields["deleted_rows_after"]) == (25, 0)
    assert len(ids(namespace, "t1")) == 25


def test_the_tables_that_gain_the_most_are_first(namespace: Namespace) -> None:
    """Two tables of many small fragments fit into the budget, and one of two large ones does not."""
    with_rows = pa.table({"id": range(20_000), "text": ["a b"] * 20_000})
    for mode in ("create", "append"):
        namespace.write(["db", "large"], with_rows, mode=mode)
    costs = {str(it.id): it.cost for it in plan_now(namespace, "db.*").tables}
    budget = 2 * costs["db$t0"] + costs["db$large"] - 1
    plan = plan_now(namespace, ["db.t0", "db.t1", "db.large"], budget=budget)
    assert [str(it.id) for it in plan.pending] == ["db$t0", "db$t1"] and "1 left for a later run" in plan.line()
    report = maintain_now(namespace, ["db.t0", "db.t1", "db.large"], budget=budget, cleanup=ALL_OLD)
    assert outcomes(report) == {"t0": "maintained", "t1": "maintained", "large": "left"}
    assert fragments(namespace, "large") == 2 and len(namespace.open(["db", "large"]).versions()) == 1
    large = next(row for row in report.rows if row.outcome == "left")
    assert large.reason.startswith("clean up, left: costs ") and "the other tables leave of the budget" in large.reason
    assert "1 left" in report.line()
    assert maintain_now(namespace, "db.large", budget=f"{costs['db$large']}B").counts == {"maintained": 1}
    assert maintain_now(namespace, "db.t2", budget=0).counts == {"left": 1}


def test_policies_apply_to_tables_by_patterns(namespace: Namespace, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.toml"
    file.write_text("""
        [tables."db.t0"]
        maintain = false
        [tables."db.t1"]
        compact = false
        older_than = "0s"
        delete_unverified = true
        [tables."db.[t]2"]
        max_small_fragments = 5
        cleanup = false
        index = false
        [tables."db.**"]
        priority = 1
        """)
    what = ["db.t0", "db.t1", "db.t2", "db.t3"]
    all_at_once: dict[str, Any] = {"cleanup": ALL_OLD, "policies": file}
    plan = plan_now(namespace, what, **all_at_once)
    assert {str(it.id): it.steps for it in plan.tables} == {
        "db$t1": ("clean up",),
        "db$t2": (),
        "db$t3": ("compact", "clean up"),
    }
    assert by_worth(plan.tables)[0].id == TableId(["db", "t3"]) and plan.tables[0].priority == 1
    report = maintain_now(namespace, what, **all_at_once)
    assert outcomes(report) == {"t0": "off", "t1": "maintained", "t2": "unchanged", "t3": "maintained"}
    assert next(row for row in report.rows if row.outcome == "off").reason == "by the policy for db.t0"
    assert (fragments(namespace, "t1"), fragments(namespace, "t3")) == (5, 1)
    only = {"db.**": {"compact": True, "index": False, "cleanup": False}}
    assert maintain_now(namespace, "db.t4", cleanup=False, policies=only).rows[0].fields["steps"] == ["compact"]


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({"db.**": {"oder_than": "7d"}}, "policies: tables.'db.**': unknown 'oder_than'; did you mean older_than?"),
        ({"db.**": {"older_than": 7}}, "policies: tables.'db.**': older_than 7: must be a text, such as \"7d\""),
        ({"db.**": {"index": 1}}, "index 1: must be true or false"),
        ({"db.**": {"target_rows": True}}, "target_rows True: must be a whole number"),
        ({"db.**": {"target_rows": 0}}, "policies: tables.'db.**': target_rows 0: must be at least 1"),
        ({"db.**": {"older_than": "soon"}}, "older_than 'soon': use a number"),
        ({"db.**": {"compact": False, "target_rows": 9}}, "target_rows: has no effect, because compact is false"),
        ({"db.**": 7}, "must be a table of options"),
        ({"": {}}, "policies: tables.''"),
        ("[tables", "not a TOML file"),
        ("[table.x]", "unknown 'table'; write [tables."),
        (None, "No such file or directory"),
    ],
)
def test_wrong_policies_are_refused(namespace: Namespace, tmp_path: Path, policies: Any, message: str) -> None:
    if not isinstance(policies, dict):
        file = tmp_path / "maintenance.toml"
        if policies is not None:
            file.write_text(policies)
        policies = file
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        maintain_now(namespace, "db.*", policies=policies)


def test_no_table_begins_after_the_time(namespace: Namespace) -> None:
    report = maintain_now(namespace, "db.*", max_time=0, cleanup=ALL_OLD)
    assert report.counts == {"left": TABLES} and fragments(namespace, "t0") == 5
    assert all(row.reason == "clean up, left: the time of this run is over" for row in report.rows)
    assert maintain_now(namespace, "db.*", max_time="1h").counts == {"maintained": TABLES}


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 20)), max_size=40), st.integers(0, 5000))
def test_a_budget_is_kept_and_reaches_most_of_the_gain(tables: list[tuple[int, int]], budget: int) -> None:
    state = maintaining.DatasetState(1, 0, 0, 0, 0, 0, 0, {}, 0, 0, 0, 0)
    plans = [
        TablePlan(TableId([str(n)]), "", state, 1, fragments, 0, size, size)
        for n, (size, fragments) in enumerate(tables)
    ]
    left = tables_to_leave(plans, budget)
    taken = [it for it in plans if it.id not in left]
    assert sum(it.cost for it in taken) <= budget
    # No order gains more than one with parts of tables.
    best, rest = 0.0, budget
    for it in by_worth(plans):
        best += it.gain * (min(1.0, rest / it.cost) if it.cost else 1.0)
        rest = max(0, rest - it.cost)
    assert sum(it.gain for it in taken) >= best - max((it.gain for it in plans), default=0)


def test_a_failure_does_not_affect_other_tables(namespace: Namespace) -> None:
    for file in (folder(namespace, "t1") / "data").iterdir():
        file.write_bytes(b"no data")
    for file in (folder(namespace, "t2") / "_versions").glob("*.manifest"):
        file.write_bytes(b"no manifest")
    namespace.declare_table({"id": ["db", "empty"]})
    report = maintain_now(namespace, ["db.*", "db$gone"], cleanup=ALL_OLD)
    expected = {"t0": "maintained", "t1": "failed", "t2": "failed", "gone": "missing", "empty": "without data"}
    assert outcomes(report) == {**expected, **{f"t{n}": "maintained" for n in range(3, TABLES)}}
    assert {str(row.id) for row in report.problems} == {"db$t1", "db$t2", "db$gone"}
    assert all(row.reason for row in report.problems)
    plan = plan_now(namespace, ["db.*", "db$gone"])
    assert {str(row.id) for row in plan.problems} == {"db$t2", "db$gone"} and "2 could not be examined" in plan.line()
    assert [str(row.id) for row in plan.without_data] == ["db$empty"] and "1 without data" in plan.line()


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_indexes_get_the_rows_they_lack(namespace: Namespace, kind: Any) -> None:
    namespace.open(["db", "t0"]).create_scalar_index("id", kind)
    fill(namespace, "t0", first=5)
    (table,) = plan_now(namespace, "db.t0").tables
    assert [*table.state.stale_indexes] == ["id_idx"] and table.state.unindexed_rows == 50
    (row,) = maintain_now(namespace, "db.t0").rows
    assert row.fields["steps"] == ["index", "compact"] and row.fields["fragments_after"] == 1
    assert maintain_now(namespace, "db.t0").counts == {"unchanged": 1}
    dataset = namespace.open(["db", "t0"])
    assert dataset.describe_indices()[0].num_rows_indexed == 100
    assert dataset.to_table(filter="id >= 95")["id"].to_pylist() == [95, 96, 97, 98, 99]


@pytest.mark.parametrize("kind", ["BTREE", "INVERTED"])
def test_an_index_is_seldom_written_again(namespace: Namespace, kind: Any) -> None:
    """After each append, the new rows are indexed, and fragments of different parts of the index are compacted."""
    rows = pa.table({"id": range(3_000), "text": ["a b"] * 3_000})
    dataset = namespace.write(["db", "indexed"], rows)
    dataset.create_scalar_index("id" if kind == "BTREE" else "text", kind)
    first = size_of_indexes(namespace)
    for n in range(3_000, 3_040):
        namespace.write(["db", "indexed"], pa.table({"id": [n], "text": ["c"]}), mode="append")
        assert sync.maintain(namespace, "db.indexed").counts == {"maintained": 1}
        (index,) = namespace.open(["db", "indexed"]).describe_indices()
        assert index.num_rows_indexed == n + 1 and len(index.segments) <= 12
        assert fragments(namespace, "indexed") <= 12
    dataset = namespace.open(["db", "indexed"])
    if kind == "BTREE":
        assert "ScalarIndexQuery" in dataset.scanner(filter="id = 3039").explain_plan()
        assert dataset.to_table(filter="id = 3039").num_rows == 1
    else:
        assert dataset.to_table(full_text_query="c").num_rows == 40
    # The first part stays; written anew each time, it would have 40 times the size.
    assert size_of_indexes(namespace) < first + 40 * 10_000
    assert sync.maintain(namespace, "db.indexed", compact=MERGE_ALL).counts == {"maintained": 1}
    assert fragments(namespace, "indexed") == 1


def test_parts_stay_if_their_number_is_given(namespace: Namespace) -> None:
    dataset = namespace.open(["db", "t0"])
    dataset.create_scalar_index("id", "BTREE")
    for n in range(5, 18):
        fill(namespace, "t0", 1, first=n)
        namespace.open(["db", "t0"]).optimize.optimize_indices(num_indices_to_merge=0)
    given = IndexOptions(num_indices_to_merge=0)
    assert sync.maintain(namespace, "db.t0", compact=False, index=given).counts == {"unchanged": 1}
    assert sync.maintain(namespace, "db.t0", compact=False).counts == {"maintained": 1}
    assert len(namespace.open(["db", "t0"]).describe_indices()[0].segments) <= 12


def size_of_indexes(namespace: Namespace) -> int:
    files = (folder(namespace, "indexed") / "_indices").rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def test_an_index_for_which_there_are_too_few_rows_is_left_alone(namespace: Namespace) -> None:
    vectors = pa.array([[n / 256, 1.0] for n in range(128)], pa.list_(pa.float32(), 2))
    dataset = namespace.write(["db", "v"], pa.table({"v": vectors}))
    dataset.create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=1)
    assert maintain_now(namespace, "db.v", compact=False).counts == {"unchanged": 1}
    namespace.write(["db", "v"], pa.table({"v": vectors}), mode="append")
    assert maintain_now(namespace, "db.v", compact=False).rows[0].fields["steps"] == ["index"]
    assert namespace.open(["db", "v"]).describe_indices()[0].num_rows_indexed == 256


def test_indexes_are_left_alone_on_request(namespace: Namespace) -> None:
    namespace.open(["db", "t0"]).create_scalar_index("id", "BTREE")
    fill(namespace, "t0", first=5)
    assert maintain_now(namespace, "db.t0", index=False, compact=False).counts == {"unchanged": 1}
    report = maintain_now(namespace, "db.t0", index=IndexOptions(retrain=True), compact=False)
    assert report.rows[0].fields["steps"] == ["index"]


def test_versions_with_tags_stay(namespace: Namespace) -> None:
    namespace.open(["db", "t0"]).tags.create("keep", 2)
    (row,) = maintain_now(
        namespace, "db.t0", cleanup=CleanupOptions(older_than="0s", retain_versions=2, delete_unverified=True)
    ).rows
    assert row.fields["versions_removed"] == 4 and row.fields["bytes_removed"] > 0
    assert [it["version"] for it in namespace.open(["db", "t0"]).versions()] == [2, 6, 7]
    assert lance.dataset(str(folder(namespace, "t0")), version="keep").count_rows() == 20
    # The newest versions stay for the next run, too.
    assert maintain_now(namespace, "db.t0", cleanup=CleanupOptions(older_than="1h")).counts == {"unchanged": 1}


@pytest.mark.parametrize("limits", [{"older_than": None}, {"older_than": "1s", "retain_versions": 1}])
def test_young_versions_stay_because_others_may_write(namespace: Namespace, limits: Mapping[str, Any]) -> None:
    """A commit that has looked for the newest version could otherwise succeed with the number of a removed one."""
    assert maintain_now(namespace, "db.t0", compact=False, cleanup=CleanupOptions(**limits)).counts == {"unchanged": 1}
    alone = CleanupOptions(**{**limits, "older_than": None}, delete_unverified=True)
    assert maintain_now(namespace, "db.t0", compact=False, cleanup=alone).counters["versions removed"] == 4


def test_unused_files_are_removed_after_a_time_or_on_request(namespace: Namespace) -> None:
    data = folder(namespace, "t0") / "data"
    shutil.copy(next(data.iterdir()), data / "0123456789.lance")
    # A writer may be about to commit this file.
    (table,) = plan_now(namespace, "db.t0", compact=False).tables
    assert table.steps == () and maintain_now(namespace, "db.t0", compact=False).counts == {"unchanged": 1}
    assert (data / "0123456789.lance").exists()
    cleanup = CleanupOptions(delete_unverified=True)
    (table,) = plan_now(namespace, "db.t0", cleanup=cleanup).tables
    size = (data / "0123456789.lance").stat().st_size
    assert table.state.removable_bytes == size and "clean up 0 of" in table.describe()
    assert maintain_now(namespace, "db.t0", compact=False, cleanup=cleanup).counts == {"maintained": 1}
    assert not (data / "0123456789.lance").exists() and len(ids(namespace, "t0")) == 50


def test_rows_that_are_appended_meanwhile_are_kept(namespace: Namespace) -> None:
    engine = Interfering(lambda job: fill(namespace, job.table.id.name, 1, first=5))
    report = maintain_now(namespace, "db.*", engine=engine)
    assert report.counts == {"maintained": TABLES} and engine.rounds == [TABLES]
    for n in range(TABLES):
        assert ids(namespace, f"t{n}") == [*range(60)] and fragments(namespace, f"t{n}") == 2


def test_a_conflict_is_planned_again(namespace: Namespace) -> None:
    engine = Interfering(lambda job: None)

    def delete(job: Job) -> None:
        if len(engine.rounds) == 1 and job.table.id.name in ("t1", "t2"):
            lance.dataset(job.table.location).delete("id = 7")

    engine.before = delete
    report = maintain_now(namespace, "db.*", engine=engine)
    assert report.counts == {"maintained": TABLES} and engine.rounds == [TABLES, 2]
    assert {str(row.id): row.attempts for row in report.rows}["db$t1"] == 2
    assert ids(namespace, "t1") == [n for n in range(50) if n != 7] and fragments(namespace, "t1") == 1
    # The files of the attempt that failed are removed.
    unused = plan_now(namespace, "db.t1", cleanup=CleanupOptions(delete_unverified=True)).tables[0]
    assert unused.state.removable_bytes == 0


def test_a_writer_that_conflicts_each_time_is_reported(namespace: Namespace) -> None:
    rows = iter(range(50))

    def delete(job: Job) -> None:
        if job.table.id.name == "t1":
            lance.dataset(job.table.location).delete(f"id = {next(rows)}")

    engine = Interfering(delete)
    report = maintain_now(namespace, "db.*", engine=engine)
    assert report.counts == {"maintained": TABLES - 1, "failed": 1} and engine.rounds == [TABLES, 1, 1]
    (problem,) = report.problems
    assert problem.attempts == 3 and "Concurrent modification" in problem.reason
    assert ids(namespace, "t1") == [*range(3, 50)]


def test_a_table_that_is_dropped_meanwhile_is_missing(namespace: Namespace) -> None:
    def drop(job: Job) -> None:
        if job.table.id.name == "t1":
            namespace.drop_table({"id": list(job.table.id)})

    report = maintain_now(namespace, "db.*", engine=Interfering(drop))
    assert outcomes(report)["t1"] == "missing" and report.counts["maintained"] == TABLES - 1


def test_a_run_that_is_stopped_leaves_finished_and_unchanged_tables(namespace: Namespace) -> None:
    class Killed(Exception):
        pass

    def kill(job: Job) -> None:
        if job.table.id.name == "t3":
            raise Killed

    class Stopping(LocalEngine):
        async def run(self, jobs: Sequence[Job], settle: Settle, vend: Vend) -> None:
            for job in jobs:
                kill(job)
                await super().run([job], settle, vend)

    with pytest.raises(Killed):
        maintain_now(namespace, "db.*", engine=Stopping(Opener(), timeout=60))
    before = {n: fragments(namespace, f"t{n}") for n in range(TABLES)}
    assert before[3] == 5 and set(before.values()) <= {1, 5}
    finished = [n for n, count in before.items() if count == 1]
    versions = {n: namespace.open(["db", f"t{n}"]).version for n in finished}
    report = maintain_now(namespace, "db.*", cleanup=ALL_OLD)
    assert not report.problems
    for n in range(TABLES):
        assert ids(namespace, f"t{n}") == [*range(50)] and fragments(namespace, f"t{n}") == 1
        assert len([*(folder(namespace, f"t{n}") / "data").iterdir()]) == 1
    assert {n: namespace.open(["db", f"t{n}"]).version for n in finished} == versions


def test_versions_that_the_catalog_commits_go_through_the_catalog(tmp_path: Path) -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        with Namespace.connect("iceberg", {**properties, "backoff_initial": "1ms"}) as namespace:
            namespace.create_namespace({"id": ["db"]})
            for name in ("t0", "t1"):
                fill(namespace, name)
            engine = Interfering(lambda job: fill(namespace, job.table.id.name, 1, first=5))
            assert maintain_now(namespace, "db.*", engine=engine).counts == {"maintained": 2}
            for name in ("t0", "t1"):
                assert ids(namespace, name) == [*range(60)] and fragments(namespace, name) == 2
                versions = namespace.list_table_versions({"id": ["db", name]}).versions
                assert versions[-1].version == namespace.open(["db", name]).version == 8
            cleaned = maintain_now(namespace, "db.*", cleanup=ALL_OLD)
            assert cleaned.counts == {"maintained": 2} and ids(namespace, "t0") == [*range(60)]
            assert maintain_now(namespace, "db.*", cleanup=ALL_OLD).counts == {"unchanged": 2}


def test_invalid_arguments_are_refused(namespace: Namespace) -> None:
    refused: dict[str, Callable[[], object]] = {
        "target_rows 0": lambda: CompactOptions(target_rows=0),
        "budget '10XB'": lambda: maintain_now(namespace, "db.*", budget="10XB"),
        "budget -1": lambda: maintain_now(namespace, "db.*", budget=-1),
        "max_time 'soon'": lambda: maintain_now(namespace, "db.*", max_time="soon"),
        "max_small_fragments 0": lambda: CompactOptions(max_small_fragments=0),
        "options 'target'": lambda: CompactOptions(options={"target": 1}),
        "older_than 'soon'": lambda: CleanupOptions(older_than="soon"),
        "retain_versions 0": lambda: CleanupOptions(retain_versions=0),
    }
    for message, make in refused.items():
        with pytest.raises(InvalidInputError, match=message):
            make()
    with pytest.raises(InvalidInputError, match="timeout 0"):
        maintain_now(namespace, "db.*", timeout=0)
    assert maintain_now(namespace, [TableId(["db", "t0"])]).counts == {"maintained": 1}

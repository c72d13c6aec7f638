"""Prefetching from real catalogs: an embedded one, and an Iceberg REST catalog with faults on demand."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DropTableRequest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from lance_ns_async import AsyncNamespace, Namespace, NamespaceId, Policy, Table, TableId
from lance_ns_async.limiter import START
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.memory import Memory
from lance_ns_async.spark.patterns import Wanted
from lance_ns_async.spark.report import Subject
from tests.fakes.iceberg import FakeIceberg

ROWS = pa.table({"id": [1, 2, 3], "s": ["a", None, "c"]})


class Lake:
    """An embedded catalog to put tables into."""

    def __init__(self, root: Path, storage: Mapping[str, str] | None = None) -> None:
        self.properties = {"root": str(root), **{f"storage.{key}": value for key, value in (storage or {}).items()}}
        self.namespace = Namespace.connect("dir", self.properties)
        self._made: set[NamespaceId] = {NamespaceId()}

    def declare(self, *names: str) -> str:
        self._make(TableId(names).parent)
        location = self.namespace.declare_table(DeclareTableRequest(id=list(names))).location
        assert location is not None
        return location

    def write(self, *names: str, rows: pa.Table = ROWS, rows_per_file: int = 1024) -> str:
        location = self.declare(*names)
        lance.write_dataset(rows, location, mode="overwrite", max_rows_per_file=rows_per_file)
        return location

    def _make(self, id: NamespaceId) -> None:
        if id not in self._made:
            self._make(id.parent)
            self.namespace.create_namespace(CreateNamespaceRequest(id=list(id)))
            self._made.add(id)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    with lake.namespace:
        yield lake


@pytest.fixture
def resolver(lake: Lake) -> LocationResolver:
    return LocationResolver(lake.namespace)


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        yield server


@pytest.fixture
def remote(server: FakeIceberg) -> Iterator[LocationResolver]:
    policy = Policy(backoff_initial=0.001, backoff_max=0.001)
    with LocationResolver.connect("iceberg", {"endpoint": server.endpoint}, policy=policy) as resolver:
        yield resolver


def paths(server: FakeIceberg) -> list[str]:
    return [f"{r.method} {r.path.partition('?')[0].removeprefix('/v1/')}" for r in server.requests]


def ids(*texts: str) -> list[TableId]:
    return [TableId.parse(text) for text in texts]


def test_a_table_is_found_opened_and_pinned(lake: Lake, resolver: LocationResolver) -> None:
    location = lake.write("db", "t", rows_per_file=2)
    lance.write_dataset(ROWS, location, mode="append")
    found = resolver.prefetch("db.t")
    at = found["db.t"]
    assert (at.location, at.version, at.rows, at.fragments) == (location, 2, 6, 3)
    assert at.schema == ROWS.schema
    assert (found.report.found, found.report.problems) == (1, [])


def test_tables_of_one_schema_share_it(lake: Lake, resolver: LocationResolver) -> None:
    for n in range(5):
        lake.write("db", f"t{n}")
    schemas = {id(at.schema) for at in resolver.prefetch("db.*").values()}
    assert len(schemas) == 1


def test_without_pins_nothing_is_opened(lake: Lake, resolver: LocationResolver) -> None:
    lake.declare("db", "empty")
    found = resolver.prefetch("db.empty", pin_versions=False)
    assert (found["db.empty"].version, found["db.empty"].schema, found.report.problems) == (None, None, [])


def test_a_table_nothing_was_written_to_is_told_apart(lake: Lake, resolver: LocationResolver) -> None:
    lake.declare("db", "empty")
    lake.write("db", "t")
    found = resolver.prefetch(["db.empty", "db.t", "db.nix"])
    assert list(found) == ids("db$t")
    (failed,) = found.report.failed
    (missing,) = found.report.missing
    assert failed.subject == TableId(["db", "empty"])
    assert "declared, nothing written yet" in failed.reason
    assert missing.subject == TableId(["db", "nix"])


def test_patterns_namespaces_and_ids_are_mixed(lake: Lake, resolver: LocationResolver) -> None:
    for text in ("root", "a$x1", "a$x2", "a$y", "a$in$x1", "b$x1", "b$deep$er$x3", "c$z"):
        lake.write(*text.split("$"))

    def names(*what: str | NamespaceId | list[str]) -> list[str]:
        found = resolver.prefetch(what, pin_versions=False)
        assert not found.report.problems
        return sorted(map(str, found))

    assert names("a.*") == ["a$x1", "a$x2", "a$y"] == names(NamespaceId(["a"]))
    assert names("a.x?", ["b", "x1"], "a.x1") == ["a$x1", "a$x2", "b$x1"]
    assert names("*") == ["root"] == names(NamespaceId())
    assert names("*.x1") == ["a$x1", "b$x1"]
    assert names("**.x[13]") == ["a$in$x1", "a$x1", "b$deep$er$x3", "b$x1"]
    assert names("b.**") == ["b$deep$er$x3", "b$x1"]
    assert names("*.i?.x*") == ["a$in$x1"]
    assert len(names("**")) == 8


def test_what_matches_nothing_is_told(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "t")
    found = resolver.prefetch(["db.x*", "nix.*", NamespaceId(["nowhere"]), "*.nix", "db.*"])
    assert list(found) == ids("db$t")
    told: dict[Subject, str] = {problem.subject: problem.reason for problem in found.report.missing}
    assert set(told) == {"db.x*", "*.nix", NamespaceId(["nix"]), NamespaceId(["nowhere"])}
    assert "no table matches db.x*" in told["db.x*"]
    assert not found.report.failed


def test_a_table_and_a_namespace_of_the_same_names_are_told_apart(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "x")
    found = resolver.prefetch([NamespaceId(["db", "x"]), TableId(["db", "x"])])
    assert list(found) == ids("db$x")
    assert found.report.line().startswith("resolved 1/2 ")
    assert [type(problem.subject) for problem in found.report.problems] == [NamespaceId]
    both = resolver.prefetch([NamespaceId(["db", "y"]), TableId(["db", "y"])])
    assert [type(problem.subject) for problem in both.report.missing] == [NamespaceId, TableId]
    with pytest.raises(NamespaceNotFoundError, match="2 of 2 could not be resolved"):
        resolver.prefetch([NamespaceId(["db", "y"]), TableId(["db", "y"])], on_error="raise")


def test_all_is_tried_before_anything_is_raised(lake: Lake, resolver: LocationResolver) -> None:
    lake.declare("db", "empty")
    lake.write("db", "t")
    with pytest.raises(TableNotFoundError, match=r"2 of 3 could not be resolved: .*db\$nix.*; .*nothing written"):
        resolver.prefetch(["db.nix", "db.empty", "db.t"], on_error="raise")
    assert resolver.prefetch("db.t", on_error="raise").report.calls == 0
    with pytest.raises(InvalidTableStateError):
        resolver.prefetch("db.e*", on_error="raise")


def test_only_what_is_unknown_is_asked_for_again(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 3)
    first = remote.prefetch(["db.t0000", "db.t0001", "db.nix"], pin_versions=False)
    server.clear()
    again = remote.prefetch(["db.t0000", "db.t0001", "db.t0002", "db.nix"], pin_versions=False)
    # What went wrong is not remembered.
    assert sorted(paths(server)) == ["GET namespaces/db/tables/nix", "GET namespaces/db/tables/t0002"]
    assert again.report.calls == 2
    assert again["db.t0000"] == first["db.t0000"]


@pytest.mark.parametrize("number", [1, 2])
def test_the_version_of_the_catalog_is_pinned_though_its_writer_died(tmp_path: Path, number: int) -> None:
    with FakeIceberg() as server:
        given = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        with Namespace.connect("iceberg", given) as ns:
            ns.create_namespace(CreateNamespaceRequest(id=["a"]))
            for mode in ("create", "append")[:number]:
                lance.write_dataset(ROWS, mode=mode, namespace_client=ns, table_id=["a", "t"])
            metadata = server.metadata(["a"], "t")
            assert metadata is not None
            # It died between the commit and the move of the manifest.
            staging = Path("/", metadata["snapshots"][-1]["summary"]["lance.staging"])
            final = staging.with_name(staging.name.partition("-")[0])
            final.rename(staging)
            found = LocationResolver(ns).prefetch("a.t")["a.t"]
            assert (found.version, found.rows, final.exists()) == (number, 3 * number, True)
            # What nobody can find is told as it is.
            final.unlink()
            report = LocationResolver(ns).prefetch("a.t").report
            assert f"latest version {number} has no manifest" in report.failed[0].reason


def test_what_is_forgotten_is_asked_for_again(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 3)
    everything = ["db.t0000", "db.t0001", "db.t0002"]
    remote.prefetch(everything, pin_versions=False)
    remote.forget(["db.t0000", "db.*1"])
    assert remote.prefetch(everything, pin_versions=False).report.calls == 2
    remote.forget()
    assert remote.prefetch(everything, pin_versions=False).report.calls == 3


def test_a_pin_is_kept_until_it_is_forgotten(lake: Lake, resolver: LocationResolver) -> None:
    location = lake.write("db", "t")
    assert resolver.prefetch("db.*")["db.t"].version == 1
    lance.write_dataset(ROWS, location, mode="append")
    assert resolver.prefetch("db.*")["db.t"].version == 1
    assert resolver.prefetch("db.*", pin_versions=False)["db.t"].version is None
    resolver.forget("db.t")
    assert resolver.prefetch("db.*")["db.t"].version == 2


def test_a_table_made_anew_elsewhere_is_described_anew(lake: Lake, resolver: LocationResolver) -> None:
    old = lake.write("db", "t")
    resolver.prefetch("db.*")
    lake.namespace.drop_table(DropTableRequest(id=["db", "t"]))
    new = lake.write("db", "t", rows=ROWS.slice(0, 1))
    found = resolver.prefetch("db.*")["db.t"]
    assert found.location == new
    assert found.rows == (1 if new != old else 3)


def test_pins_are_added_to_what_is_known(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "t")
    resolver.prefetch("db.t", pin_versions=False)
    found = resolver.prefetch("db.t")
    assert (found["db.t"].version, found.report.calls) == (1, 0)


@pytest.mark.parametrize(("in_seconds", "calls"), [(30, 1), (600, 0)])
def test_storage_options_about_to_expire_are_asked_for_again(tmp_path: Path, in_seconds: float, calls: int) -> None:
    expires = str(int((time.time() + in_seconds) * 1000))
    lake = Lake(tmp_path, {"expires_at_millis": expires})
    lake.write("db", "t")
    resolver = LocationResolver(lake.namespace)
    at = resolver.prefetch("db.t", pin_versions=False)["db.t"]
    assert at.expires_at == int(expires) / 1000
    assert resolver.prefetch("db.t", pin_versions=False).report.calls == calls


def test_a_resolver_may_remember_nothing_or_little(lake: Lake) -> None:
    for n in range(4):
        lake.write("db", f"t{n}")
    everything = [f"db.t{n}" for n in range(2)]
    forgetful = LocationResolver(lake.namespace, ttl=0)
    assert forgetful.prefetch(everything, pin_versions=False).report.calls > 0
    assert forgetful.prefetch(everything, pin_versions=False).report.calls > 0
    small = LocationResolver(lake.namespace, remembers=1)
    for one in everything:
        small.prefetch(one, pin_versions=False)
    assert small.prefetch("db.t1", pin_versions=False).report.calls == 0
    assert small.prefetch("db.t0", pin_versions=False).report.calls == 1
    none = LocationResolver(lake.namespace, remembers=0)
    assert [none.prefetch("db.t0").report.calls for _ in range(2)] == [1, 1]


def test_a_memory_is_shared_by_threads() -> None:
    memory = Memory(ttl=60, limit=100)
    tables = [Table(TableId(["db", f"t{n}"]), f"/lake/t{n}") for n in range(500)]
    pattern = Wanted.read("db.t*")

    def learn(start: int) -> None:
        for n in range(start, start + 2000):
            memory.learn(tables[n % len(tables)])

    def forget(start: int) -> None:
        for n in range(start, start + 2000):
            memory.forget(pattern if n % 100 else None)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, n * 100) for n, work in enumerate((learn, forget, learn, forget))]:
            done.result()
    for table in tables:
        memory.learn(table)
    assert [memory.get(table.id) is None for table in tables] == [True] * 400 + [False] * 100


def test_a_pickled_resolver_remembers_nothing(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 1)
    remote.prefetch("db.t0000", pin_versions=False)
    with pickle.loads(pickle.dumps(remote)) as other:
        assert [other.prefetch("db.t0000", pin_versions=False).report.calls > 0 for _ in range(2)] == [True, False]


def test_calls_are_made_side_by_side(server: FakeIceberg, remote: LocationResolver) -> None:
    names = server.add_lance_tables(["db"], 40)
    with server.hold("tables/t") as hold:
        background = asyncio.run(_released_at(16, hold.wait_for, hold.release, remote, names))
    assert len(background) == 40
    assert server.most_in_flight == 16


async def _released_at(
    count: int, wait_for: Callable[[int], None], release: Callable[[], None], remote: LocationResolver, names: list[str]
) -> list[TableId]:
    what = [f"db.{name}" for name in names]
    prefetching = asyncio.ensure_future(remote.aprefetch(what, pin_versions=False, max_in_flight=count))
    await asyncio.to_thread(wait_for, count)
    release()
    return list(await prefetching)


def test_a_table_that_is_denied_or_fails_spoils_no_other(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 5)
    server.fail(403, times=None, match="t0001")
    server.fail(503, times=None, match="t0002")
    report = remote.prefetch([f"db.t000{n}" for n in range(5)], pin_versions=False).report
    assert report.found == 3
    assert [(p.subject, p.attempts) for p in report.denied] == [(TableId(["db", "t0001"]), 1)]
    assert [(p.subject, p.attempts) for p in report.failed] == [(TableId(["db", "t0002"]), 4)]
    # The first call of all asks for the catalog's configuration.
    assert report.calls == 1 + 3 + 1 + 4
    assert report.p50 is not None and report.p95 is not None and 0 < report.p50 <= report.p95


def test_a_namespace_that_is_denied_is_told_and_no_pattern_blamed(
    server: FakeIceberg, remote: LocationResolver
) -> None:
    server.add_lance_tables(["open"], 1)
    server.add_lance_tables(["vault"], 1)
    server.fail(403, times=None, match="vault")
    report = remote.prefetch(["vault.*", "open.*"], pin_versions=False).report
    assert (report.found, report.missing, report.failed) == (1, (), ())
    assert [p.subject for p in report.denied] == [NamespaceId(["vault"])]


def test_only_namespaces_that_can_match_are_looked_into(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["a", "in"], 2)
    server.add_lance_tables(["b", "in"], 2)
    server.add_lance_tables(["b", "out", "side"], 2)
    remote.prefetch("a.in.t0000", pin_versions=False)
    server.clear()

    remote.prefetch("a.in.*1", pin_versions=False)
    assert "GET namespaces" not in paths(server)
    server.clear()

    # A namespace spelled out below a listed one is not listed for, nor is a table.
    found = remote.prefetch("*.in.t0001", pin_versions=False)
    assert sorted(map(str, found)) == ["a$in$t0001", "b$in$t0001"]
    assert not found.report.problems
    listings = [path for path in paths(server) if not path.endswith("t0001")]
    assert listings == ["GET namespaces"]


def test_the_whole_catalog_is_found_where_the_root_holds_no_tables(
    server: FakeIceberg, remote: LocationResolver
) -> None:
    server.add_lance_tables(["a", "in"], 2)
    server.add_lance_tables(["b"], 2)
    found = remote.prefetch("**", pin_versions=False)
    assert (len(found), found.report.problems) == (4, [])


def test_a_listed_table_that_is_denied_or_fails_spoils_no_other(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 5)
    server.fail(403, times=None, match="t0001")
    server.fail(503, times=None, match="t0002")
    report = remote.prefetch(["db.*", "db.t0001"], pin_versions=False).report
    assert (report.found, report.missing) == (3, ())
    assert [p.subject for p in report.denied] == [TableId(["db", "t0001"])]
    assert [p.subject for p in report.failed] == [TableId(["db", "t0002"])]


def test_only_tables_that_match_are_described(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 50)
    assert len(remote.prefetch("db.*7", pin_versions=False)) == 5
    assert sum("/tables/" in path for path in paths(server)) == 5


def test_a_timeout_bounds_the_whole(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 2)
    with server.hold("t0001"):
        report = remote.prefetch(["db.t0000", "db.t0001"], pin_versions=False, timeout=0.2).report
    assert [p.subject for p in report.failed] == [TableId(["db", "t0001"])]


def test_what_is_not_open_in_time_fails(lake: Lake) -> None:
    lake.write("db", "t")
    resolver = LocationResolver(lake.namespace)
    resolver.prefetch("db.t", pin_versions=False)
    with pytest.raises(ServiceUnavailableError, match="its time was over before it was open"):
        resolver.prefetch("db.t", timeout=1e-9, on_error="raise")


def test_progress_is_told_step_by_step(lake: Lake, resolver: LocationResolver) -> None:
    for n in range(3):
        lake.write("db", f"t{n}")
    told: list[tuple[int, int]] = []
    resolver.prefetch(["db.t0", "db.t1", "db.nix"], progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {6}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (6, 6)

    told.clear()
    resolver.prefetch(["db.t0", "db.t2"], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (2, 2)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("rich", [True, False])
def test_a_terminal_shows_a_line_and_a_file_nothing(
    lake: Lake, resolver: LocationResolver, monkeypatch: pytest.MonkeyPatch, rich: bool
) -> None:
    lake.write("db", "t")
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    resolver.prefetch("db.t")
    assert "resolving tables" in terminal.getvalue()
    if not rich:
        assert "\rresolving tables: 100 %" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r")

    resolver.forget()
    for stream, progress in ((Terminal(), False), (StringIO(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        resolver.prefetch("db.t", progress=progress)
        assert stream.getvalue() == ""


async def test_an_async_namespace_is_awaited(lake: Lake) -> None:
    lake.write("db", "t")
    async with AsyncNamespace.connect("dir", lake.properties) as namespace:
        resolver = LocationResolver(namespace)
        assert (await resolver.aprefetch("db.*"))["db.t"].version == 1
        with pytest.raises(InvalidInputError, match=r"await resolver\.aprefetch"):
            resolver.prefetch("db.*")


async def test_a_sync_namespace_serves_a_running_loop(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "t")
    assert resolver.prefetch("db.*") == await resolver.aprefetch("db.*")


async def test_a_resolver_closes_the_namespace_it_made_and_no_other(lake: Lake) -> None:
    lake.write("db", "t")
    with LocationResolver(lake.namespace) as borrowing:
        borrowing.prefetch("db.t")
    assert lake.namespace.exists(["db", "t"])

    with LocationResolver.connect("dir", lake.properties) as owning:
        owning.prefetch("db.t")
    with pytest.raises(InvalidInputError, match="closed"):
        owning.prefetch("db.t2")
    owning.close()

    async with LocationResolver.connect("dir", lake.properties) as owning:
        assert list(await owning.aprefetch("db.t")) == ids("db$t")
    with pytest.raises(InvalidInputError, match="closed"):
        await owning.aprefetch("db.t2")


@pytest.mark.parametrize(("properties", "most"), [({}, START), ({"max-in-flight": "3"}, 3)])
def test_a_namespace_of_its_own_allows_many_calls_unless_told(
    server: FakeIceberg, properties: Mapping[str, str], most: int
) -> None:
    names = server.add_lance_tables(["db"], 40)
    with LocationResolver.connect("iceberg", {"endpoint": server.endpoint, **properties}) as resolver:
        with server.hold("tables/t") as hold:
            found = asyncio.run(_released_at(most, hold.wait_for, hold.release, resolver, names))
    assert len(found) == 40
    assert server.most_in_flight <= 64


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_error": "ignore"}, "on_error 'ignore'"),
        ({"max_in_flight": 0}, "max_in_flight 0"),
        ({"timeout": 0}, "timeout 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    resolver: LocationResolver, options: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidInputError, match=told):
        resolver.prefetch([], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "told"),
    [({"ttl": -1.0}, "ttl -1"), ({"ttl": float("nan")}, "ttl nan"), ({"remembers": -1}, "remembers -1")],
)
def test_a_memory_that_cannot_be_is_refused(lake: Lake, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        LocationResolver(lake.namespace, **options)
    if "ttl" in options:
        with pytest.raises(InvalidInputError, match=told):
            LocationResolver.connect("dir", lake.properties, **options)


def test_other_namespaces_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"LocationResolver\.connect"):
        LocationResolver("dir")  # type: ignore[arg-type]


def test_nothing_needs_spark_before_a_dataframe_is_made(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["pyspark"] = None
import lance_ns_async.spark as spark
for name in spark.__all__: getattr(spark, name)
with spark.LocationResolver.connect("dir", {"root": sys.argv[1]}) as resolver:
    assert len(resolver.prefetch("*").to_arrow()) == 0
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=os.environ)

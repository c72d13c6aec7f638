"""Results, versions and reports of a prefetch, in a directory catalog and in a faulty Iceberg REST catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pytest
from lance_namespace import CreateNamespaceRequest
from lance_namespace.errors import InvalidTableStateError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async import Namespace, NamespaceId, TableId
from lance_ns_async.spark import LocationResolver
from lance_ns_async.tabular import Subject
from tests.fakes.iceberg import FakeIceberg
from tests.support.spark_lake import ROWS, Lake, ids, lake_in, resolver_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_in(tmp_path) as lake:
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
    with resolver_of(server) as resolver:
        yield resolver


def paths(server: FakeIceberg) -> list[str]:
    return [f"{r.method} {r.path.partition('?')[0].removeprefix('/v1/')}" for r in server.requests]


def test_a_table_is_found_opened_and_pinned(lake: Lake, resolver: LocationResolver) -> None:
    location = lake.write("db", "t", rows_per_file=2)
    lance.write_dataset(ROWS, location, mode="append")
    locations = resolver.prefetch("db.t")
    at = locations["db.t"]
    assert (at.location, at.version, at.rows, at.fragments) == (location, 2, 6, 3)
    assert at.schema == ROWS.schema
    assert (locations.report.found, locations.report.problems) == (1, [])


def test_tables_of_one_schema_share_it(lake: Lake, resolver: LocationResolver) -> None:
    for n in range(5):
        lake.write("db", f"t{n}")
    schemas = {id(at.schema) for at in resolver.prefetch("db.*").values()}
    assert len(schemas) == 1


def test_without_pins_nothing_is_opened(lake: Lake, resolver: LocationResolver) -> None:
    lake.declare("db", "empty")
    locations = resolver.prefetch("db.empty", pin_versions=False)
    assert (locations["db.empty"].version, locations["db.empty"].schema, locations.report.problems) == (None, None, [])


def test_a_table_nothing_was_written_to_is_distinguished(lake: Lake, resolver: LocationResolver) -> None:
    lake.declare("db", "empty")
    lake.write("db", "t")
    locations = resolver.prefetch(["db.empty", "db.t", "db.nix"])
    assert list(locations) == ids("db$t")
    (failed,) = locations.report.failed
    (missing,) = locations.report.missing
    assert failed.subject == TableId(["db", "empty"])
    assert "declared, nothing written yet" in failed.reason
    assert missing.subject == TableId(["db", "nix"])


def test_patterns_namespaces_and_ids_are_mixed(lake: Lake, resolver: LocationResolver) -> None:
    for text in ("root", "a$x1", "a$x2", "a$y", "a$in$x1", "b$x1", "b$deep$er$x3", "c$z"):
        lake.write(*text.split("$"))

    def names(*what: str | NamespaceId | list[str]) -> list[str]:
        locations = resolver.prefetch(what, pin_versions=False)
        assert not locations.report.problems
        return sorted(map(str, locations))

    assert names("a.*") == ["a$x1", "a$x2", "a$y"] == names(NamespaceId(["a"]))
    assert names("a.x?", ["b", "x1"], "a.x1") == ["a$x1", "a$x2", "b$x1"]
    assert names("*") == ["root"] == names(NamespaceId())
    assert names("*.x1") == ["a$x1", "b$x1"]
    assert names("**.x[13]") == ["a$in$x1", "a$x1", "b$deep$er$x3", "b$x1"]
    assert names("b.**") == ["b$deep$er$x3", "b$x1"]
    assert names("*.i?.x*") == ["a$in$x1"]
    assert len(names("**")) == 8


def test_what_matches_nothing_is_reported(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "t")
    locations = resolver.prefetch(["db.x*", "nix.*", NamespaceId(["nowhere"]), "*.nix", "db.*"])
    assert list(locations) == ids("db$t")
    message: dict[Subject, str] = {problem.subject: problem.reason for problem in locations.report.missing}
    assert set(message) == {"db.x*", "*.nix", NamespaceId(["nix"]), NamespaceId(["nowhere"])}
    assert "no table matches db.x*" in message["db.x*"]
    assert not locations.report.failed


def test_a_table_and_a_namespace_of_the_same_names_are_distinguished(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "x")
    locations = resolver.prefetch([NamespaceId(["db", "x"]), TableId(["db", "x"])])
    assert list(locations) == ids("db$x")
    assert locations.report.line().startswith("resolved 1/2 ")
    assert [type(problem.subject) for problem in locations.report.problems] == [NamespaceId]
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


@pytest.mark.parametrize("number", [1, 2])
def test_the_version_of_the_catalog_is_pinned_though_its_writer_died(tmp_path: Path, number: int) -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        with Namespace.connect("iceberg", properties) as ns:
            ns.create_namespace(CreateNamespaceRequest(id=["a"]))
            for mode in ("create", "append")[:number]:
                lance.write_dataset(ROWS, mode=mode, namespace_client=ns, table_id=["a", "t"])
            metadata = server.metadata(["a"], "t")
            assert metadata is not None
            # It died between the commit and the move of the manifest.
            staging = Path("/", metadata["snapshots"][-1]["summary"]["lance.staging"])
            final = staging.with_name(staging.name.partition("-")[0])
            final.rename(staging)
            locations = LocationResolver(ns).prefetch("a.t")["a.t"]
            assert (locations.version, locations.rows, final.exists()) == (number, 3 * number, True)
            # Missing tables are reported by name.
            final.unlink()
            report = LocationResolver(ns).prefetch("a.t").report
            assert f"latest version {number} has no manifest" in report.failed[0].reason


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
    # The first call requests the catalog's configuration.
    assert report.calls == 1 + 3 + 1 + 4
    assert report.p50 is not None and report.p95 is not None and 0 < report.p50 <= report.p95


def test_a_namespace_that_is_denied_is_reported_and_no_pattern_blamed(
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

    # A namespace below a listed one is not listed separately, and a table is not either.
    locations = remote.prefetch("*.in.t0001", pin_versions=False)
    assert sorted(map(str, locations)) == ["a$in$t0001", "b$in$t0001"]
    assert not locations.report.problems
    listings = [path for path in paths(server) if not path.endswith("t0001")]
    assert listings == ["GET namespaces"]


def test_the_whole_catalog_is_found_where_the_root_holds_no_tables(
    server: FakeIceberg, remote: LocationResolver
) -> None:
    server.add_lance_tables(["a", "in"], 2)
    server.add_lance_tables(["b"], 2)
    locations = remote.prefetch("**", pin_versions=False)
    assert (len(locations), locations.report.problems) == (4, [])


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

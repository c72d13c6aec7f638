"""Results, versions and reports of a prefetch, in a directory catalog and in a faulty Iceberg REST catalog."""

from __future__ import annotations

import asyncio
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pytest
from lance_namespace import CreateNamespaceRequest, DropTableRequest

from lance_ns_async import Namespace, NamespaceId, Table, TableId
from lance_ns_async.errors import Failure, with_failure
from lance_ns_async.many.patterns import Selection
from lance_ns_async.rendering import printable
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.resolve.location import LocationCache
from lance_ns_async.spark.resolve.report import PrefetchReport, Problem, one_error, report
from lance_ns_async.tabular import Subject
from tests.fakes.iceberg import FakeIceberg
from tests.support.spark import ROWS, Lake, ids, prefetch_together


def paths(server: FakeIceberg) -> list[str]:
    return [f"{r.method} {r.path.partition('?')[0].removeprefix('/v1/')}" for r in server.requests]


def test_a_table_is_found_opened_and_pinned(lake: Lake, resolver: LocationResolver) -> None:
    location = lake.write("db", "t", rows_per_file=2)
    lance.write_dataset(ROWS, location, mode="append")
    locations = resolver.prefetch("db.t")
    at = locations["db.t"]
    assert (at.location, at.version, at.rows, at.fragments) == (location, 2, 6, 3)
    assert at.schema == ROWS.schema and (locations.report.found, locations.report.problems) == (1, [])


def test_pins_open_tables_of_one_schema(lake: Lake, resolver: LocationResolver) -> None:
    for n in range(5):
        lake.write("db", f"t{n}")
    assert len({id(at.schema) for at in resolver.prefetch("db.*").values()}) == 1
    lake.declare("db", "empty")
    locations = resolver.prefetch("db.empty", pin_versions=False)
    assert (locations["db.empty"].version, locations["db.empty"].schema, locations.report.problems) == (None, None, [])
    locations = resolver.prefetch(["db.empty", "db.t1", "db.nix"])
    assert list(locations) == ids("db$t1")
    (failed,) = locations.report.failed
    (missing,) = locations.report.missing
    assert failed.subject == TableId(["db", "empty"]) and "declared, nothing written yet" in failed.reason
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
    assert names("*") == ["root"] == names(NamespaceId()) and names("*.x1") == ["a$x1", "b$x1"]
    assert names("**.x[13]") == ["a$in$x1", "a$x1", "b$deep$er$x3", "b$x1"]
    assert names("b.**") == ["b$deep$er$x3", "b$x1"] and names("*.i?.x*") == ["a$in$x1"]
    assert len(names("**")) == 8


def test_what_matches_nothing_is_reported_as_a_table_or_a_namespace(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "t")
    locations = resolver.prefetch(["db.x*", "nix.*", NamespaceId(["nowhere"]), "*.nix", "db.*"])
    assert list(locations) == ids("db$t")
    message: dict[Subject, str] = {problem.subject: problem.reason for problem in locations.report.missing}
    assert set(message) == {"db.x*", "*.nix", NamespaceId(["nix"]), NamespaceId(["nowhere"])}
    assert "no table matches db.x*" in message["db.x*"] and not locations.report.failed
    lake.write("db", "x")
    locations = resolver.prefetch([NamespaceId(["db", "x"]), TableId(["db", "x"])])
    assert list(locations) == ids("db$x") and locations.report.line().startswith("resolved 1/2 ")
    assert [type(problem.subject) for problem in locations.report.problems] == [NamespaceId]
    both = resolver.prefetch([NamespaceId(["db", "y"]), TableId(["db", "y"])])
    assert [type(problem.subject) for problem in both.report.missing] == [NamespaceId, TableId]
    with pytest.raises(err.NamespaceNotFoundError, match="2 of 2 could not be resolved"):
        resolver.prefetch([NamespaceId(["db", "y"]), TableId(["db", "y"])], on_error="raise")


def test_all_is_tried_before_anything_is_raised(lake: Lake, resolver: LocationResolver) -> None:
    lake.declare("db", "empty")
    lake.write("db", "t")
    with pytest.raises(err.TableNotFoundError, match=r"2 of 3 could not be resolved: .*db\$nix.*; .*nothing written"):
        resolver.prefetch(["db.nix", "db.empty", "db.t"], on_error="raise")
    assert resolver.prefetch("db.t", on_error="raise").report.calls == 0
    with pytest.raises(err.InvalidTableStateError):
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
        background = asyncio.run(prefetch_together(16, hold.wait_for, hold.release, remote, names))
    assert len(background) == 40 and server.most_in_flight == 16


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_table_that_is_denied_or_fails_spoils_no_other(
    server: FakeIceberg, remote: LocationResolver, is_listed: bool
) -> None:
    server.add_lance_tables(["db"], 5)
    server.fail(403, times=None, match="t0001")
    server.fail(503, times=None, match="t0002")
    what = ["db.*", "db.t0001"] if is_listed else [f"db.t000{n}" for n in range(5)]
    report = remote.prefetch(what, pin_versions=False).report
    assert (report.found, report.missing) == (3, ())
    assert [(p.subject, p.attempts) for p in report.denied] == [(TableId(["db", "t0001"]), 1)]
    assert [(p.subject, p.attempts) for p in report.failed] == [(TableId(["db", "t0002"]), 4)]
    # The first call requests the catalog's configuration.
    assert is_listed or report.calls == 1 + 3 + 1 + 4
    assert report.p50 is not None and report.p95 is not None and 0 < report.p50 <= report.p95


def test_a_denied_namespace_is_reported_without_patterns(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["open"], 1)
    server.add_lance_tables(["vault"], 1)
    server.fail(403, times=None, match="vault")
    report = remote.prefetch(["vault.*", "open.*"], pin_versions=False).report
    assert (report.found, report.missing, report.failed) == (1, (), ())
    assert [p.subject for p in report.denied] == [NamespaceId(["vault"])]


def test_only_what_can_match_is_looked_into(server: FakeIceberg, remote: LocationResolver) -> None:
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
    assert sorted(map(str, locations)) == ["a$in$t0001", "b$in$t0001"] and not locations.report.problems
    assert [path for path in paths(server) if not path.endswith("t0001")] == ["GET namespaces"]
    server.add_lance_tables(["db"], 50)
    server.clear()
    assert len(remote.prefetch("db.*7", pin_versions=False)) == 5
    assert sum("/tables/" in path for path in paths(server)) == 5


def test_only_what_is_unknown_is_requested_again(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 3)
    first = remote.prefetch(["db.t0000", "db.t0001", "db.nix"], pin_versions=False)
    server.clear()
    again = remote.prefetch(["db.t0000", "db.t0001", "db.t0002", "db.nix"], pin_versions=False)
    # Errors are not remembered.
    assert sorted(paths(server)) == ["GET namespaces/db/tables/nix", "GET namespaces/db/tables/t0002"]
    assert again.report.calls == 2 and again["db.t0000"] == first["db.t0000"]
    everything = ["db.t0000", "db.t0001", "db.t0002"]
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
    lake.write("db", "u")
    resolver.prefetch("db.u", pin_versions=False)
    locations = resolver.prefetch("db.u")
    assert (locations["db.u"].version, locations.report.calls) == (1, 0)


def test_a_table_made_anew_elsewhere_is_described_anew(lake: Lake, resolver: LocationResolver) -> None:
    old = lake.write("db", "t")
    resolver.prefetch("db.*")
    lake.namespace.drop_table(DropTableRequest(id=["db", "t"]))
    new = lake.write("db", "t", rows=ROWS.slice(0, 1))
    locations = resolver.prefetch("db.*")["db.t"]
    assert locations.location == new
    assert locations.rows == (1 if new != old else 3)


@pytest.mark.parametrize(("in_seconds", "calls"), [(30, 1), (600, 0)])
def test_storage_options_about_to_expire_are_requested_again(tmp_path: Path, in_seconds: float, calls: int) -> None:
    expires = str(int((time.time() + in_seconds) * 1000))
    lake = Lake(tmp_path, {"expires_at_millis": expires})
    lake.write("db", "t")
    resolver = LocationResolver(lake.namespace)
    assert resolver.prefetch("db.t", pin_versions=False)["db.t"].expires_at == int(expires) / 1000
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
    memory = LocationCache(ttl=60, limit=100)
    tables = [Table(TableId(["db", f"t{n}"]), f"/lake/t{n}") for n in range(500)]
    pattern = Selection.read("db.t*")

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


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ttl": -1.0}, "ttl -1"), ({"ttl": float("nan")}, "ttl nan"), ({"remembers": -1}, "remembers -1")],
)
def test_a_memory_that_cannot_be_is_refused(lake: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(err.InvalidInputError, match=message):
        LocationResolver(lake.namespace, **options)
    if "ttl" in options:
        with pytest.raises(err.InvalidInputError, match=message):
            LocationResolver.connect("dir", lake.properties, **options)


T = TableId(["db", "t"])


def test_errors_are_sorted_by_what_they_mean() -> None:
    errors: list[tuple[Subject, err.LanceNamespaceError]] = [
        (T, err.TableNotFoundError("a")),
        (NamespaceId(["nix"]), err.NamespaceNotFoundError("b")),
        ("x.*", err.TableNotFoundError("c")),
        (TableId(["nix"]), err.TableNotFoundError("a table and a namespace may have the same names")),
        *((TableId(["d"]), err.PermissionDeniedError("d")), (TableId(["e"]), err.UnauthenticatedError("e"))),
        *((TableId(["f"]), err.ServiceUnavailableError("f")), (TableId(["g"]), err.InvalidTableStateError("g"))),
        (TableId(["h"]), err.InternalError("h")),
    ]
    result = report(5, errors, seconds=1.0, calls=[])
    assert [problem.reason for problem in result.missing] == [str(error) for _, error in errors[:4]]
    assert [problem.reason for problem in result.denied] == ["d", "e"]
    assert [problem.reason for problem in result.failed] == ["f", "g", "h"]
    assert [problem.subject for problem in result.problems] == [subject for subject, _ in errors]


def test_attempts_and_times_of_calls_and_no_control_characters_are_reported() -> None:
    failure = Failure(429, message="slow down")
    failure.attempts = 4
    result = report(0, [(T, with_failure(err.ThrottlingError("Throttled: t"), failure))], seconds=0.0, calls=[])
    assert result.failed == (Problem(T, "Throttled: t", attempts=4),)
    result = report(100, [], seconds=2.0, calls=[n / 100 for n in range(100, 0, -1)])
    assert (result.calls, result.p50, result.p95) == (100, 0.51, 0.96)
    assert report(1, [], seconds=0.0, calls=[0.25]).p95 == 0.25
    assert report(1, [], seconds=0.0, calls=[]).p50 is None
    assert printable("db$é 表 a b\t\x1b[2J\r\x9b\u202e.") == "db$é 表 a b\ufffd\ufffd[2J\ufffd\ufffd\ufffd."
    html = PrefetchReport(1, tuple(Problem(TableId([f"<b>{n}"]), "a & b") for n in range(21)))._repr_html_()
    assert "<td>&lt;b&gt;0</td><td>a &amp; b</td></tr>" in html and html.count("<tr>") == 1 + 20 + 1
    assert "... and 1 more" in html and "<table>" not in PrefetchReport(1)._repr_html_()


def test_one_error_stands_for_all() -> None:
    errors = [err.TableNotFoundError(f"Table not found: t{n}") for n in range(7)]
    error = one_error(errors, of=10)
    assert isinstance(error, err.TableNotFoundError)
    assert str(error).startswith("7 of 10 could not be resolved: Table not found: t0; ")
    assert str(error).endswith("Table not found: t4; and 2 more") and error.__cause__ is errors[0]

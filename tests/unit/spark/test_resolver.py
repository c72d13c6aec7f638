"""A resolver: its creation, its close, its use from sync and async code, its observers, and refused uses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path

import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.calls.limiter import START
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.session import label
from lance_ns_async.spark.tasks import cause_of, distribute, rebuild, task_error
from tests.fakes.iceberg import FakeIceberg
from tests.support.spark import Lake, ids, prefetch_together


def test_a_timeout_bounds_the_whole(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 2)
    with server.hold("t0001"):
        report = remote.prefetch(["db.t0000", "db.t0001"], pin_versions=False, timeout=0.2).report
    assert [p.subject for p in report.failed] == [TableId(["db", "t0001"])]


def test_what_is_not_open_in_time_fails(lake: Lake) -> None:
    lake.write("db", "t")
    resolver = LocationResolver(lake.namespace)
    resolver.prefetch("db.t", pin_versions=False)
    with pytest.raises(err.ServiceUnavailableError, match="the operation's time ended before the table was opened"):
        resolver.prefetch("db.t", timeout=1e-9, on_error="raise")


def test_progress_is_reported_step_by_step(lake: Lake, resolver: LocationResolver) -> None:
    for n in range(3):
        lake.write("db", f"t{n}")
    message: list[tuple[int, int]] = []
    resolver.prefetch(["db.t0", "db.t1", "db.nix"], progress=lambda done, total: message.append((done, total)))
    assert {total for _, total in message} == {6}
    assert [done for done, _ in message] == sorted(done for done, _ in message) and message[-1] == (6, 6)
    message.clear()
    resolver.prefetch(["db.t0", "db.t2"], progress=lambda done, total: message.append((done, total)))
    assert message[-1] == (2, 2)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("rich", [True, False])
def test_only_a_terminal_shows_progress(
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
        assert "\rresolving tables: 100 %" in terminal.getvalue() and terminal.getvalue().endswith("\r")
    resolver.forget()
    for stream, progress in ((Terminal(), False), (StringIO(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        resolver.prefetch("db.t", progress=progress)
        assert stream.getvalue() == ""


async def test_async_and_sync_namespaces_serve_a_running_loop(lake: Lake, resolver: LocationResolver) -> None:
    lake.write("db", "t")
    async with AsyncNamespace.connect("dir", lake.properties) as namespace:
        other = LocationResolver(namespace)
        assert (await other.aprefetch("db.*"))["db.t"].version == 1
        with pytest.raises(err.InvalidInputError, match=r"await resolver\.aprefetch"):
            other.prefetch("db.*")
    assert resolver.prefetch("db.*") == await resolver.aprefetch("db.*")


async def test_a_resolver_closes_the_namespace_it_made_and_no_other(lake: Lake) -> None:
    lake.write("db", "t")
    with LocationResolver(lake.namespace) as borrowing:
        borrowing.prefetch("db.t")
    assert borrowing.namespace is lake.namespace and lake.namespace.exists(["db", "t"])
    with LocationResolver.connect("dir", lake.properties) as owning:
        owning.prefetch("db.t")
    with pytest.raises(err.InvalidInputError, match="closed"):
        owning.prefetch("db.t2")
    owning.close()
    async with LocationResolver.connect("dir", lake.properties) as owning:
        assert list(await owning.aprefetch("db.t")) == ids("db$t")
    with pytest.raises(err.InvalidInputError, match="closed"):
        await owning.aprefetch("db.t2")


@pytest.mark.parametrize(("properties", "most"), [({}, START), ({"max-in-flight": "3"}, 3)])
def test_own_namespaces_allow_many_calls(server: FakeIceberg, properties: Mapping[str, str], most: int) -> None:
    names = server.add_lance_tables(["db"], 40)
    with LocationResolver.connect("iceberg", {"endpoint": server.endpoint, **properties}) as resolver:
        with server.hold("tables/t") as hold:
            result = asyncio.run(prefetch_together(most, hold.wait_for, hold.release, resolver, names))
    assert len(result) == 40 and server.most_in_flight <= 64


@pytest.mark.parametrize("options", [{"on_error": "ignore"}, {"max_in_flight": 0}, {"timeout": 0}])
def test_meaningless_arguments_are_refused(resolver: LocationResolver, options: dict[str, object]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(err.InvalidInputError, match=f"{name} {value!r}"):
        resolver.prefetch([], **options)  # type: ignore[arg-type]
    with pytest.raises(err.InvalidInputError, match=r"LocationResolver\.connect"):
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


def test_groups_have_about_equal_weight() -> None:
    weights = [100, 1, 1, 1, 50, 48]
    groups = distribute(range(6), weights.__getitem__, 2)
    assert sorted(n for group in groups for n in group) == [0, 1, 2, 3, 4, 5]
    assert max(sum(weights[n] for n in group) for group in groups) <= 102
    assert all(group == sorted(group) for group in groups)
    assert len(distribute(range(6), lambda n: n, 100)) == 6
    assert distribute([], lambda it: 1, 3) == [[]]


def test_errors_of_tasks_keep_class_message_and_notes() -> None:
    job_error = RuntimeError(
        "Traceback ...\n  File x, line 1\n"
        "lance_namespace.errors.PermissionDeniedError: Permission denied: t (at s3://b/t: no)\n\n\tat org.apache"
    )
    job_error.add_note("and this is left")
    error = task_error(job_error)
    assert isinstance(error, err.PermissionDeniedError) and str(error) == "Permission denied: t (at s3://b/t: no)"
    assert error.__notes__ == ["and this is left"]


def test_causes_of_errors() -> None:
    for text in ("ZeroDivisionError: division by zero", "lance_namespace.errors.json: no class of errors"):
        assert cause_of(RuntimeError(text)) is None
    error = cause_of(RuntimeError("ModuleNotFoundError: No module named 'lance_ns_async'"))
    assert isinstance(error, ImportError) and "PYSPARK_PYTHON" in str(error)
    assert type(rebuild("PermissionDeniedError", "no")) is err.PermissionDeniedError
    assert type(rebuild("json", "no")) is err.InternalError


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        ([("sales", "day1")], "lance-ns: read sales.day1"),
        ([("sales", f"day{n}") for n in range(1000)], "lance-ns: read 1,000 tables of sales.*"),
        ([("a", "b", "t"), ("a", "c", "t")], "lance-ns: read 2 tables of a.**"),
        ([("a", "b", "t"), ("a", "b", "c", "t")], "lance-ns: read 2 tables of a.b.**"),
        ([("a", "t"), ("b", "t")], "lance-ns: read 2 tables of **"),
        ([("t",), ("u",)], "lance-ns: read 2 tables of *"),
        ([("a/b\n", 'é "x"')], "lance-ns: read a_b_.é _x_"),
        ([("x" * 200, "t")], f"lance-ns: read {'x' * 100}..."),
    ],
)
def test_tables_are_named_by_their_namespace(ids: list[tuple[str, ...]], name: str) -> None:
    assert label("read", [TableId(id) for id in ids]) == name


ROWS = pa.table({"id": [1]})


@pytest.fixture
def ns(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.create_namespace("s")
        for name in "abc":
            namespace.write(["s", name], ROWS)
        yield namespace


def test_changed_tables_are_resolved_anew_and_the_others_stay(ns: Namespace) -> None:
    resolver = LocationResolver(ns)
    locations = resolver.prefetch("s.*", progress=False)
    token = ns.watch_token("s.*")
    ns.write("s.a", ROWS, mode="append")
    ns.write("s.new", ROWS)
    ns.write("s.c", ROWS, mode="append")
    ns.drop_table("s.b")
    changes = list(ns.watch("s.*", since=token, every=None))
    ns.write("s.c", ROWS, mode="append")
    calls: list[str] = []
    with ns.observe(lambda call: calls.append(str(call.subject))):
        followed = resolver.refresh(locations, changes=[it for it in changes if it.id != TableId("s.c")])
    assert {str(id): it.version for id, it in followed.items()} == {"s$a": 2, "s$c": 1, "s$new": 1}
    assert followed["s.c"] == locations["s.c"] and "s$c" not in calls
    assert resolver.refresh(followed, changes=changes)["s.c"].version == 3
    assert {str(id) for id in resolver.refresh(followed)} == {"s$a", "s$c", "s$new"}


def test_locations_without_versions_get_none(ns: Namespace) -> None:
    resolver = LocationResolver(ns)
    locations = resolver.prefetch("s.*", pin_versions=False, progress=False)
    token = ns.watch_token("s.*", versions=False)
    location = ns.describe_table("s.a").location
    ns.deregister_table("s.a")
    ns.register_table("s.moved", location=location)
    (change,) = ns.watch("s.*", since=token, every=None, versions=False)
    followed = resolver.refresh(locations, changes=[change])
    assert {str(id): it.version for id, it in followed.items()} == {"s$b": None, "s$c": None, "s$moved": None}

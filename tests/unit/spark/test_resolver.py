"""A resolver: its creation, its close, its use from sync and async code, its observers, and refused uses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.calls.limiter import START
from lance_ns_async.spark import LocationResolver
from tests.fakes.iceberg import FakeIceberg
from tests.support.spark_lake import Lake, ids, lake_in, resolver_of


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


async def _released_at(
    count: int, wait_for: Callable[[int], None], release: Callable[[], None], remote: LocationResolver, names: list[str]
) -> list[TableId]:
    what = [f"db.{name}" for name in names]
    prefetching = asyncio.ensure_future(remote.aprefetch(what, pin_versions=False, max_in_flight=count))
    await asyncio.to_thread(wait_for, count)
    release()
    return list(await prefetching)


def test_a_timeout_bounds_the_whole(server: FakeIceberg, remote: LocationResolver) -> None:
    server.add_lance_tables(["db"], 2)
    with server.hold("t0001"):
        report = remote.prefetch(["db.t0000", "db.t0001"], pin_versions=False, timeout=0.2).report
    assert [p.subject for p in report.failed] == [TableId(["db", "t0001"])]


def test_what_is_not_open_in_time_fails(lake: Lake) -> None:
    lake.write("db", "t")
    resolver = LocationResolver(lake.namespace)
    resolver.prefetch("db.t", pin_versions=False)
    with pytest.raises(ServiceUnavailableError, match="the operation's time ended before the table was opened"):
        resolver.prefetch("db.t", timeout=1e-9, on_error="raise")


def test_progress_is_reported_step_by_step(lake: Lake, resolver: LocationResolver) -> None:
    for n in range(3):
        lake.write("db", f"t{n}")
    message: list[tuple[int, int]] = []
    resolver.prefetch(["db.t0", "db.t1", "db.nix"], progress=lambda done, total: message.append((done, total)))
    assert {total for _, total in message} == {6}
    assert [done for done, _ in message] == sorted(done for done, _ in message)
    assert message[-1] == (6, 6)

    message.clear()
    resolver.prefetch(["db.t0", "db.t2"], progress=lambda done, total: message.append((done, total)))
    assert message[-1] == (2, 2)


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
    assert borrowing.namespace is lake.namespace and lake.namespace.exists(["db", "t"])

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
            result = asyncio.run(_released_at(most, hold.wait_for, hold.release, resolver, names))
    assert len(result) == 40
    assert server.most_in_flight <= 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "on_error 'ignore'"),
        ({"max_in_flight": 0}, "max_in_flight 0"),
        ({"timeout": 0}, "timeout 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    resolver: LocationResolver, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        resolver.prefetch([], **options)  # type: ignore[arg-type]


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

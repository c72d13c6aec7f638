"""Locations that follow the changes of a watch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import TableNotFoundError

from lance_ns_async import Namespace, TableId
from lance_ns_async.spark import LocationResolver

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


def test_a_table_that_is_gone_meanwhile_is_an_error(ns: Namespace) -> None:
    resolver = LocationResolver(ns)
    locations = resolver.prefetch("s.a", progress=False)
    changes = list(ns.watch("s.*", existing=True, every=None))
    ns.drop_table("s.b")
    with pytest.raises(TableNotFoundError, match="s\\$b"):
        resolver.refresh(locations, changes=changes)
    report = resolver.refresh(locations, changes=changes, on_error="report")
    assert {str(id) for id in report} == {"s$a", "s$c"}

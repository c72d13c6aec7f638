"""Dropped tables that can be brought back: in audits and discoveries, without rights, damaged, half purged."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import DirNamespace, Namespace, TableId
from lance_ns_async.fleet import sync
from tests.fakes.s3 import FakeS3
from tests.fakes.server import Answer, Received
from tests.support.gateway import served

ROWS = pa.table({"x": [1, 2]})


@pytest.fixture
def ns(tmp_path: Path) -> DirNamespace:
    namespace = DirNamespace(root=str(tmp_path / "lake"), drop_retention="7d")
    namespace.create_namespace("s")
    namespace.write("s.t", ROWS)
    return namespace


def folder(ns: DirNamespace, id: str) -> Path:
    return Path(str(ns.describe_table(id).location).removeprefix("file://"))


def test_a_property_is_the_default_of_drops(ns: DirNamespace) -> None:
    ns.write("s.now", ROWS)
    ns.drop_table("s.now", keep=0)
    ns.drop_table("s.t")
    (row,) = sync.dropped(ns).rows
    assert str(row.id) == "s$t" and row.fields["size"] and "until 20" in repr(sync.dropped(ns))
    with pytest.raises(InvalidInputError, match="keep 'soon': not a duration"):
        ns.drop_table("s.t", keep="soon")
    with pytest.raises(InvalidInputError, match=r"keep .*-1.*: not a duration"):
        ns.drop_table("s.t", keep=-1)


def test_audit_and_discover_know_dropped_tables(ns: DirNamespace, tmp_path: Path) -> None:
    ns.drop_table("s.t")
    root = str(tmp_path / "lake")
    (finding,) = sync.audit(ns, "**", data_under=root).rows
    assert finding.outcome == "dropped" and "s$t was dropped, and can be brought back" in finding.reason
    assert [row.outcome for row in sync.discover(ns, root).rows] == ["dropped"]
    assert [row.outcome for row in sync.discover(ns, root, include_dropped=True).rows] == ["registered"]
    assert not sync.dropped(ns).rows  # The file beside a registered table means nothing.


def test_a_namespace_comes_back_with_its_table(ns: DirNamespace) -> None:
    ns.drop_table("s.t")
    ns.drop_namespace("s")
    assert str(sync.undrop(ns, "s.t").id) == "s$t" and ns.open("s.t").count_rows() == 2
    ns.drop_table("s.t")
    assert str(sync.undrop(ns, "s.t", as_="new.below.u").id) == "new$below$u"
    with pytest.raises(TableNotFoundError, match=r"undrop: no dropped table of that id is below .*; known are none"):
        sync.undrop(ns, "s.t")


def test_a_table_at_the_root_keeps_its_name_until_it_is_purged(ns: DirNamespace) -> None:
    ns.write("top", ROWS)
    ns.drop_table("top")
    with pytest.raises(TableAlreadyExistsError, match=r"fleet\.undrop"):
        ns.declare_table("top")
    sync.undrop(ns, "top")
    place = folder(ns, "top")
    ns.drop_table("top", keep=0.001)
    assert [row.outcome for row in sync.purge(ns).rows] == ["purged"]
    (place / ".lance-ns-dropped").mkdir(parents=True)
    (place / ".lance-deregistered").touch()  # As if the purge had been killed at its end.
    ns.write("top", ROWS)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 2}', '{"format": 1, "id": [""]}', "[1"])
def test_a_damaged_record_is_never_purged(ns: DirNamespace, content: str) -> None:
    place = folder(ns, "s.t")
    ns.drop_table("s.t", keep=0.001)
    (record,) = (place / ".lance-ns-dropped").glob("*.json")
    record.write_text(content)
    for report in (sync.purge(ns), sync.dropped(ns)):
        (row,) = report.problems
        assert row.outcome == "failed" and record.name in row.reason and "cannot be read" in row.reason
    with pytest.raises(InvalidTableStateError, match="cannot be read"):
        sync.undrop(ns, str(place))
    assert (place / "data").is_dir()


class WithoutNotes(FakeS3):
    """An S3 whose keys may write everything but the notes of drops."""

    def handle(self, request: Received) -> Answer:
        if request.method == "PUT" and ".lance-ns-dropped" in request.path:
            return Answer.of(b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>", 403)
        return super().handle(request)


def test_a_drop_without_the_right_to_write_is_refused() -> None:
    with WithoutNotes() as s3:
        properties = {"root": "s3://lake", **{f"storage.{key}": value for key, value in s3.options.items()}}
        with Namespace.connect("dir", properties) as ns:
            ns.create_namespace("s")
            ns.write("s.t", ROWS)
            with pytest.raises(PermissionDeniedError, match="nothing was dropped, because a drop with retention is"):
                ns.drop_table("s.t", keep="7d")
            assert ns.open("s.t").count_rows() == 2 and not sync.dropped(ns).rows


def test_an_interrupted_purge_is_finished_by_the_next_one(ns: DirNamespace) -> None:
    place = folder(ns, "s.t")
    ns.drop_table("s.t", keep=0.001)
    (record,) = (place / ".lance-ns-dropped").glob("*.json")
    assert json.loads(record.read_text())["id"] == ["s", "t"]
    record.with_suffix(".purge").write_text("{}")
    record.with_suffix(".done").unlink()
    shutil.rmtree(place / "_versions")
    assert [row.outcome for row in sync.dropped(ns).rows] == ["purging"]
    with pytest.raises(TableNotFoundError, match="a purge deletes its data"):
        sync.undrop(ns, "s.t")
    assert [row.outcome for row in sync.purge(ns).rows] == ["purged"]
    assert not place.exists()


@pytest.mark.parametrize("storage", ["local", "s3"])
def test_a_purge_says_what_it_deletes(tmp_path: Path, storage: str) -> None:
    with ExitStack() as stack:
        properties = {"root": str(tmp_path)}
        if storage == "s3":
            s3 = stack.enter_context(FakeS3())
            properties = {"root": "s3://lake", **{f"storage.{key}": value for key, value in s3.options.items()}}
        ns = stack.enter_context(Namespace.connect("dir", properties))
        ns.create_namespace("s")
        for n in range(5):
            ns.write("s.t", pa.table({"x": range(1_000 * n, 1_000 * n + 1_000)}), mode="overwrite" if n else "create")
        newest = ns.get_table_stats("s.t").total_bytes
        ns.drop_table("s.t", keep=0.001)
        (would,), (row,) = sync.purge(ns, dry_run=True).rows, (report := sync.purge(ns)).rows
        assert row.fields["size"] == would.fields["size"] == report.counters["bytes"] > 5 * newest


def test_a_retention_is_no_property_of_a_namespace_of_the_catalog(ns: DirNamespace) -> None:
    with pytest.raises(InvalidInputError, match="drop_retention: a property of the connection"):
        ns.create_namespace("kept", properties={"drop_retention": "7d"})


def test_data_of_a_table_with_another_name_is_not_to_be_removed(ns: DirNamespace) -> None:
    ns.write("top", ROWS)
    ns.drop_table("top")
    sync.undrop(ns, "top", as_="s.top")
    with pytest.raises(TableAlreadyExistsError, match="perhaps of a table with another name"):
        ns.write("top", ROWS)
    assert ns.open("s.top").count_rows() == 2


def test_many_tables_come_back_at_once(ns: DirNamespace, tmp_path: Path) -> None:
    for id, keep in (("s.a", "7d"), ("s.a", "7d"), ("s.b", "7d"), ("other.c", "7d"), ("s.d", "7d")):
        ns.create_namespace(id.partition(".")[0], mode="exist_ok")
        ns.write(id, ROWS)
        ns.drop_table(id, keep=keep)
    last = max(sync.dropped(ns).having("dropped"), key=lambda row: (str(row.id) == "s$a", row.fields["dropped"]))
    ns.write("s.d", ROWS)
    ns.drop_namespace("other")
    report = sync.undrop_many(ns, ["s.*", "other.c", "s.none"], under=str(tmp_path / "lake"))
    outcomes = {str(row.id): row.outcome for row in report.rows}
    assert outcomes == {
        **dict.fromkeys(("s$a", "s$b", "other$c"), "brought back"),
        **{"s$d": "failed", "s$none": "missing"},
    }
    assert str(ns.describe_table("s.a").location).endswith(str(last.location)) and ns.open("other.c").count_rows() == 2
    assert [str(row.id) for row in sync.dropped(ns).rows] == ["s$d", "s$a"]


def test_a_table_that_is_not_dropped_is_named(ns: DirNamespace) -> None:
    with pytest.raises(TableNotFoundError, match=r"no dropped table of that id .* the catalog has a table of that id"):
        sync.undrop(ns, "s.t")


def test_the_folder_must_be_known(ns: DirNamespace, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no such folder"):
        sync.dropped(ns, under=str(tmp_path / "none"))
    with pytest.raises(TableNotFoundError, match=r"^Table not found: undrop: no dropped table is at "):
        sync.undrop(ns, str(tmp_path))


def test_partitions_come_back_with_their_values(tmp_path: Path) -> None:
    ns = DirNamespace(root=str(tmp_path), drop_retention="1d")
    rows = pa.table({"r": ["EU", "EU", "US"], "x": [1, 2, 3]})
    ns.partition_by(["r"], schema=rows.schema)
    ns.write_partitions(rows)
    ns.drop_partitions("r = 'EU'")
    (row,) = sync.dropped(ns).rows
    sync.undrop(ns, str(row.location))
    assert [it.values["r"] for it in ns.list_partitions()] == ["EU", "US"]
    ns.write_partitions(rows)
    assert [it.values["r"] for it in ns.list_partitions()] == ["EU", "US"]
    assert ns.open_partitions("r = 'EU'").to_reader().read_all().num_rows == 4


def test_drops_through_a_gateway_can_be_taken_back(ns: DirNamespace, tmp_path: Path) -> None:
    properties = {"root": str(tmp_path / "lake"), "drop_retention": "7d"}
    with served("dir", properties) as gateway:
        headers = {f"header.{name}": value for name, value in gateway.headers.items()}
        remote = Namespace.connect("rest", {"uri": gateway.url, **headers})
        remote.drop_table("s.t")
        assert not remote.exists("s.t")
        (row,) = sync.dropped(remote, under=properties["root"]).rows
        sync.undrop(remote, str(row.location))
        assert remote.count_table_rows("s.t").count == 2


def test_what_may_be_wanted_is_not_purged(ns: DirNamespace, tmp_path: Path) -> None:
    place = folder(ns, "s.t")
    ns.drop_table("s.t", keep=0.001)
    notes = place / ".lance-ns-dropped"
    (record,), (done,) = notes.glob("*.json"), notes.glob("*.done")
    copied = tmp_path / "lake" / "copied"
    shutil.copytree(place, copied)
    later = json.loads(record.read_text()) | {"until": "9999-01-01T00:00:00+00:00"}

    def outcomes() -> dict[str, str]:
        rows = [*sync.purge(ns, dry_run=True).rows, *sync.purge(ns).rows]
        assert {row.location: row.outcome for row in rows[:2]} == {row.location: row.outcome for row in rows[2:]}
        return {Path(str(row.location)).name: row.outcome for row in rows}

    done.unlink()  # Its drop was killed, perhaps before the table was deregistered by somebody else.
    assert outcomes() == {place.name: "kept", "copied": "kept"}
    done.touch()
    mark = notes / "0.undrop"  # An undrop was killed, perhaps before the table was deregistered by somebody else.
    mark.write_text(json.dumps({"id": ["s", "t"], "drops": [record.name]}))
    assert outcomes() == {place.name: "kept", "copied": "kept"}
    mark.unlink()
    (notes / "0.json").write_text(json.dumps(later | {"dropped": "2000-01-01T00:00:00+00:00"}))
    (notes / "0.done").touch()  # Another drop has a later end, by a clock that is late.
    assert outcomes() == {place.name: "kept", "copied": "kept"}
    assert sync.undrop(ns, str(place)).id == TableId(["s", "t"]) and not list(notes.glob("*.json"))


def test_a_drop_by_a_clock_that_is_late_is_kept_by_the_time_of_the_storage(ns: DirNamespace) -> None:
    place = folder(ns, "s.t")
    ns.drop_table("s.t", keep="7d")
    (record,) = (place / ".lance-ns-dropped").glob("*.json")
    content = json.loads(record.read_text())
    for key in ("dropped", "until"):
        content[key] = str(datetime.fromisoformat(content[key]) - timedelta(days=8))
    record.write_text(json.dumps(content))
    (row,) = sync.purge(ns).rows
    assert row.outcome == "kept" and "by the clock of the storage" in row.reason
    os.utime(record, (time.time() - 8 * 86_400,) * 2)
    assert sync.purge(ns).counts == {"purged": 1} and not place.exists()


def test_a_table_that_discover_registers_is_not_dropped_any_more(ns: DirNamespace, tmp_path: Path) -> None:
    place = folder(ns, "s.t")
    ns.drop_table("s.t", keep=0.001)
    sync.discover(ns, str(tmp_path / "lake"), include_dropped=True)
    (id,) = ns.list_all_tables().tables
    ns.deregister_table(id)
    assert not sync.purge(ns).rows and (place / "data").is_dir()

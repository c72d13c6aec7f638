"""Runs over many tables: ids, journals, reports and the sync functions."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError, PermissionDeniedError, ThrottlingError

from lance_ns_async import AsyncNamespace, Namespace, NamespaceId, TableId, fleet
from lance_ns_async.errors import Failure, with_failure
from lance_ns_async.fleet import Report, Row
from lance_ns_async.fleet.copy_plan import IdMapping, To
from lance_ns_async.fleet.journal import open_journal
from lance_ns_async.fleet.run import failure_row, start
from tests.support.processes import run_script

RUN = {"uri": "s3://b", "into": ["a"]}


async def test_a_finished_run_starts_again_and_a_stopped_one_goes_on(tmp_path: Path) -> None:
    for _ in range(2):
        async with open_journal(tmp_path / "journal", "copy", RUN) as journal:
            assert await journal.entries("tables") == {}
            await journal.put(("tables", "a", 1))
            await journal.finish()
    file = tmp_path / "journal"
    async with open_journal(file, "copy", RUN) as journal:
        await journal.put(("tables", "a", 1), ("tables", "b", None))
        await journal.put(("tables", "a", {"x": [2]}), ("folders", "a", 3))
    async with open_journal(file, "copy", RUN) as journal:
        assert await journal.entries("tables") == {"a": {"x": [2]}, "b": None}
        assert await journal.entries("folders") == {"a": 3}


async def test_a_journal_of_another_run_or_in_use_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    async with open_journal(file, "copy", RUN):
        pass
    with pytest.raises(InvalidInputError, match=r'another run \(into is \["a"\] there, and \["b"\] here\)'):
        async with open_journal(file, "copy", {**RUN, "into": ["b"]}):
            pass
    with pytest.raises(InvalidInputError, match="operation is"):
        async with open_journal(file, "discover", RUN):
            pass
    async with open_journal(file, "copy", RUN):
        with pytest.raises(InvalidInputError, match="another run uses it"):
            async with open_journal(file, "copy", RUN):
                pass


async def test_other_files_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database, but a text that is longer than the header of one, which has one hundred bytes " * 2)
    database = tmp_path / "database"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    for file, message in ((text, "cannot be used"), (database, "another program"), (tmp_path / "x/y", "no folder")):
        before = file.read_bytes() if file.exists() else None
        with pytest.raises(InvalidInputError, match=message):
            async with open_journal(file, "copy", RUN):
                pass
        assert (file.read_bytes() if file.exists() else None) == before


KILLED = """
import asyncio, os, signal, sys
from lance_ns_async.fleet.journal import open_journal
async def main():
    async with open_journal(sys.argv[1], "copy", {"n": 1}) as journal:
        for n in range(100_000):
            await journal.put(("one", str(n), n), ("two", str(n), n))
            if n == int(sys.argv[2]):
                await journal.flush()
                await journal.put(("one", "lost", 0))
                os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_flushed_entries_survive_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    for count in (700, 1300):
        assert run_script(KILLED, str(file), str(count - 1)) == (-signal.SIGKILL, [])
        async with open_journal(file, "copy", {"n": 1}) as journal:
            one, two = await journal.entries("one"), await journal.entries("two")
            assert one == two and len(one) == count


async def test_a_catalog_has_one_text_in_every_process(tmp_path: Path) -> None:
    script = (
        "import sys; from lance_ns_async import AsyncNamespace; "
        "print(AsyncNamespace.connect('dir', {'root': sys.argv[1]}).session.catalog)"
    )
    _, printed = run_script(script, str(tmp_path))
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        assert printed == [namespace.session.catalog]


@pytest.mark.parametrize("value", ["", "{", "not json", "[" * 100_000, b"\xff"])
async def test_a_value_that_is_not_json_is_named(tmp_path: Path, value: str | bytes) -> None:
    file = tmp_path / "journal"

    async def spoil(table: str, key: str) -> None:
        async with open_journal(file, "copy", RUN) as journal:
            await journal.put(("tables", "a", 1))
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(f"UPDATE {table} SET value = ? WHERE key = ?", (value, key))

    await spoil("entries", "a")
    async with open_journal(file, "copy", RUN) as journal:
        with pytest.raises(InvalidInputError, match=rf"{file}: .* entries, row stage='tables' key='a' is not JSON"):
            await journal.entries("tables")
    await spoil("meta", "run")
    with pytest.raises(InvalidInputError, match=rf"journal {file}: the value in table meta, row key='run' is not JSON"):
        async with open_journal(file, "copy", RUN):
            pass
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE meta SET value = '[1]' WHERE key = 'run'")
    with pytest.raises(InvalidInputError, match="its run is no JSON object"):
        async with open_journal(file, "copy", RUN):
            pass


ORDERS = TableId(["hive", "sales", "orders"])


@pytest.mark.parametrize(
    ("to", "copy"),
    [
        *((None, "hive.sales.orders"), ("lake", "lake.hive.sales.orders"), (["a.b"], "$a.b$hive$sales$orders")),
        *((NamespaceId(["x", "y"]), "x.y.hive.sales.orders"), ({"hive": "lake"}, "lake.sales.orders")),
        *(({"hive": ""}, "sales.orders"), ({"": "lake"}, "lake.hive.sales.orders")),
        *(({"hive": "a", "hive.sales": "b.c"}, "b.c.orders"), (lambda id: [id.name], "$orders")),
    ],
)
def test_ids_follow_the_rules(to: To, copy: str) -> None:
    assert IdMapping.parse(to).table(ORDERS) == TableId(copy)


def test_rules_rename_ids_and_copies_are_traced_back() -> None:
    mapping = IdMapping.parse({"Hive": "Lake"}, "lower")
    assert mapping.table(TableId(["Hive", "Sales", "Orders"])) == ("Lake", "sales", "orders")
    assert mapping.namespace(NamespaceId(["Hive", "Sales"])) == ("Lake", "sales")
    assert IdMapping.parse(None, lambda name: f"{name}_").table(TableId(["a", "b"])) == ("a_", "b_")
    mapping = IdMapping.parse({"spark": "lake"})
    with pytest.raises(InvalidInputError, match="no rule of `to` applies"):
        mapping.table(ORDERS)
    assert mapping.namespace(ORDERS.parent) is None
    with pytest.raises(InvalidInputError, match="appears twice"):
        IdMapping.parse({"a.b": "x", "a$b": "y"})
    with pytest.raises(InvalidInputError, match="rename 'upper'"):
        IdMapping.parse(None, "upper")  # type: ignore[arg-type]
    mapping = IdMapping.parse({"hive": "lake", "hive.sales": "lake.s", "other": "elsewhere"})
    assert [*mapping.sources(TableId(["lake", "s", "t"]))] == [("hive", "sales", "t"), ("hive", "s", "t")]
    # A table of hive.sales becomes one of lake.s, so no table becomes one of lake.sales.
    assert [*mapping.sources(TableId(["lake", "sales", "t"]))] == []
    assert mapping.images(NamespaceId(["hive"])) == [("lake",), ("lake", "s")]
    assert mapping.images(NamespaceId()) == [("lake", "s"), ("lake",), ("elsewhere",)]
    assert not IdMapping.parse(lambda id: id).is_invertible


T = TableId(["a$b", "t"])
ROWS = [
    Row(T, "registered", location="s3://b/t"),
    Row(TableId(["u"]), "registered", location="s3://b/u", fields={"size": 3}),
    Row(NamespaceId(["n"]), "denied", "not <allowed>", attempts=2),
    Row("s3://b/v\n", "failed", "broken", fields={"size": "large"}),
]


def test_rows_survive_json_and_arrow() -> None:
    assert [Row.from_dict(json.loads(json.dumps(row.to_dict()))) for row in ROWS] == ROWS
    with pytest.raises(ValueError, match="outcome"):
        Row(T, "x", fields={"outcome": "y"})
    report = Report("discover", ROWS, dry_run=True)
    values = json.loads(report.to_json())
    assert values["dry_run"] and [Row.from_dict(row) for row in values["rows"]] == ROWS
    table = report.to_arrow()
    assert table["names"].to_pylist() == [["a$b", "t"], ["u"], ["n"], None]
    assert table["size"].to_pylist() == [None, "3", None, '"large"']
    assert Report("discover", []).to_arrow().num_rows == 0


def test_a_report_counts_and_its_text_and_html_list_the_problems() -> None:
    report = Report("discover", ROWS, seconds=2.5, calls=7, p50=0.002, p95=0.2, counters={"requests": 9}, resumed=1)
    assert dict(report.counts) == {"registered": 2, "denied": 1, "failed": 1}
    assert [row.outcome for row in report.problems] == ["denied", "failed"]
    assert report.line() == (
        "discover: 2 registered, 1 denied, 1 failed in 2.5 s (7 calls, p50 2 ms, p95 0.2 s; 9 requests); "
        "1 from the journal"
    )
    report = Report("audit", ROWS, problem_outcomes=frozenset({"failed", "denied"}))
    assert repr(report).splitlines()[1:] == ["  denied   n  not <allowed>", "  failed   s3://b/v\ufffd  broken"]
    html = report._repr_html_()
    assert "not &lt;allowed&gt;" in html and html.index("not &lt;") < html.index("registered</span></td>")
    assert "<table>" not in Report("audit", [])._repr_html_()
    report = Report("copy", [Row(TableId([f"t{n}"]), "failed", "x") for n in range(25)])
    assert repr(report).endswith("... and 5 more") and "and 5 more" in report._repr_html_()


def test_a_failure_becomes_a_row_and_errors_of_a_report_are_raised() -> None:
    failure = Failure(429, message="slow down")
    failure.attempts = 4
    assert failure_row(T, with_failure(ThrottlingError("Throttled"), failure)).attempts == 4
    assert failure_row(T, PermissionDeniedError("no")).outcome == "denied"
    assert len(Report("copy", ROWS[:2]).raise_for_errors().rows) == 2
    with pytest.raises(InvalidTableStateError, match=r"^discover: 2 of 4 failed: not <allowed>; broken$"):
        Report("discover", ROWS).raise_for_errors()


def test_progress_never_exceeds_its_total() -> None:
    steps: list[tuple[int, int]] = []
    with start("copy", progress=lambda finished, total: steps.append((finished, total))) as run:
        run.expect(2)
        run.advance()
        run.advance(2)
    assert steps == [(1, 2), (3, 3)]


async def test_a_namespace_says_where_operations_on_whole_lakes_are(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path)}
    with Namespace.connect("dir", properties) as sync_ns:
        async with AsyncNamespace.connect("dir", properties) as ns:
            assert not hasattr(ns, "find") and not hasattr(sync_ns, "find")
            with pytest.raises(AttributeError, match=r"from lance_ns_async import fleet; fleet\.copy\(ns"):
                _ = ns.copy_to  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"fleet import sync as fleet; fleet\.audit\(ns"):
            _ = sync_ns.audit  # type: ignore[attr-defined]
        with pytest.raises(InvalidInputError, match=r"find: for a Namespace, use .*fleet import sync"):
            _ = fleet.find(sync_ns, "**")  # type: ignore[arg-type]

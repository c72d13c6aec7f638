"""What conditions and narrow columns save: the bytes and requests of a store that counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose

from benchmarks.engines import ways
from benchmarks.engines.lake import Job, fill
from benchmarks.support.progress import progress
from benchmarks.support.report import table
from lance_ns_async import Namespace
from tests.fakes.s3 import FakeS3
from tests.fakes.server import Answer, Received

KEPT = 0.01
"""The share of the rows that the condition keeps, in the middle of each table."""

NOTES = f"""\
The tables are in an S3 on this machine, which counts the requests and the bytes of its responses, without headers. The
condition is on `id`, by which each table is sorted, without an index, and keeps {KEPT:.0%} of the rows. Each row of the
report includes the calls of the catalog and the opens of the tables, as in the first.
"""


class CountingS3(FakeS3):
    """An S3 that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.sent = 0

    def handle(self, request: Received) -> Answer:
        answer = super().handle(request)
        self.calls += 1
        self.sent += len(answer.body) if request.method != "HEAD" else 0
        return answer


def opened(job: Job) -> Iterator[ways.Found]:
    """Opens the tables, and reads no rows."""
    with Namespace.connect("dir", job.properties) as ns:
        ns.open_many(f"{job.namespace}.*").raise_for_errors()
    yield 0, 0.0


def jobs(everything: Job, rows: int) -> Mapping[str, tuple[Callable[[Job], Iterator[ways.Found]], Job]]:
    """Returns what is read, and how, by the name of its row."""
    first = rows // 2
    narrow = replace(everything, columns=["id", "x0"])
    few = replace(narrow, where=f"id >= {first} AND id < {first + max(1, int(rows * KEPT))}")
    return {
        "only open the tables": (opened, everything),
        "`scan_many`: all rows and columns": (ways.by_scan, everything),
        "`scan_many`: two columns": (ways.by_scan, narrow),
        "`scan_many`: two columns and a condition": (ways.by_scan, few),
        "`ns.sql`: `SELECT *`": (ways.by_sql, everything),
        "`ns.sql`: an aggregate of one column": (ways.by_sql, narrow),
        "`ns.sql`: the same with the condition": (ways.by_sql, few),
        "loop with pylance: two columns and the condition": (ways.loop, few),
        "DuckDB by hand: the aggregate with the condition": (ways.duckdb_by_hand, few),
    }


def report(tables: int, rows: int, columns: int) -> str:
    """Fills a store, reads it, and returns the report."""
    with CountingS3() as s3:
        everything = Job({"root": "s3://lake/root", **{f"storage.{key}": it for key, it in s3.options.items()}})
        fill(everything, tables, rows, columns)
        lines = list(measure(s3, jobs(everything, rows)))
    progress("")
    title = f"Read from a store: {tables:,} tables of {rows:,} rows and {columns} columns"
    return "\n\n".join([title, table(("read", "rows", "requests", "MB", "of all"), lines), NOTES])


def measure(
    s3: CountingS3, work: Mapping[str, tuple[Callable[[Job], Iterator[ways.Found]], Job]]
) -> Iterator[Sequence[str]]:
    """Yields the rows of the report; reads of the same rows must find the same."""
    totals: dict[int, float] = {}
    whole = 0
    for name, (way, job) in work.items():
        progress(name)
        s3.calls = s3.sent = 0
        found = list(way(job))
        count, total = sum(it for it, _ in found), sum(it for _, it in found)
        if not isclose(totals.setdefault(count, total), total):
            raise SystemExit(f"{name}: {total} instead of {totals[count]}")
        whole = whole or (s3.sent if count else 0)
        share = f"{s3.sent / whole:.3f}" if whole else ""
        yield name, f"{count:,}", f"{s3.calls:,}", f"{s3.sent / 1e6:.2f}", share

"""What conditions and narrow columns save: the bytes and requests of a store that counts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose

from benchmarks.engines.lake import Job, fill
from benchmarks.engines.ways import Way, by_scan, by_sql, duckdb_by_hand, loop
from benchmarks.support.progress import progress
from benchmarks.support.report import table
from tests.fakes.s3 import FakeS3
from tests.fakes.server import Answer, Received

NOTES = """\
The tables are in an S3 on this machine, which counts requests and the bytes of its responses, without headers. The
calls of the catalog and the opens of the tables count, too. `id` has an index, a BTREE, and the condition on it keeps a
hundredth of the rows. `n1` has none, and keeps a thousandth.
"""


class CountingS3(FakeS3):
    """An S3 that counts."""

    sent = 0

    def handle(self, request: Received) -> Answer:
        answer = super().handle(request)
        self.sent += 0 if request.method == "HEAD" else len(answer.body)
        return answer


def reads(all_columns: Job, rows: int) -> Mapping[str, tuple[Way, Job]]:
    """Returns the ways to read by their names; the first reads everything."""
    narrow = replace(all_columns, columns=["x0"])
    few = replace(narrow, where=f"id >= {rows // 2} AND id < {rows // 2 + rows // 100}")
    some = replace(narrow, where="n1 = 7")
    return {
        "`scan_many`: all rows and columns": (by_scan, all_columns),
        "`scan_many`: `x0`": (by_scan, narrow),
        "`scan_many`: `x0`, condition on `n1`": (by_scan, some),
        "`scan_many`: `x0`, condition on `id`": (by_scan, few),
        "`ns.sql`: all rows and columns": (by_sql, all_columns),
        "`ns.sql`: `sum(x0)`": (by_sql, narrow),
        "`ns.sql`: `sum(x0)`, condition on `n1`": (by_sql, some),
        "`ns.sql`: `sum(x0)`, condition on `id`": (by_sql, few),
        "loop with pylance: `x0`, condition on `id`": (loop, few),
        "DuckDB by hand: `sum(x0)`, condition on `id`": (duckdb_by_hand, few),
    }


def report(stored: Sequence[int], columns: int) -> str:
    """Fills a store with a number of tables, of a number of rows, reads it in all ways, and returns the report."""
    tables, rows = stored
    with CountingS3() as s3:
        job = Job({"root": "s3://lake/root", **{f"storage.{name}": it for name, it in s3.options.items()}})
        fill(job, tables, rows, columns, indexed=True)
        lines = table(("read", "rows", "requests", "bytes", "of all"), list(count(s3, reads(job, rows))))
    return f"Read from a store: {tables:,} tables of {rows:,} rows and {columns} columns\n\n{lines}\n\n{NOTES}"


def count(s3: CountingS3, ways: Mapping[str, tuple[Way, Job]]) -> Iterator[Sequence[str]]:
    """Yields the rows of the report; ways with the same condition must find the same."""
    totals, most = dict[str | None, tuple[int, float]](), 0
    for name, (way, job) in ways.items():
        progress(name)
        s3.clear()
        s3.sent = 0
        rows, total = map(sum, zip((0, 0.0), *way(job), strict=True))
        expected = totals.setdefault(job.where, (rows, total))
        if rows != expected[0] or not isclose(total, expected[1]):
            raise SystemExit(f"{name}: {rows, total} instead of {expected}")
        most = most or s3.sent
        yield name, f"{rows:,}", f"{len(s3.requests):,}", f"{s3.sent / 1e6:.2f} MB", f"{s3.sent / most:.4f}"
    progress("")

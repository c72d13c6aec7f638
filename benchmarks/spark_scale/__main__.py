"""Resolve, plan and read up to 100,000 tables with local Spark: `python -m benchmarks.spark_scale`.

The tables have ten rows each. A stub of Iceberg's REST catalog answers each describe after 20 ms. Each number of tables
is measured in a process of its own, which then reads the tables with a loop of bare pylance, too: the floor of what
Spark's tasks can reach. The results are written as Markdown and as a plot.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import lance
import pyarrow as pa

from benchmarks.support.memory import peak

ROWS = 10
SAMPLE = 2_000
"""Maximum number of tables that the loop reads."""
LINKS = 50_000
"""Maximum number of tables that share files; file systems limit the links of a file."""
LATENCY = 0.02
RESULTS = Path("benchmarks/results")


@dataclass(frozen=True, slots=True)
class Result:
    """The figures for one number of tables, in seconds and bytes."""

    tables: int
    describe: float
    """The prefetch without versions."""
    pin: float
    """The opening of all datasets for their versions, columns and sizes."""
    plan: float
    """The creation of the DataFrame and its physical plan."""
    read: float
    """The job that reads all rows."""
    driver: int
    """Peak memory of the driver's Python process."""
    plan_bytes: int
    """Size of the whole plan as it is sent to Spark."""
    task_bytes: int
    """Size of the largest part of a task."""
    floor: float
    """Seconds to read one table by bare pylance, in a loop."""

    @property
    def each(self) -> float:
        """Seconds to read one table in one core."""
        return self.read * (os.cpu_count() or 1) / self.tables


def build(lake: Path, tables: int) -> None:
    """Creates tables that share the content of their files by hard links."""
    for number in range(tables):
        original = lake / f"original{number // LINKS}"
        if number % LINKS == 0:
            lance.write_dataset(pa.table({"id": range(ROWS), "text": ["row"] * ROWS}), original)
        shutil.copytree(original, lake / f"t{number}.lance", copy_function=os.link)


@contextmanager
def catalog(lake: Path) -> Iterator[str]:
    """Runs the stub, and provides its endpoint."""
    command = [sys.executable, "-m", "benchmarks.connector.stub", str(lake)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None and stub.stdin is not None
        endpoint = stub.stdout.readline().strip()
        urllib.request.urlopen(f"{endpoint}/stub?latency={LATENCY}", data=b"").close()
        yield endpoint
        stub.stdin.close()


def measure(endpoint: str, lake: Path, tables: int) -> Result:
    """Measures one number of tables in this process."""
    from lance_ns_async.spark import LocationResolver
    from lance_ns_async.spark.local import local_spark
    from lance_ns_async.spark.read.reading import Entry, Plan

    spark = local_spark("benchmark")
    spark.range(8).repartition(8).mapInArrow(lambda batches: batches, "id long").count()
    ids = [("db", f"t{number}") for number in range(tables)]
    with LocationResolver.connect("iceberg", {"endpoint": endpoint}) as resolver:
        started = perf_counter()
        resolver.prefetch(ids, pin_versions=False, on_error="raise", progress=False)
        described = perf_counter()
        locations = resolver.prefetch(ids, on_error="raise", progress=False)
        pinned = perf_counter()
        frame = locations.dataframe(spark)
        frame.explain("simple")
        planned = perf_counter()
        rows = frame.groupBy().sum("id").collect()[0][0]
        read = perf_counter()
    if rows != tables * sum(range(ROWS)):
        raise SystemExit(f"the rows differ: {rows}")
    entries = [
        Entry(str(id), at.location, at.version or 0, at.rows or 0, at.fragments or 0) for id, at in locations.items()
    ]
    plan = Plan(entries, 4 * (os.cpu_count() or 1), "_table")
    sizes = [len(part.encode()) for part in plan.split()]
    most = peak()
    spark.stop()
    return Result(
        tables,
        described - started,
        pinned - described,
        planned - pinned,
        read - planned,
        most,
        len(plan.encode()),
        max(sizes),
        read_in_a_loop(lake, min(tables, SAMPLE)),
    )


def read_in_a_loop(lake: Path, tables: int) -> float:
    """Returns the seconds to open and read one table with pylance."""
    started = perf_counter()
    rows = sum(lance.dataset(str(lake / f"t{number}.lance")).to_table().num_rows for number in range(tables))
    if rows != tables * ROWS:
        raise SystemExit(f"the rows differ: {rows}")
    return (perf_counter() - started) / tables


def report(results: Sequence[Result]) -> str:
    """Returns the figures as a Markdown table."""
    lines = [
        (
            "| tables | describe | pin | plan | read | read, a table and core | pylance loop, a table | ratio "
            "| driver | plan, largest task |"
        ),
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for it in results:
        seconds = " | ".join(f"{value:.1f} s" for value in (it.describe, it.pin, it.plan, it.read))
        each = f"{it.each * 1e3:.2f} ms | {it.floor * 1e3:.2f} ms | {it.each / it.floor:.2f}"
        sizes = f"{it.plan_bytes / 1e3:,.0f} kB, {it.task_bytes / 1e3:,.0f} kB"
        lines.append(f"| {it.tables:,} | {seconds} | {each} | {it.driver / 2**20:.0f} MiB | {sizes} |")
    return "\n".join([*lines, ""])


def plot(results: Sequence[Result], path: Path) -> None:
    """Draws the seconds of each step by the number of tables."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name in ("describe", "pin", "plan", "read"):
        axes.plot([it.tables for it in results], [getattr(it, name) for it in results], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="tables", ylabel="seconds")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    """Measures, and writes the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scale", description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[5_000, 20_000, 100_000], help="numbers of tables")
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        endpoint, lake = options.cell
        print(json.dumps(asdict(measure(endpoint, Path(lake), *options.tables))))
        return
    results = []
    with tempfile.TemporaryDirectory() as folder, catalog(Path(folder)) as endpoint:
        build(Path(folder), max(options.tables))
        for tables in options.tables:
            command = [sys.executable, "-m", "benchmarks.spark_scale", "--cell", endpoint, folder]
            output = subprocess.run(
                [*command, "--tables", str(tables)], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            results.append(Result(**json.loads(output.splitlines()[-1])))
            print(report(results[-1:]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spark_scale.md").write_text(report(results))
    plot(results, RESULTS / "spark_scale.svg")


if __name__ == "__main__":
    main()

"""Creates many small tables in a catalog, resolves them, and reads all of them in one Spark job.

The catalog is chosen as in `lance-ns`, also by environment variables and profiles. Without one, a directory catalog is
used. A later run reuses existing tables.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import lance
import numpy as np
import pyarrow as pa
from rich.console import Console

from lance_ns_async import Namespace, NamespaceId, TableId
from lance_ns_async.cli.catalog import Catalog, choose
from lance_ns_async.spark import LocationResolver, Locations
from lance_ns_async.spark.java import user_cache

DIMENSION = 32
WRITERS = 8
SAMPLE = 50
"""Number of tables that are described one by one, for a comparison."""

console = Console(record=True, width=76, highlight=False, markup=False, soft_wrap=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--tables", type=int, default=1000, help="number of tables")
    parser.add_argument("--rows", type=int, default=300, help="number of rows in each table")
    parser.add_argument("--namespace", default="demo", help="namespace of the tables, created if missing")
    parser.add_argument("--dir", type=Path, help="directory of the embedded catalog; by default in the user's cache")
    parser.add_argument("--fresh", action="store_true", help="drop the tables of earlier runs first")
    parser.add_argument("--no-spark", action="store_true", help="do not read the tables with Spark")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write the output to a picture of a terminal")
    parser.add_argument("-i", "--impl", help="kind of the catalog")
    parser.add_argument("-p", "--property", action="append", metavar="KEY=VALUE", help="property of the catalog")
    parser.add_argument("-P", "--profile", help="profile of `lance-ns`")
    return parser.parse_args()


def print_step(name: str, seconds: float, remark: str = "") -> None:
    console.print(f"{name:<13}{seconds:>8.3f} s  {remark}".rstrip())


def rows_of(id: TableId, count: int) -> pa.Table:
    """Returns rows with vectors; equal ids have equal rows."""
    random = np.random.default_rng(list(str(id).encode()))
    values = pa.array(random.uniform(-1, 1, count * DIMENSION).astype(np.float32))
    return pa.table(
        {
            "id": range(count),
            "text": [f"note {number} of {id}" for number in range(count)],
            "vector": pa.FixedSizeListArray.from_arrays(values, DIMENSION),
            "score": random.random(count),
        }
    )


def create_namespaces(ns: Namespace, id: NamespaceId) -> None:
    for depth in range(1, len(id) + 1):
        # The catalog may not permit the creation of a level that already exists.
        if not ns.exists(NamespaceId(id[:depth])):
            ns.create_namespace({"id": list(id[:depth]), "mode": "ExistOk"})


def location(id: TableId) -> str:
    """Returns the folder of a table below the root of the embedded catalog."""
    return f"{id.parent}/{id.name}"


def write_rows(path: Path, data: pa.Table) -> None:
    # A run that was killed may have left files.
    shutil.rmtree(path, ignore_errors=True)
    lance.write_dataset(data, path)


def create_tables(ns: Namespace, ids: Sequence[TableId], rows: int, *, root: Path | None, fresh: bool) -> None:
    """Creates the missing tables.

    With the `root` of the embedded catalog, the rows of all tables are written first, and registered by a few commits.
    Otherwise, the tables of a run that was killed are created again with `fresh`.
    """
    start = perf_counter()
    create_namespaces(ns, ids[0].parent)
    existing = ns.describe_tables(ids).tables
    with ThreadPoolExecutor(WRITERS) as pool:
        if fresh:
            # The rows in the embedded catalog are replaced below.
            remove = ns.drop_table if root is None else ns.deregister_table
            list(pool.map(lambda id: remove({"id": list(id)}), existing))
            existing = {}
        missing = [id for id in ids if id not in existing]
        if root is None:
            list(pool.map(lambda id: ns.write(id, rows_of(id, rows)), missing))
        else:
            list(pool.map(lambda id: write_rows(root / location(id), rows_of(id, rows)), missing))
            ns.register_tables([{"id": list(id), "location": location(id)} for id in missing]).raise_for_errors()
    print_step("create", perf_counter() - start, f"{len(missing):,} tables; {len(existing):,} existed already")


def resolve(ns: Namespace, ids: Sequence[TableId]) -> Locations:
    resolver = LocationResolver(ns)
    report = resolver.prefetch(ids, pin_versions=False, on_error="raise").report
    print_step("resolve", report.seconds, f"calls: {report.calls:,}; {len(ids) / report.seconds:,.0f} tables/s")
    sample = ids[:SAMPLE]
    start = perf_counter()
    for id in sample:
        ns.describe_table({"id": list(id)})
    seconds = (perf_counter() - start) / len(sample) * len(ids)
    print_step("(one by one)", seconds, f"{seconds / report.seconds:,.1f} x as long, projected from {len(sample)}")
    # The resolver keeps the locations, so this call only opens the tables.
    locations = resolver.prefetch(ids, on_error="raise")
    print_step("open", locations.report.seconds, "each table once, to pin its version")
    return locations


def read(locations: Locations, rows: int) -> bool:
    """Reads all rows in one Spark job; returns whether they are those that were written."""
    from pyspark.sql import functions as f

    from lance_ns_async.spark.local import local_spark

    start = perf_counter()
    spark = local_spark("demo")
    print_step("start Spark", perf_counter() - start)
    try:
        start = perf_counter()
        frame = locations.dataframe(spark)
        counts = frame.agg(f.count_distinct("_table"), f.count("text"), f.avg("score")).collect()[0]
        print_step("read", perf_counter() - start, "one DataFrame of all tables, one job")
    finally:
        spark.stop()
    console.print(f"\nSpark read {counts[1]:,} rows of {counts[0]:,} tables; mean score {counts[2]:.4f}")
    expected = (len(locations), len(locations) * rows)
    if (counts[0], counts[1]) == expected:
        return True
    print(f"{expected[1]:,} rows of {expected[0]:,} tables are expected; use --fresh", file=sys.stderr)
    return False


def write_svg(path: Path, title: str) -> None:
    """Writes what was printed as a picture; without the fonts, which would be loaded from elsewhere."""
    picture = console.export_svg(title=title, unique_id="demo")
    path.write_text(re.sub(r" *@font-face \{.*?\}\n", "", picture, flags=re.DOTALL), encoding="utf-8")


def main() -> int:
    options = parse_arguments()
    root = (options.dir or user_cache() / "demo").expanduser() / "catalog"
    embedded = Catalog("dir", {"root": str(root)})
    catalog = choose(options.impl, options.property, options.profile, None) or embedded
    parent = NamespaceId(options.namespace)
    # The number of rows is a part of the names, so that runs with other numbers have other tables.
    ids = [parent.table(f"notes_{options.rows}_{number:05}") for number in range(options.tables)]
    console.print(f"{options.tables:,} Lance tables of {options.rows:,} rows in {catalog.impl}, namespace {parent}\n")
    with catalog.open() as ns:
        create_tables(ns, ids, options.rows, root=root if catalog is embedded else None, fresh=options.fresh)
        locations = resolve(ns, ids)
    succeeded = options.no_spark or read(locations, options.rows)
    if options.svg:
        write_svg(options.svg, "nox -s demo" + (" -- --no-spark" if options.no_spark else ""))
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())

"""Directory catalogs with many tables of the same columns, on a disk or in an S3."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from benchmarks.support.progress import progress
from lance_ns_async import Namespace

LAKE, WARM = "lake", "warm"
"""The namespace of the tables, and one with a single table, which loads all modules before a measurement."""

VALUES = 1_000
"""The columns of whole numbers, apart from `id`, have this many different values."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is read: the tables of one namespace, some columns of them, and the rows that a condition selects."""

    properties: Mapping[str, str]
    """Those of the directory catalog."""
    namespace: str = LAKE
    columns: list[str] | None = None
    """The columns with `x0`, which is added up; None for all columns."""
    where: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """Returns the storage options of the tables."""
        prefix = "storage."
        return {name.removeprefix(prefix): it for name, it in self.properties.items() if name.startswith(prefix)}


def rows_of(number: int, rows: int, columns: int) -> pa.Table:
    """Returns the rows of a table: sorted ids, a text, and as many whole numbers as floating-point numbers."""
    random = np.random.default_rng(number)
    more = columns - 2
    values: dict[str, Any] = {"id": np.arange(rows), "text": [f"the text of row {row}" for row in range(rows)]}
    values |= {f"n{column}": random.integers(0, VALUES, rows) for column in range(more // 2)}
    values |= {f"x{column}": random.random(rows) for column in range(more - more // 2)}
    return pa.table(values)


def fill(job: Job, tables: int, rows: int, columns: int) -> None:
    """Writes the tables with pylance, and registers all at once; only those of the lake count."""
    root = job.properties["root"]
    names = [(WARM, "t0"), *((LAKE, f"t{number:05}") for number in range(tables))]

    def write(number: int) -> None:
        table = rows_of(number, rows, columns)
        lance.write_dataset(table, f"{root}/data/{'_'.join(names[number])}.lance", storage_options=job.options)

    with ThreadPoolExecutor(8) as threads:
        for done, _ in enumerate(threads.map(write, range(len(names)))):
            progress(f"write {done}/{tables} tables")
    with Namespace.connect("dir", job.properties) as ns:
        ns.create_namespace({"id": [LAKE]})
        ns.create_namespace({"id": [WARM]})
        requests = [{"id": [*id], "location": f"data/{'_'.join(id)}.lance"} for id in names]
        ns.register_tables(requests).raise_for_errors()
    progress("")

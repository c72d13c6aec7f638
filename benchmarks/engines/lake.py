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

VALUES = 1_000
"""The columns of whole numbers, apart from `id`, have this many different values."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is read: the tables of one namespace, some columns of them, and the rows that a condition selects."""

    properties: Mapping[str, str]
    columns: list[str] | None = None
    """The columns, with `x0`, which is added up; None for all columns."""
    where: str | None = None
    namespace: str = "lake"
    """`lake`, or `warm` with a single table, which loads all modules before a measurement."""

    @property
    def options(self) -> dict[str, str]:
        prefix = "storage."
        return {name.removeprefix(prefix): it for name, it in self.properties.items() if name.startswith(prefix)}

    def open(self, location: str) -> lance.LanceDataset:
        return lance.dataset(location, storage_options=self.options)


def fill(job: Job, tables: int, rows: int, columns: int, *, indexed: bool = False) -> None:
    """Writes the tables with pylance, and registers all at once; an index is on `id`."""
    ids = [("warm", "t"), *(("lake", f"t{number:05}") for number in range(tables))]

    def write(number: int) -> None:
        random = np.random.default_rng(number)
        values: dict[str, Any] = {"id": np.arange(rows), "text": [f"the text of row {row}" for row in range(rows)]}
        for column in range((columns - 2) // 2):
            values |= {f"n{column}": random.integers(0, VALUES, rows), f"x{column}": random.random(rows)}
        location = f"{job.properties['root']}/data/{'_'.join(ids[number])}.lance"
        dataset = lance.write_dataset(pa.table(values), location, storage_options=job.options)
        if indexed:
            dataset.create_scalar_index("id", "BTREE")

    progress(f"write {tables:,} tables")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(len(ids))))
    with Namespace.connect("dir", job.properties) as ns:
        ns.create_namespace({"id": ["lake"]})
        ns.create_namespace({"id": ["warm"]})
        ns.register_tables([{"id": id, "location": f"data/{'_'.join(id)}.lance"} for id in ids]).raise_for_errors()

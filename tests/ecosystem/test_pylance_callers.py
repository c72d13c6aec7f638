"""pylance and its namespace in the environments of libraries: running loops, many threads, and threads of Rust."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import lance
import lance_namespace
import pyarrow as pa
from lance_namespace import CountTableRowsRequest, DescribeTableRequest

from lance_ns_async import Namespace
from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.pylance_tables import MORE, ROWS, ids, opened, write

THREADS = 12


async def test_inside_a_running_loop(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]
    write(ns, id)
    await asyncio.to_thread(write, ns, id, MORE, mode="append")
    assert ids(ns, id) == [1, 2, 3, 4, 5]


def test_many_threads_of_one_namespace(ns: Namespace, home: list[str]) -> None:
    shared = [*home, "shared"]
    write(ns, shared)
    start = threading.Barrier(THREADS)

    def use(number: int) -> list[int]:
        start.wait()
        own = [*home, f"own{number}"]
        write(ns, own, pa.table({"id": [number]}))
        write(ns, own, pa.table({"id": [-number]}), mode="append")
        assert ids(ns, shared) == [1, 2, 3]
        return ids(ns, own)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(use, range(THREADS))) == [[-number, number] for number in range(THREADS)]
    assert len(list(ns.iter_tables(home))) == 1 + THREADS


def test_rows_that_come_from_another_table_while_they_are_written(ns: Namespace, home: list[str]) -> None:
    """The writer reads rows in a thread of Rust, in which their source calls the namespace."""
    source, target = [*home, "source"], [*home, "target"]
    write(ns, source)
    asked_by: list[threading.Thread] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            asked_by.append(threading.current_thread())
            yield from opened(ns, source).to_batches()

    write(ns, target, pa.RecordBatchReader.from_batches(ROWS.schema, rows()))
    assert ids(ns, target) == sorted([1, 2, 3] * 3)
    assert threading.main_thread() not in asked_by


def test_a_function_over_rows_may_call_the_namespace(ns: Namespace, home: list[str]) -> None:
    """It runs in the threads of Lance's runtime, in which pylance itself cannot open a dataset."""
    id, other = [*home, "t"], [*home, "other"]
    write(ns, id)
    write(ns, other, MORE)

    @lance.batch_udf(output_schema=pa.schema([("others", pa.int64())]))
    def others(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert ns.exists(other) and ns.describe_table(DescribeTableRequest(id=other)).location
        result = ns.count_table_rows(CountTableRowsRequest(id=other)).count
        return pa.RecordBatch.from_pydict({"others": [result] * batch.num_rows})

    opened(ns, id).add_columns(others)
    assert opened(ns, id).to_table()["others"].to_pylist() == [2, 2, 2]


def test_by_class_path(catalog: Catalog, home: list[str]) -> None:
    ns = lance_namespace.connect(catalog.class_path, dict(catalog.properties))
    assert isinstance(ns, Namespace)
    with ns:
        write(ns, [*home, "t"])
        again = lance_namespace.connect(catalog.class_path, dict(catalog.properties))
        assert again.namespace_id() == ns.namespace_id()
        assert lance.dataset(namespace_client=again, table_id=[*home, "t"]).to_table() == ROWS

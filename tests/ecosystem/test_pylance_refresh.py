"""Credentials that expire while pylance reads and writes: the catalog is called once for each expiry."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from time import monotonic
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_ns_async import Namespace
from tests.ecosystem.pylance_tables import ROWS, opened, write
from tests.ecosystem.vending import LEAD, LIFE, Impl, Key, VendingLake, vending
from tests.support.budget import thorough, with_usual

log = logging.getLogger(__name__)

READERS = 64
PERIOD = LIFE - LEAD
"""Milliseconds for which Lance uses a key."""

Open = Callable[[Namespace, list[str]], Sequence[Any]]


@pytest.fixture(params=with_usual(["polaris", "unity"], "polaris"))
def lake(request: pytest.FixtureRequest) -> Iterator[VendingLake]:
    impl: Impl = request.param
    with vending(impl) as running:
        yield running


def one_dataset(ns: Namespace, id: list[str]) -> Sequence[Any]:
    return [opened(ns, id)] * READERS


def one_session(ns: Namespace, id: list[str]) -> Sequence[Any]:
    session = lance.Session()  # type: ignore[attr-defined]  # it is public, and not typed so
    return [opened(ns, id, session=session) for _ in range(READERS)]


def by_the_namespace(ns: Namespace, id: list[str]) -> Sequence[Any]:
    return [ns.open(id) for _ in range(READERS)]


def each_its_own(ns: Namespace, id: list[str]) -> Sequence[Any]:
    return [opened(ns, id) for _ in range(READERS)]


def read_on(datasets: Sequence[Any], enough: Callable[[], bool]) -> int:
    """Reads all datasets concurrently and repeatedly; returns the number of reads."""
    start = Barrier(len(datasets))

    def read(dataset: Any) -> int:
        start.wait()
        reads = 0
        while not enough():
            assert dataset.to_table() == ROWS
            reads += 1
        return reads

    with ThreadPoolExecutor(len(datasets)) as pool:
        return sum(pool.map(read, datasets))


def until_over(lake: VendingLake, key: Key) -> Callable[[], bool]:
    return lambda: not lake.keys.is_good(key.id)


def assert_refused(lake: VendingLake, uri: str, key: Key) -> None:
    with pytest.raises(ValueError, match="ExpiredToken"):
        lance.dataset(uri, storage_options=lake.s3.opened_by(key))


@pytest.mark.parametrize(
    ("lake", "open_all"),
    [
        pytest.param("polaris", one_dataset, marks=thorough),
        pytest.param("polaris", one_session, marks=thorough),
        # It opens all in one session, too; the test of a pickled dataset has its refresh.
        pytest.param("polaris", by_the_namespace, marks=thorough),
        ("polaris", each_its_own),
        pytest.param("unity", each_its_own, marks=thorough),
    ],
    indirect=["lake"],
)
def test_many_readers_cost_one_call_an_expiry(lake: VendingLake, open_all: Open) -> None:
    with lake.connect() as ns:
        id = list(lake.id)
        write(ns, id)
        datasets = open_all(ns, id)
        before = len(lake.keys.issued)
        over = until_over(lake, lake.keys.issued[-1])
        began = monotonic()
        reads = read_on(datasets, lambda: over() and len(lake.keys.issued) > before + 1)
        seconds, keys = monotonic() - began, lake.keys.issued[before:]
        log.info("%s, %s: %s reads, %s calls in %.1f s", lake.impl, open_all.__name__, reads, len(keys), seconds)
        assert len(keys) >= 2 and all(late.issued_at - early.issued_at >= PERIOD for early, late in pairwise(keys))
        assert lake.key_requests == len(lake.keys.issued)
        assert lake.s3.refused == 0 and keys[0].id in lake.s3.shown
        assert_refused(lake, datasets[0].uri, lake.keys.issued[0])


def test_a_write_that_takes_longer_than_its_key_lives(lake: VendingLake) -> None:
    with lake.connect() as ns:
        id = list(lake.id)
        write(ns, id)
        first, source = lake.keys.issued[-1], opened(ns, id)

        def rows() -> Iterator[pa.RecordBatch]:
            yield from ROWS.to_batches()
            while lake.keys.is_good(first.id):
                yield from source.to_table().to_batches()

        written = write(ns, id, pa.RecordBatchReader.from_batches(ROWS.schema, rows()), mode="append")
        assert written.version == 2 and written.count_rows() > 2 * ROWS.num_rows
        assert_refused(lake, written.uri, first)


def test_a_pickled_dataset_has_no_credentials_provider(lake: VendingLake) -> None:
    with lake.connect() as ns:
        id = list(lake.id)
        write(ns, id)
        dataset = ns.open(id)
        copy, copied_ns = pickle.loads(pickle.dumps((dataset, ns)))
        assert copy.to_table() == ROWS
        read_on([dataset], until_over(lake, lake.keys.issued[-1]))
        with pytest.raises(Exception, match="ExpiredToken"):
            copy.to_table()
        with copied_ns:
            assert opened(copied_ns, id).to_table() == ROWS

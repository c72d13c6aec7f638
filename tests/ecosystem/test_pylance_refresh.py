"""Credentials that expire while pylance reads and writes, and a catalog that vends no new ones."""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from threading import Barrier
from time import monotonic
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest, DescribeTableResponse
from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError, ThrottlingError

from lance_ns_async import Namespace
from tests.ecosystem.pylance_tables import ROWS, opened, write
from tests.ecosystem.vending import LEAD, LIFE, Impl, Key, VendingLake, vending
from tests.support.budget import with_usual

log = logging.getLogger(__name__)
READERS = 64
PERIOD = LIFE - LEAD  # Milliseconds for which Lance uses a key
Open = Callable[[Namespace, list[str]], Sequence[Any]]


@pytest.fixture(params=with_usual(["polaris", "unity"], "polaris"))
def lake(request: pytest.FixtureRequest) -> Iterator[VendingLake]:
    impl: Impl = request.param
    with vending(impl) as running:
        yield running


def one_session(ns: Namespace, id: list[str]) -> Sequence[Any]:
    session = lance.Session()  # type: ignore[attr-defined]  # it is public, and not typed so
    return [opened(ns, id, session=session) for _ in range(READERS)]


WAYS: Mapping[str, Open] = {
    "one dataset": lambda ns, id: [opened(ns, id)] * READERS,
    "one session": one_session,
    # It opens all in one session, too; the test of a pickled dataset has its refresh.
    "by the namespace": lambda ns, id: [ns.open(id) for _ in range(READERS)],
    "each its own": lambda ns, id: [opened(ns, id) for _ in range(READERS)],
}


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
    ("lake", "way"),
    with_usual([*(("polaris", way) for way in WAYS), ("unity", "each its own")], ("polaris", "each its own")),
    indirect=["lake"],
)
def test_many_readers_cost_one_call_an_expiry(lake: VendingLake, way: str) -> None:
    with lake.connect() as ns:
        id = list(lake.id)
        write(ns, id)
        datasets = WAYS[way](ns, id)
        before = len(lake.keys.issued)
        over = until_over(lake, lake.keys.issued[-1])
        began = monotonic()
        reads = read_on(datasets, lambda: over() and len(lake.keys.issued) > before + 1)
        seconds, keys = monotonic() - began, lake.keys.issued[before:]
        log.info("%s, %s: %s reads, %s calls in %.1f s", lake.impl, way, reads, len(keys), seconds)
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


FEW_READERS = 16
ATTEMPTS = 2
MEMORY = 1.0  # Seconds for which a refusal is repeated without a call


class CountingNamespace:
    """The namespace as Lance uses it, with a count of describes and of requests for credentials."""

    def __init__(self, ns: Namespace) -> None:
        self._ns = ns
        self.times = 0

    def describe_table(self, request: Any) -> DescribeTableResponse:
        self.times += 1
        return self._ns.describe_table(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ns, name)


@pytest.fixture(params=with_usual(["polaris", "unity"], "polaris"))
def short_lived(request: pytest.FixtureRequest) -> Iterator[VendingLake]:
    """Its keys expire so soon that Lance requests another one for each use."""
    impl: Impl = request.param
    with vending(impl, life=LEAD) as running:
        yield running


@pytest.mark.parametrize(
    ("status", "asks", "attempts", "message"),
    [
        # Unity Catalog is first requested to grant write access, and then read access.
        (403, 4, 2, r"Permission denied: cat\$a\$t \(\w+: HTTP 403"),
        (429, 16, ATTEMPTS, r"Throttled: cat\$a\$t \(\w+: HTTP 429.*; 2 attempts"),
        (503, 4, ATTEMPTS, r"Service unavailable: cat\$a\$t \(\w+: HTTP 503.*; 2 attempts"),
    ],
)
def test_a_refusal_is_requested_once_a_second_and_passes(
    short_lived: VendingLake, status: int, asks: int, attempts: int, message: str
) -> None:
    with short_lived.connect(max_retries=str(ATTEMPTS - 1)) as ns:
        namespace = CountingNamespace(ns)
        dataset = written(short_lived, namespace)
        short_lived.catalog.clear()
        namespace.times = 0
        short_lived.s3.shown.clear()
        short_lived.refuse(status)
        began = monotonic()
        with ThreadPoolExecutor(FEW_READERS) as pool:
            errors = list(pool.map(refusal, [dataset] * FEW_READERS))
        seconds = monotonic() - began
        figures = short_lived.impl, status, short_lived.key_requests, FEW_READERS, seconds
        log.info("%s, %s: %s requests for %s reads in %.1f s", *figures)
        assert short_lived.key_requests <= attempts * (1 + seconds / MEMORY)
        assert FEW_READERS < namespace.times <= FEW_READERS * asks
        assert all(re.search(message, text) for text in errors), errors
        assert not short_lived.s3.shown
        short_lived.catalog.heal()
        assert rows_in_the_end(dataset) == ROWS


@pytest.mark.parametrize(("status", "error"), [(403, PermissionDeniedError), (429, ThrottlingError)])
def test_without_lance_callers_get_the_original_error(
    short_lived: VendingLake, status: int, error: type[LanceNamespaceError]
) -> None:
    with short_lived.connect(max_retries="0") as ns:
        written(short_lived, ns)
        short_lived.refuse(status)
        with pytest.raises(error, match=r"cat\$a\$t "):
            ns.describe_table(DescribeTableRequest(id=list(short_lived.id), vend_credentials=True))
        with pytest.raises(error, match=r"cat\$a\$t "):
            ns.open(short_lived.id)


def test_a_dataset_needs_its_namespace_open(short_lived: VendingLake) -> None:
    with short_lived.connect() as ns:
        dataset, ours = written(short_lived, ns), ns.open(short_lived.id)
    assert "it is closed; connect anew" in refusal(dataset)
    assert ours.to_table() == ROWS


def written(short_lived: VendingLake, ns: Any) -> Any:
    write(ns, list(short_lived.id))
    dataset = opened(ns, list(short_lived.id))
    assert dataset.to_table() == ROWS
    return dataset


def refusal(dataset: Any) -> str:
    with pytest.raises(ValueError, match="NamespaceCredentialsProvider") as caught:
        dataset.to_table()
    return str(caught.value)


def rows_in_the_end(dataset: Any) -> Any:
    """Returns the rows that are read after the refusal is forgotten."""
    until = monotonic() + 30.0
    while monotonic() < until:
        with suppress(ValueError):
            return dataset.to_table()
    return None

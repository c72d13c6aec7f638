"""A catalog that vends no new credentials: the calls it receives, the errors of pylance, and the recovery."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
from lance_namespace import DescribeTableRequest, DescribeTableResponse
from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError, ThrottlingError

from lance_ns_async import Namespace
from tests.ecosystem.pylance_tables import ROWS, opened, write
from tests.ecosystem.vending import LEAD, Impl, VendingLake, vending
from tests.support.budget import with_usual

log = logging.getLogger(__name__)

READERS = 16
ATTEMPTS = 2
MEMORY = 1.0
"""Seconds for which a refusal is repeated without a call."""
PATIENCE = 30.0


class Asked:
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
def lake(request: pytest.FixtureRequest) -> Iterator[VendingLake]:
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
    lake: VendingLake, status: int, asks: int, attempts: int, message: str
) -> None:
    with lake.connect(max_retries=str(ATTEMPTS - 1)) as ns:
        namespace = Asked(ns)
        dataset = written(lake, namespace)
        lake.catalog.clear()
        namespace.times = 0
        lake.s3.shown.clear()
        lake.refuse(status)
        began = monotonic()
        with ThreadPoolExecutor(READERS) as pool:
            errors = list(pool.map(refusal, [dataset] * READERS))
        seconds = monotonic() - began
        log.info("%s, %s: %s requests for %s reads in %.1f s", lake.impl, status, lake.key_requests, READERS, seconds)
        assert lake.key_requests <= attempts * (1 + seconds / MEMORY)
        assert READERS < namespace.times <= READERS * asks
        assert all(re.search(message, text) for text in errors), errors
        assert not lake.s3.shown
        lake.catalog.heal()
        assert rows_in_the_end(dataset) == ROWS


@pytest.mark.parametrize(("status", "error"), [(403, PermissionDeniedError), (429, ThrottlingError)])
def test_without_lance_callers_get_the_original_error(
    lake: VendingLake, status: int, error: type[LanceNamespaceError]
) -> None:
    with lake.connect(max_retries="0") as ns:
        written(lake, ns)
        lake.refuse(status)
        with pytest.raises(error, match=r"cat\$a\$t "):
            ns.describe_table(DescribeTableRequest(id=list(lake.id), vend_credentials=True))
        with pytest.raises(error, match=r"cat\$a\$t "):
            ns.open(lake.id)


def test_a_dataset_needs_its_namespace_open(lake: VendingLake) -> None:
    with lake.connect() as ns:
        dataset, ours = written(lake, ns), ns.open(lake.id)
    assert "it is closed; connect anew" in refusal(dataset)
    assert ours.to_table() == ROWS


def written(lake: VendingLake, ns: Any) -> Any:
    write(ns, list(lake.id))
    dataset = opened(ns, list(lake.id))
    assert dataset.to_table() == ROWS
    return dataset


def refusal(dataset: Any) -> str:
    """Returns the error of a refused read."""
    with pytest.raises(ValueError, match="NamespaceCredentialsProvider") as caught:
        dataset.to_table()
    return str(caught.value)


def rows_in_the_end(dataset: Any) -> Any:
    """Returns the rows that are read after the refusal is forgotten."""
    until = monotonic() + PATIENCE
    while monotonic() < until:
        with suppress(ValueError):
            return dataset.to_table()
    return None

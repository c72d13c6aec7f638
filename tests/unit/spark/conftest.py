"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lance_ns_async.spark import LocationResolver
from tests.fakes.iceberg import FakeIceberg
from tests.support.spark import Lake, lake_in, resolver_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_in(tmp_path) as lake:
        yield lake


@pytest.fixture
def resolver(lake: Lake) -> LocationResolver:
    return LocationResolver(lake.namespace)


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        yield server


@pytest.fixture
def remote(server: FakeIceberg) -> Iterator[LocationResolver]:
    with resolver_of(server) as resolver:
        yield resolver

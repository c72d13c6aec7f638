"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.hive3 import FakeHive
from tests.support.thrift_client import NAMES


@pytest.fixture
def server() -> Iterator[FakeHive]:
    with FakeHive() as server:
        for name in NAMES:
            server.add_database("hive", name)
        yield server

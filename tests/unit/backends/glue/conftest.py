"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.glue import FakeGlue
from tests.support.glue import add_other_table


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeGlue]:
    with FakeGlue() as server:
        yield server


@pytest.fixture
def server(shared: FakeGlue) -> FakeGlue:
    return add_other_table(shared)

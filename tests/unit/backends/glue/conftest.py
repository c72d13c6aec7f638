"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.glue import FakeGlue
from tests.support.glue import add_other_table, forget_aws


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_aws(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeGlue]:
    with FakeGlue() as server:
        yield server


@pytest.fixture
def server(shared: FakeGlue) -> FakeGlue:
    return add_other_table(shared)

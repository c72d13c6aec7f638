"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.lake import Lake, lake


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        await opened.create()
        yield opened

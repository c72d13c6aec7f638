"""A directory catalog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lance_ns_async import AsyncNamespace


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as opened:
        await opened.create_namespace(["s"])
        yield opened

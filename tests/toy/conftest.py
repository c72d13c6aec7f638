"""The site of the toy, with the fixtures of the contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lance_ns_async import registry
from tests.contract.conftest import applies, cascading, home, nested, ns, room
from tests.contract.site import Site
from tests.toy.fake import FakeShelf

__all__ = ["applies", "cascading", "home", "nested", "ns", "room"]

ROW = registry.BackendEntry(
    "tests.toy.shelf.backend",
    "ShelfBackend",
    "Shelf",
    "A shelf.",
    {"endpoint": "https://shelf.example.com", "root": "lake"},
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setitem(registry.BACKENDS, "shelf", ROW)
    with FakeShelf() as server:
        yield Site("shelf", {"endpoint": server.url, "root": tmp_path.as_uri()})

"""A catalog of each kind, a separate namespace for each test, and common fixtures of the packages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lance_ns_async import Namespace
from tests.ecosystem.catalogs import TRIED, USUAL, Catalog, Diary, Start, running, serve_rest
from tests.servers.catalogs import CATALOGS
from tests.support.budget import with_usual

_numbers = itertools.count()


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    with ExitStack() as stack:
        yield cache(lambda impl: stack.enter_context(CATALOGS[impl](tmp_path_factory.mktemp(impl))))


@pytest.fixture(scope="session", params=with_usual(sorted(TRIED), *USUAL))
def catalog(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, start: Start
) -> Iterator[Catalog]:
    with running(request.param, tmp_path_factory.mktemp(request.param), start) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def rest(catalog: Catalog) -> Iterator[Mapping[str, str]]:
    """Provides the properties of a `rest` namespace for the catalog behind a gateway."""
    with serve_rest(catalog) as properties:
        yield properties


@pytest.fixture
def home(catalog: Catalog) -> list[str]:
    """Returns the names of a namespace for tables that no other test uses."""
    id = [*catalog.above, f"home{next(_numbers):03}"]
    with catalog.connect() as namespace:
        namespace.create_namespace({"id": id})
    return id


@pytest.fixture
def ns(catalog: Catalog) -> Iterator[Namespace]:
    with catalog.connect() as namespace:
        yield namespace


@pytest.fixture
def db(catalog: Catalog) -> Iterator[Any]:
    """Provides lancedb's sync connection, which needs environment variables."""
    from tests.ecosystem.lancedb_tables import connected

    with connected(catalog) as db:
        yield db


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")

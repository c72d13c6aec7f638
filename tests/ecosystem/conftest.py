"""A catalog of each kind, and in it a namespace of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.ecosystem.catalogs import Catalog, running

_numbers = itertools.count()

CATALOGS = ["dir", "glue", "hive3", "iceberg", "polaris", "unity"]
"""Those that run as they are; what stands for the others is held to the same by the contract."""


@pytest.fixture(scope="session", params=CATALOGS)
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with running(request.param, tmp_path_factory.mktemp(request.param)) as catalog:
        yield catalog


@pytest.fixture
def home(catalog: Catalog) -> list[str]:
    """The names of a namespace for tables that no other test uses."""
    id = [*catalog.above, f"home{next(_numbers):03}"]
    with catalog.connect() as namespace:
        namespace.create_namespace({"id": id})
    return id

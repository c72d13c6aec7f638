"""A catalog behind `lance-ns serve`, for tools that only use REST."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.ecosystem.catalogs import Catalog
from tests.support.budget import with_usual
from tests.support.gateway import serve

TOKEN = "0penlake"

on_served = pytest.mark.parametrize("catalog", with_usual(["dir", "hive3", "glue"], "dir"), indirect=True)
"""For tests of catalogs behind the gateway, which is the same for all."""


@contextmanager
def served(catalog: Catalog) -> Iterator[Mapping[str, str]]:
    """Returns the properties of a `rest` namespace for the catalog."""
    variables = {f"LANCE_NS_PROPERTY_{name.replace('.', '__')}": value for name, value in catalog.properties.items()}
    environment = {**os.environ, **variables, "LANCE_NS_IMPL": catalog.impl, "LANCE_NS_TOKEN": TOKEN}
    with serve(environment=environment) as (server, url):
        assert url
        yield {"uri": url, "header.x-lance-token": TOKEN}
        server.terminate()
        assert server.communicate() == ("", "")
        assert server.returncode == 0

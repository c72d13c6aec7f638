"""AWS Glue and its STS: moto with catalogs and pages, as in the tests' fake."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.glue import FakeGlue


@contextmanager
def glue(directory: Path) -> Iterator[FakeGlue]:
    """Runs a Glue Data Catalog with one database, `demo`, whose tables are in the directory.

    It is empty at the beginning; catalog and tables are removed at the end.
    """
    with tempfile.TemporaryDirectory(dir=directory.resolve(), prefix="glue-") as tables, FakeGlue() as server:
        server.add_database("", "demo", location=Path(tables).as_uri())
        yield server

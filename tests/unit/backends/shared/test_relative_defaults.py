"""Catalogs whose default location for a table is relative: nothing is written to the working directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, TableId
from tests.fakes.glue import FakeGlue
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.rest import FakeRest
from tests.support.lake import stream

ROWS = pa.table({"id": [1, 2, 3]})

Catalog = AbstractContextManager[tuple[str, Mapping[str, str], list[str]]]
"""A catalog's name, the properties of a connection, and the id of a new table."""


@contextmanager
def glue() -> Iterator[tuple[str, Mapping[str, str], list[str]]]:
    with FakeGlue() as server:
        server.add_database("", "db", location="db.db")
        yield "glue", server.properties, ["db", "t"]


@contextmanager
def polaris() -> Iterator[tuple[str, Mapping[str, str], list[str]]]:
    with FakePolaris() as server:
        server.add_namespace("lake", ["db"], {"location": "db.db"})
        yield "polaris", server.properties, ["lake", "db", "t"]


@contextmanager
def lakekeeper() -> Iterator[tuple[str, Mapping[str, str], list[str]]]:
    with FakeLakekeeper(base="db.db") as server:
        server.add_namespace(["db"])
        yield "lakekeeper", server.properties, ["db", "t"]


@contextmanager
def rest() -> Iterator[tuple[str, Mapping[str, str], list[str]]]:
    with FakeRest(base="db.db") as server:
        server.namespaces["db",] = {}
        yield "rest", {"uri": server.url}, ["db", "t"]


@pytest.mark.parametrize("catalog", [glue, polaris, lakekeeper, rest])
async def test_relative_default_location(
    catalog: Callable[[], Catalog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with catalog() as (impl, properties, id):
        async with AsyncNamespace.connect(impl, properties) as ns:
            for work in (
                lambda: ns.declare_table({"id": id}),
                lambda: ns.create_table({"id": id}, stream(ROWS)),
                lambda: ns.session.staging().begin(TableId(id), "create", lambda _: ROWS.schema),
            ):
                with pytest.raises(
                    (err.InvalidInputError, err.InvalidTableStateError), match=r"db\$t.*'db\.db.* is relative"
                ):
                    await work()
                assert not await ns.exists(id)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_relative_location_is_not_written(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeRest() as server:
        server.add_table("db", "t", location="db.db/t")
        async with AsyncNamespace.connect("rest", {"uri": server.url}) as ns:
            with pytest.raises(err.InvalidTableStateError, match=r"'db.db/t' is relative"):
                await ns.session.staging().begin(TableId(["db", "t"]), mode, lambda _: ROWS.schema)

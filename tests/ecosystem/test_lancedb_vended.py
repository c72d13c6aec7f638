"""lancedb on an S3 that accepts only keys that the catalog has vended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.lancedb_tables import ROWS, async_connected, connected, ids
from tests.fakes.polaris import FakePolaris
from tests.fakes.s3 import FakeS3
from tests.fakes.unity import FakeUnity

FOR_EVER = 4_000_000_000_000
HOME = ["lake", "sales"]


def place(s3: FakeS3) -> dict[str, str]:
    """Returns the properties by which Lance finds the storage, without a key. lancedb opens the storage before it
    requests keys, so these must be enough for that."""
    return {f"storage.{name}": value for name, value in s3.options.items() if "key" not in name}


@contextmanager
def _unity(s3: FakeS3) -> Iterator[Catalog]:
    keys = {"access_key_id": "VENDED", "secret_access_key": "hush", "session_token": "token"}
    with FakeUnity(catalog="lake", credentials={"aws_temp_credentials": keys, "expiration_time": FOR_EVER}) as server:
        yield Catalog("unity", {**server.properties, "root": "s3://lake", **place(s3)})


@contextmanager
def _polaris(s3: FakeS3) -> Iterator[Catalog]:
    config = {
        "s3.access-key-id": "VENDED",
        "s3.secret-access-key": "hush",
        "s3.session-token": "token",
        "s3.session-token-expires-at-ms": str(FOR_EVER),
    }
    with FakePolaris(base="s3://lake", vends=[{"prefix": "s3://lake", "config": config}]) as server:
        server.add_catalog("lake")
        yield Catalog("polaris", {**server.properties, **place(s3)})


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    # Without keys, the client must not look for other ones.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with FakeS3() as server:
        yield server


@pytest.fixture(params=[_polaris, _unity], ids=["polaris", "unity"])
def catalog(request: pytest.FixtureRequest, s3: FakeS3) -> Iterator[Catalog]:
    with request.param(s3) as catalog:
        yield catalog


def keys_shown(s3: FakeS3) -> set[str]:
    """Returns the owners of the data requests that the storage received."""
    shown = [re.search(r"Credential=(\w+)/", r.headers.get("Authorization", "")) for r in s3.requests if "/_" in r.path]
    return {key[1] if key else "" for key in shown}


def test_a_table_lives_and_ends_by_them(catalog: Catalog, s3: FakeS3) -> None:
    with connected(catalog) as db:
        db.create_namespace(HOME)
        db.create_table("t", ROWS, namespace_path=HOME)
        table = db.open_table("t", namespace_path=HOME)
        table.add([{"id": 10, "vector": [10.0, 0.0]}])
        assert ids(table.search([9.6, 0.0]).limit(2).to_list()) == [9, 10]
        assert table.to_lance().count_rows() == 11
        assert db.create_table("t", ROWS[:3], namespace_path=HOME, mode="overwrite").count_rows() == 3
        db.drop_table("t", namespace_path=HOME)
        assert db.list_tables(HOME).tables == []
    assert keys_shown(s3) == {"VENDED"}


async def test_an_async_table_lives_by_them(catalog: Catalog, s3: FakeS3) -> None:
    async with async_connected(catalog) as db:
        await db.create_namespace(HOME)
        await db.create_table("t", ROWS, namespace_path=HOME)
        table = await db.open_table("t", namespace_path=HOME)
        await table.add(ROWS)
        assert await table.count_rows() == 20
    assert keys_shown(s3) == {"VENDED"}

"""Locations: only unambiguous ones are registered, and others are never deleted."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError, LanceNamespaceError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.model import same_place
from lance_ns_async.registry import load
from tests.contract.conftest import Parent
from tests.contract.site import Site
from tests.support.errors import catch

DATA = pa.table({"id": [1, 2, 3]})

RELATIVE = ["data/t", "t"]
"""Relative to the reader's working directory; in a directory catalog, relative to its root."""

NOWHERE = [
    *("", "  ", " /data/t", "/data/t ", "/data/\nt", "/data/t\x1b[2J", "file:///data/t\x00", "/data/\u2028t"),
    *("../outside/t", "./t", "data/../t", "/data/../t", "/data/./t", "//data/t", "/data//t", "s3://b//t", "s3://b/t//"),
    *("file:///data/%2e%2e/t", "file:///data/%252E%252E/t", "s3://bucket/a/%2E./t", "s3://bucket/a%2F..%2Ft"),
    *("file:///data/..\\t", "s3://bucket/a\\b", "file:///data/t?x=1", "s3://bucket/t#f"),
    *("/", "file:///", "file:", "s3://", "s3://bucket", "s3://bucket/", "s3:///t", "gs://bucket/"),
    *("abfss://container@account.dfs.core.windows.net/", "file://host/..", "file://host/data/t", "file://localhost/t"),
    *("~", "~/t", "~ada/t", "C:\\data\\t", "C:/data/t", "c:t"),
    *("file:t", "s3:/bucket/t", "S3://bucket/t", "FILE:///data/t", "flie:///data/t", "s3//bucket:t"),
    *("https://x/y", "http://x/y", "hdfs://host:8020/data/t", "s3n://bucket/t", "abfs://c@a/t", "dbfs://data/t"),
]
"""Invalid locations from careless or hostile users, which are sent to no catalog."""


async def test_what_is_no_place_of_its_own_is_refused(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    id = parent.table("t")
    for location in NOWHERE if site.can.relative_locations else [*RELATIVE, *NOWHERE]:
        for work in (
            ns.declare_table({"id": id, "location": location}),
            ns.register_table({"id": id, "location": location}),
            ns.register_table({"id": id, "location": location, "mode": "Overwrite"}),
        ):
            await catch(InvalidInputError, work, "its location")
    assert not await ns.exists(id)


async def test_a_namespace_is_put_at_no_such_place_either(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    id = [*parent.id[:-1], f"{parent.id[-1]}x"]
    for key in site.can.location_properties:
        for location in ("data/t", "s3://bucket/../t", "file://host/t", "S3://bucket"):
            with pytest.raises(InvalidInputError, match="its location"):
                await ns.create_namespace({"id": id, "properties": {key: location}})


async def test_a_location_found_relative_is_read_and_never_deleted(
    ns: AsyncNamespace, site: Site, parent: Parent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tool may have registered it; in this working directory, it is the location of somebody else's data."""
    monkeypatch.chdir(tmp_path)
    lance.write_dataset(DATA, "theirs/t")
    id = parent.table("t")
    if site.real or site.can.relative_locations or not await _planted(site, TableId(id), "theirs/t"):
        pytest.skip("nothing relative can be in this catalog")
    result = await ns.describe_table({"id": id})
    assert result.location == "theirs/t" and lance.dataset(result.location).count_rows() == 3
    await catch(InvalidTableStateError, ns.drop_table({"id": id}), "because its location 'theirs/t' is relative")
    with pytest.raises(InvalidTableStateError, match="changed, because its location 'theirs/t' is relative"):
        await ns.delete_from_table({"id": id, "predicate": "true"})
    assert await ns.exists(id) and lance.dataset("theirs/t").count_rows() == 3
    await ns.deregister_table({"id": id})
    assert lance.dataset("theirs/t").count_rows() == 3


@pytest.mark.parametrize(("location", "read"), [("s3n://b/t", "s3://b/t"), ("hdfs://h/t", "hdfs://h/t")])
async def test_tables_at_locations_of_hadoop_are_read_at_s3_and_can_be_dropped(
    ns: AsyncNamespace, site: Site, parent: Parent, location: str, read: str, caplog: pytest.LogCaptureFixture
) -> None:
    id = parent.table("t")
    if site.real or site.can.relative_locations or not await _planted(site, TableId(id), location):
        pytest.skip("no such location can be in this catalog")
    assert (await ns.describe_table({"id": id})).location == read
    if location == read:
        await ns.drop_table({"id": id})
        assert f"because Lance cannot delete data at {location}" in caplog.text and not await ns.exists(id)


async def _planted(site: Site, id: TableId, location: str) -> bool:
    """Puts a table into the catalog as another tool does; returns whether the catalog accepted it."""
    backend = load(site.impl)
    opened = backend.open(backend.settings.parse(site.properties), Caller(Policy(), backend.errors))
    try:
        return same_place((await opened.declare_table(id, location, {})).location, location)
    except LanceNamespaceError:
        return False
    finally:
        await opened.aclose()


async def test_the_folder_of_a_namespace_is_not_dropped_with_a_table(
    ns: AsyncNamespace, site: Site, parent: Parent, tmp_path: Path
) -> None:
    if not site.properties.get("root", "file:").startswith("file:"):
        pytest.skip("this catalog holds nothing in local folders, or in its own alone")
    folder = tmp_path / "folder"
    lance.write_dataset(DATA, folder)
    (folder / "of somebody else.parquet").write_bytes(b"PAR1")
    (folder / "orders").mkdir()
    (folder / "orders" / "part-0.parquet").write_bytes(b"PAR1")
    id = parent.table("t")
    await ns.register_table({"id": id, "location": str(folder)})
    await catch(InvalidTableStateError, ns.drop_table({"id": id}), "would delete 2 folders or files under its location")
    assert await ns.exists(id)
    assert (folder / "orders" / "part-0.parquet").read_bytes() == b"PAR1" and lance.dataset(folder).count_rows() == 3

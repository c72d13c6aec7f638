"""Clients of a gateway name places below the catalog's own folders and the allowed prefixes only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, serving
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.support.gateway import send_request
from tests.support.lake import ROWS, stream


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The root of the catalog, next to folders of others."""
    lake = tmp_path / "lake"
    for folder in (lake, tmp_path / "lake-of-another", tmp_path / "home"):
        folder.mkdir()
    lance.write_dataset(ROWS, tmp_path / "home/secret.lance")
    return lake


@pytest.fixture
def iceberg() -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        yield server


def tree(folder: Path) -> Sequence[str]:
    return sorted(str(path) for path in folder.rglob("*"))


async def statuses(gateway: Gateway, location: str, parent: str = "n") -> set[int]:
    """Returns the statuses of a declaration and a registration at a location, which leave no table."""
    codes = set()
    for operation in ("declare", "register"):
        response = await send_request(gateway, "POST", f"/v1/table/{parent}$t/{operation}", {"location": location})
        codes.add(response.status)
        if response.status == 200:
            assert (await send_request(gateway, "POST", f"/v1/table/{parent}$t/deregister", {})).status == 200
    return codes


async def test_locations_outside_are_refused_and_untouched(lake: Path, iceberg: FakeIceberg) -> None:
    home = lake.parent
    (lake / "out").symlink_to(home / "home")
    (home / "in").symlink_to(lake)
    before = tree(home)
    async with AsyncNamespace.connect("iceberg", {"endpoint": iceberg.endpoint, "root": lake.as_uri()}) as ns:
        async with serving(ns) as gateway:
            await send_request(gateway, "POST", "/v1/namespace/n/create", {})
            calls = len(iceberg.requests)
            outside = [
                *(f"file://{home}/home/secret.lance", f"file://{home}/home/none.lance"),
                *(f"file:{home}/home/secret.lance", f"{home}/home/secret.lance", f"file://{lake}-of-another/t"),
                *(f"file://{lake}", f"file://{lake}/", f"file://{lake}/../home/secret.lance"),
                *(f"file://{lake}/%2e%2e/home/secret.lance", f"file://{lake}/%252e%252e/home/secret.lance"),
                *(f"file://{lake}//t", f"file://{lake}/out/secret.lance", f"file://{home}/in/t"),
                *(f"file://localhost{lake}/t", f"file+uring://{home}/home/t", f"{lake}/t", f"s3://{lake}/t"),
                *("s3://bucket/t", "lake/t", f"FILE://{home}/home/t", f"file:///{home}/home/t"),
                *(f"file://{lake}/./../home/t", f"file://{lake}/a/../../home/t", f"file://{lake}/%2E%2E/home/t"),
                *(f"file://{lake}/.%2e/home/t", f"file://{lake}/a/%2e%2e%2f%2e%2e%2fhome/t"),
                *(f"file://{lake}%2f..%2fhome/t", f"file://{lake}/..\\home\\t", f"file://{lake}/\0/../../home/t"),
                *(f"file://{lake}/%00/t", f"file://user@{lake}/t", f"file://127.0.0.1{lake}/t"),
                *(f"file://{home}/lake /t", f" file://{lake}/t", f"file://{home}/LAKE/t"),
                *(f"file-object-store://{home}/home/t", "file:///etc/t", "file://etc/t", "file:/etc/t", "//etc/t"),
                *("/etc/t", "%2fetc%2ft", "~/t", "..", ".", "C:\\t", "\\\\host\\share\\t", "memory://t"),
                *("http://127.0.0.1/t", "az://container/t", "abfss://container@account.dfs.core.windows.net/t"),
                *("gs://bucket/t", "hdfs://host/t", "data:,t"),
            ]
            assert len(set(outside)) > 50
            for location in outside:
                codes = await statuses(gateway, location)
                assert codes <= {400, 403}, (location, codes)
            assert len(iceberg.requests) == calls, "a refusal costs no call"
            there, missing = [
                (await send_request(gateway, "POST", "/v1/table/n$t/register", {"location": location})).json["error"]
                for location in outside[:2]
            ]
            assert there.replace("secret", "none") == missing and "--allow-location" in missing
            assert await statuses(gateway, f"file://{lake}/a/b.lance") == {200}
            assert await statuses(gateway, f"file://{lake}/a%20b") == {200}
            assert (await send_request(gateway, "POST", "/v1/table/n$own/declare", {})).status == 200
        # In this process, every location is allowed.
        assert (await ns.register_table({"id": ["n", "s"], "location": outside[0]})).location == outside[0]
    assert [path for path in tree(home) if not path.startswith(str(lake / "n"))] == before


async def test_prefixes_are_allowed_in_addition(lake: Path, iceberg: FakeIceberg) -> None:
    prefixes = ["s3://bucket/a", str(lake.parent / "home"), "s3a://other"]
    async with AsyncNamespace.connect("iceberg", {"endpoint": iceberg.endpoint, "root": lake.as_uri()}) as ns:
        async with serving(ns, allow_locations=prefixes) as gateway:
            await send_request(gateway, "POST", "/v1/namespace/n/create", {})
            for location in ("s3://bucket/a/t", f"file://{lake.parent}/home/t", "s3://other/t"):
                assert await statuses(gateway, location) == {200}, location
            for location in "s3://bucket/abc s3://bucket/a s3://buckets/a/t gs://bucket/a/t s3://other2/t".split():
                assert await statuses(gateway, location) == {403}, location
        async with serving(ns, allow_locations=None) as gateway:
            assert await statuses(gateway, "gs://anywhere/t") == {200}


@pytest.mark.parametrize("prefix", ["", "relative/folder", "s4://bucket/a", "s3:bucket"])
async def test_prefixes_are_checked_at_the_start(prefix: str) -> None:
    with pytest.raises(InvalidInputError, match="allow_locations"):
        async with serving(object(), allow_locations=[prefix]):
            pass


async def test_a_root_that_is_the_working_directory_counts(iceberg: FakeIceberg) -> None:
    async with AsyncNamespace.connect("iceberg", {"endpoint": iceberg.endpoint}) as ns, serving(ns) as gateway:
        await send_request(gateway, "POST", "/v1/namespace/n/create", {})
        own = (await send_request(gateway, "POST", "/v1/table/n$own/declare", {})).json["location"]
        assert await statuses(gateway, f"{own}-2") == {200}
        assert await statuses(gateway, "file:///etc/cron.d/t") == {403}


async def test_directories_take_relative_and_absolute_locations_below_their_root(lake: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(lake)}) as ns, serving(ns) as gateway:
        await send_request(gateway, "POST", "/v1/namespace/n/create", {})
        for location in ("a/b", f"{lake}/a/c", f"file://{lake}/a/d"):
            assert await statuses(gateway, location) == {200}, location
        for location in ("../home/t", f"file://{lake.parent}/home/t", f"{lake.parent}/home/secret.lance", "s3://b/t"):
            assert await statuses(gateway, location) <= {400, 403}, location


async def test_a_location_passes_through_two_gateways(lake: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(lake)}) as ns, serving(ns) as inner:
        properties = inner.properties
        async with AsyncNamespace.connect("rest", properties) as through, serving(through) as gateway:
            await send_request(gateway, "POST", "/v1/namespace/n/create", {})
            assert await statuses(gateway, "a/b") == {200}
            # The server in front does not know the root.
            assert await statuses(gateway, f"file://{lake}/a/b") == {403}


async def test_the_locations_of_namespaces_count(tmp_path: Path) -> None:
    with FakePolaris(base=tmp_path.as_uri()) as server:
        server.add_catalog("lake")
        async with AsyncNamespace.connect("polaris", server.properties) as ns, serving(ns) as gateway:
            await send_request(gateway, "POST", "/v1/namespace/lake$n/create", {})
            assert await statuses(gateway, f"{tmp_path.as_uri()}/lake/n/x", "lake$n") == {200}
            for location in (f"{tmp_path.as_uri()}/lake/other/x", "file:///etc/x"):
                assert await statuses(gateway, location, "lake$n") == {403}


@pytest.mark.glue
async def test_the_locations_of_glue_databases_count() -> None:
    with FakeGlue() as glue:
        glue.add_database("", "db", location="s3://bucket/db")
        glue.add_database("", "bare")
        async with AsyncNamespace.connect("glue", glue.properties) as ns, serving(ns) as gateway:
            assert await statuses(gateway, "s3://bucket/db/x", "db") == {200}
            assert await statuses(gateway, "s3://bucket/other/x", "db") == {403}
            assert await statuses(gateway, "s3://bucket/db/x", "bare") == {403}


async def test_the_locations_of_lakekeepers_namespaces_count(tmp_path: Path) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri(), also=["file://"]) as lakekeeper:
        async with AsyncNamespace.connect("lakekeeper", lakekeeper.properties) as ns, serving(ns) as gateway:
            await send_request(gateway, "POST", "/v1/namespace/n/create", {})
            assert await statuses(gateway, "file:///etc/x") == {403}


async def test_clients_do_not_place_namespaces_outside(lake: Path, iceberg: FakeIceberg, tmp_path: Path) -> None:
    async def create(gateway: Gateway, id: str, properties: dict[str, str]) -> int:
        return (await send_request(gateway, "POST", f"/v1/namespace/{id}/create", {"properties": properties})).status

    async with AsyncNamespace.connect("iceberg", {"endpoint": iceberg.endpoint, "root": lake.as_uri()}) as ns:
        async with serving(ns) as gateway:
            assert await create(gateway, "a", {"location": "file:///etc/a"}) == 403
            assert await create(gateway, "a", {"location": f"{lake.as_uri()}/a"}) == 200
    with FakeHive(tmp_path / "hive", version="4.0.1") as server:
        properties = {"uri": server.uri, "root": lake.as_uri()}
        async with AsyncNamespace.connect("hive3", properties) as ns, serving(ns) as gateway:
            assert await create(gateway, "c", {"catalog.location.uri": "file:///etc/c"}) == 403
            assert await create(gateway, "hive$d", {"database.location-uri": "file:///etc/d"}) == 403
            assert await create(gateway, "hive$d", {"database.location-uri": f"{lake.as_uri()}/d"}) == 200
    with FakePolaris(base=tmp_path.as_uri()) as polaris:
        polaris.add_catalog("lake")
        async with AsyncNamespace.connect("polaris", polaris.properties) as ns, serving(ns) as gateway:
            assert await create(gateway, "lake$n", {"location": "file:///etc/n"}) == 403


@pytest.mark.parametrize(
    "properties",
    [
        *({"aws_endpoint": "http://127.0.0.1:1"}, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
        *({"endpoint": "http://127.0.0.1:1"}, {"azure_storage_account_name": "other"}, {"account_name": "other"}),
        *({"google_application_credentials": "/etc/passwd"}, {"proxy_url": "http://127.0.0.1:1"}),
        *({"bucket": "payroll"}, {"region": "evil.example/"}, {"write.metadata.path": "file:///etc/t"}),
        {"location": "file:///etc/t"},
    ],
    ids=lambda properties: next(iter(properties)),
)
async def test_properties_do_not_redirect_the_server(properties: dict[str, str], tmp_path: Path) -> None:
    """Some catalogs use the properties of a table as its storage options, in this process, with its credentials."""
    with FakePolaris(base=tmp_path.as_uri()) as server:
        server.add_catalog("lake")
        server.add_namespace("lake", ["n"])
        async with AsyncNamespace.connect("polaris", server.properties) as ns, serving(ns) as gateway:
            target = "/v1/table/lake$n$t"
            bodies: list[tuple[str, Any]] = [
                ("declare", {"properties": properties}),
                ("create-empty", {"properties": properties}),
                ("register", {"location": f"{tmp_path.as_uri()}/lake/n/t", "properties": properties}),
            ]
            for operation, body in bodies:
                response = await send_request(gateway, "POST", f"{target}/{operation}", body)
                assert (response.status, response.code) == (403, 15), response.body
            harmless = {"region": "eu-central-1", "owner": "me", "tokenizer": "x"}
            response = await send_request(gateway, "POST", f"{target}/declare", {"properties": harmless})
            assert response.status == 200


async def test_storage_options_of_a_request_are_refused(lake: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(lake)}) as ns, serving(ns) as gateway:
        options = "storage_options=%7B%22aws_endpoint%22%3A%22http%3A%2F%2F127.0.0.1%3A1%22%7D"
        response = await send_request(gateway, "POST", f"/v1/table/t/create?{options}", stream(ROWS))
        assert (response.status, response.code) == (403, 15) and "storage_options" in response.json["error"]
        body = {"storage_options": {"aws_endpoint": "http://x"}}
        assert (await send_request(gateway, "POST", "/v1/table/t/create-empty", body)).status == 403
        assert await ns.list_tables({"id": []}) == await ns.list_tables({"id": [], "include_declared": True})


async def test_commits_of_several_operations_do_not_hide_a_location(lake: Path) -> None:
    """Such a commit is passed on to a server behind `rest` as it is."""
    async with AsyncNamespace.connect("dir", {"root": str(lake)}) as ns, serving(ns, allow_locations=None) as inner:
        properties = {**inner.properties, "data_operations": "remote"}
        async with AsyncNamespace.connect("rest", properties) as through, serving(through) as gateway:
            body = {"operations": [{"declare_table": {"id": ["t"], "location": "file:///etc/t"}}]}
            assert (await send_request(gateway, "POST", "/v1/table/batch-commit", body)).status == 403


async def test_external_blobs_are_refused(lake: Path, tmp_path: Path) -> None:
    """A blob column may name a file of the server, whose content a reader of the table would get."""
    blobs = lance.blob.blob_array([(tmp_path / "home").as_uri()])
    rows = pa.table({"b": blobs}, schema=pa.schema([lance.blob.blob_field("b")]))
    async with AsyncNamespace.connect("dir", {"root": str(lake)}) as ns, serving(ns) as gateway:
        assert (await send_request(gateway, "POST", "/v1/table/t/create", stream(rows))).status == 400
